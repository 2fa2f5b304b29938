// SPDX-License-Identifier: GPL-2.0-only
//! A model of sched_ext for one shim (kernel/sched/ext/ext.c, 7.2), as far as the rules can observe
//! it. Tasks wake, are queued, picked, preempted and migrated, and the shim carries out the
//! verdicts. The model does nothing that the kernel could not do.

use crate::host::{self, TestCore};
use baton_abi::{
    BatonCtx, BATON_F_PREV_RUNNABLE, BATON_F_RESTORE, BATON_F_WAKEUP, BATON_KICK_PREEMPT,
};
use baton_core::{Slot, TaskState, Verdict, TURN_WAS_EMPTY};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::SeqCst;

pub const CPUS: i32 = 3;
/// How often the shim asks in one dispatch. Fewer than in the kernel, so that a rescue needs
/// several dispatches.
const TRIES: u32 = 4;

/// Where the kernel has a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Not runnable, or of another class.
    Away,
    /// With the rules: `enqueue` took it (SCX_OPSS_QUEUED).
    Custody,
    /// On the fallback queue.
    Fallback,
    /// On a CPU's local queue.
    Local(i32),
    OnCpu(i32),
}

pub struct Task {
    pub pid: u32,
    pub handle: u64,
    pub place: Place,
    pub runnable: bool,
    /// In Baton's class.
    pub ours: bool,
    /// The CPU of the run queue that it is on, or was on last.
    pub rq: i32,
    pub mask: u64,
}

/// How a task's turn on a CPU ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Blocks,
    Expires,
    /// Dies: blocks, and is gone after the switch.
    Dies,
}

/// The task is dequeued and enqueued again between the rules' answer and the insertion. The
/// insertion applies to the enqueue that it finds begun (SCX_OPSS_QSEQ_MASK), and waits for its
/// end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Race {
    None,
    /// The rules see the new enqueue before the insertion.
    Before,
    /// The rules see it after the insertion.
    Across,
}

/// Called with each task that is run, its token and the CPU.
type OnRun = Box<dyn Fn(&Task, u64, i32)>;
/// Called with each CPU that goes idle.
type OnIdle = Box<dyn Fn(&Kernel, i32)>;

pub struct Kernel {
    pub core: &'static TestCore,
    pub tasks: Vec<Task>,
    local: Vec<VecDeque<usize>>,
    current: Vec<Option<usize>>,
    online: Vec<bool>,
    fallback: VecDeque<usize>,
    kicked: Vec<i32>,
    /// ns; advances with each dispatch.
    now: u64,
    pids: u32,
    /// Called with each task that a dispatch has decided to run, its token and the CPU.
    pub on_run: OnRun,
    /// Called with each CPU before it goes idle.
    pub on_idle: OnIdle,
}

impl Kernel {
    pub fn new(core: &'static TestCore) -> Self {
        Self {
            core,
            tasks: Vec::new(),
            local: vec![VecDeque::new(); CPUS as usize],
            current: vec![None; CPUS as usize],
            online: vec![true; CPUS as usize],
            fallback: VecDeque::new(),
            kicked: Vec::new(),
            now: 0,
            pids: 0,
            on_run: Box::new(|_, _, _| {}),
            on_idle: Box::new(|_, _| {}),
        }
    }

    pub fn slot(&self, at: usize) -> &'static Slot {
        self.core
            .by_handle(self.tasks[at].handle)
            .expect("a task's slot is its own until it exits")
    }

    pub fn is_online(&self, cpu: i32) -> bool {
        self.online[cpu as usize]
    }

    pub fn current(&self, cpu: i32) -> Option<usize> {
        self.current[cpu as usize]
    }

    fn ctx(&self, at: usize, cpu: i32, flags: u16) -> BatonCtx {
        BatonCtx {
            task: self.tasks[at].handle,
            cpu,
            flags,
            ..BatonCtx::default()
        }
    }

    fn allowed(&self, at: usize, cpu: i32) -> bool {
        self.tasks[at].mask & (1 << cpu) != 0 && self.is_online(cpu)
    }

    /// select_fallback_rq(): widens the mask if none of its CPUs is online.
    fn fallback_rq(&mut self, at: usize) -> i32 {
        if let Some(cpu) = (0..CPUS).find(|&cpu| self.allowed(at, cpu)) {
            return cpu;
        }
        self.set_mask(at, !0);
        (0..CPUS)
            .find(|&cpu| self.is_online(cpu))
            .expect("a CPU is online")
    }

    fn set_mask(&mut self, at: usize, mask: u64) {
        self.tasks[at].mask = mask;
        host::set_mask(self.core, self.slot(at), mask);
        let mut ctx = self.ctx(at, self.tasks[at].rq, 0);
        if self.tasks[at].ours {
            self.core
                .set_affinity(0, self.core.cpu(0).unwrap(), &mut ctx);
        }
    }

    pub fn fork(&mut self, parent: Option<usize>) {
        self.pids += 1;
        let parent_handle = parent.map_or(0, |parent| self.tasks[parent].handle);
        let Some(handle) = host::new_task(self.core, self.pids, parent_handle) else {
            return;
        };
        let rq = (0..CPUS)
            .find(|&cpu| self.is_online(cpu))
            .expect("a CPU is online");
        self.tasks.push(Task {
            pid: self.pids,
            handle,
            place: Place::Away,
            runnable: false,
            ours: true,
            rq,
            mask: !0,
        });
        self.wake(self.tasks.len() - 1, 0);
    }

    /// try_to_wake_up() or wake_up_new_task() on CPU `here`.
    pub fn wake(&mut self, at: usize, here: i32) {
        if self.tasks[at].runnable || !self.tasks[at].ours {
            return;
        }
        let mut cpu = self.tasks[at].rq;
        let is_new = self.slot(at).policy() == 0 && self.slot(at).state() == TaskState::Sleeping;
        let mut direct = false;
        if self.tasks[at].mask.count_ones() > 1 {
            let mut ctx = self.ctx(at, cpu, 0);
            direct = self
                .core
                .select(here, self.core.cpu(here).unwrap(), &mut ctx)
                == Verdict::Run;
            cpu = ctx.cpu;
            assert!(
                !direct || self.allowed(at, cpu),
                "handed to a CPU that it may not use"
            );
        }
        if !self.allowed(at, cpu) {
            cpu = self.fallback_rq(at);
        }
        self.tasks[at].runnable = true;
        self.tasks[at].rq = cpu;
        if direct {
            self.put_on_local(at, cpu);
        } else {
            self.enqueue(at, here, if is_new { 0 } else { BATON_F_WAKEUP });
        }
    }

    /// ops.enqueue(), for a runnable task that is on no queue.
    fn enqueue(&mut self, at: usize, here: i32, flags: u16) {
        assert_eq!(self.tasks[at].place, Place::Away);
        let mut ctx = self.ctx(at, self.tasks[at].rq, flags);
        match self
            .core
            .enqueue(here, self.core.cpu(here).unwrap(), &mut ctx)
        {
            Verdict::None => self.tasks[at].place = Place::Custody,
            Verdict::Fallback => self.put_on_fallback(at),
            Verdict::Local => self.put_on_local(at, self.tasks[at].rq),
            other => panic!("{other:?} of an enqueue"),
        }
        for kick in &ctx.kicks[..usize::from(ctx.nr_kicks)] {
            self.kicked.push(i32::from(kick & (BATON_KICK_PREEMPT - 1)));
        }
    }

    /// The kicks of idle CPUs arrive.
    fn deliver_kicks(&mut self) {
        while let Some(cpu) = self.kicked.pop() {
            if self.is_online(cpu) && self.current(cpu).is_none() {
                self.schedule(cpu, Turn::Expires, Race::None);
            }
        }
    }

    fn put_on_fallback(&mut self, at: usize) {
        self.fallback.push_back(at);
        self.tasks[at].place = Place::Fallback;
    }

    fn put_on_local(&mut self, at: usize, cpu: i32) {
        self.local[cpu as usize].push_back(at);
        self.tasks[at].place = Place::Local(cpu);
        self.tasks[at].rq = cpu;
    }

    /// dequeue_task_scx(): the kernel dequeues the task from wherever it is, without notice.
    fn dequeue(&mut self, at: usize) {
        match self.tasks[at].place {
            Place::Fallback => self.fallback.retain(|&other| other != at),
            Place::Local(cpu) => self.local[cpu as usize].retain(|&other| other != at),
            Place::OnCpu(cpu) => self.current[cpu as usize] = None,
            Place::Away | Place::Custody => {}
        }
        self.tasks[at].place = Place::Away;
    }

    /// A change of attributes: `change` happens while the task is off its queue. A task on a CPU
    /// stays there.
    pub fn change(&mut self, at: usize, here: i32, change: impl FnOnce(&mut Self)) {
        let place = self.tasks[at].place;
        let is_queued = !matches!(place, Place::Away | Place::OnCpu(_));
        if is_queued {
            self.dequeue(at);
        }
        change(self);
        if is_queued
            && self.tasks[at].place == Place::Away
            && self.tasks[at].ours
            && self.tasks[at].runnable
        {
            self.enqueue(at, here, BATON_F_RESTORE);
        }
    }

    /// sched_setaffinity(), and the migration by the stopper if the task must leave its CPU.
    pub fn set_affinity(&mut self, at: usize, here: i32, mask: u64) {
        // __set_cpus_allowed_ptr_locked() does nothing if the affinity stays the same.
        if self.tasks[at].mask == mask {
            return;
        }
        self.change(at, here, |kernel| kernel.set_mask(at, mask));
        let rq = self.tasks[at].rq;
        if self.tasks[at].runnable && !self.allowed(at, rq) {
            if let Place::OnCpu(cpu) = self.tasks[at].place {
                self.stopper(cpu);
            }
            self.migrate(at, here);
        }
    }

    /// The stopper preempts the current task of a CPU. With SCX_ENQ_IMMED that one is enqueued.
    fn stopper(&mut self, cpu: i32) {
        if let Some(at) = self.current[cpu as usize].take() {
            self.tasks[at].place = Place::Away;
            if self.tasks[at].ours {
                self.enqueue(at, cpu, 0);
            }
        }
    }

    /// set_user_nice()
    pub fn set_nice(&mut self, at: usize, here: i32, nice: i32) {
        self.change(at, here, |kernel| {
            let mut ctx = kernel.ctx(at, kernel.tasks[at].rq, 0);
            kernel
                .core
                .set_nice(here, kernel.core.cpu(here).unwrap(), &mut ctx, nice);
        });
    }

    fn migrate(&mut self, at: usize, here: i32) {
        self.dequeue(at);
        self.tasks[at].rq = self.fallback_rq(at);
        if self.tasks[at].ours && self.tasks[at].runnable {
            self.enqueue(at, here, 0);
        }
    }

    /// Moves the task out of Baton's class, where nothing is reported, or back.
    pub fn set_class(&mut self, at: usize, here: i32, ours: bool) {
        if self.tasks[at].ours == ours {
            return;
        }
        if !ours {
            self.dequeue(at);
            let mut ctx = self.ctx(at, self.tasks[at].rq, 0);
            self.core
                .disable_task(here, self.core.cpu(here).unwrap(), &mut ctx, false);
            self.tasks[at].ours = false;
        } else {
            self.core.enable_task(self.tasks[at].handle, 0);
            self.tasks[at].ours = true;
            if self.tasks[at].runnable {
                let rq = self.tasks[at].rq;
                self.tasks[at].rq = if self.allowed(at, rq) {
                    rq
                } else {
                    self.fallback_rq(at)
                };
                self.enqueue(at, here, BATON_F_RESTORE);
            }
        }
    }

    /// A higher class takes the CPU. The current task waits on its local queue, or has just gone to
    /// sleep.
    pub fn higher_class(&mut self, cpu: i32, blocks: bool) {
        let Some(at) = self.current[cpu as usize].take() else {
            return;
        };
        self.tasks[at].place = Place::Away;
        self.tasks[at].runnable = !blocks;
        if !blocks {
            self.local[cpu as usize].push_front(at);
            self.tasks[at].place = Place::Local(cpu);
        }
    }

    /// SCX_ENQ_IMMED: tasks that cannot run at once are enqueued again.
    pub fn reenqueue_local(&mut self, cpu: i32) {
        for at in std::mem::take(&mut self.local[cpu as usize]) {
            self.tasks[at].place = Place::Away;
            self.enqueue(at, cpu, 0);
        }
    }

    /// A time in bypass mode: queued tasks run without notice.
    pub fn bypass(&mut self) {
        for at in 0..self.tasks.len() {
            if matches!(self.tasks[at].place, Place::Custody | Place::Fallback) {
                self.dequeue(at);
                self.put_on_local(at, self.tasks[at].rq);
            }
        }
    }

    pub fn set_online(&mut self, cpu: i32, online: bool) {
        let others = (0..CPUS)
            .filter(|&other| other != cpu && self.is_online(other))
            .count();
        if self.is_online(cpu) == online || (!online && others == 0) {
            return;
        }
        let mut ctx = BatonCtx {
            cpu,
            ..BatonCtx::default()
        };
        self.core
            .set_online(cpu, self.core.cpu(cpu).unwrap(), &mut ctx, online);
        self.online[cpu as usize] = online;
        if online {
            return;
        }
        let here = (0..CPUS)
            .find(|&other| self.is_online(other))
            .expect("a CPU is online");
        for at in 0..self.tasks.len() {
            if self.tasks[at].rq == cpu && self.tasks[at].place != Place::Away {
                self.migrate(at, here);
            }
        }
    }

    /// __schedule() on a CPU, whose current task's turn ends. With a race, the attributes of the
    /// picked or rescued task change meanwhile.
    pub fn schedule(&mut self, cpu: i32, turn: Turn, race: Race) {
        if !self.is_online(cpu) {
            return;
        }
        let prev = self.current[cpu as usize].take();
        if let Some(at) = prev {
            self.tasks[at].place = Place::Away;
            self.tasks[at].runnable = turn == Turn::Expires;
        }
        let keeps = self.local[cpu as usize].is_empty() && self.dispatch(cpu, prev, race);
        let next = if keeps {
            prev
        } else {
            self.local[cpu as usize].pop_front()
        };
        let prev_runs = prev.filter(|&at| self.tasks[at].runnable);
        // Without another task the kernel keeps the previous one if it can continue.
        let next = next.or(prev_runs);
        if let Some(at) = prev_runs.filter(|_| next != prev) {
            self.enqueue(at, cpu, 0);
        }
        if next.is_some() != prev.is_some() {
            let mut ctx = BatonCtx {
                cpu,
                ..BatonCtx::default()
            };
            self.core
                .set_idle(cpu, self.core.cpu(cpu).unwrap(), &mut ctx, next.is_none());
        }
        self.current[cpu as usize] = next;
        match next {
            Some(at) => self.tasks[at].place = Place::OnCpu(cpu),
            None => (self.on_idle)(self, cpu),
        }
        if let Some(at) = prev.filter(|_| turn == Turn::Dies) {
            self.exit(at, cpu);
        }
        self.deliver_kicks();
        // Another thread runs briefly, and the task that was on the CPU has no slice left.
        if self.core.host().evictions.fetch_and(!(1 << cpu), SeqCst) & 1 << cpu != 0 {
            if let Some(at) = self.current[cpu as usize].take() {
                self.tasks[at].place = Place::Away;
                self.enqueue(at, cpu, 0);
                self.schedule(cpu, Turn::Expires, Race::None);
            }
        }
    }

    /// scx_dispatch_sched(): true if the previous task must continue.
    fn dispatch(&mut self, cpu: i32, prev: Option<usize>, race: Race) -> bool {
        let state = self.core.cpu(cpu).unwrap();
        let mut was_empty = false;
        self.now += 3_000_000;
        for attempt in 0..TRIES {
            let mut ctx = BatonCtx {
                now: self.now,
                cpu,
                ..BatonCtx::default()
            };
            if let Some(at) = prev {
                ctx.task = self.tasks[at].handle;
                ctx.flags = if self.tasks[at].runnable {
                    BATON_F_PREV_RUNNABLE
                } else {
                    0
                };
            }
            ctx.flags |= if was_empty { TURN_WAS_EMPTY } else { 0 };
            let verdict = self.core.dispatch(cpu, state, &mut ctx);
            match verdict {
                Verdict::Run => {
                    let pid = host::slot_of(self.core, ctx.task).pid();
                    let at = self
                        .tasks
                        .iter()
                        .position(|task| task.pid == pid)
                        .expect("a task that is there");
                    (self.on_run)(&self.tasks[at], ctx.task, cpu);
                    if race != Race::None {
                        self.change(at, (cpu + 1) % CPUS, |_| {});
                    }
                    // finish_dispatch() inserts only tasks in custody. Otherwise the dispatch is
                    // tried again.
                    if self.tasks[at].place == Place::Custody && self.allowed(at, cpu) {
                        self.put_on_local(at, cpu);
                        return false;
                    }
                }
                Verdict::Keep => {
                    let at = prev.expect("a task to keep");
                    assert!(self.tasks[at].runnable && self.slot(at).state() == TaskState::Running);
                    return true;
                }
                Verdict::Rescue if attempt + 1 < TRIES => self.rescue(cpu, race),
                Verdict::Fallback | Verdict::Turn | Verdict::Rescue => {
                    let waiting = self.fallback.iter().position(|&at| self.allowed(at, cpu));
                    if let Some(at) = waiting.and_then(|waiting| self.fallback.remove(waiting)) {
                        self.put_on_local(at, cpu);
                        return false;
                    }
                    if verdict == Verdict::Fallback {
                        return false;
                    }
                    was_empty = verdict == Verdict::Turn;
                }
                Verdict::Nothing => return false,
                other => panic!("{other:?} of a dispatch"),
            }
        }
        // The shim kicks its own CPU.
        self.dispatch(cpu, prev, race)
    }

    fn rescue(&mut self, cpu: i32, race: Race) {
        let Some((slot, token)) = self.core.rescue_one() else {
            return;
        };
        let at = self
            .tasks
            .iter()
            .position(|task| task.pid == slot.pid())
            .expect("a task that is there");
        let again = |kernel: &mut Self| kernel.change(at, (cpu + 1) % CPUS, |_| {});
        if race == Race::Before {
            again(self);
        }
        if !self.core.is_rescued(token) {
            return;
        }
        if race == Race::Across {
            again(self);
        }
        // finish_dispatch()
        if self.tasks[at].place == Place::Custody {
            self.put_on_fallback(at);
        }
    }

    /// sched_ext_dead()
    fn exit(&mut self, at: usize, cpu: i32) {
        let mut ctx = self.ctx(at, cpu, 0);
        self.core
            .disable_task(cpu, self.core.cpu(cpu).unwrap(), &mut ctx, true);
        self.core.exit_task(self.tasks[at].handle);
        self.tasks.remove(at);
        let moved = |other: usize| other - usize::from(other > at);
        self.local
            .iter_mut()
            .for_each(|queue| queue.iter_mut().for_each(|other| *other = moved(*other)));
        self.fallback
            .iter_mut()
            .for_each(|other| *other = moved(*other));
        self.current
            .iter_mut()
            .for_each(|other| *other = other.map(moved));
    }
}
