// SPDX-License-Identifier: GPL-2.0-only
/*
 * How long each CPU has no runnable task, one, or several, and how long it has none while another
 * one has several: cores that a scheduler wastes. Whatever schedules the tasks. Attached only while
 * `baton monitor` runs, so that it costs nothing otherwise. control/src/cores.rs reads the results.
 *
 * Context: a scheduler tracepoint, interrupts off, the lock of the run queue held. `begin` runs in
 * process context.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char _license[] SEC("license") = "GPL";

#define MAX_CPUS 4096	/* as BATON_CPU_WORDS has bits */
#define TRIES 1024	/* to change a number that other CPUs change, too */

/* Times, ns. Guarded by the lock of the CPU's run queue, once it has begun. */
struct core_times {
	u64 since;	/* time of the last change; 0 before `begin` */
	u64 runnable;	/* number of tasks since then */
	u64 overload;	/* machine.overload at that time */
	u64 idle, busy, overloaded, wasted;
};

/*
 * The machine is overloaded while a CPU has several tasks. `state` is the number of such CPUs in
 * the upper 16 bits, and the time at which the first of them came to be, ns, in the lower 48; both
 * change together.
 */
#define TIME_BITS 48
#define TIME_MASK ((1ULL << TIME_BITS) - 1)
struct machine {
	u64 state;
	u64 overload;	/* sum of the past times of overload, ns */
};

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

/* A CPU gets several tasks (`by` 1), or no longer has several (`by` -1). */
static __always_inline void change_overload(struct machine *machine, u64 now, int by)
{
	u64 old = *(volatile u64 *)&machine->state, seen, count, since;
	int i;

	bpf_for(i, 0, TRIES) {
		count = (old >> TIME_BITS) + by;
		since = old & TIME_MASK;
		if (by > 0 && count == 1)
			since = now & TIME_MASK;
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

/* How long the machine has been overloaded in all. */
static __always_inline u64 overload(const struct machine *machine, u64 now)
{
	u64 past = *(volatile u64 *)&machine->overload, state = *(volatile u64 *)&machine->state;

	/* Another CPU may have begun the overload after `now` was read. */
	if (!(state >> TIME_BITS) || (s64)((now - state) << 16) < 0)
		return past;
	return past + ((now - state) & TIME_MASK);
}

/* Adds the time since the last change of a CPU. */
static __always_inline void account(struct core_times *core, const struct machine *machine, u64 now)
{
	u64 time = now - core->since, all = overload(machine, now);

	if ((s64)time < 0)
		time = 0;
	if (core->runnable > 1) {
		core->overloaded += time;
	} else if (core->runnable) {
		core->busy += time;
	} else {
		core->idle += time;
		if ((s64)(all - core->overload) > 0)
			core->wasted += all - core->overload < time ? all - core->overload : time;
	}
	core->overload = all;
	core->since = now;
}

SEC("tp_btf/sched_update_nr_running_tp")
int BPF_PROG(on_change, struct rq *rq, int change)
{
	u64 now = bpf_ktime_get_ns(), runnable = rq->nr_running;
	u32 cpu = rq->cpu, zero = 0;
	struct core_times *core = bpf_map_lookup_elem(&cores, &cpu);
	struct machine *machine = bpf_map_lookup_elem(&machines, &zero);
	bool was, is;

	if (!core || !machine || !core->since)
		return 0;
	account(core, machine, now);
	was = core->runnable > 1;
	is = runnable > 1;
	core->runnable = runnable;
	if (was != is)
		change_overload(machine, now, is ? 1 : -1);
	return 0;
}

/*
 * Notes how many tasks each CPU has now. A change of a CPU meanwhile is seen by the next one.
 */
SEC("syscall")
int begin(void *unused)
{
	struct machine *machine;
	struct core_times *core;
	const struct rq *rq;
	u32 cpu, zero = 0;

	machine = bpf_map_lookup_elem(&machines, &zero);
	if (!machine)
		return 1;
	bpf_for(cpu, 0, MAX_CPUS) {
		rq = bpf_per_cpu_ptr(&runqueues, cpu);
		core = bpf_map_lookup_elem(&cores, &cpu);
		if (!rq || !core)
			break;
		core->runnable = rq->nr_running;
		if (core->runnable > 1)
			change_overload(machine, bpf_ktime_get_ns(), 1);
		core->since = bpf_ktime_get_ns();
	}
	return 0;
}
