// SPDX-License-Identifier: GPL-2.0-only
//! How a task gets onto a run queue: try_to_wake_up(), wake_up_new_task(), do_enqueue_task().

use std::collections::VecDeque;

use baton_abi::{BATON_F_FORK, BATON_F_SYNC, BATON_F_WAKEUP};
use baton_core::{TaskFacts, Verdict, DEFAULT_SLICE};

use super::{Machine, Place, Task};
use crate::rng::Rng;
use crate::trace::Event;
use crate::world::{Group, Spawn, TaskRef};

impl Machine<'_> {
    /// Starts a task of the workload. The shell that starts it runs on the first CPU.
    pub(super) fn start(&mut self, number: u32) {
        let Some(spawn) = self.to_come[number as usize].take() else {
            return;
        };
        let here = self.any_online(0);
        self.create(TaskRef(number), spawn, None, here);
    }

    /// Makes a child. Returns `None` if there is no slot: see [`Self::create`].
    pub(super) fn fork(&mut self, parent: u32, spawn: Spawn, here: u32) -> Option<TaskRef> {
        let id = TaskRef(self.by_ref.len() as u32);
        self.by_ref.push(None);
        self.create(id, spawn, Some(parent), here)
    }

    /// copy_process() and wake_up_new_task(). Deviation: a task for which there is no slot is not
    /// made, where the kernel would run it under the fallback. `Config::max_tasks` is the number of
    /// slots.
    fn create(
        &mut self,
        id: TaskRef,
        spawn: Spawn,
        parent: Option<u32>,
        here: u32,
    ) -> Option<TaskRef> {
        let Spawn {
            name,
            group,
            nice,
            affinity,
            at: _,
            program,
        } = spawn;
        let parent_task = parent.map(|at| &self.tasks[at as usize]);
        let parent_handle = parent_task.map_or(0, |task| task.handle);
        let nice = nice
            .or(parent_task.map(|task| task.nice))
            .unwrap_or(0)
            .clamp(-20, 19);
        let group = group.map_or(parent_task.map_or(0, |task| task.group), |Group(number)| {
            number
        });
        let mask = match affinity {
            Some(mask) => self.intern(mask),
            None => parent.map_or(0, |at| self.mask(at)),
        };
        let at = self.free.last().copied().unwrap_or(self.tasks.len() as u32);
        let pid = id.0 + 1;
        let facts = TaskFacts {
            opaque: at as usize + 1,
            pid,
            parent: parent_handle,
        };
        let baton_core::Init::Handle(handle) = self.core.init_task(&facts) else {
            self.stats.no_slot += 1;
            return None;
        };
        let slot = self
            .core
            .by_handle(handle)
            .expect("a task's slot is its own until it exits")
            .index();
        let turn = self.tasks.get(at as usize).map_or(0, |old| old.turn);
        let task = Task {
            id,
            pid,
            handle,
            slot,
            place: Place::Away,
            runnable: false,
            slice: DEFAULT_SLICE,
            immed: false,
            last_cpu: None,
            nice,
            runtime: 0,
            ran_before: 0,
            remaining: 0,
            woken_at: None,
            turn,
            group,
            joined: 0.0,
            due: 0.0,
            resumed: false,
            suspended: false,
            item: None,
            replies: VecDeque::new(),
            awaits_reply: false,
            reply: None,
            child: None,
            rng: Rng::new(self.config.seed, u64::from(id.0)),
            jitter: Rng::new(!self.config.seed, u64::from(id.0)),
            program: Some(program),
            name,
        };
        if self.free.pop().is_some() {
            self.tasks[at as usize] = task;
        } else {
            self.tasks.push(task);
        }
        self.by_ref[id.0 as usize] = Some(at);
        self.host().facts[slot as usize].mask.set(mask);
        self.host().facts[slot as usize].unread.set(None);
        self.set_rq(at, here);
        let assigned = self.config.assigned(self.stats.group_name(group));
        if let Some(entry) = assigned.and_then(|place| self.entry(place)) {
            self.core
                .assign(self.core.by_handle(handle).expect("as above"), Some(entry));
        }
        self.core.enable_task(handle, nice);
        self.stats.new_task(group);
        self.introduce(at);
        self.tell(Event::New { task: id });
        self.wake_with(at, here, BATON_F_FORK);
        Some(id)
    }

    /// Reports a new task's group and name to the sink.
    pub(super) fn introduce(&mut self, at: u32) {
        let Task {
            id, group, name, ..
        } = &self.tasks[at as usize];
        if let Some(sink) = &mut self.sink {
            sink.task(*id, self.stats.group_name(*group), name);
        }
    }

    /// try_to_wake_up() on CPU `here`, for a sleeping task.
    pub(super) fn wake(&mut self, at: u32, here: u32, sync: bool) {
        if !self.tasks[at as usize].runnable {
            self.tasks[at as usize].turn = self.tasks[at as usize].turn.wrapping_add(1);
            self.account(here);
            self.steal(here, self.config.costs.wakeup);
            self.wake_with(at, here, if sync { BATON_F_SYNC } else { 0 });
        }
    }

    fn wake_with(&mut self, at: u32, here: u32, flags: u16) {
        let prev = self.rq(at);
        let (mut cpu, mut direct) = (prev, None);
        // select_task_rq(): the class is asked only if the task may use more than one CPU.
        if self.has_choice(at) {
            let mut ctx = self.ctx(at, prev, flags);
            let state = self.enter(here);
            direct = (self.core.select((), state, &mut ctx) == Verdict::Run).then_some(ctx.slice);
            cpu = ctx.cpu as u32;
            self.settle(here, &ctx);
        } else if !self.allowed(at, cpu) {
            cpu = self.fallback_rq(at, cpu, here);
        }
        if !self.allowed(at, cpu) {
            cpu = self.fallback_rq(at, cpu, here);
        }
        self.set_runnable(at, true);
        let task = &mut self.tasks[at as usize];
        task.woken_at = Some(self.now);
        let id = task.id;
        self.set_rq(at, cpu);
        if let Some(sink) = &mut self.sink {
            sink.woken_by(self.acting);
        }
        self.tell(Event::Wake {
            task: id,
            cpu,
            waker: here,
        });
        if let Some(slice) = direct {
            self.tasks[at as usize].slice = slice;
            self.insert_local(at, cpu, true);
            self.reenqueue_if_busy(cpu, here);
        } else {
            self.enqueue(
                at,
                here,
                if flags & BATON_F_FORK != 0 {
                    0
                } else {
                    BATON_F_WAKEUP
                },
            );
        }
        self.wakeup_preempt(self.rq(at), here);
    }

    /// wakeup_preempt(): an idle CPU reschedules.
    pub(super) fn wakeup_preempt(&mut self, cpu: u32, here: u32) {
        let target = &self.cpus[cpu as usize];
        if target.curr.is_none() && !target.higher && target.online {
            self.resched(cpu, here);
        }
    }

    /// p->nr_cpus_allowed > 1
    fn has_choice(&self, at: u32) -> bool {
        match self.mask(at) {
            0 => self.cpus.len() > 1,
            mask => self.host().masks.borrow()[mask as usize - 1].count() > 1,
        }
    }

    /// select_fallback_rq(): a CPU of the same node, else any CPU. If no CPU of the task's set is
    /// online, the set is widened to all CPUs.
    pub(super) fn fallback_rq(&mut self, at: u32, near: u32, here: u32) -> u32 {
        let node = self.config.topology.cpus()[near as usize].node;
        let all = 0..self.cpus.len() as u32;
        let found = all
            .clone()
            .filter(|&cpu| self.config.topology.cpus()[cpu as usize].node == node)
            .chain(all)
            .find(|&cpu| self.allowed(at, cpu));
        found.unwrap_or_else(|| {
            self.set_mask(at, 0, here);
            self.any_online(near)
        })
    }

    /// do_enqueue_task(), for a runnable task that is on no queue.
    pub(super) fn enqueue(&mut self, at: u32, here: u32, flags: u16) {
        debug_assert_eq!(self.tasks[at as usize].place, Place::Away);
        self.tasks[at as usize].immed = false;
        let mut ctx = self.ctx(at, self.rq(at), flags);
        let state = self.enter(here);
        match self.core.enqueue((), state, &mut ctx) {
            Verdict::Fallback => {
                self.tasks[at as usize].slice = ctx.slice;
                self.fallback.push_back(at);
                self.set_place(at, Place::Fallback);
            }
            Verdict::Local => {
                self.tasks[at as usize].slice = ctx.slice;
                self.insert_local(at, self.rq(at), false);
            }
            _ => self.set_place(at, Place::Custody),
        }
        self.settle(here, &ctx);
    }

    /// scx_bpf_dsq_insert() into a local queue
    pub(super) fn insert_local(&mut self, at: u32, cpu: u32, immed: bool) {
        self.cpus[cpu as usize].local.push_back(at);
        self.tasks[at as usize].immed = immed;
        self.set_place(at, Place::Local(cpu));
        self.set_rq(at, cpu);
    }

    /// SCX_ENQ_IMMED: a task that was put on a CPU's local queue and cannot run at once is
    /// re-enqueued (reenq_local()).
    pub(super) fn reenqueue_if_busy(&mut self, cpu: u32, here: u32) {
        let target = &self.cpus[cpu as usize];
        let open = usize::from(target.curr.is_none() && !target.higher);
        if target.local.len() <= open {
            return;
        }
        let back: Vec<u32> = target
            .local
            .iter()
            .skip(open)
            .copied()
            .filter(|&at| self.tasks[at as usize].immed)
            .collect();
        for at in back {
            self.dequeue(at);
            self.enqueue(at, here, 0);
        }
    }

    /// dequeue_task_scx(): takes the task from its queue, without notifying the policy.
    pub(super) fn dequeue(&mut self, at: u32) {
        match self.tasks[at as usize].place {
            Place::Fallback => self.fallback.retain(|&other| other != at),
            Place::Local(cpu) => self.cpus[cpu as usize].local.retain(|&other| other != at),
            Place::OnCpu(_) | Place::Away | Place::Custody => {}
        }
        self.set_place(at, Place::Away);
    }
}
