// SPDX-License-Identifier: GPL-2.0-only
//! The trait that a policy implements.

use crate::{
    Cpu, Ctx, Env, Error, Events, Message, Pick, Placement, Refusal, Schedulable, State, Task, Wake,
};

/// A scheduling policy.
///
/// **Who calls.** The host, from the kernel's scheduler. Methods take `&self`: several CPUs are in
/// a policy at once, so it locks its own state ([`crate::Lock`]), per CPU where it can. In the
/// kernel, interrupts are off and the run-queue lock of the CPU named is held, except where a
/// method says otherwise; a method must be short and cannot sleep.
///
/// **The baton.** `task_new`, `task_wakeup`, `task_preempt`, `task_yield` and `task_restored` hand
/// over the task's one [`Schedulable`]. The policy keeps it, in a run queue, until it answers a
/// pick with it or the host asks for it back.
///
/// **A wrong answer** never reaches the kernel: the host checks it, and gives a refused
/// `Schedulable` back with the reason ([`Scheduler::pick_refused`]). A panic, a deadlock, a dropped
/// `Schedulable` or a task that waits too long stops the policy; its tasks go on under the host's
/// fallback.
pub trait Scheduler: Sized + Send + Sync {
    /// Name by which tools know the policy: `[a-z0-9_]`, at most 31 characters.
    const NAME: &'static str;
    /// Version, for people and for the upgrade.
    const VERSION: u32 = 1;
    /// The notifications that the policy wants; one it does not want costs nothing. A method behind
    /// an event that is left out is never called.
    const EVENTS: Events = Events::ALL;

    /// Makes the policy. May allocate as much as the host's limit allows; later methods get small
    /// blocks only (8 KiB). `Err` says, in a line for the user, what is wrong with the options
    /// ([`Error`]).
    fn new(env: &Env<'_>) -> Result<Self, Error>;

    /// A task wakes up or is new: on which CPU's run queue? [`Placement::Run`] hands it straight to
    /// an idle CPU, past the policy's queues, for a slice. Called by the waker, without the
    /// run-queue lock. Not called for a task that is bound to one CPU. A CPU that is not allowed is
    /// refused, and counted: the task stays where it ran last.
    ///
    /// A new task ([`Wake::fork`]) is not the policy's yet: `task_new` gives it the task, and
    /// follows [`Placement::Run`] too. What the policy keeps for its slot is still that of the task
    /// before.
    fn select_task_rq(&self, ctx: &Ctx<'_>, task: &Task, wake: &Wake) -> Placement {
        let _ = (ctx, task);
        Placement::Queue(wake.prev_cpu)
    }

    /// The task has joined the policy and is runnable, on the run queue of `task.cpu`.
    fn task_new(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable);

    /// The task woke up, on the run queue of `task.cpu`.
    fn task_wakeup(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable);

    /// The task was running and is runnable still: its slice is over, another task was picked, or a
    /// higher class took the CPU. It ran on `task.cpu`, except where it was moved by force while it
    /// ran (its affinity changed, or its CPU goes offline): then `task.cpu` is the CPU that it was
    /// moved to, and nothing else tells of the move.
    fn task_preempt(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable);

    /// As `task_preempt`, because the task asked for it (sched_yield).
    fn task_yield(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable);

    /// The task is back on the run queue of `task.cpu` after [`Scheduler::task_dequeued`], after a
    /// change of attributes, or because the kernel could not run it where it was picked.
    fn task_restored(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable);

    /// Which task should `cpu` run now? `prev` is the task that was running there, if it is still
    /// runnable and of this policy: its `Schedulable` is the host's, and comes back by
    /// `task_preempt` when another task is picked. [`Pick::Keep`] lets it go on. Called by `cpu`
    /// itself. Wrong answers come back through `pick_refused`, and the host asks again; a policy
    /// that is refused 64 times in one call is stopped.
    fn pick_next_task(&self, ctx: &Ctx<'_>, cpu: Cpu, prev: Option<&Task>) -> Pick;

    /// `cpu` is about to go idle, as `pick_next_task` had nothing: the policy may give it a task
    /// from elsewhere.
    fn newly_idle(&self, ctx: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        let _ = (ctx, cpu);
        None
    }

    /// The host did not take this `Schedulable`, and why. A stale one may be dropped; another must
    /// be kept, or the task is lost.
    fn pick_refused(&self, ctx: &Ctx<'_>, baton: Schedulable, why: Refusal);

    /// Called now and then by each busy CPU (every 16 ticks) to even out the queues.
    /// [`Events::BALANCE`].
    fn balance(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let _ = (ctx, cpu);
    }

    /// The task, which was running, went to sleep. May come late: at the latest before the next
    /// call about this task. [`Events::BLOCKED`].
    fn task_blocked(&self, ctx: &Ctx<'_>, task: &Task) {
        let _ = (ctx, task);
    }

    /// The host takes a queued task back for a change of its attributes or a forced move;
    /// `task_restored` follows. `None` when the policy has it in no queue.
    fn task_dequeued(&self, ctx: &Ctx<'_>, task: &Task) -> Option<Schedulable>;

    /// The task leaves the policy (another class, another policy, unload). `None` when the policy
    /// has it in no queue.
    fn task_departed(&self, ctx: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        self.task_dequeued(ctx, task)
    }

    /// The task is gone; its slot will be used for another. It was not queued.
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

    /// The timer that this policy armed on this CPU ([`Ctx::arm_timer`]) has run out. Hard
    /// interrupt context; no run-queue lock is held.
    fn timer(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let _ = (ctx, cpu);
    }

    /// The CPU comes online. Process context, interrupts off, no run-queue lock.
    fn cpu_online(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let _ = (ctx, cpu);
    }

    /// The CPU goes offline: it will pick no more. Tasks queued for it should be given to others;
    /// the kernel moves and restores those on its run queue itself. Process context, interrupts
    /// off, no run-queue lock.
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

/// A policy that applications can give hints (Enoki 3.3), through rings in shared memory, without a
/// system call. See `docs/hints.md`.
pub trait Hints: Scheduler {
    /// What they say. Made by [`message!`](crate::message).
    type Hint: Message;

    /// What the policy can reply ([`Ctx::reply`]). It names no thread.
    type Reply: Message;

    /// The task `from` said this. Called at events of that task, before anything else is asked
    /// about them: when it wakes another, when it goes to sleep or is preempted, when it wakes up,
    /// at a tick; or at once, where it asked for that by a system call. Interrupts are off; a
    /// run-queue lock may be held, not always that of `from.cpu`.
    ///
    /// An application is not trusted: the host has checked that it is a message of the type, and
    /// that a thread which it names is of the sender's own process and a task of this policy's.
    /// What the numbers mean is for the policy to check.
    fn hint(&self, ctx: &Ctx<'_>, from: &Task, hint: Self::Hint);
}

/// A policy whose running version can be replaced by another, with its state (Enoki 3.2).
///
/// The state is shared, not moved: what the running version changes while it runs is behind locks
/// and atomics already, so both versions can have it at once. The new one is made of it while the
/// old one goes on, then one pointer is swapped, and no CPU waits. Only a state of another type has
/// to be converted, the last part of it while everything stands still.
///
/// None of these methods but [`Upgrade::reregister_take`] may take a lock: a CPU that interrupts it
/// may want it, too.
pub trait Upgrade: Scheduler {
    /// What this version hands on, and is made of: clones of [`PerCpu`](crate::PerCpu),
    /// [`PerTask`](crate::PerTask) and [`Arc`](alloc::sync::Arc), which share what they lead to. A
    /// type is the same in two versions when its name, its version and its layout are. Whoever
    /// changes what a field means gives the type a new version.
    type State: State;

    /// The state of another version, for [`Upgrade::reregister_convert`]; `Self::State` when there
    /// is none to convert.
    type Older: State;

    /// Hands the state on. Other calls go on meanwhile.
    fn reregister_prepare(&self) -> Self::State;

    /// Makes this version of a state. The version that gave it goes on meanwhile, and stays if this
    /// is an error.
    fn reregister_init(env: &Env<'_>, state: Self::State) -> Result<Self, Error>;

    /// Makes a state of another version's, which goes on meanwhile: shares what both have,
    /// allocates what is new, and copies values that seldom change.
    fn reregister_convert(env: &Env<'_>, older: &Self::Older) -> Result<Self::State, Error> {
        let _ = (env, older);
        Err("this version converts no state".into())
    }

    /// Brings over from a state that was converted what changes with every call: queues, and values
    /// of tasks. Everything stands still, and this version has not been called yet. It must not
    /// allocate much. Slots from `slots` on have never had a task: values of tasks below are all
    /// that there is to bring over.
    fn reregister_take(&self, older: &Self::Older, slots: u32) -> Result<(), Error> {
        let _ = (older, slots);
        Ok(())
    }
}
