// SPDX-License-Identifier: GPL-2.0-only
/*
 * One high-resolution timer per policy and CPU, and one per CPU for the fallback, for slices finer
 * than the kernel's tick. Armed by a policy on the CPU that it runs on, often with the run-queue
 * lock held, as the kernel's own hrtick is (kernel/sched/core.c): so the timer is of the
 * hard-interrupt kind, which wakes no softirq thread. It is called back in hard-interrupt context
 * on the same CPU.
 */
#include <linux/export.h>

#include "core.h"
#include "host.h"
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
	 * In its own callback a timer must not be started with the CPU's base lock free to others:
	 * it is not, interrupts are off.
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

/* Of the fallback: as the tasks get many, their slices get short. */
static DEFINE_PER_CPU(struct hrtimer, fallback_timer);

static enum hrtimer_restart slice_ended(struct hrtimer *timer)
{
	struct baton_ctx ctx = { .now = baton_coarse_now(), .cpu = smp_processor_id() };

	baton_core_end_slice(&ctx, this_cpu_read(baton_frame.cpu));
	baton_khost_kick(&ctx);
	return HRTIMER_NORESTART;
}

/*
 * In a dispatch: what this CPU takes from the fallback is to run for so long. A tick notices the
 * end of a longer slice.
 */
void baton_khost_end_slice(u64 after_ns);
void baton_khost_end_slice(u64 after_ns)
{
	if (after_ns < TICK_NSEC)
		hrtimer_start(this_cpu_ptr(&fallback_timer), ns_to_ktime(after_ns),
			      HRTIMER_MODE_REL_PINNED_HARD);
}

/* Process context; nobody dispatches yet. */
void baton_fallback_timers_init(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		hrtimer_setup(per_cpu_ptr(&fallback_timer, cpu), slice_ended, CLOCK_MONOTONIC,
			      HRTIMER_MODE_REL_PINNED_HARD);
}

/* Process context; nobody dispatches any more. */
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
		own->policy = place - baton_places;
	}
	return 0;
}

/*
 * Process context, after the policy was stopped and calls under way are over: no timer is armed
 * after this.
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
