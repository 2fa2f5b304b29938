// SPDX-License-Identifier: GPL-2.0-only
/*
 * How long tasks of Baton's wait from their wakeup until they run: a histogram per CPU. Attached while somebody wants to know (a
 * probation with a condition), so that it costs nothing at other times. cli/src/latency.rs reads it.
 *
 * Context: tracepoints of the scheduler, interrupts off, a run-queue lock held.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char _license[] SEC("license") = "GPL";

#define BUCKETS 256	/* 8 for each power of two of ns; cli/src/latency.rs has the same */

/* When a task woke, ns; 0 when it has run since. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u64);
} woken SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, BUCKETS);
	__type(key, u32);
	__type(value, u64);
} waits SEC(".maps");

static __always_inline u32 bucket(u64 ns)
{
	u32 power = 0;

	if (ns < 8)
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
	/* and the three below it */
	power = (power - 2) * 8 + ((ns >> (power - 3)) & 7);
	return power < BUCKETS ? power : BUCKETS - 1;
}

static __always_inline int wakes(struct task_struct *p)
{
	u64 *since;

	/* The handle that the shim gives a task of Baton's, and the kernel takes from one of another class. */
	if (!p->scx.dsq_vtime)
		return 0;
	since = bpf_task_storage_get(&woken, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (since)
		*since = bpf_ktime_get_ns();
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

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u64 *since = bpf_task_storage_get(&woken, next, NULL, 0), *count;
	u32 key;

	if (!since || !*since)
		return 0;
	key = bucket(bpf_ktime_get_ns() - *since);
	*since = 0;
	count = bpf_map_lookup_elem(&waits, &key);
	if (count)
		(*count)++;
	return 0;
}
