// SPDX-License-Identifier: GPL-2.0-only
//! From the trait [`Scheduler`] to the C interface. Each function here only converts, so a host
//! treats a policy in Rust and one in C alike.
#![no_std]
#![deny(unsafe_op_in_unsafe_fn)]

extern crate alloc;

mod hints;
mod make;
mod upgrade;

pub use upgrade::Exchange;

use baton::{
    Cpu, Ctx, Events, Kicks, Pick, Placement, Refusal, Schedulable, Scheduler, Task, Wake,
};
use baton_abi::*;
use core::{
    cell::Cell,
    ffi::{c_char, c_void},
};

/// The functions of a policy, as `baton::policy!` declares it.
pub const fn ops<P: Exchange>() -> BatonPolicy {
    P::OPS
}

/// The functions of a policy that cannot be upgraded while it runs.
const fn plain<S: Scheduler>() -> BatonPolicy {
    BatonPolicy {
        abi: BATON_ABI,
        version: S::VERSION,
        events: S::EVENTS.bits(),
        language: baton_abi::BatonLanguage::Rust as u32,
        name: name(S::NAME),
        create: Some(make::create::<S>),
        destroy: Some(make::destroy::<S>),
        select_task_rq: Some(select_task_rq::<S>),
        task_new: Some(task_new::<S>),
        task_wakeup: Some(task_wakeup::<S>),
        task_preempt: Some(task_preempt::<S>),
        task_yield: Some(task_yield::<S>),
        task_restored: Some(task_restored::<S>),
        pick_next_task: Some(pick_next_task::<S>),
        newly_idle: Some(newly_idle::<S>),
        pick_refused: Some(pick_refused::<S>),
        balance: Some(balance::<S>),
        task_blocked: Some(task_blocked::<S>),
        task_dequeued: Some(task_dequeued::<S>),
        task_departed: Some(task_departed::<S>),
        task_dead: Some(task_dead::<S>),
        task_affinity_changed: Some(task_affinity_changed::<S>),
        task_prio_changed: Some(task_prio_changed::<S>),
        task_tick: Some(task_tick::<S>),
        timer: Some(timer::<S>),
        cpu_online: Some(cpu_online::<S>),
        cpu_offline: Some(cpu_offline::<S>),
        enter_idle: Some(enter_idle::<S>),
        exit_idle: Some(exit_idle::<S>),
        state: BatonStateType::NONE,
        older: BatonStateType::NONE,
        hint_type: BatonStateType::NONE,
        reply_type: BatonStateType::NONE,
        hint: None,
        reregister_prepare: None,
        reregister_init: None,
        reregister_drop: None,
        reregister_convert: None,
        reregister_take: None,
        reregister_save: None,
        reregister_load: None,
        may_have: Some(make::may_have::<S>),
    }
}

const _: () = {
    assert!(BATON_EV_BLOCKED == Events::BLOCKED.bits() && BATON_EV_TICK == Events::TICK.bits());
    assert!(BATON_EV_IDLE == Events::IDLE.bits() && BATON_EV_BALANCE == Events::BALANCE.bits());
    assert!(
        BATON_MAX_KICKS == baton::MAX_KICKS
            && BATON_KICK_PREEMPT == Kicks::PREEMPT
            && BATON_KICK_IDLE == 0
    );
};

/// The C form of a policy's name. A name that is empty, too long, or has characters other than
/// `[a-z0-9_]` is a compile-time error.
const fn name(text: &str) -> [c_char; BATON_NAME_LEN] {
    let bytes = text.as_bytes();
    assert!(
        !bytes.is_empty() && bytes.len() < BATON_NAME_LEN,
        "a policy's name has 1 to 31 characters"
    );
    let mut out = [0; BATON_NAME_LEN];
    let mut i = 0;
    while i < bytes.len() {
        let c = bytes[i];
        assert!(
            c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_',
            "a policy's name is of a-z, 0-9 and _"
        );
        out[i] = c as c_char;
        i += 1;
    }
    out
}

/// Enters the policy: `f` receives the policy, the context and the place for a slice.
#[inline(always)]
fn enter<S: Scheduler, R>(
    this: *mut c_void,
    ctx: *mut BatonCtx,
    f: impl FnOnce(&S, &Ctx<'_>, &mut u64) -> R,
) -> R {
    // SAFETY: Host-call. The host gives the pointer that `create` returned, which lives until
    // `destroy`; methods take `&S` only, and S is Sync.
    let policy = unsafe { &*this.cast::<S>() };
    // SAFETY: Host-call. The host lends its context to this call alone.
    let raw = unsafe { &mut *ctx };
    let kicks = Kicks {
        count: Cell::from_mut(&mut raw.nr_kicks),
        places: Cell::from_mut(&mut raw.kicks).as_array_of_cells(),
    };
    f(policy, &Ctx::new(kicks), &mut raw.slice)
}

#[inline(always)]
fn view(task: &BatonTask) -> Task {
    Task {
        slot: task.slot,
        pid: task.pid,
        cpu: Cpu::new(task.cpu as u32),
        nice: task.nice,
        runtime: task.runtime,
    }
}

/// Enters the policy for a call about a task.
#[inline(always)]
fn about<S: Scheduler, R>(
    this: *mut c_void,
    ctx: *mut BatonCtx,
    task: *const BatonTask,
    f: impl FnOnce(&S, &Ctx<'_>, &Task) -> R,
) -> R {
    // SAFETY: Host-call. The host gives a task that is valid during the call.
    let task = view(unsafe { &*task });
    enter::<S, R>(this, ctx, |policy, ctx, _| f(policy, ctx, &task))
}

/// The baton that a call hands over.
#[inline(always)]
fn receive(token: BatonToken) -> Option<Schedulable> {
    // SAFETY: One-baton. The host mints each token once and gives it to one call.
    unsafe { Schedulable::from_raw(token) }
}

#[inline(always)]
fn give(baton: Option<Schedulable>) -> BatonToken {
    baton.map_or(BATON_PICK_NONE, Schedulable::into_raw)
}

macro_rules! with_baton {
    ($($method:ident)*) => {$(
        extern "C-unwind" fn $method<S: Scheduler>(this: *mut c_void, ctx: *mut BatonCtx, task: *const BatonTask, token: BatonToken) {
            about::<S, _>(this, ctx, task, |policy, ctx, task| {
                if let Some(baton) = receive(token) {
                    policy.$method(ctx, task, baton);
                }
            });
        }
    )*};
}
with_baton!(task_new task_wakeup task_preempt task_yield task_restored);

macro_rules! about_task {
    ($($method:ident)*) => {$(
        extern "C-unwind" fn $method<S: Scheduler>(this: *mut c_void, ctx: *mut BatonCtx, task: *const BatonTask) {
            about::<S, _>(this, ctx, task, |policy, ctx, task| policy.$method(ctx, task));
        }
    )*};
}
about_task!(task_blocked task_dead task_affinity_changed task_prio_changed task_tick);

macro_rules! about_cpu {
    ($($method:ident)*) => {$(
        extern "C-unwind" fn $method<S: Scheduler>(this: *mut c_void, ctx: *mut BatonCtx, cpu: i32) {
            enter::<S, _>(this, ctx, |policy, ctx, _| policy.$method(ctx, Cpu::new(cpu as u32)));
        }
    )*};
}
about_cpu!(balance timer cpu_online cpu_offline enter_idle exit_idle);

macro_rules! take_back {
    ($($method:ident)*) => {$(
        extern "C-unwind" fn $method<S: Scheduler>(this: *mut c_void, ctx: *mut BatonCtx, task: *const BatonTask) -> BatonToken {
            about::<S, _>(this, ctx, task, |policy, ctx, task| give(policy.$method(ctx, task)))
        }
    )*};
}
take_back!(task_dequeued task_departed);

extern "C-unwind" fn select_task_rq<S: Scheduler>(
    this: *mut c_void,
    ctx: *mut BatonCtx,
    task: *const BatonTask,
    wake: *const BatonWake,
) -> u64 {
    // SAFETY: Host-call. The host gives a wake that is valid during the call.
    let wake = unsafe { &*wake };
    let wake = Wake {
        prev_cpu: Cpu::new(wake.prev_cpu as u32),
        waker_cpu: Cpu::new(wake.waker_cpu as u32),
        sync: wake.flags & BATON_F_SYNC != 0,
        fork: wake.flags & BATON_F_FORK != 0,
    };
    // SAFETY: Host-call. The host gives a task that is valid during the call.
    let task = view(unsafe { &*task });
    enter::<S, _>(this, ctx, |policy, ctx, allowed| {
        match policy.select_task_rq(ctx, &task, &wake) {
            Placement::Queue(cpu) => u64::from(cpu.number() as u32),
            Placement::Run { cpu, slice } => {
                *allowed = slice;
                u64::from(cpu.number() as u32) | BATON_SELECT_DIRECT
            }
        }
    })
}

extern "C-unwind" fn pick_next_task<S: Scheduler>(
    this: *mut c_void,
    ctx: *mut BatonCtx,
    cpu: i32,
    prev: *const BatonTask,
) -> u64 {
    // SAFETY: Host-call. The host gives NULL or a task that is valid during the call.
    let prev = unsafe { prev.as_ref() }.map(view);
    enter::<S, _>(this, ctx, |policy, ctx, allowed| {
        match policy.pick_next_task(ctx, Cpu::new(cpu as u32), prev.as_ref()) {
            Pick::Run { task, slice } => {
                *allowed = slice;
                task.into_raw()
            }
            Pick::Keep { slice } => {
                *allowed = slice;
                BATON_PICK_KEEP
            }
            Pick::Nothing => BATON_PICK_NONE,
        }
    })
}

extern "C-unwind" fn newly_idle<S: Scheduler>(
    this: *mut c_void,
    ctx: *mut BatonCtx,
    cpu: i32,
) -> u64 {
    enter::<S, _>(this, ctx, |policy, ctx, _| {
        give(policy.newly_idle(ctx, Cpu::new(cpu as u32)))
    })
}

extern "C-unwind" fn pick_refused<S: Scheduler>(
    this: *mut c_void,
    ctx: *mut BatonCtx,
    token: BatonToken,
    why: BatonRefusal,
) {
    let why = match why {
        BatonRefusal::Stale => Refusal::Stale,
        BatonRefusal::Foreign => Refusal::Foreign,
        BatonRefusal::NotAllowed => Refusal::NotAllowed,
        BatonRefusal::CpuOffline => Refusal::CpuOffline,
        BatonRefusal::NothingToKeep => Refusal::NothingToKeep,
    };
    enter::<S, _>(this, ctx, |policy, ctx, _| {
        if let Some(baton) = receive(token) {
            policy.pick_refused(ctx, baton, why);
        }
    });
}
