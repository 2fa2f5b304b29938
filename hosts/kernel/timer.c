// SPDX-License-Identifier: GPL-2.0-only
/*
 * One high-resolution timer for each policy and CPU, and one for each CPU's fallback, for slices
 * shorter than the kernel's tick. A policy arms its timer on the CPU that the call is on, often
 * with the run-queue lock held. So the timers expire in hard-interrupt context, like the kernel's
 * hrtick (kernel/sched/core.c), and wake no softirq thread. The callback runs in hard-interrupt
 * context on the same CPU.
 */
#include <linux/export.h>

#include "core.h"
#include "host.h"
#include "place.h"
#include "record.h"

static enum hrtimer_restart expired(struct hrtimer *timer)
{
	struct baton_timer *own = container_of(timer, struct baton_timer, timer);
	s32 cpu = smp_processor_id();
	struct baton_ctx ctx = { .now = baton_coarse_now(), .cpu = cpu };
	struct baton_frame *frame = this_cpu_ptr(&baton_frame);

	baton_core_timer(&ctx, frame, frame->cpu, own->policy);
	baton_khost_kick(&ctx);
	return HRTIMER_NORESTART;
}

static struct baton_timer *own_timer(void)
{
	u32 policy = baton_core_current_policy(smp_processor_id());

	return policy < BATON_MAX_POLICIES && baton_places[policy].timers
		       ? this_cpu_ptr(baton_places[policy].timers)
		       : NULL;
}

void baton_host_arm_timer(u64 after_ns)
{
	struct baton_timer *own;

	if (baton_creating())
		return;
	baton_record(arm_timer, after_ns);
	own = own_timer();
	/*
	 * A timer must not be started in its own callback while the CPU's base lock is free to
	 * others. That is not the case here, as interrupts are off.
	 */
	if (own)
		hrtimer_start(&own->timer, ns_to_ktime(min_t(u64, after_ns, KTIME_MAX)),
			      HRTIMER_MODE_REL_PINNED_HARD);
}
EXPORT_SYMBOL_GPL(baton_host_arm_timer);

void baton_host_cancel_timer(void)
{
	struct baton_timer *own;

	if (baton_creating())
		return;
	baton_record(cancel_timer);
	own = own_timer();
	if (own)
		hrtimer_try_to_cancel(&own->timer);
}
EXPORT_SYMBOL_GPL(baton_host_cancel_timer);

/* Timers of the fallback: with many tasks, its slices become short. */
static DEFINE_PER_CPU(struct hrtimer, fallback_timer);

static enum hrtimer_restart slice_ended(struct hrtimer *timer)
{
	struct baton_ctx ctx = { .now = baton_coarse_now(), .cpu = smp_processor_id() };

	baton_core_end_slice(&ctx, this_cpu_read(baton_frame.cpu));
	baton_khost_kick(&ctx);
	return HRTIMER_NORESTART;
}

/*
 * Limits the task that this CPU takes from the fallback to `after_ns`. The tick ends longer slices.
 * Called in a dispatch.
 */
void baton_khost_end_slice(u64 after_ns);
void baton_khost_end_slice(u64 after_ns)
{
	if (after_ns < TICK_NSEC)
		hrtimer_start(this_cpu_ptr(&fallback_timer), ns_to_ktime(after_ns),
			      HRTIMER_MODE_REL_PINNED_HARD);
}

/* Process context; before the first dispatch. */
void baton_fallback_timers_init(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		hrtimer_setup(per_cpu_ptr(&fallback_timer, cpu), slice_ended, CLOCK_MONOTONIC,
			      HRTIMER_MODE_REL_PINNED_HARD);
}

/* Process context; after the last dispatch. */
void baton_fallback_timers_exit(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		hrtimer_cancel(per_cpu_ptr(&fallback_timer, cpu));
}

/* Process context, under the control mutex, before the policy is started. */
int baton_timers_add(struct baton_place *place)
{
	int cpu;

	place->timers = alloc_percpu(struct baton_timer);
	if (!place->timers)
		return -ENOMEM;
	for_each_possible_cpu(cpu) {
		struct baton_timer *own = per_cpu_ptr(place->timers, cpu);

		hrtimer_setup(&own->timer, expired, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
		own->policy = baton_place_index(place);
	}
	return 0;
}

/*
 * Process context, after the policy was stopped and the calls in progress have ended. No timer is
 * armed afterwards.
 */
void baton_timers_stop(struct baton_place *place)
{
	int cpu;

	for_each_possible_cpu(cpu)
		hrtimer_cancel(&per_cpu_ptr(place->timers, cpu)->timer);
}

void baton_timers_remove(struct baton_place *place)
{
	free_percpu(place->timers);
	place->timers = NULL;
}
