// SPDX-License-Identifier: GPL-2.0-only
//! What sched_ext does to the shim, and the shim to the rules (kernel/sched/core.c and
//! kernel/sched/ext/ext.c, 7.2; `hosts/core/tests/rules/kernel.rs` is the timed model of the same).
//! Each function names the kernel function that it stands for, and takes the same locks. Every
//! interleaving of these functions is therefore one that the kernel can produce.
//!
//! Not modelled, so that faults there are not found: bypass mode, higher classes except for the
//! stopper and the hotplug thread, cgroups, migrate_disable(), several policies, tasks without a
//! slot.

use crate::locks::Key;
use crate::machine::{Place, Task};
use crate::story::Kind;
use crate::world::World;
use baton_abi::{
    BatonCtx, BATON_F_FORK, BATON_F_PREV_RUNNABLE, BATON_F_RESTORE, BATON_F_SYNC, BATON_F_WAKEUP,
    BATON_KICK_PREEMPT,
};
use baton_core::Verdict;
use std::rc::Rc;

/// The kernel's tick, ns (HZ=250).
pub const TICK: u64 = 4_000_000;

/// SCX_DSP_MAX_LOOPS and the shim's MAX_TRIES combined.
const TRIES: usize = 32;

/// What ends a task's turn on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The CPU was asked to reschedule (TIF_NEED_RESCHED); a task with a slice left goes on.
    Asked,
    /// The slice has expired.
    Expires,
    Yields,
    Blocks,
    /// The task blocks, and is freed after the switch.
    Dies,
}

impl World {
    pub fn task(&self, pid: u32) -> Rc<Task> {
        self.tasks
            .borrow()
            .iter()
            .find(|task| task.pid == pid)
            .cloned()
            .expect("a pid is a task's")
    }

    pub fn ctx(&self, task: &Task, cpu: usize, flags: u16) -> BatonCtx {
        BatonCtx {
            now: self.now.get(),
            task: task.handle,
            runtime: task.runtime.get(),
            cpu: cpu as i32,
            flags,
            ..BatonCtx::default()
        }
    }

    /// Notes the kicks that a call requested. They are sent once the run-queue lock is free
    /// (scx_kick_cpu() defers them to an irq_work).
    fn note_kicks(&self, ctx: &BatonCtx) {
        self.me()
            .kicks
            .borrow_mut()
            .extend(ctx.kicks.iter().take(usize::from(ctx.nr_kicks)));
    }

    /// kick_cpus_irq_workfn()
    pub fn send_kicks(&self) {
        let kicks = std::mem::take(&mut *self.me().kicks.borrow_mut());
        for kick in kicks {
            let number = usize::from(kick & !BATON_KICK_PREEMPT);
            let Some(cpu) = self.cpus.get(number).filter(|cpu| !cpu.off.get()) else {
                continue;
            };
            self.take_kernels(Key::Rq(number));
            let preempts = kick & BATON_KICK_PREEMPT != 0;
            if let Some(pid) = cpu.current.get().filter(|_| preempts) {
                self.task(pid).slice.set(0);
            }
            if preempts || cpu.current.get().is_none() || cpu.in_balance.get() {
                cpu.resched.set(true);
            }
            self.release(Key::Rq(number));
        }
    }

    /// task_rq_lock()
    fn lock_task(&self, task: &Task) -> usize {
        self.take_kernels(Key::Pi(task.pid));
        loop {
            let rq = task.rq.get();
            self.take_kernels(Key::Rq(rq));
            if task.rq.get() == rq && !task.migrating.get() {
                return rq;
            }
            self.release(Key::Rq(rq));
            self.give_way();
        }
    }

    fn unlock_task(&self, task: &Task, rq: usize) {
        self.release(Key::Rq(rq));
        self.release(Key::Pi(task.pid));
        self.send_kicks();
    }

    /// select_fallback_rq(): widens the affinity when it contains no active CPU.
    fn fallback_rq(&self, task: &Task) -> usize {
        let active = || {
            self.cpus
                .iter()
                .filter(|cpu| cpu.active.get())
                .map(|cpu| cpu.number)
        };
        active().find(|&cpu| task.may_use(cpu)).unwrap_or_else(|| {
            self.set_mask(task, !0);
            active().next().expect("a CPU is active")
        })
    }

    fn set_mask(&self, task: &Task, mask: u32) {
        task.mask.set(mask);
        let mut ctx = self.ctx(task, task.rq.get(), 0);
        self.in_rules(|| {
            self.core
                .set_affinity((), self.state(self.me().number), &mut ctx)
        });
        self.note_kicks(&ctx);
    }

    /// wakeup_preempt(): an idle CPU reschedules at once, another one when its task's slice has
    /// expired.
    fn wakeup_preempt(&self, cpu: usize) {
        if self.cpus[cpu].current.get().is_none() {
            self.cpus[cpu].resched.set(true);
        }
    }

    /// try_to_wake_up(); with WF_FORK wake_up_new_task(). Returns false if the task is awake, or
    /// has not yet left its CPU.
    pub fn wake(&self, pid: u32, flags: u16) -> bool {
        let task = self.task(pid);
        self.take_kernels(Key::Pi(pid));
        if task.runnable.get()
            || task.dying.get()
            || !task.ours.get()
            || task.place.get() != Place::Away
        {
            self.release(Key::Pi(pid));
            return false;
        }
        let how = if flags & BATON_F_SYNC != 0 {
            ", by one that is about to sleep"
        } else {
            ""
        };
        match flags & BATON_F_FORK {
            0 => self.tell(Kind::Event, || format!("wakes task {pid}{how}")),
            _ => self.tell(Kind::Event, || format!("task {pid} is new")),
        }
        let mut cpu = task.rq.get();
        let mut direct = false;
        // select_task_rq(): the policy is not asked about a task that is bound to one CPU.
        if task.mask.get().count_ones() > 1 {
            let mut ctx = self.ctx(&task, cpu, flags);
            let verdict =
                self.in_rules(|| self.core.select((), self.state(self.me().number), &mut ctx));
            self.note_kicks(&ctx);
            direct = verdict == Verdict::Run;
            cpu = ctx.cpu as usize;
        }
        loop {
            let is_allowed = |cpu: usize| task.may_use(cpu) && self.cpus[cpu].active.get();
            cpu = if is_allowed(cpu) {
                cpu
            } else {
                self.fallback_rq(&task)
            };
            task.rq.set(cpu);
            self.take_kernels(Key::Rq(cpu));
            if is_allowed(cpu) {
                break;
            }
            // The CPU is going offline: balance_push() moves the task on, of which the policy is
            // not notified.
            self.release(Key::Rq(cpu));
        }
        task.runnable.set(true);
        if direct {
            self.put_on_local(&task, cpu, true);
            self.reenqueue_if_busy(cpu);
        } else {
            self.enqueue(
                &task,
                if flags & BATON_F_FORK != 0 {
                    0
                } else {
                    BATON_F_WAKEUP
                },
            );
        }
        self.wakeup_preempt(cpu);
        self.release(Key::Rq(cpu));
        self.release(Key::Pi(pid));
        self.send_kicks();
        true
    }

    /// do_enqueue_task(), with the run-queue lock held. A dispatch that already has the task waits
    /// until it is over (SCX_OPSS_QUEUEING).
    fn enqueue(&self, task: &Task, flags: u16) {
        self.take_kernels(Key::Ops(task.pid));
        task.enqueues.set(task.enqueues.get() + 1);
        task.waited.set(0);
        if !self.cpus[task.rq.get()].active.get() {
            // scx_rq_online(): the policy is not asked about a CPU that is going offline.
            self.put_on_local(task, task.rq.get(), false);
            return self.release(Key::Ops(task.pid));
        }
        let mut ctx = self.ctx(task, task.rq.get(), flags);
        let verdict = self.in_rules(|| {
            self.core
                .enqueue((), self.state(self.me().number), &mut ctx)
        });
        self.note_kicks(&ctx);
        match verdict {
            Verdict::None => task.place.set(Place::Custody),
            // The policy was stopped: the schedule is over.
            _ => self.put_on_local(task, task.rq.get(), false),
        }
        self.release(Key::Ops(task.pid));
    }

    /// scx_bpf_dsq_insert() into a local queue
    fn put_on_local(&self, task: &Task, cpu: usize, immed: bool) {
        self.cpus[cpu].local.borrow_mut().push_back(task.pid);
        task.immed.set(immed);
        task.place.set(Place::Local(cpu));
    }

    /// reenq_local(): with SCX_ENQ_IMMED, a task on a CPU's local queue that cannot run at once is
    /// enqueued again. The caller holds the run-queue lock of the CPU.
    fn reenqueue_if_busy(&self, cpu: usize) {
        let target = &self.cpus[cpu];
        let open = usize::from(target.current.get().is_none() && !target.higher.get());
        let waiting: Vec<u32> = target.local.borrow().iter().skip(open).copied().collect();
        for task in waiting.into_iter().map(|pid| self.task(pid)) {
            if task.immed.get() {
                self.dequeue(&task);
                self.enqueue(&task, 0);
            }
        }
    }

    /// dequeue_task_scx(): the kernel removes the task from its queue without notice. Waits while a
    /// dispatch holds the task (SCX_OPSS_DISPATCHING).
    fn dequeue(&self, task: &Task) {
        self.take_kernels(Key::Ops(task.pid));
        if let Place::Local(cpu) = task.place.get() {
            self.cpus[cpu]
                .local
                .borrow_mut()
                .retain(|&pid| pid != task.pid);
        }
        task.holding.set(None);
        task.place.set(Place::Away);
        self.release(Key::Ops(task.pid));
    }

    /// sched_change_begin() and sched_change_end() around a change. A running task stays on its
    /// CPU.
    fn change(&self, task: &Task, change: impl FnOnce()) {
        let is_queued = task.runnable.get() && !matches!(task.place.get(), Place::OnCpu(_));
        if is_queued {
            self.dequeue(task);
        }
        change();
        if is_queued {
            self.enqueue(task, BATON_F_RESTORE);
        }
    }

    /// sched_setaffinity(), and the migration by the stopper if the task must leave its CPU.
    pub fn set_affinity(&self, pid: u32, mask: u32) {
        let task = self.task(pid);
        let rq = self.lock_task(&task);
        let active = self
            .cpus
            .iter()
            .filter(|cpu| cpu.active.get())
            .fold(0, |set, cpu| set | 1 << cpu.number);
        // __set_cpus_allowed_ptr_locked() does nothing if the affinity stays the same.
        let is_same = mask == task.mask.get();
        if task.dying.get() || !task.ours.get() || mask & active == 0 || is_same {
            return self.unlock_task(&task, rq);
        }
        self.tell(Kind::Event, || {
            format!(
                "task {pid} may run on {} only",
                cpus_of(mask, self.nr_cpus())
            )
        });
        self.change(&task, || self.set_mask(&task, mask));
        if task.runnable.get() && !task.may_use(rq) {
            if let Place::OnCpu(_) = task.place.get() {
                task.to_move.set(true);
            } else {
                return self.move_queued(&task);
            }
        }
        self.unlock_task(&task, rq);
    }

    /// move_queued_task(), and the release of the locks that task_rq_lock() took.
    fn move_queued(&self, task: &Task) {
        self.dequeue(task);
        let from = task.rq.get();
        task.migrating.set(true);
        loop {
            let to = self.fallback_rq(task);
            task.rq.set(to);
            self.release(Key::Rq(from));
            self.take_kernels(Key::Rq(to));
            if self.cpus[to].active.get() {
                self.tell(Kind::Event, || {
                    format!("task {} is moved from CPU {from} to CPU {to}", task.pid)
                });
                task.migrating.set(false);
                self.enqueue(task, 0);
                self.wakeup_preempt(to);
                return self.unlock_task(task, to);
            }
            // The CPU is going offline.
            self.release(Key::Rq(to));
            self.take_kernels(Key::Rq(from));
        }
    }

    /// set_user_nice()
    pub fn set_nice(&self, pid: u32, nice: i32) {
        let task = self.task(pid);
        let rq = self.lock_task(&task);
        if !task.dying.get() && task.ours.get() {
            self.tell(Kind::Event, || format!("task {pid} gets nice {nice}"));
            self.change(&task, || {
                task.nice.set(nice);
                let mut ctx = self.ctx(&task, rq, 0);
                self.in_rules(|| {
                    self.core
                        .set_nice((), self.state(self.me().number), &mut ctx, nice)
                });
                self.note_kicks(&ctx);
            });
        }
        self.unlock_task(&task, rq);
    }

    /// sched_setscheduler() of a task that is on no CPU: it leaves Baton's class, or returns to it.
    pub fn set_class(&self, pid: u32, ours: bool) {
        let task = self.task(pid);
        let rq = self.lock_task(&task);
        if !task.dying.get()
            && task.ours.get() != ours
            && !matches!(task.place.get(), Place::OnCpu(_))
        {
            self.tell(Kind::Event, || {
                format!(
                    "task {pid} {}",
                    if ours {
                        "is back in Baton's class"
                    } else {
                        "leaves for another class"
                    }
                )
            });
            if ours {
                return self.come_back(&task, rq);
            }
            self.dequeue(&task);
            let mut ctx = self.ctx(&task, rq, 0);
            self.in_rules(|| {
                self.core
                    .disable_task((), self.state(self.me().number), &mut ctx, false)
            });
            self.note_kicks(&ctx);
            task.ours.set(false);
        }
        self.unlock_task(&task, rq);
    }

    /// The second half of [`World::set_class`], with the task's locks held. The other class may
    /// have migrated the task meanwhile.
    fn come_back(&self, task: &Task, mut rq: usize) {
        while !task.may_use(rq) || !self.cpus[rq].active.get() {
            let to = self.fallback_rq(task);
            task.rq.set(to);
            self.release(Key::Rq(rq));
            self.take_kernels(Key::Rq(to));
            rq = to;
        }
        self.core.enable_task(task.handle, task.nice.get());
        task.ours.set(true);
        if task.runnable.get() {
            self.enqueue(task, BATON_F_RESTORE);
            self.wakeup_preempt(rq);
        }
        self.unlock_task(task, rq);
    }

    /// sched_ext_dead(), from finish_task_switch()
    fn exit(&self, pid: u32) {
        let task = self.task(pid);
        let rq = self.lock_task(&task);
        let mut ctx = self.ctx(&task, rq, 0);
        self.in_rules(|| {
            self.core
                .disable_task((), self.state(self.me().number), &mut ctx, true)
        });
        self.note_kicks(&ctx);
        self.core.exit_task(task.handle);
        task.alive.set(false);
        self.unlock_task(&task, rq);
    }

    /// scheduler_tick()
    pub fn tick(&self) {
        let me = self.me();
        self.take_kernels(Key::Rq(me.number));
        if let Some(pid) = me.current.get() {
            let task = self.task(pid);
            task.runtime.set(task.runtime.get() + TICK);
            task.slice.set(task.slice.get().saturating_sub(TICK));
            let mut ctx = self.ctx(&task, me.number, 0);
            if self.in_rules(|| self.core.tick((), self.state(me.number), &mut ctx))
                == Verdict::Expire
            {
                task.slice.set(0);
            }
            self.note_kicks(&ctx);
            if task.slice.get() == 0 {
                me.resched.set(true);
            }
        }
        self.release(Key::Rq(me.number));
        self.send_kicks();
    }

    /// The policy's timer: hrtimer_interrupt(), hosts/kernel/timer.c.
    pub fn expire_timer(&self) {
        let me = self.me();
        me.timer.set(None);
        self.tell(Kind::Event, || "the policy's timer runs out".into());
        let mut ctx = BatonCtx {
            now: self.now.get(),
            cpu: me.number as i32,
            ..BatonCtx::default()
        };
        let place = self.policy().index() as usize;
        self.in_rules(|| self.core.timer((), self.state(me.number), &mut ctx, place));
        self.kick_plainly(&ctx);
    }

    /// baton_khost_kick(): kicks of a call that was not made by a BPF program wake only idle CPUs.
    pub fn kick_plainly(&self, ctx: &BatonCtx) {
        let is_due = |kick: &u16| {
            kick & BATON_KICK_PREEMPT != 0 || self.state(usize::from(*kick)).is_asleep()
        };
        let kicks: Vec<u16> = ctx
            .kicks
            .iter()
            .take(usize::from(ctx.nr_kicks))
            .copied()
            .filter(is_due)
            .collect();
        self.me().kicks.borrow_mut().extend(kicks);
        self.send_kicks();
    }

    /// __schedule() on this CPU.
    pub fn schedule(&self, turn: Turn) {
        let me = self.me();
        self.take_kernels(Key::Rq(me.number));
        me.higher.set(false);
        let prev = me.current.get().map(|pid| self.task(pid));
        if let Some(task) = &prev {
            task.runtime.set(task.runtime.get() + 50_000);
            let pid = task.pid;
            match turn {
                Turn::Asked => {}
                Turn::Expires => {
                    self.tell(Kind::Event, || format!("the slice of task {pid} is over"));
                    task.slice.set(0);
                }
                Turn::Yields => {
                    self.tell(Kind::Event, || format!("task {pid} yields"));
                    self.core.yield_task(task.handle);
                    task.slice.set(0);
                }
                Turn::Blocks | Turn::Dies => {
                    self.tell(Kind::Event, || {
                        format!(
                            "task {pid} {}",
                            ["goes to sleep", "exits"][usize::from(turn == Turn::Dies)]
                        )
                    });
                    task.runnable.set(false);
                    task.dying.set(turn == Turn::Dies);
                }
            }
        }
        let goes_on = self.balance(prev.as_deref());
        let next = if goes_on {
            prev.clone()
        } else {
            me.local.borrow_mut().pop_front().map(|pid| self.task(pid))
        };
        let runnable = prev.as_ref().filter(|task| task.runnable.get());
        // If there is no other task, the kernel keeps the runnable one.
        let next = next.or_else(|| runnable.cloned());
        if let Some(task) = runnable {
            if next.as_ref().is_none_or(|next| next.pid != task.pid) {
                // put_prev_task_scx()
                task.place.set(Place::Away);
                self.enqueue(task, 0);
            } else if task.slice.get() == 0 {
                task.slice.set(5 * TICK);
            }
        } else if let Some(task) = &prev {
            task.place.set(Place::Away);
        }
        self.set_idle(next.is_none());
        me.current.set(next.as_ref().map(|task| task.pid));
        if let Some(task) = next {
            if prev.as_ref().is_none_or(|prev| prev.pid != task.pid) {
                self.tell(Kind::Event, || format!("runs task {}", task.pid));
            }
            task.waited.set(0);
            task.place.set(Place::OnCpu(me.number));
        }
        me.resched.set(false);
        self.release(Key::Rq(me.number));
        self.send_kicks();
        if turn == Turn::Dies {
            prev.iter().for_each(|task| self.exit(task.pid));
        }
    }

    /// put_prev_task_idle() and set_next_task_idle(): ops.update_idle()
    fn set_idle(&self, idle: bool) {
        let me = self.me();
        if me.idle.replace(idle) != idle {
            if idle {
                me.idled.set(me.idled.get() + 1);
                self.tell(Kind::Event, || "idles".into());
            }
            let mut ctx = BatonCtx {
                now: self.now.get(),
                cpu: me.number as i32,
                ..BatonCtx::default()
            };
            self.in_rules(|| {
                self.core
                    .set_idle((), self.state(me.number), &mut ctx, idle)
            });
            self.note_kicks(&ctx);
        }
    }

    /// balance_one(), with the shim's dispatch. Returns true if the previous task goes on.
    fn balance(&self, prev: Option<&Task>) -> bool {
        let me = self.me();
        let runnable = prev.filter(|task| task.runnable.get());
        if runnable.is_some_and(|task| task.slice.get() > 0) {
            return true;
        }
        me.in_balance.set(true);
        let mut goes_on = false;
        for _ in 0..TRIES {
            if !me.local.borrow().is_empty() || self.over.get() {
                break;
            }
            let mut ctx = BatonCtx {
                now: self.now.get(),
                cpu: me.number as i32,
                ..BatonCtx::default()
            };
            if let Some(task) = prev {
                ctx = self.ctx(
                    task,
                    me.number,
                    if task.runnable.get() {
                        BATON_F_PREV_RUNNABLE
                    } else {
                        0
                    },
                );
            }
            let verdict = self.in_rules(|| self.core.dispatch((), self.state(me.number), &mut ctx));
            self.note_kicks(&ctx);
            match verdict {
                Verdict::Run => self.take_over(&ctx),
                Verdict::Keep => {
                    if let Some(task) = prev {
                        task.slice.set(ctx.slice);
                    }
                    goes_on = true;
                    break;
                }
                _ => break,
            }
        }
        me.in_balance.set(false);
        goes_on
    }

    /// insert_slot() of the shim, then finish_dispatch(), dispatch_to_local_dsq() and
    /// move_remote_task_to_local_dsq(). If the task was changed meanwhile, nothing is inserted, and
    /// the CPU dispatches again.
    fn take_over(&self, ctx: &BatonCtx) {
        let me = self.me();
        let Some(task) = self.task_of(ctx.task) else {
            return;
        };
        let enqueues = task.enqueues.get();
        if task.rq.get() != me.number && !task.may_use(me.number) {
            return;
        }
        self.take_kernels(Key::Ops(task.pid));
        let is_it = task.is_alive()
            && task.place.get() == Place::Custody
            && task.enqueues.get() == enqueues;
        if !is_it {
            return self.release(Key::Ops(task.pid));
        }
        task.slice.set(ctx.slice);
        let from = task.rq.get();
        if from == me.number {
            self.put_on_local(&task, me.number, true);
            return self.release(Key::Ops(task.pid));
        }
        task.place.set(Place::Away);
        task.holding.set(Some(me.number));
        self.release(Key::Ops(task.pid));
        self.release(Key::Rq(me.number));
        self.take_kernels(Key::Rq(from));
        let is_still = task.holding.get() == Some(me.number) && task.rq.get() == from;
        if is_still {
            task.holding.set(None);
            task.migrating.set(true);
            task.rq.set(me.number);
        }
        self.release(Key::Rq(from));
        self.take_kernels(Key::Rq(me.number));
        if is_still {
            task.migrating.set(false);
            self.put_on_local(&task, me.number, true);
        }
    }

    /// migration_cpu_stop(), on the CPU of a task that ran there and may not any more. Returns true
    /// if there was such a task.
    pub fn stop(&self) -> bool {
        let me = self.me();
        let is_here = |task: &&Rc<Task>| task.to_move.get() && task.rq.get() == me.number;
        let Some(task) = self.tasks.borrow().iter().find(is_here).cloned() else {
            return false;
        };
        task.to_move.set(false);
        self.take_over_by_higher_class();
        let rq = self.lock_task(&task);
        if rq == me.number && task.ours.get() && task.runnable.get() && !task.may_use(rq) {
            self.move_queued(&task);
        } else {
            self.unlock_task(&task, rq);
        }
        self.schedule(Turn::Asked);
        true
    }

    /// A thread of a higher class preempts the current task (put_prev_task_scx()). With
    /// SCX_ENQ_IMMED that task, and those on the local queue, are enqueued again. Otherwise the
    /// task waits at the head of the local queue if it has some of its slice left.
    fn take_over_by_higher_class(&self) {
        let me = self.me();
        self.take_kernels(Key::Rq(me.number));
        me.higher.set(true);
        if let Some(task) = me.current.take().map(|pid| self.task(pid)) {
            task.place.set(Place::Away);
            if task.immed.get() || task.slice.get() == 0 {
                self.enqueue(&task, 0);
            } else {
                me.local.borrow_mut().push_front(task.pid);
                task.place.set(Place::Local(me.number));
            }
        }
        self.reenqueue_if_busy(me.number);
        self.set_idle(false);
        self.release(Key::Rq(me.number));
        self.send_kicks();
    }

    /// sched_cpu_deactivate() and what follows, on the CPU that goes offline: ops.cpu_offline(),
    /// then the migration of its tasks.
    pub fn go_offline(&self) {
        let me = self.me();
        self.tell(Kind::Event, || "goes offline".into());
        self.take_over_by_higher_class();
        me.active.set(false);
        self.point();
        self.tell_online(false);
        loop {
            let own = |task: &&Rc<Task>| {
                task.is_alive()
                    && task.ours.get()
                    && task.runnable.get()
                    && task.rq.get() == me.number
            };
            let Some(task) = self.tasks.borrow().iter().find(own).cloned() else {
                break;
            };
            if self.over.get() {
                break;
            }
            let rq = self.lock_task(&task);
            if rq == me.number && task.runnable.get() && task.ours.get() {
                self.move_queued(&task);
            } else {
                self.unlock_task(&task, rq);
            }
        }
        me.timer.set(None);
        me.off.set(true);
    }

    /// sched_cpu_activate(): ops.cpu_online(), and the first reschedule of the CPU.
    pub fn go_online(&self) {
        let me = self.me();
        self.tell(Kind::Event, || "comes online".into());
        me.off.set(false);
        me.active.set(true);
        self.tell_online(true);
        self.schedule(Turn::Asked);
    }

    fn tell_online(&self, online: bool) {
        let me = self.me();
        let mut ctx = BatonCtx {
            now: self.now.get(),
            cpu: me.number as i32,
            ..BatonCtx::default()
        };
        self.in_rules(|| {
            self.core
                .set_online((), self.state(me.number), &mut ctx, online)
        });
        self.note_kicks(&ctx);
        self.send_kicks();
    }
}

fn cpus_of(mask: u32, count: usize) -> String {
    let cpus: Vec<String> = (0..count)
        .filter(|cpu| mask & 1 << cpu != 0)
        .map(|cpu| cpu.to_string())
        .collect();
    format!("CPU {}", cpus.join(", "))
}
