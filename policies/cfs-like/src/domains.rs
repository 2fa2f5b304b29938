// SPDX-License-Identifier: GPL-2.0-only
//! The placement of tasks by the kernel's fair class: at wakeup and fork (`select_task_rq_fair`),
//! when a CPU goes idle (`sched_balance_newidle`), and at intervals (`sched_balance_domains`). CFS
//! and EEVDF share it in the kernel, as `cfs_like` and `eevdf_like` do here. A task's load is its
//! weight: there are no load averages.

use alloc::{boxed::Box, vec::Vec};
use baton::{Cpu, Ctx, Kick, PerCpu, Shared, Task, Topology, Wake};
use core::iter;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The number of levels of domains, as in the kernel: the threads of a core, the cores under a
/// last-level cache, the caches of a node, the nodes of the machine.
const LEVELS: usize = 4;

/// The load that another group must exceed, in percent of the local load (`sd->imbalance_pct`).
const IMBALANCE_PERCENT: [u64; LEVELS] = [110, 117, 117, 117];

/// The interval at which a busy CPU balances a domain, in ms for each of the domain's CPUs
/// (`sd->busy_factor`).
const BUSY_FACTOR: u64 = 16;

/// The most tasks that one balancing of a domain moves (`sysctl_sched_nr_migrate`).
const MOST_MOVED: usize = 32;

/// The number of CPUs of each level that a CPU looks at when it goes idle. It stands for
/// `max_newidle_lb_cost`.
const NEWLY_IDLE_LOOKS: usize = 64;

/// The load of one CPU. Its sums are written with the lock of its queue held, and read without.
pub struct Load {
    /// Weight of the tasks that wait.
    pub waiting: Shared<u64>,
    /// Weight of the task that runs.
    pub running: Shared<u64>,
    /// When each level is balanced next, ns, and how many times in a row nothing was moved there.
    /// Used by the CPU itself only.
    due: [AtomicU64; LEVELS],
    failed: [AtomicU32; LEVELS],
    /// The CPU on which to queue the running task when it is preempted; [`NOWHERE`] for this CPU.
    push: AtomicU32,
}

const NOWHERE: u32 = u32::MAX;

/// The load of a group of CPUs.
#[derive(Clone, Copy, Default)]
struct Sum {
    load: u64,
    cpus: u64,
}

impl Sum {
    fn average(self) -> u64 {
        self.load / self.cpus.max(1)
    }
}

/// The loads of all CPUs, and the domains that they are balanced in.
pub struct Domains {
    pub topology: Topology,
    pub loads: PerCpu<Load>,
    /// The first CPU of each core, by cache; of each cache, by node; of each node.
    cores: Box<[Vec<Cpu>]>,
    caches: Box<[Vec<Cpu>]>,
    nodes: Vec<Cpu>,
}

impl Load {
    fn new() -> Self {
        Self {
            waiting: Shared::new(0),
            running: Shared::new(0),
            due: [const { AtomicU64::new(0) }; LEVELS],
            failed: [const { AtomicU32::new(0) }; LEVELS],
            push: AtomicU32::new(NOWHERE),
        }
    }
}

impl Domains {
    /// Creates the domains of an idle machine.
    pub fn new(env: &baton::Env<'_>) -> Self {
        let topology = env.topology().clone();
        let mut nodes = Vec::new();
        let mut cores: Vec<Vec<Cpu>> = Vec::new();
        let mut caches: Vec<Vec<Cpu>> = Vec::new();
        let at = |lists: &mut Vec<Vec<Cpu>>, id: u32, cpu| {
            lists.resize_with(lists.len().max(id as usize + 1), Vec::new);
            lists[id as usize].push(cpu);
        };
        for cpu in topology.cpus() {
            let [llc, node, _] = topology.levels(cpu);
            let is_first = |of: &[Cpu]| of.iter().all(|&other| other >= cpu);
            let place = topology.place(cpu);
            if is_first(topology.core(cpu)) {
                at(&mut cores, place.llc, cpu);
            }
            if is_first(llc) {
                at(&mut caches, place.node, cpu);
                if is_first(node) {
                    nodes.push(cpu);
                }
            }
        }
        let loads = env.per_cpu(|_| Load::new());
        let [cores, caches] = [cores, caches].map(Vec::into_boxed_slice);
        Self {
            topology,
            loads,
            cores,
            caches,
            nodes,
        }
    }

    /// The weight of a CPU's tasks, the running one and those that wait.
    pub fn load(&self, cpu: Cpu) -> u64 {
        self.loads[cpu].waiting.get() + self.loads[cpu].running.get()
    }

    /// The CPUs that share a cache with this one.
    fn same_llc(&self, cpu: Cpu) -> impl Iterator<Item = Cpu> + '_ {
        let [llc, ..] = self.topology.levels(cpu);
        llc.iter().copied()
    }

    /// The group of `cpu` in its domain of that level.
    fn group(&self, cpu: Cpu, level: usize) -> &[Cpu] {
        let [llc, node, _] = self.topology.levels(cpu);
        match level {
            0 => &self.topology.near(cpu)[..1],
            1 => self.topology.core(cpu),
            2 => llc,
            _ => &self.topology.near(cpu)[..llc.len() + node.len()],
        }
    }

    /// The first CPU of each group of the domain of that level that `cpu` is in.
    fn groups(&self, cpu: Cpu, level: usize) -> &[Cpu] {
        let place = self.topology.place(cpu);
        match level {
            0 => self.topology.core(cpu),
            1 => &self.cores[place.llc as usize],
            2 => &self.caches[place.node as usize],
            _ => &self.nodes,
        }
    }

    fn sum(&self, group: &[Cpu]) -> Sum {
        let load = group.iter().map(|&cpu| self.load(cpu)).sum();
        Sum {
            load,
            cpus: group.len() as u64,
        }
    }

    /// The most loaded of those CPUs where a task waits.
    fn busiest(&self, of: impl Iterator<Item = Cpu>) -> Option<Cpu> {
        let waiting = of.filter(|&cpu| self.loads[cpu].waiting.get() != 0);
        waiting.max_by_key(|&cpu| self.load(cpu))
    }

    /// Wakes the nearest idle CPU that is fit, to look for work (`nohz_balancer_kick`).
    pub fn offer(&self, ctx: &Ctx<'_>, from: Cpu, is_fit: impl Fn(Cpu) -> bool) {
        if let Some(idle) = ctx.idle_near(&self.topology, from).find(|&cpu| is_fit(cpu)) {
            let _ = ctx.kick(idle, Kick::Idle);
        }
    }

    /// A CPU for a new task: the nearest idle core of the machine, else an idle CPU, else the least
    /// loaded (`sched_balance_find_dst_cpu`).
    pub fn for_new(&self, ctx: &Ctx<'_>, task: &Task, wake: &Wake) -> Cpu {
        let is_fit = |&cpu: &Cpu| ctx.may_run(task, cpu);
        let near = || self.topology.near(wake.prev_cpu).iter().copied();
        let least = || near().filter(is_fit).min_by_key(|&cpu| self.load(cpu));
        ctx.claim_idle_for(&self.topology, task, wake)
            .or_else(least)
            .unwrap_or(wake.prev_cpu)
    }

    /// A CPU for a woken task: `Ok` with an idle one, claimed for the task, or else `Err` with a
    /// busy one.
    pub fn for_woken(&self, ctx: &Ctx<'_>, task: &Task, wake: &Wake) -> Result<Cpu, Cpu> {
        // An idle previous CPU is chosen whichever of the two is the target (`wake_affine_idle`).
        let prev = wake.prev_cpu;
        if self.topology.same_llc(wake.waker_cpu, prev)
            && ctx.may_run(task, prev)
            && ctx.claim_idle(prev)
        {
            return Ok(prev);
        }
        let target = self.target(ctx, task, wake);
        self.idle_sibling(ctx, task, prev, target).ok_or(target)
    }

    /// The CPU where the task last ran, or its waker's CPU (`wake_affine`).
    fn target(&self, ctx: &Ctx<'_>, task: &Task, wake: &Wake) -> Cpu {
        let (waker, prev) = (wake.waker_cpu, wake.prev_cpu);
        let is_alone = wake.sync && self.loads[waker].waiting.get() == 0;
        let is_less =
            || !ctx.is_idle(prev) && self.load(waker) + u64::from(task.weight()) < self.load(prev);
        let pulls = (is_alone || is_less()) && ctx.may_run(task, waker);
        if pulls {
            waker
        } else {
            prev
        }
    }

    /// Claims an idle CPU under the target's LLC: the target, the previous CPU, one of an idle
    /// core, any other (`select_idle_sibling`).
    #[inline(never)]
    fn idle_sibling(&self, ctx: &Ctx<'_>, task: &Task, prev: Cpu, target: Cpu) -> Option<Cpu> {
        let own = [target, prev]
            .into_iter()
            .filter(|&cpu| self.topology.same_llc(cpu, target));
        let is_idle_core = |&cpu: &Cpu| self.topology.core(cpu).iter().all(|&c| ctx.is_idle(c));
        let order = own
            .chain(self.same_llc(target).filter(is_idle_core))
            .chain(self.same_llc(target));
        let is_idle =
            |&cpu: &Cpu| ctx.is_idle(cpu) && ctx.may_run(task, cpu) && ctx.claim_idle(cpu);
        order.take_while(|_| ctx.any_idle()).find(is_idle)
    }

    /// Takes a task for a CPU that goes idle, at the nearest level first: from the most loaded CPU,
    /// or from another if that has none for it (`sched_balance_newidle`).
    pub fn newly_idle<T>(&self, cpu: Cpu, mut take: impl FnMut(Cpu) -> Option<T>) -> Option<T> {
        self.topology.levels(cpu).into_iter().find_map(|level| {
            let looked_at = || level.iter().copied().take(NEWLY_IDLE_LOOKS);
            let waits = |&cpu: &Cpu| self.loads[cpu].waiting.get() != 0;
            let first = self.busiest(looked_at())?;
            iter::once(first)
                .chain(looked_at().filter(waits))
                .find_map(&mut take)
        })
    }

    /// Balances the domains of a busy CPU that are due (`sched_balance_rq`). `pull` moves one task
    /// that fits from a CPU's queue to this one's, and returns its weight. `weight` is the weight
    /// of the task in a slot.
    pub fn balance(
        &self,
        ctx: &Ctx<'_>,
        cpu: Cpu,
        weight: impl Fn(u32) -> u64,
        mut pull: impl FnMut(Cpu, &dyn Fn(u32) -> bool) -> Option<u64>,
    ) {
        let at = &self.loads[cpu];
        for level in 0..LEVELS {
            let groups = self.groups(cpu, level);
            if groups.len() < 2 || ctx.now() < at.due[level].load(Relaxed) {
                continue;
            }
            let group = self.group(cpu, level);
            // One CPU balances for its group (`should_we_balance`).
            if group
                .iter()
                .any(|&other| other < cpu && ctx.is_online(other))
            {
                continue;
            }
            let all: u64 = groups
                .iter()
                .map(|&first| self.group(first, level).len() as u64)
                .sum();
            at.due[level].store(ctx.now() + all * BUSY_FACTOR * 1_000_000, Relaxed);
            let Some((busiest, mut imbalance)) = self.imbalance(cpu, level) else {
                at.failed[level].store(0, Relaxed);
                continue;
            };
            // When no task is small enough, the next try takes a larger one (`shr_bound`).
            let failed = at.failed[level].load(Relaxed).min(31);
            let mut moved = 0;
            while imbalance > 0 && moved < MOST_MOVED {
                let fits =
                    |slot| weight(slot) >> failed <= imbalance && ctx.slot_may_run(slot, cpu);
                let Some(weight) = pull(busiest, &fits) else {
                    break;
                };
                imbalance = imbalance.saturating_sub(weight);
                moved += 1;
            }
            at.failed[level].store(if moved == 0 { failed + 1 } else { 0 }, Relaxed);
        }
    }

    /// The CPU to take tasks from, and the weight to take (`sched_balance_find_src_group`).
    fn imbalance(&self, cpu: Cpu, level: usize) -> Option<(Cpu, u64)> {
        let local = self.sum(self.group(cpu, level));
        let own = self.group(cpu, level);
        let others = self
            .groups(cpu, level)
            .iter()
            .filter(|&first| !own.contains(first));
        let (mut all, mut most) = (local, None::<(Sum, Cpu)>);
        for &first in others {
            let group = self.group(first, level);
            let sum = self.sum(group);
            all = Sum {
                load: all.load + sum.load,
                cpus: all.cpus + sum.cpus,
            };
            let is_more = most.is_none_or(|(most, _)| most.average() < sum.average());
            if let Some(busiest) = self.busiest(group.iter().copied()).filter(|_| is_more) {
                most = Some((sum, busiest));
            }
        }
        let (most, busiest) = most?;
        if most.average() * 100 <= local.average() * IMBALANCE_PERCENT[level] {
            return None;
        }
        let above = most.average().saturating_sub(all.average()) * most.cpus;
        let below = all.average().saturating_sub(local.average()) * local.cpus;
        Some((busiest, above.min(below)))
    }

    /// Moves a task that runs alone on `cpu`, but shares its core with another, to an idle core, if
    /// there is one (`need_active_balance`). Its CPU is preempted, and [`Domains::pushed`] returns
    /// where to queue it.
    pub fn spread(&self, ctx: &Ctx<'_>, task: &Task, cpu: Cpu) {
        let siblings = self.topology.core(cpu);
        let is_busy = |&cpu: &Cpu| self.loads[cpu].running.get() != 0;
        if siblings.len() < 2
            || self.loads[cpu].waiting.get() != 0
            || !siblings.iter().skip(1).any(is_busy)
        {
            return;
        }
        let is_whole = |cpu: &Cpu| self.topology.core(*cpu).iter().all(|&c| ctx.is_idle(c));
        let mut idle = ctx.idle_near(&self.topology, cpu).take_while(is_whole);
        if let Some(idle) = idle.find(|&idle| ctx.may_run(task, idle)) {
            self.loads[cpu].push.store(idle.number() as u32, Relaxed);
            let _ = ctx.kick(cpu, Kick::Preempt);
        }
    }

    /// The CPU on which to queue a task that was preempted on `cpu`.
    pub fn pushed(&self, ctx: &Ctx<'_>, task: &Task, cpu: Cpu) -> Cpu {
        let push = &self.loads[cpu].push;
        if push.load(Relaxed) == NOWHERE {
            return cpu;
        }
        let to = Cpu::new(push.swap(NOWHERE, Relaxed));
        if ctx.may_run(task, to) && ctx.claim_idle(to) {
            let _ = ctx.kick(to, Kick::Idle);
            return to;
        }
        cpu
    }

    /// The nearest CPU that a task may use. If there is none, `home`: the kernel will enqueue the
    /// task again.
    pub fn for_homeless(&self, ctx: &Ctx<'_>, slot: u32, home: Cpu) -> Cpu {
        let fits = |&cpu: &Cpu| ctx.is_online(cpu) && ctx.slot_may_run(slot, cpu);
        self.topology
            .near(home)
            .iter()
            .copied()
            .find(fits)
            .unwrap_or(home)
    }
}
