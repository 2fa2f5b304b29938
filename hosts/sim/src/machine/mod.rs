// SPDX-License-Identifier: GPL-2.0-only
//! The machine: CPUs, run queues, and the part of the kernel between tasks and the rules
//! (kernel/sched/core.c and kernel/sched/ext/ext.c of 7.2, and the shim,
//! `hosts/kernel/shim.bpf.c`).
//!
//! The machine does nothing that the kernel could not do. Each rule names its counterpart in the
//! kernel. Where a rule differs from the kernel on purpose, its comment begins with "Deviation:",
//! and `docs/simulator.md` lists it.
//!
//! Time stands still while an event is handled. The cost of the kernel's own work (`Costs`) is
//! added to the work of the task on that CPU, or to the delay of an interrupt.

mod agent;
mod change;
mod class;
mod hint;
mod program;
mod resume;
mod schedule;
mod stream;
mod wake;
mod watch;

use std::collections::VecDeque;
use std::sync::Arc;

use baton_abi::{BatonCtx, BatonHint, BATON_KICK_PREEMPT};
use baton_core::CpuState;

use crate::agent::Side;
use crate::demand::{Demand, Shares};
use crate::host::{SimCore, SimHost};
use crate::idle::History;
use crate::queue::{Next, Queue};
use crate::rng::Rng;
use crate::stats::Stats;
use crate::trace::{Event, Sink};
use crate::world::{Item, Program, Source, Spawn, TaskRef, Thing, World};
use crate::Config;

/// Where a task is, as the kernel sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Not runnable.
    Away,
    /// With the rules: ops.enqueue() took it (SCX_OPSS_QUEUED).
    Custody,
    /// On the fallback queue.
    Fallback,
    /// On a CPU's local queue.
    Local(u32),
    OnCpu(u32),
}

impl Place {
    fn waits(self) -> bool {
        matches!(self, Place::Custody | Place::Fallback | Place::Local(_))
    }
}

struct Task {
    id: TaskRef,
    /// The PID that the policy sees.
    pid: u32,
    handle: u64,
    slot: u32,
    place: Place,
    runnable: bool,
    /// p->scx.slice, ns
    slice: u64,
    /// SCX_TASK_IMMED: the task is re-enqueued if it cannot run at once.
    immed: bool,
    /// Where it ran last.
    last_cpu: Option<u32>,
    nice: i32,
    /// p->se.sum_exec_runtime, ns
    runtime: u64,
    /// The part of `runtime` from before the run, ns.
    ran_before: u64,
    /// Work to do before its program is asked again, ns at full speed.
    remaining: u64,
    /// When it was woken, ns. `None` once it runs.
    woken_at: Option<u64>,
    /// Counts its wakeups and its exit, so that a timer of an earlier sleep is ignored. The count
    /// continues with the next task in this place.
    turn: u32,
    group: u32,
    /// While it is runnable, the result of [`Demand::join`]; and the CPU time that it was due until
    /// then, ns.
    joined: f64,
    due: f64,
    /// Another task resumed it before it suspended itself.
    resumed: bool,
    /// It sleeps in [`crate::world::Op::Suspend`].
    suspended: bool,
    item: Option<Item>,
    /// Replies of its policy that it has not taken; whether it sleeps for one; the one that it took
    /// last.
    replies: VecDeque<BatonHint>,
    awaits_reply: bool,
    reply: Option<BatonHint>,
    child: Option<TaskRef>,
    rng: Rng,
    /// A sequence of its own, so that programs draw the same numbers with and without jitter.
    jitter: Rng,
    program: Option<Box<dyn Program>>,
    name: Arc<str>,
}

struct Cpu {
    curr: Option<u32>,
    local: VecDeque<u32>,
    online: bool,
    /// A task of a higher class runs on it.
    higher: bool,
    /// Until when, ns; and a count that increases with each change.
    higher_until: u64,
    higher_turn: u32,
    /// It was last reported to the rules as idle.
    told_idle: bool,
    idles: History,
    /// A reschedule is pending (TIF_NEED_RESCHED); and it ends the running task's slice.
    resched: bool,
    preempt: bool,
    /// Increases when `__schedule()` picks, so that a reschedule that was pending before is
    /// ignored.
    resched_turn: u32,
    /// Interrupts are off until then, ns, in `__schedule()`.
    deaf_until: u64,
    has_tick: bool,
    /// Counts switches and changes of speed, so that an event of an earlier task is ignored.
    turn: u32,
    /// Up to when the running task's time is accounted for, ns.
    since: u64,
    /// When it begins to do the running task's work, ns.
    work_from: u64,
    /// Speed, in 1/1024.
    speed: u64,
    /// Other hardware threads of its core.
    siblings: Box<[u32]>,
    /// By policy: counts settings of its timer on this CPU.
    timers: Vec<(u32, u32)>,
}

pub(crate) struct Machine<'m> {
    core: &'m SimCore<'m>,
    config: &'m Config,
    now: u64,
    queue: Queue,
    cpus: Vec<Cpu>,
    tasks: Vec<Task>,
    /// Free places in `tasks`.
    free: Vec<u32>,
    /// The place in `tasks` of each living task, by number.
    by_ref: Vec<Option<u32>>,
    /// When a task left a CPU last, ns.
    last_ran: u64,
    /// The tasks of the workload that have not started.
    to_come: Vec<Option<Spawn>>,
    fallback: VecDeque<u32>,
    things: Vec<Thing>,
    sources: Vec<(Box<dyn Source>, Rng)>,
    arrivals: Vec<Option<(crate::world::Object, Item)>>,
    happenings: Vec<crate::world::Happening>,
    noise: Rng,
    /// The agent of the enclave, if there is one.
    agent: Option<Side>,
    stream: stream::Stream,
    /// When a recording's next checkpoint is due, ns.
    next_checkpoint: u64,
    /// The error of the policy if it could not save its state.
    pub unsaved: Option<String>,
    /// The task whose program's operation is being performed.
    acting: Option<TaskRef>,
    /// Runnable tasks that no CPU runs; online idle CPUs; both as last reported to the sink.
    waiting: u32,
    demand: Demand,
    shares: Shares,
    /// Some task may not use all CPUs.
    bound: bool,
    idle: u32,
    /// CPUs that a higher class uses; offline CPUs.
    higher: u32,
    offline: u32,
    told_load: (u32, u32),
    pub stats: Stats,
    sink: Option<&'m mut dyn Sink>,
}

impl<'m> Machine<'m> {
    pub fn new(
        core: &'m SimCore<'m>,
        config: &'m Config,
        world: World,
        agent: Option<Side>,
        sink: Option<&'m mut dyn Sink>,
    ) -> Self {
        let places = config.topology.cpus();
        let mut cores: Vec<Vec<u32>> = vec![Vec::new(); places.len()];
        for (cpu, place) in places.iter().enumerate() {
            cores[place.core as usize].push(cpu as u32);
        }
        let siblings = |cpu: usize| {
            let threads = cores[places[cpu].core as usize].iter().copied();
            threads.filter(|&other| other as usize != cpu).collect()
        };
        let cpu = |cpu: usize| Cpu {
            curr: None,
            local: VecDeque::new(),
            online: true,
            higher: false,
            higher_until: 0,
            higher_turn: 0,
            told_idle: false,
            idles: History::default(),
            resched: false,
            preempt: false,
            resched_turn: 0,
            deaf_until: 0,
            has_tick: false,
            turn: 0,
            since: 0,
            work_from: 0,
            speed: if config.one_stream { 0 } else { 1024 },
            siblings: siblings(cpu),
            timers: Vec::new(),
        };
        let World {
            things,
            groups,
            tasks,
            sources,
            mut happenings,
        } = world;
        happenings.sort_by_key(|(at, _)| *at);
        let mut machine = Self {
            core,
            config,
            now: 0,
            queue: Queue::default(),
            cpus: (0..places.len()).map(cpu).collect(),
            tasks: Vec::new(),
            free: Vec::new(),
            by_ref: vec![None; tasks.len()],
            last_ran: 0,
            to_come: Vec::new(),
            fallback: VecDeque::new(),
            things,
            arrivals: vec![None; sources.len()],
            sources: Vec::new(),
            happenings: Vec::new(),
            noise: Rng::new(config.seed, u64::MAX - 1),
            agent,
            stream: stream::Stream::default(),
            next_checkpoint: core.host().checkpoint_every.unwrap_or(u64::MAX),
            unsaved: None,
            acting: None,
            waiting: 0,
            demand: Demand::default(),
            shares: Shares::default(),
            bound: false,
            idle: 0,
            higher: 0,
            offline: 0,
            told_load: (0, 0),
            stats: Stats::new(&groups),
            sink,
        };
        let mut begins = Rng::new(config.seed, u64::MAX - 2);
        for (at, spawn) in tasks.into_iter().enumerate() {
            // Tasks are never made all at once, nor always in the same order.
            let late = u64::from(config.jitter) * config.costs.tick / 1_000_000;
            let start = spawn.at.saturating_add(begins.below(late + 1));
            machine.queue.push(start, Next::Start { task: at as u32 });
            machine.to_come.push(Some(spawn));
        }
        for (at, source) in sources.into_iter().enumerate() {
            machine
                .sources
                .push((source, Rng::new(config.seed, 1 << 40 | at as u64)));
            machine.next_arrival(at as u32);
        }
        for (at, (time, what)) in happenings.into_iter().enumerate() {
            machine.queue.push(time, Next::Happening { at: at as u32 });
            machine.happenings.push(what);
        }
        machine
    }

    /// Runs to the end of the duration, or to the first fault.
    pub fn run(&mut self) {
        // Loading the policies made every CPU reschedule, long before there was anything to run.
        self.host().kicks_all.set(false);
        for cpu in 0..self.cpus.len() as u32 {
            self.note_idle(cpu);
            self.begin_noise(cpu);
        }
        self.begin_agent();
        self.queue.push(10_000_000, Next::Watch);
        while let Some((at, next)) = self.queue.pop() {
            let end = at.min(self.config.duration);
            self.stats.pass(
                end - self.now,
                self.waiting,
                [self.idle, self.higher, self.offline],
            );
            self.demand.pass(
                end - self.now,
                self.cpus.len() as u32 - self.higher - self.offline,
            );
            self.now = end;
            self.host().now.set(end);
            if at > self.config.duration {
                self.queue.push_first(at, next);
                break;
            }
            if at >= self.next_checkpoint && !self.checkpoint() {
                break;
            }
            if !self.must_wait(next) {
                self.happen(next);
            }
            self.look_at_stream();
            self.look_at_agent();
            self.tell_load();
            if !self.host().reports.borrow().is_empty() {
                break;
            }
        }
    }

    /// Has the policy save its state, and sets the time of the next checkpoint. Returns false if
    /// the policy failed to save it.
    #[cold]
    fn checkpoint(&mut self) -> bool {
        let every = self.host().checkpoint_every.unwrap_or(u64::MAX).max(1);
        self.next_checkpoint = (self.now / every + 1).saturating_mul(every);
        self.unsaved = self.host().checkpoint().err();
        self.unsaved.is_none()
    }

    /// Reports the fault that ended the run, if there was one, and brings the accounts up to date.
    pub fn end(&mut self) {
        let stopped: Vec<u32> = self
            .host()
            .reports
            .borrow()
            .iter()
            .map(|fault| fault.index)
            .collect();
        stopped
            .into_iter()
            .for_each(|policy| self.tell(Event::Fault { policy }));
        (0..self.cpus.len() as u32).for_each(|cpu| self.account(cpu));
        self.stats.stuck = self.is_stuck().then_some(self.last_ran);
        for at in 0..self.tasks.len() {
            self.end_of(at as u32, true);
        }
        self.stats.duration = self.now;
        self.stats.shares = (self.demand.contended && !self.bound).then_some(self.shares);
    }

    fn happen(&mut self, next: Next) {
        match next {
            Next::Done { cpu, turn } if self.cpus[cpu as usize].turn == turn => self.done(cpu),
            Next::Resched { cpu, turn } if self.cpus[cpu as usize].resched_turn == turn => {
                self.reschedule(cpu)
            }
            Next::Tick { cpu } => self.tick(cpu),
            Next::Timer { cpu, policy, turn } => self.timer(cpu, policy, turn),
            Next::WakeUp { task, turn } if self.tasks[task as usize].turn == turn => {
                // hrtimer_wakeup(), on the CPU where the sleep began.
                let here = self.any_online(self.rq(task));
                self.wake(task, here, false);
            }
            Next::Start { task } => self.start(task),
            Next::Arrival { source } => self.arrive(source),
            Next::Happening { at } => self.happens_at(at),
            Next::HigherEnds { cpu, turn } if self.cpus[cpu as usize].higher_turn == turn => {
                self.higher_ends(cpu)
            }
            Next::Noise { cpu, interrupt } => self.make_noise(cpu, interrupt),
            Next::Evict { cpu } => self.evict(cpu),
            Next::Agent { turn } => self.agent_acts(turn),
            Next::Kick { cpu, preempt } => self.agent_kicks(cpu, preempt),
            Next::Watch => self.watch(),
            Next::TurnEnds { turn } => self.turn_ends(turn),
            Next::Done { .. }
            | Next::Resched { .. }
            | Next::WakeUp { .. }
            | Next::HigherEnds { .. } => {}
        }
    }

    /// Leaves the agent as it is, after a crash in the middle of its work.
    pub fn abandon_agent(&mut self) {
        std::mem::forget(self.agent.take());
    }

    fn host(&self) -> &'m SimHost {
        self.core.host()
    }

    fn state(&self, cpu: u32) -> &'m CpuState {
        self.core.cpu(cpu as i32).expect("the machine has this CPU")
    }

    /// The context of a call about a task.
    fn ctx(&self, at: u32, cpu: u32, flags: u16) -> BatonCtx {
        let task = &self.tasks[at as usize];
        BatonCtx {
            now: self.now,
            task: task.handle,
            runtime: task.runtime,
            cpu: cpu as i32,
            flags,
            ..BatonCtx::default()
        }
    }

    /// The context of a call about a CPU.
    fn cpu_ctx(&self, cpu: u32) -> BatonCtx {
        BatonCtx {
            now: self.now,
            cpu: cpu as i32,
            ..BatonCtx::default()
        }
    }

    /// Begins a call to the rules on this CPU.
    fn enter(&mut self, here: u32) -> &'m CpuState {
        self.stats.events += 1;
        self.host().here.set(here);
        self.state(here)
    }

    /// Ends a call to the rules on the CPU `here`: carries out the requests of the rules and of
    /// policies.
    fn settle(&mut self, here: u32, ctx: &BatonCtx) {
        // A policy in C can request more kicks than there is room for.
        for &kick in ctx.kicks.iter().take(usize::from(ctx.nr_kicks)) {
            let cpu = u32::from(kick & (BATON_KICK_PREEMPT - 1));
            self.kick(cpu, here, kick & BATON_KICK_PREEMPT != 0);
        }
        let host = self.host();
        if host.kicks_all.replace(false) {
            (0..self.cpus.len() as u32).for_each(|cpu| self.kick(cpu, here, true));
        }
        if !host.timers.borrow().is_empty() {
            for request in host.timers.take() {
                self.set_timer(request.cpu, request.policy, request.at);
            }
        }
        self.deliver_all();
        if !host.evictions.borrow().is_empty() {
            // irq_work, and the wakeup of a work item's thread
            let soon = self.now + (self.config.costs.ipi + self.config.costs.wakeup).max(1);
            for cpu in host.evictions.take() {
                self.queue.push(soon, Next::Evict { cpu });
            }
        }
    }

    /// scx_kick_cpu() with and without SCX_KICK_PREEMPT. Without it, only an idle CPU is kicked.
    fn kick(&mut self, cpu: u32, here: u32, preempt: bool) {
        let Some(target) = self.cpus.get_mut(cpu as usize) else {
            return;
        };
        if !target.online || target.higher || (!preempt && target.curr.is_some()) {
            return;
        }
        // The kicker ends the slice under the lock of that run queue. On its own CPU the slice ends
        // after the current work.
        if preempt && cpu != here {
            self.account(cpu);
            if let Some(at) = self.cpus[cpu as usize].curr {
                self.tasks[at as usize].slice = 0;
            }
        } else {
            target.preempt |= preempt;
        }
        self.resched(cpu, here);
    }

    /// resched_curr()
    fn resched(&mut self, cpu: u32, here: u32) {
        let target = &mut self.cpus[cpu as usize];
        if target.resched {
            return;
        }
        target.resched = true;
        let costs = &self.config.costs;
        let way = if cpu == here { 0 } else { costs.ipi };
        let idle = if target.curr.is_none() && !target.higher {
            target
                .idles
                .leave(self.now, self.config.idle_states)
                .unwrap_or(costs.idle_exit)
        } else {
            0
        };
        // Never at once, so that time passes even if a CPU reschedules itself.
        let at = (self.now + way + idle)
            .max(target.deaf_until)
            .max(self.now + 1);
        let turn = target.resched_turn;
        self.queue.push(at, Next::Resched { cpu, turn });
    }

    fn reschedule(&mut self, cpu: u32) {
        let target = &mut self.cpus[cpu as usize];
        target.resched = false;
        let preempt = std::mem::take(&mut target.preempt);
        if !target.online || target.higher {
            return;
        }
        self.account(cpu);
        if let Some(at) = self.cpus[cpu as usize].curr.filter(|_| preempt) {
            self.tasks[at as usize].slice = 0;
        }
        self.schedule(cpu, crate::trace::Left::Preempted);
    }

    fn set_timer(&mut self, cpu: u32, policy: u32, at: Option<u64>) {
        let timers = &mut self.cpus[cpu as usize].timers;
        let found = timers.iter_mut().find(|(of, _)| *of == policy);
        let turn = match found {
            Some((_, turn)) => {
                *turn = turn.wrapping_add(1);
                *turn
            }
            None => {
                timers.push((policy, 0));
                0
            }
        };
        if let Some(at) = at {
            self.queue.push(at, Next::Timer { cpu, policy, turn });
        }
    }

    fn timer(&mut self, cpu: u32, policy: u32, turn: u32) {
        if !self.cpus[cpu as usize].timers.contains(&(policy, turn)) {
            return;
        }
        self.set_timer(cpu, policy, None);
        // Timers of an offline CPU move to another.
        let cpu = self.any_online(cpu);
        self.account(cpu);
        self.steal(cpu, self.config.costs.tick_work);
        let mut ctx = self.cpu_ctx(cpu);
        let here = self.enter(cpu);
        self.core.timer((), here, &mut ctx, policy as usize);
        self.settle(cpu, &ctx);
    }

    /// scheduler_tick(), while the CPU runs a task of ours.
    fn tick(&mut self, cpu: u32) {
        let target = &mut self.cpus[cpu as usize];
        let Some(at) = target.curr else {
            target.has_tick = false;
            return;
        };
        // tick_nohz_handler() keeps the period, however late a tick is.
        self.queue.push(
            (self.now / self.config.costs.tick + 1) * self.config.costs.tick,
            Next::Tick { cpu },
        );
        self.account(cpu);
        self.steal(cpu, self.config.costs.tick_work);
        let mut ctx = self.ctx(at, cpu, 0);
        let here = self.enter(cpu);
        if self.core.tick((), here, &mut ctx) == baton_core::Verdict::Expire {
            self.tasks[at as usize].slice = 0;
        }
        self.settle(cpu, &ctx);
        if self.tasks[at as usize].slice == 0 {
            self.resched(cpu, cpu);
        }
    }

    /// Takes CPU time for an interrupt or the kernel: the running task is done that much later.
    fn steal(&mut self, cpu: u32, work: u64) {
        if let Some(at) = self.cpus[cpu as usize].curr {
            let remaining = &mut self.tasks[at as usize].remaining;
            *remaining = remaining.saturating_add(work);
        }
    }

    /// A task's run queue: task_cpu().
    fn rq(&self, at: u32) -> u32 {
        self.host().facts[self.tasks[at as usize].slot as usize]
            .rq
            .get()
    }

    fn set_rq(&mut self, at: u32, cpu: u32) {
        self.host().facts[self.tasks[at as usize].slot as usize]
            .rq
            .set(cpu);
    }

    fn mask(&self, at: u32) -> u32 {
        self.host().facts[self.tasks[at as usize].slot as usize]
            .mask
            .get()
    }

    /// is_cpu_allowed()
    fn allowed(&self, at: u32, cpu: u32) -> bool {
        self.host().mask_has(self.mask(at), cpu) && self.cpus[cpu as usize].online
    }

    /// This CPU, or another one if it is offline.
    fn any_online(&self, cpu: u32) -> u32 {
        if self.cpus[cpu as usize].online {
            cpu
        } else {
            (0..self.cpus.len() as u32)
                .find(|&cpu| self.cpus[cpu as usize].online)
                .expect("a CPU is online")
        }
    }

    fn set_runnable(&mut self, at: u32, runnable: bool) {
        self.bound |= self.mask(at) != 0;
        let task = &mut self.tasks[at as usize];
        match (task.runnable, runnable) {
            (false, true) => task.joined = self.demand.join(task.nice),
            (true, false) => task.due += self.demand.leave(task.nice, task.joined),
            _ => {}
        }
        task.runnable = runnable;
    }

    fn set_place(&mut self, at: u32, place: Place) {
        let task = &mut self.tasks[at as usize];
        self.waiting = self.waiting + u32::from(place.waits()) - u32::from(task.place.waits());
        task.place = place;
    }

    fn tell(&mut self, event: Event) {
        self.stats.hash.event(self.now, &event);
        if let Some(sink) = &mut self.sink {
            sink.event(self.now, &event);
        }
    }

    fn tell_load(&mut self) {
        let load = (self.waiting, self.idle);
        if self.told_load != load {
            self.told_load = load;
            self.tell(Event::Load {
                waiting: load.0,
                idle: load.1,
            });
        }
    }

    /// The name of the task with this PID, for fault reports.
    pub fn name_of(&self, pid: u32) -> Option<&str> {
        self.tasks
            .iter()
            .find(|task| task.pid == pid)
            .map(|task| &*task.name)
    }
}
