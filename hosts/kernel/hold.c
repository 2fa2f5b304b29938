// SPDX-License-Identifier: GPL-2.0-only
/*
 * All CPUs are held for a moment, in which something is changed that any of them could be using:
 * the version of a policy, or which tasks belong to which policy.
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
 * On every CPU; by the time that it is called on any, all have their interrupts off, and run
 * nothing else. So the first to come makes the change and does not wait; those that come
 * later mostly find it made.
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
 * Has `change` called on one CPU, with interrupts off, while all others are held: for how long, ns,
 * from the first that is held to the last that goes on. Before that stop_machine() has gathered the
 * CPUs, of which the first wait for the last; after it the caller waits for a CPU of its own.
 * Process context.
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
