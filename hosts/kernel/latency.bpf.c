// SPDX-License-Identifier: GPL-2.0-only
/*
 * How long tasks wait from their wakeup until they run, as a histogram per CPU; and, where one
 * process is watched, how often CPUs change between its tasks and how often those change CPUs.
 * Attached while somebody wants to know (a probation with a condition, `baton bench fidelity`), so
 * that it costs nothing at other times. control/src/latency.rs reads it.
 *
 * Context: tracepoints of the scheduler, interrupts off, a run-queue lock held.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char _license[] SEC("license") = "GPL";

/* control/src/latency.rs has the same: 64 buckets for each power of two of ns */
#define BITS 6
#define BUCKETS 2048

/* Whom, and when; as control/src/latency.rs writes it. */
struct watch {
	u64 begin;	/* bpf_ktime_get_ns() */
	u64 end;
	/* of all its tasks but the first; 0: of all tasks of Baton's, and their waits only */
	u32 tgid;
	u32 unused;
};

struct waiter {
	u64 woken;	/* when, ns; 0 when it has run since */
	u32 cpu;	/* where it ran last, and 1 */
};

struct changes {
	u64 switches;
	u64 migrations;
	/* pid of the watched task that ran last; 0 when the CPU has been idle since */
	u32 last;
	u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct watch);
} watched SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct waiter);
} tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, BUCKETS);
	__type(key, u32);
	__type(value, u64);
} waits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct changes);
} cpus SEC(".maps");

static __always_inline u32 bucket(u64 ns)
{
	u32 power = 0;

	if (ns < 1 << BITS)
		return ns;
	/* the highest bit */
	if (ns >> 32)
		power += 32;
	if (ns >> (power + 16))
		power += 16;
	if (ns >> (power + 8))
		power += 8;
	if (ns >> (power + 4))
		power += 4;
	if (ns >> (power + 2))
		power += 2;
	if (ns >> (power + 1))
		power += 1;
	/* and those below it */
	power = ((power - BITS + 1) << BITS) + ((ns >> (power - BITS)) & ((1 << BITS) - 1));
	return power < BUCKETS ? power : BUCKETS - 1;
}

static __always_inline bool is_watched(struct task_struct *p, struct watch *watch)
{
	/*
	 * The handle that the shim gives a task of Baton's, and the kernel takes from one of
	 * another class.
	 */
	return watch->tgid ? p->tgid == watch->tgid && p->pid != p->tgid : p->scx.dsq_vtime != 0;
}

static __always_inline bool is_time(struct watch *watch, u64 now)
{
	return now >= watch->begin && now < watch->end;
}

static __always_inline int wakes(struct task_struct *p)
{
	u32 key = 0;
	struct watch *watch = bpf_map_lookup_elem(&watched, &key);
	u64 now = bpf_ktime_get_ns();
	struct waiter *task;

	if (!watch || !is_watched(p, watch) || !is_time(watch, now))
		return 0;
	task = bpf_task_storage_get(&tasks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (task)
		task->woken = now;
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *p)
{
	return wakes(p);
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_wakeup_new, struct task_struct *p)
{
	return wakes(p);
}

/*
 * Visits of others between two of the watched are none of the workload's doing: they do not count.
 */
static __always_inline void count_switch(struct task_struct *next, bool mine, struct waiter *task,
					 bool in_time)
{
	u32 key = 0, here = bpf_get_smp_processor_id() + 1;
	struct changes *cpu = bpf_map_lookup_elem(&cpus, &key);

	if (!cpu || (!mine && next->pid))
		return;
	if (in_time && cpu->last != next->pid)
		cpu->switches++;
	cpu->last = next->pid;
	if (!task)
		return;
	if (in_time && task->cpu && task->cpu != here)
		cpu->migrations++;
	task->cpu = here;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u32 key = 0;
	struct watch *watch = bpf_map_lookup_elem(&watched, &key);
	struct waiter *task = NULL;
	u64 now, *count;
	bool mine;

	if (!watch)
		return 0;
	now = bpf_ktime_get_ns();
	mine = is_watched(next, watch);
	if (mine)
		task = bpf_task_storage_get(&tasks, next, NULL,
					    watch->tgid ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	if (watch->tgid)
		count_switch(next, mine, task, is_time(watch, now));
	if (!task || !task->woken)
		return 0;
	key = bucket(now - task->woken);
	task->woken = 0;
	count = bpf_map_lookup_elem(&waits, &key);
	if (count && now < watch->end)
		(*count)++;
	return 0;
}
