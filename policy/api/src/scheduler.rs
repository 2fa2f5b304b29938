// SPDX-License-Identifier: GPL-2.0-only
//! The trait that a policy implements.

use crate::{
    Asked, Cpu, Ctx, Env, Error, Events, Message, Pick, Placement, Refusal, Schedulable, State,
    Task, Wake,
};

/// A scheduling policy.
///
/// **Context.** The host calls the methods from the kernel's scheduler. They take `&self`, as
/// several CPUs are in a policy at once. A policy locks its own state ([`crate::Lock`]), per CPU
/// where possible. In the kernel, interrupts are off and the run-queue lock of the CPU named is
/// held, unless a method documents otherwise. A method must be short and cannot sleep.
///
/// **The baton.** `task_new`, `task_wakeup`, `task_preempt`, `task_yield` and `task_restored` hand
/// over the task's one [`Schedulable`]. The policy keeps it in a run queue until it picks the task
/// or the host asks for it back.
///
/// **A wrong answer** never reaches the kernel. The host checks every answer, and returns a refused
/// `Schedulable` with the reason ([`Scheduler::pick_refused`]). A panic, a deadlock, a dropped
/// `Schedulable` or a task that waits too long stops the policy; its tasks continue under the
/// host's fallback.
pub trait Scheduler: Sized + Send + Sync {
    /// Name by which tools know the policy: `[a-z0-9_]`, at most 31 characters.
    const NAME: &'static str;
    /// Version, for users and for upgrades.
    const VERSION: u32 = 1;
    /// The notifications that the policy wants. The method of an event that is left out is never
    /// called, and costs nothing.
    const EVENTS: Events = Events::ALL;

    /// Creates the policy. It may allocate up to the host's limit; later methods can allocate small
    /// blocks only (8 KiB). `Err` is a line for the user about what is wrong with the options
    /// ([`Error`]).
    fn new(env: &Env<'_>) -> Result<Self, Error>;

    /// May the policy be given this task, or all tasks that have no policy? Asked before the
    /// administrator does so by `baton load --all`, `baton attach`, `baton run` or `baton apply`.
    /// It is not asked for the children of a task, for tasks of a cgroup, or when it takes over
    /// from another policy or version. `Err` is a line for the user, and nothing is given.
    ///
    /// Process context. Other methods are called meanwhile, no lock may be taken, and nothing that
    /// they use may be changed, as a recording does not have this call.
    fn may_have(&self, asked: &Asked<'_>) -> Result<(), Error> {
        let _ = asked;
        Ok(())
    }

    /// Chooses the run queue for a woken or new task. [`Placement::Run`] runs it directly on an
    /// idle CPU for a slice, bypassing the policy's queues. Called by the waker, without the
    /// run-queue lock. Not called for a task that is bound to one CPU. A CPU that is not allowed is
    /// refused and counted, and the task stays where it ran last.
    ///
    /// A new task ([`Wake::fork`]) does not belong to the policy yet. `task_new` hands it over,
    /// also after [`Placement::Run`]. The policy's data for the slot are still those of its
    /// previous task.
    fn select_task_rq(&self, ctx: &Ctx<'_>, task: &Task, wake: &Wake) -> Placement {
        let _ = (ctx, task);
        Placement::Queue(wake.prev_cpu)
    }

    /// The task has joined the policy and is runnable, on the run queue of `task.cpu`.
    fn task_new(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable);

    /// The task woke up, on the run queue of `task.cpu`.
    fn task_wakeup(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable);

    /// The task was running and is still runnable: its slice is over, another task was picked, or a
    /// higher class took the CPU. It ran on `task.cpu`, unless it was moved by force while it ran
    /// (its affinity changed, or its CPU goes offline). In that case `task.cpu` is the CPU that it
    /// was moved to, and no other call reports the move.
    fn task_preempt(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable);

    /// Like `task_preempt`, but because the task yielded (sched_yield).
    fn task_yield(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable);

    /// The task is back on the run queue of `task.cpu` after [`Scheduler::task_dequeued`], after a
    /// change of attributes, or because the kernel could not run it where it was picked.
    fn task_restored(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable);

    /// Picks the task for `cpu` to run now. Called by `cpu` itself. `prev` is the task that was
    /// running there, if it is still runnable and belongs to this policy. The host holds its
    /// `Schedulable`, and hands it over by `task_preempt` when another task is picked.
    /// [`Pick::Keep`] lets it go on. Wrong answers come back through `pick_refused`, and the host
    /// asks again. A policy that is refused 64 times in one call is stopped.
    fn pick_next_task(&self, ctx: &Ctx<'_>, cpu: Cpu, prev: Option<&Task>) -> Pick;

    /// `cpu` will go idle because `pick_next_task` had no task for it. The policy may return a task
    /// from another queue.
    fn newly_idle(&self, ctx: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        let _ = (ctx, cpu);
        None
    }

    /// The host refused this `Schedulable` for the reason `why`. A stale one may be dropped. Any
    /// other must be kept, or the task is lost. ([`Refusal::Foreign`] does not occur in Rust.)
    fn pick_refused(&self, ctx: &Ctx<'_>, baton: Schedulable, why: Refusal);

    /// Called by each busy CPU every 16 ticks to balance the queues. [`Events::BALANCE`].
    fn balance(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let _ = (ctx, cpu);
    }

    /// The running task went to sleep. The call may come late, but before the next call about this
    /// task. [`Events::BLOCKED`].
    fn task_blocked(&self, ctx: &Ctx<'_>, task: &Task) {
        let _ = (ctx, task);
    }

    /// The host takes a queued task back for a change of its attributes or a forced move;
    /// `task_restored` follows. Returns `None` when the policy has not queued it.
    fn task_dequeued(&self, ctx: &Ctx<'_>, task: &Task) -> Option<Schedulable>;

    /// The task leaves the policy (another class, another policy, unload). Returns `None` when the
    /// policy has not queued it.
    fn task_departed(&self, ctx: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        self.task_dequeued(ctx, task)
    }

    /// The task is dead, and its slot will be reused. It was not queued.
    fn task_dead(&self, ctx: &Ctx<'_>, task: &Task) {
        let _ = (ctx, task);
    }

    /// The CPUs that the task may use have changed.
    fn task_affinity_changed(&self, ctx: &Ctx<'_>, task: &Task) {
        let _ = (ctx, task);
    }

    /// The task's nice value has changed, to `task.nice`.
    fn task_prio_changed(&self, ctx: &Ctx<'_>, task: &Task) {
        let _ = (ctx, task);
    }

    /// The kernel's tick, while the task is running. [`Events::TICK`].
    fn task_tick(&self, ctx: &Ctx<'_>, task: &Task) {
        let _ = (ctx, task);
    }

    /// The timer that this policy armed on this CPU ([`Ctx::arm_timer`]) has expired. Hard
    /// interrupt context; no run-queue lock is held.
    fn timer(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let _ = (ctx, cpu);
    }

    /// The CPU comes online. Process context, interrupts off, no run-queue lock.
    fn cpu_online(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let _ = (ctx, cpu);
    }

    /// The CPU goes offline and will not pick again. The policy should move tasks queued for it to
    /// other CPUs; the kernel moves and restores those on its run queue itself. Process context,
    /// interrupts off, no run-queue lock.
    fn cpu_offline(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let _ = (ctx, cpu);
    }

    /// The CPU goes idle. [`Events::IDLE`].
    fn enter_idle(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let _ = (ctx, cpu);
    }

    /// The CPU leaves idle. [`Events::IDLE`].
    fn exit_idle(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let _ = (ctx, cpu);
    }
}

/// A policy that receives hints from applications (Enoki 3.3), through rings in shared memory and
/// without a system call. See `docs/hints.md`.
pub trait Hints: Scheduler {
    /// The type of the hints, defined by [`message!`](crate::message).
    type Hint: Message;

    /// The type of the policy's replies ([`Ctx::reply`]). A reply names no thread.
    type Reply: Message;

    /// The task `from` sent this hint. Called at an event of that task, before any other call about
    /// the event: when the task wakes another, goes to sleep, is preempted or wakes up, and at a
    /// tick. A hint sent by a system call is delivered at once. Interrupts are off. A run-queue
    /// lock may be held, but not always that of `from.cpu`.
    ///
    /// Applications are not trusted. The host has checked that the hint has the right type, and
    /// that a thread which it names is a task of this policy and of the sender's process (of any
    /// process, if the grant allows it). The policy must check the values.
    fn hint(&self, ctx: &Ctx<'_>, from: &Task, hint: Self::Hint);
}

/// A policy whose running version can be replaced by another, with its state (Enoki 3.2).
///
/// The state is shared, not moved. The parts that change are already protected by locks or are
/// atomics, so both versions can use the state at once. The new version is created from it while
/// the old one keeps running; then one pointer is swapped, and no CPU waits. Only a state of
/// another type must be converted, and the last part of the conversion runs while all CPUs are
/// stopped.
///
/// Of these methods, only [`Upgrade::reregister_take`] may take a lock. A call that interrupts one
/// of the others may need the same lock.
pub trait Upgrade: Scheduler {
    /// The state that this version passes on and is created from: clones of
    /// [`PerCpu`](crate::PerCpu), [`PerTask`](crate::PerTask) and [`Arc`](alloc::sync::Arc), which
    /// share their contents. A type is the same in two versions if its name, its version and its
    /// layout are equal. If the meaning of a field changes, the type needs a new version.
    type State: State;

    /// The state of another version that [`Upgrade::reregister_convert`] converts; `Self::State`
    /// when there is none to convert.
    type Older: State;

    /// Passes the state on. Other calls continue meanwhile.
    fn reregister_prepare(&self) -> Self::State;

    /// Creates this version from a state. The version that passed the state on keeps running
    /// meanwhile, and stays if this fails.
    fn reregister_init(env: &Env<'_>, state: Self::State) -> Result<Self, Error>;

    /// Creates a state from that of another version, which keeps running meanwhile. Shares the
    /// parts that both have, allocates the new parts, and copies values that do not change
    /// meanwhile.
    fn reregister_convert(env: &Env<'_>, older: &Self::Older) -> Result<Self::State, Error> {
        let _ = (env, older);
        Err("this version converts no state".into())
    }

    /// Takes over the parts of a converted state that change with every call: queues and per-task
    /// values. All CPUs are stopped, and this version has not been called yet. It must not allocate
    /// much. Slots from `slots` on have never had a task, so only the values of lower slots need to
    /// be taken over.
    fn reregister_take(&self, older: &Self::Older, slots: u32) -> Result<(), Error> {
        let _ = (older, slots);
        Ok(())
    }
}
