// SPDX-License-Identifier: GPL-2.0-only
/*
 * How long each CPU idles, runs a task, and runs one while others wait for it; and how long it
 * idles while tasks wait for some CPU: cores that a scheduler wastes. Whatever schedules the tasks.
 * Attached only while `baton monitor` runs, so that it costs nothing otherwise.
 * control/src/cores.rs reads the results.
 *
 * Context: scheduler tracepoints, interrupts off, the lock of the run queue held. `begin` runs in
 * process context.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char _license[] SEC("license") = "GPL";

#define MAX_CPUS 4096	/* as BATON_CPU_WORDS has bits */
#define TRIES 1024	/* to change a number that other CPUs change, too */

/* Times, ns. Guarded by the lock of the CPU's run queue, once it has begun. */
struct core_times {
	u64 since;	/* time of the last change; 0 before the first */
	u32 idles;	/* since then: does the idle task run? */
	u32 waiting;	/* do tasks wait for the CPU? */
	u64 overload;	/* overload() at that time, if it idles */
	u64 idle, busy, overloaded, wasted;
} __attribute__((aligned(64)));

/*
 * The machine is overloaded while tasks wait for a CPU. `state` is the number of such CPUs in the
 * upper 16 bits, and the time at which the first of them came to be in the lower 48; both change
 * together. That time is in units of 64 ns, so that it does not wrap for months.
 */
#define TIME_BITS 48
#define TIME_MASK ((1ULL << TIME_BITS) - 1)
#define UNIT_BITS 6
struct machine {
	u64 state;
	u64 overload;	/* sum of the past times of overload, units */
} __attribute__((aligned(64)));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, u32);
	__type(value, struct core_times);
} cores SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct machine);
} machines SEC(".maps");

extern const struct rq runqueues __ksym;

/* Tasks wait for one more CPU (`by` 1), or for one less (`by` -1). */
static __always_inline void change_overload(struct machine *machine, u64 now, int by)
{
	u64 old = *(volatile u64 *)&machine->state, seen, count, since;
	int i;

	now = now >> UNIT_BITS & TIME_MASK;
	bpf_for(i, 0, TRIES) {
		count = (old >> TIME_BITS) + by;
		since = old & TIME_MASK;
		if (by < 0 && !(old >> TIME_BITS))
			return;
		if (by > 0 && count == 1)
			since = now;
		seen = __sync_val_compare_and_swap(&machine->state, old,
						   count << TIME_BITS | since);
		if (seen == old) {
			if (!count)
				__sync_fetch_and_add(&machine->overload, (now - since) & TIME_MASK);
			return;
		}
		old = seen;
	}
}

/* How long the machine has been overloaded in all, ns. */
static __always_inline u64 overload(const struct machine *machine, u64 now)
{
	u64 past = *(volatile u64 *)&machine->overload, state = *(volatile u64 *)&machine->state;
	u64 time = ((now >> UNIT_BITS) - state) & TIME_MASK;

	/* Another CPU may have begun the overload after `now` was read. */
	if (!(state >> TIME_BITS) || time >> (TIME_BITS - 1))
		time = 0;
	return (past + time) << UNIT_BITS;
}

/* Adds the time since the last change of a CPU. */
static __always_inline void account(struct core_times *core, const struct machine *machine, u64 now)
{
	s64 time = now - core->since, wasted;

	if (time < 0)
		time = 0;
	if (core->idles) {
		core->idle += time;
		wasted = overload(machine, now) - core->overload;
		if (wasted > 0)
			core->wasted += wasted < time ? wasted : time;
	} else if (core->waiting) {
		core->overloaded += time;
	} else {
		core->busy += time;
	}
}

/* Tasks that wait for the CPU. The fair class counts some that are asleep, see DELAY_DEQUEUE. */
static __always_inline bool has_waiting(const struct rq *rq, bool idles)
{
	return (int)(rq->nr_running - (rq->cfs.h_nr_queued - rq->cfs.h_nr_runnable)) > !idles;
}

static __always_inline void change(const struct rq *rq, u32 cpu, bool idles)
{
	u32 zero = 0;
	struct core_times *core = bpf_map_lookup_elem(&cores, &cpu);
	struct machine *machine = bpf_map_lookup_elem(&machines, &zero);
	u64 now = bpf_ktime_get_ns();
	bool waiting = has_waiting(rq, idles);

	if (!core || !machine)
		return;
	if (core->since)
		account(core, machine, now);
	if (core->waiting != waiting)
		change_overload(machine, now, waiting ? 1 : -1);
	core->idles = idles;
	core->waiting = waiting;
	if (idles)
		core->overload = overload(machine, now);
	core->since = now;
}

SEC("tp_btf/sched_update_nr_running_tp")
int BPF_PROG(on_change, struct rq *rq, int by)
{
	change(rq, rq->cpu, rq->curr == rq->idle);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u32 cpu = bpf_get_smp_processor_id();
	const struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);

	if (rq)
		change(rq, cpu, !next->pid);
	return 0;
}

/* Notes what CPUs do that do not change it. Those that do have begun already, or do so now. */
SEC("syscall")
int begin(void *unused)
{
	struct machine *machine;
	struct core_times *core;
	const struct rq *rq;
	u32 cpu, zero = 0;
	bool idles, waiting;
	u64 now;

	machine = bpf_map_lookup_elem(&machines, &zero);
	if (!machine)
		return 1;
	bpf_for(cpu, 0, MAX_CPUS) {
		rq = bpf_per_cpu_ptr(&runqueues, cpu);
		core = bpf_map_lookup_elem(&cores, &cpu);
		if (!rq || !core)
			break;
		idles = rq->curr == rq->idle;
		waiting = has_waiting(rq, idles);
		now = bpf_ktime_get_ns();
		if (__sync_val_compare_and_swap(&core->since, 0, now))
			continue;
		core->idles = idles;
		core->waiting = waiting;
		core->overload = overload(machine, now);
		if (waiting)
			change_overload(machine, now, 1);
	}
	return 0;
}
