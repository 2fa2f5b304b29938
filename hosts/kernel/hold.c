// SPDX-License-Identifier: GPL-2.0-only
/*
 * Holds all CPUs for a moment, to change something that any of them could be using: the version of
 * a policy, or the assignment of tasks to policies.
 */
#include <linux/atomic.h>
#include <linux/cpumask.h>
#include <linux/limits.h>
#include <linux/stop_machine.h>
#include <linux/timekeeping.h>

#include "core.h"

struct held {
	void (*change)(void *data);
	void *data;
	atomic_t nr_there;
	bool is_done;
	atomic64_t first, last;	/* ktime_get_mono_fast_ns(), the same on all CPUs */
};

static void note_first(atomic64_t *first, s64 now)
{
	s64 old = atomic64_read(first);

	while (now < old && !atomic64_try_cmpxchg(first, &old, now))
		;
}

static void note_last(atomic64_t *last, s64 now)
{
	s64 old = atomic64_read(last);

	while (now > old && !atomic64_try_cmpxchg(last, &old, now))
		;
}

/*
 * Runs on every CPU. When the first CPU calls it, all CPUs have interrupts off and run nothing
 * else. So the first CPU makes the change without waiting. CPUs that arrive later mostly find it
 * made.
 */
static int hold(void *data)
{
	struct held *held = data;

	note_first(&held->first, ktime_get_mono_fast_ns());
	if (atomic_inc_return(&held->nr_there) == 1) {
		held->change(held->data);
		smp_store_release(&held->is_done, true);
	} else {
		while (!smp_load_acquire(&held->is_done))
			cpu_relax();
	}
	note_last(&held->last, ktime_get_mono_fast_ns());
	return 0;
}

/*
 * Calls `change` on one CPU, with interrupts off, while all other CPUs are held. Returns for how
 * long they were held, ns: from when the first CPU is held until the last continues. That excludes
 * the time before, in which stop_machine() gathers the CPUs and the first waits for the last, and
 * the time after, in which the caller waits for a CPU. Process context.
 */
u64 baton_hold_all(void (*change)(void *data), void *data)
{
	struct held held = { .change = change,
			     .data = data,
			     .first = ATOMIC64_INIT(S64_MAX),
			     .last = ATOMIC64_INIT(0) };

	stop_machine(hold, &held, cpu_online_mask);
	return atomic64_read(&held.last) - atomic64_read(&held.first);
}
