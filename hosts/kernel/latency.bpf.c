// SPDX-License-Identifier: GPL-2.0-only
/*
 * Histograms, one for each CPU, of the time from the wakeup of a task until it runs. For a watched
 * process also the number of switches between its tasks on a CPU, and of migrations of its tasks.
 * Attached only while it is in use (a probation with a condition, `baton bench fidelity`), so that
 * it costs nothing otherwise. control/src/latency.rs reads the results.
 *
 * Context: scheduler tracepoints, interrupts off, a run-queue lock held.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char _license[] SEC("license") = "GPL";

/* as in control/src/latency.rs: 64 buckets for each power of two of ns */
#define BITS 6
#define BUCKETS 2048

/* What to watch, and when; control/src/latency.rs writes it. */
struct watch {
	u64 begin;	/* bpf_ktime_get_ns() */
	u64 end;
	/*
	 * watch all tasks of this process but its main thread; 0: watch all tasks of Baton's, and
	 * only their waits
	 */
	u32 tgid;
	u32 unused;
};

struct waiter {
	u64 woken;	/* time of the wakeup, ns; 0 once the task has run */
	u32 cpu;	/* the CPU on which it last ran, plus 1 */
};

struct changes {
	u64 switches;
	u64 migrations;
	/* pid of the watched task that last ran; 0 if the CPU has been idle since */
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
	/* the position of the highest bit */
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
	/* then the bits below it */
	power = ((power - BITS + 1) << BITS) + ((ns >> (power - BITS)) & ((1 << BITS) - 1));
	return power < BUCKETS ? power : BUCKETS - 1;
}

static __always_inline bool is_watched(struct task_struct *p, struct watch *watch)
{
	/*
	 * The shim sets the handle of each task of Baton's, and the kernel clears it when the class
	 * changes.
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
 * Counts a switch. Other tasks that run between two watched ones do not count, as the workload does
 * not cause them.
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
