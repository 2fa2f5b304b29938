// SPDX-License-Identifier: GPL-2.0-only
//! The functions by which a policy calls its host; each is a scheduling point. They take the
//! current CPU from [`World`](crate::world::World).

use crate::apart::{check_stack, InHost};
use crate::locks::Key;
use crate::story::Kind;
use crate::world::{try_world, World};
use crate::Property;
use baton_abi::{BatonFaultKind, BatonReplyAnswer, BATON_MAX_LOCKS};
use baton_native::{give_up, Crash, NativeHost, Panic, Table, WrongMove};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::atomic::AtomicU32;

pub static TABLE: Table = Table::of::<Checker>();

/// The world, while it answers a question of the policy.
struct Asked {
    world: Rc<World>,
    _host: InHost,
}

impl Deref for Asked {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

/// The world, if a method of the policy is running; `None` while the policy is made or destroyed.
fn inside() -> Option<Asked> {
    check_stack();
    let world =
        try_world().filter(|world| world.outside.get().is_none() && world.here.get().is_some());
    if world
        .as_ref()
        .is_some_and(|world| world.has_asked_for_ever())
    {
        drop(world);
        give_up(Crash::Endless);
        return None;
    }
    let world = world?;
    let _host = InHost::begin();
    Some(Asked { world, _host })
}

fn key(word: &AtomicU32) -> Key {
    Key::Policy(std::ptr::from_ref(word) as usize)
}

/// Ends the current call with a fault.
pub fn end(world: &World, kind: BatonFaultKind, why: String) -> bool {
    end_at(world, kind, why, None)
}

/// The same, with the file and the line where it happened.
pub fn end_at(
    world: &World,
    kind: BatonFaultKind,
    why: String,
    place: Option<(String, u32)>,
) -> bool {
    let me = world.me();
    if me.abandoning.get() {
        return false;
    }
    let (file, line) = place.unwrap_or_default();
    *me.words.borrow_mut() = (file, line, why);
    me.abandoning.set(true);
    world.core.fault_in_call(world.state(me.number), kind);
    false
}

/// The checker as a host.
struct Checker;

impl NativeHost for Checker {
    const SEES_ATOMICS: bool = true;

    fn lock(word: &AtomicU32) -> bool {
        let Some(world) = inside() else {
            // As in the kernel, where the policy must use Lock::get_mut while it is made.
            return try_world().is_none_or(|world| world.here.get().is_some());
        };
        if world.is_endless() {
            return end(
                &world,
                BatonFaultKind::LockTimeout,
                "the call goes on for ever".into(),
            );
        }
        let held = world
            .me()
            .held
            .borrow()
            .iter()
            .filter(|key| matches!(key, Key::Policy(_)))
            .count();
        if held >= BATON_MAX_LOCKS {
            return end(
                &world,
                BatonFaultKind::Deadlock,
                "a call may hold at most 31 locks at once".into(),
            );
        }
        match world.take(key(word)) {
            Ok(()) => true,
            Err(why) => end(&world, BatonFaultKind::Deadlock, why),
        }
    }

    fn try_lock(word: &AtomicU32) -> bool {
        let Some(world) = inside() else { return true };
        world.point();
        world.try_take(key(word))
    }

    fn unlock(word: &AtomicU32) -> bool {
        let Some(world) = inside() else { return true };
        let (me, key) = (world.me(), key(word));
        let last = me.held.borrow().last().copied();
        if last != Some(key) {
            return me.abandoning.get()
                || end(
                    &world,
                    BatonFaultKind::Deadlock,
                    "locks must be released in the reverse order of taking them".into(),
                );
        }
        me.held.borrow_mut().pop();
        world.release(key);
        // What a policy does next may be an atomic of its own, which the checker does not see.
        world.point();
        true
    }

    fn token_dropped(token: u64) -> bool {
        let Some(world) = inside() else { return true };
        let me = world.me();
        if me.abandoning.get() || !world.core.dropped(token, world.state(me.number)) {
            return true;
        }
        me.abandoning.set(true);
        false
    }

    /// The kernel counts and logs such a change; here it is a finding.
    fn refused(wrong: WrongMove) {
        let Some(world) = inside() else { return };
        if !world.is_left_out(Property::Discipline) {
            world.fail(Property::Discipline, || wrong.to_string(), None);
        }
    }

    fn panicked(panic: Panic) {
        let Some(world) = try_world() else { return };
        let Some(here) = world.here.get().filter(|_| world.outside.get().is_none()) else {
            return;
        };
        let me = &world.cpus[here];
        if me.abandoning.replace(true) {
            return;
        }
        let kind = if panic.is_out_of_memory() {
            BatonFaultKind::OutOfMemory
        } else {
            BatonFaultKind::Panic
        };
        *me.words.borrow_mut() = (panic.file, panic.line, panic.message);
        world.core.fault_in_call(world.state(here), kind);
    }

    /// Between two looks of one call at the clock time passes: most often little, but an interrupt
    /// or a hypervisor may come between.
    fn now() -> u64 {
        const PASSES: [u64; 4] = [1, 1_000, 20_000, 200_000];
        if let Some(world) = inside().filter(|world| world.random.once_in(8)) {
            world
                .now
                .set(world.now.get() + PASSES[world.random.below(PASSES.len())]);
        }
        try_world().map_or(0, |world| world.now.get())
    }

    fn random() -> u64 {
        inside().map_or(0, |world| {
            world.point();
            world.random.next()
        })
    }

    fn arm_timer(after_ns: u64) {
        if let Some(world) = inside() {
            world
                .me()
                .timer
                .set(Some(world.now.get().saturating_add(after_ns)));
        }
    }

    fn cancel_timer() {
        if let Some(world) = inside() {
            world.me().timer.set(None);
        }
    }

    fn read(value: u64) -> u64 {
        // What comes next may see another.
        if let Some(world) = inside() {
            world.point();
        }
        value
    }

    fn atomic() {
        let Some(world) = inside() else { return };
        let before = world.points.get();
        world.point();
        // Only where others went on in between does it matter which one.
        if world.points.get() > before + 1 {
            let at = world.site().map_or(String::new(), |at| format!(" at {at}"));
            world.tell(Kind::Atomic, || format!("uses an atomic{at}"));
        }
    }

    fn may_run(slot: u32, cpu: i32) -> bool {
        let Some(world) = inside() else { return true };
        world.point();
        world.may_run(slot, cpu)
    }

    fn cpu_online(cpu: i32) -> bool {
        let Some(world) = inside() else { return true };
        world.point();
        world.core.cpu(cpu).is_some_and(|cpu| cpu.is_online())
    }

    fn cpu_idle(cpu: i32) -> bool {
        let Some(world) = inside() else { return false };
        world.point();
        world.core.is_idle(cpu)
    }

    fn any_idle() -> bool {
        let Some(world) = inside() else { return false };
        world.point();
        world.core.is_any_idle()
    }

    fn claim_idle(cpu: i32) -> bool {
        let Some(world) = inside() else { return false };
        world.point();
        let claimed = world.core.claim_idle(cpu);
        if claimed {
            world.tell(Kind::Call, || format!("claims CPU {cpu}, which is idle"));
        }
        claimed
    }

    fn has_memory() -> bool {
        // A loop that allocates ends here: the system's allocator must not be left in the midst of
        // something.
        inside();
        true
    }

    fn reply(slot: u32, tag: u32, _: [u64; 6]) -> u32 {
        let Some(world) = inside() else {
            return BatonReplyAnswer::NoQueue as u32;
        };
        world.point();
        world.reply(slot, tag) as u32
    }
}
