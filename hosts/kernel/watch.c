// SPDX-License-Identifier: GPL-2.0-only
/*
 * The watch: a timer that looks for stalled tasks, and for tasks stranded in a stopped policy.
 *
 * It runs in hard-interrupt context, as a policy that has all tasks of the machine could starve a
 * thread.
 *
 * It cannot end a call that never returns. The CPU in such a call has interrupts off and holds a
 * run-queue lock. Other CPUs soon wait for that lock, also with interrupts off. So the CPU that
 * would send an NMI is stuck before it can detect the problem. (Tested on two CPUs.)
 */
#include <linux/hrtimer.h>

#include "core.h"

#define WATCH_MS 500	/* maximum; a quarter of the stall limit if that is shorter */
#define WATCH_MIN_MS 10

static struct hrtimer timer;

/*
 * Checks for a stall. The policy is called in the same context as the callback of its own timer
 * (timer.c).
 */
static void check_stall(void)
{
	struct baton_ctx ctx = { .now = baton_coarse_now(), .cpu = smp_processor_id() };
	struct baton_frame *frame = this_cpu_ptr(&baton_frame);

	baton_core_check_stall(&ctx, frame, frame->cpu,
			       (u64)READ_ONCE(baton_stall_ms) * NSEC_PER_MSEC);
	baton_khost_kick(&ctx);
}

static enum hrtimer_restart watch(struct hrtimer *own)
{
	if (READ_ONCE(baton_attached)) {
		baton_core_rescue_again();
		baton_core_relieve();
		check_stall();
	}
	hrtimer_forward_now(
		own, ms_to_ktime(clamp(READ_ONCE(baton_stall_ms) / 4, WATCH_MIN_MS, WATCH_MS)));
	return HRTIMER_RESTART;
}

/* Process context. */
void baton_watch_init(void)
{
	hrtimer_setup(&timer, watch, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
	hrtimer_start(&timer, ms_to_ktime(WATCH_MS), HRTIMER_MODE_REL_HARD);
}

/* Process context; no policy is registered. */
void baton_watch_exit(void)
{
	hrtimer_cancel(&timer);
}
