// SPDX-License-Identifier: GPL-2.0-only
//! The host of the rules: calls the policy, and checks its answers beyond what the rules check.

use crate::apart::in_policy;
use crate::story::{Kind, Report};
use crate::table::end;
use crate::world::{world, World};
use crate::Property;
use baton_abi::{
    Arg, BatonCtx, BatonFaultKind, BatonHint, BatonMethod as M, BatonTask, BATON_ABORTED,
    BATON_FAULT_NAMES, BATON_METHOD_NAMES, BATON_PICK_KEEP, BATON_PICK_NONE, BATON_SELECT_DIRECT,
};
use baton_core::{CpuState, Fault, Host, PolicyEntry, Slot, TaskState};
use std::sync::atomic::Ordering::Acquire;

pub struct Checker;

impl Host for Checker {
    /// Empty, because the world holds the CPU of a call.
    type Frame = ();

    fn call(
        &self,
        (): (),
        policy: &PolicyEntry,
        method: M,
        ctx: &mut BatonCtx,
        a: Arg<'_>,
        b: Arg<'_>,
    ) -> u64 {
        let world = world();
        let version = policy.version.load(Acquire);
        let Some(instance) = world
            .instances
            .borrow()
            .get(version.wrapping_sub(1))
            .cloned()
        else {
            return 0;
        };
        world.point();
        let me = world.me();
        let call = Call::new(&world, method, a, b);
        // Ticks at the end of a schedule are too many for a story.
        if !(world.alone.get() && method == M::TaskTick) {
            world.tell(Kind::Call, || call.text.clone());
        }
        if let Some(task) = call.refused.and_then(|token| world.task_of(token)) {
            task.answered.set(0);
        }
        let alone = call.begin(&world);
        world.note_state();
        let mut answer = in_policy(|| instance.call(method, ctx, a, b));
        // As baton_check_locks() in hosts/kernel/host.c.
        let kept = me.held.borrow().last().map(|key| world.lock_name(*key));
        if let (Some(name), true) = (kept, answer != BATON_ABORTED) {
            end(
                &world,
                BatonFaultKind::Deadlock,
                format!("the call returns while it holds {name}"),
            );
            answer = BATON_ABORTED;
        }
        me.abandoning.set(false);
        world.note_passed((
            method as u32,
            call.task.map(|task| (task.pid, task.cpu)),
            answer,
        ));
        if answer == BATON_ABORTED {
            // Releases the locks of forgotten guards, so that no CPU waits for them.
            let held = std::mem::take(&mut *me.held.borrow_mut());
            held.into_iter().for_each(|key| world.release(key));
            return answer;
        }
        call.note_given(&world);
        call.tell_answer(&world, answer);
        call.check(&world, answer, alone);
        world.point();
        answer
    }

    fn may_run(&self, slot: &Slot, cpu: i32) -> bool {
        world().may_run(slot.index(), cpu)
    }

    fn kick_all(&self) {
        world().cpus.iter().for_each(|cpu| cpu.resched.set(true));
    }

    fn evict(&self, _: i32) {
        // Only needed when a policy was stopped or has lost a CPU. The first ends the schedule; the
        // second is not simulated.
    }

    fn end_slice(&self, _: u64) {
        // The schedule decides when slices end.
    }

    fn report(&self, _: &PolicyEntry, fault: &Fault, _: Option<&CpuState>) {
        use BatonFaultKind as K;
        let world = world();
        let here = world.here.get();
        let (file, line, message) = here.map_or_else(Default::default, |here| {
            world.cpus[here].words.borrow().clone()
        });
        let report = Report {
            kind: BATON_FAULT_NAMES[fault.kind as usize],
            method: BATON_METHOD_NAMES[fault.method as usize],
            task: fault.pid,
            cpu: here,
            file,
            line,
            message,
        };
        let method = report.method;
        let (property, what) = match fault.kind {
            K::Deadlock => (Property::Deadlock, format!("{method}: {}", report.message)),
            K::LockTimeout | K::Stall | K::EndlessLoop => (
                Property::Endless,
                format!("{method} does not come to an end"),
            ),
            K::LostTask => (
                Property::LostTask,
                format!(
                    "task {} is lost in {method}: its Schedulable is gone",
                    fault.pid
                ),
            ),
            K::RefusalLoop => (
                Property::Discipline,
                format!("{method} answers what is refused, 64 times"),
            ),
            _ => (
                Property::Panic,
                format!("{} in {method}: {}", report.kind, report.message),
            ),
        };
        world.fail(property, || what, Some(report));
    }

    fn with_slots_locked<R>(&self, f: impl FnOnce() -> R) -> R {
        f()
    }
}

impl World {
    /// baton_khost_may_run(), hosts/kernel/host.c
    pub fn may_run(&self, slot: u32, cpu: i32) -> bool {
        let Some(task) = self.task_in(slot) else {
            return false;
        };
        let Some(cpu) = self.cpus.get(cpu as usize) else {
            return false;
        };
        if task.rq.get() == cpu.number {
            let has_active = self
                .cpus
                .iter()
                .any(|cpu| cpu.active.get() && task.may_use(cpu.number));
            return task.may_use(cpu.number) || !has_active;
        }
        task.may_use(cpu.number) && cpu.active.get()
    }

    /// Runs `f` with this CPU marked as being in the rules.
    pub fn in_rules<R>(&self, f: impl FnOnce() -> R) -> R {
        let me = self.me();
        for other in self.cpus.iter().filter(|other| other.inside.get()) {
            other.overlapped.set(true);
            me.overlapped.set(true);
        }
        me.inside.set(true);
        let result = f();
        me.inside.set(false);
        result
    }
}

/// A call of a method.
struct Call {
    method: M,
    text: String,
    task: Option<BatonTask>,
    prev_cpu: i32,
    /// The token that `pick_refused` gives back.
    refused: Option<u64>,
}

impl Call {
    fn new(world: &World, method: M, a: Arg<'_>, b: Arg<'_>) -> Self {
        let mut call = Self {
            method,
            text: String::new(),
            task: None,
            prev_cpu: -1,
            refused: None,
        };
        let mut what = 0;
        match (a, b) {
            (Arg::Task(task), Arg::Wake(wake)) => {
                call.task = Some(*task);
                call.prev_cpu = wake.prev_cpu;
            }
            (Arg::Task(task), _) => call.task = Some(*task),
            (Arg::Word(word), Arg::Task(prev)) => {
                what = word;
                call.task = Some(*prev);
            }
            (Arg::Word(word), _) => what = word,
            (Arg::Wake(_) | Arg::Hint(_), _) => unreachable!("never the first argument"),
        }
        call.refused = (method == M::PickRefused).then_some(what);
        if world.story.borrow().is_some() {
            call.text = match b {
                Arg::Hint(hint) => {
                    format!("{}: {}", call.describe(world, what, b), said(world, hint))
                }
                _ => call.describe(world, what, b),
            };
        }
        call
    }

    fn name(&self) -> &'static str {
        BATON_METHOD_NAMES[self.method as usize]
    }

    fn describe(&self, world: &World, what: u64, b: Arg<'_>) -> String {
        let name = self.name();
        match (self.method, self.task) {
            (M::PickNextTask, Some(prev)) => {
                format!("{name}(CPU {what}, task {} runs there)", prev.pid)
            }
            (M::SelectTaskRq, Some(task)) => {
                format!("{name}(task {}, last on CPU {})", task.pid, self.prev_cpu)
            }
            (M::TaskPrioChanged, Some(task)) => {
                format!("{name}(task {}, nice {})", task.pid, task.nice)
            }
            (M::PickRefused, _) => {
                let Arg::Word(why) = b else {
                    return name.into();
                };
                let why = [
                    "",
                    "stale",
                    "foreign",
                    "not allowed there",
                    "CPU offline",
                    "nothing to keep",
                ][why as usize % 6];
                format!("{name}({}: {why})", name_of(world, what))
            }
            (_, Some(task)) => format!("{name}(task {} on CPU {})", task.pid, task.cpu),
            _ => format!("{name}(CPU {what})"),
        }
    }

    /// Begins the call. Returns true if the call asks for a `Schedulable` that the policy must
    /// have.
    fn begin(&self, world: &World) -> bool {
        let me = world.me();
        me.questions.set(0);
        me.last_lock.take();
        me.overlapped.set(
            world
                .cpus
                .iter()
                .any(|other| other.number != me.number && other.inside.get()),
        );
        matches!(self.method, M::TaskDequeued | M::TaskDeparted) && self.is_queued(world)
    }

    /// After a call that gave the policy a `Schedulable`, notes where it may be now.
    fn note_given(&self, world: &World) {
        let gives = matches!(
            self.method,
            M::TaskNew
                | M::TaskWakeup
                | M::TaskPreempt
                | M::TaskYield
                | M::TaskRestored
                | M::PickRefused
        );
        if !gives || world.story.borrow().is_none() {
            return;
        }
        let slot = self
            .task
            .map(|task| task.slot)
            .or(self.refused.map(|token| (token as u32).wrapping_sub(1)));
        if let Some(task) = slot.and_then(|slot| world.task_in(slot)) {
            let me = world.me();
            let under = match me.last_lock.take() {
                Some(lock) => format!("which took {lock} last"),
                None => "which took no lock".into(),
            };
            let given = format!("since {} on CPU {}, {under}", self.name(), me.number);
            task.given.replace(Some(given));
        }
    }

    fn is_queued(&self, world: &World) -> bool {
        self.task
            .is_some_and(|task| world.core.slots()[task.slot as usize].state() == TaskState::Queued)
    }

    fn tell_answer(&self, world: &World, answer: u64) {
        if world.story.borrow().is_none() {
            return;
        }
        let answer = match self.method {
            M::PickNextTask | M::NewlyIdle => match answer {
                BATON_PICK_NONE => "nothing".into(),
                BATON_PICK_KEEP => "the running task goes on".into(),
                token => name_of(world, token),
            },
            M::SelectTaskRq if answer & BATON_SELECT_DIRECT != 0 => {
                format!("straight to CPU {}", answer as u32)
            }
            M::SelectTaskRq => format!("CPU {}", answer as u32),
            M::Hint if answer == 0 => return,
            M::Hint => "that is no hint of its type".into(),
            M::TaskDequeued | M::TaskDeparted if answer == 0 => "has it not".into(),
            M::TaskDequeued | M::TaskDeparted => format!("gives {} back", name_of(world, answer)),
            _ => return,
        };
        world.tell(Kind::Answer, || format!("{} -> {answer}", self.name()));
    }

    /// Checks for what the rules tolerate but a correct policy does not do.
    fn check(&self, world: &World, answer: u64, must_have: bool) {
        let name = self.name();
        match (self.method, self.task) {
            (M::SelectTaskRq, Some(task)) => {
                // The affinity cannot change meanwhile, because the task's pi_lock is held.
                let chosen = answer as u32 as i32;
                let may = |cpu: i32| {
                    world
                        .task_in(task.slot)
                        .is_some_and(|task| task.mask.get() >> (cpu & 31) & 1 != 0)
                };
                if chosen != self.prev_cpu && !may(chosen) {
                    let what = || {
                        format!(
                            "{name} puts task {} on CPU {chosen}, which it may not use",
                            task.pid
                        )
                    };
                    world.fail(Property::Discipline, what, None);
                }
            }
            (M::PickNextTask | M::NewlyIdle, None) if answer == BATON_PICK_KEEP => {
                let what = || format!("{name} lets the running task go on, and none is there");
                world.fail(Property::Discipline, what, None);
            }
            // Possible only in C, where tokens are numbers; in Rust a Schedulable can be given away
            // only once.
            (M::PickNextTask | M::NewlyIdle, _) => {
                let Some(task) = world.task_of(answer).filter(|_| answer >> 32 != 0) else {
                    return;
                };
                if task.answered.replace(answer) == answer {
                    let what = || {
                        format!(
                            "{name} answers with task {} twice, with the same token",
                            task.pid
                        )
                    };
                    world.fail(Property::OnePlace, what, None);
                }
            }
            // If other CPUs were in the rules meanwhile, one of them may have the Schedulable.
            (M::TaskDequeued | M::TaskDeparted, Some(task))
                if must_have
                    && answer == 0
                    && self.is_queued(world)
                    && !world.me().overlapped.get() =>
            {
                let what = || {
                    format!(
                        "{name} gives nothing back, but task {} is queued: its Schedulable is kept",
                        task.pid
                    )
                };
                world.fail(Property::Discipline, what, None);
            }
            _ => {}
        }
    }
}

fn said(world: &World, hint: &BatonHint) -> String {
    let thread = hint
        .thread
        .checked_sub(1)
        .and_then(|slot| world.task_in(slot));
    let thread = thread.map_or(String::new(), |task| format!(" about task {}", task.pid));
    format!("{} {:?}{thread}", hint.tag, hint.words)
}

fn name_of(world: &World, token: u64) -> String {
    world
        .task_of(token)
        .map_or_else(|| "no task".into(), |task| format!("task {}", task.pid))
}
