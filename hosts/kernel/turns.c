// SPDX-License-Identifier: GPL-2.0-only
/*
 * The turns of a policy's loops. A poll in each loop (bounds.awk), and the check at the beginning
 * of each function in Rust (guard.S), count down the CPU's `turns`. When none are left, the call is
 * looked at here: it goes on with new ones, or is abandoned.
 *
 * A call with interrupts off is granted `max_looks` of its policy, and 50 ms, or longer in
 * proportion if these are more than usual. A count alone would not bound the time, as a turn may be
 * long. The time alone would blame a policy for a virtual CPU that did not run. So no more than
 * MAX_LASTED_NS counts between two looks. What no turn is counted for takes no time of that order:
 * straight code, and what the host does.
 *
 * A policy that is created or destroyed with interrupts on is granted CREATING_NS of CPU time. It
 * uses up the turns of whichever CPU it runs on, whose own calls begin with new ones.
 */
#include <linux/irqflags.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>

#include "core.h"
#include "place.h"

#define CALL_NS (50 * NSEC_PER_MSEC)
#define MAX_LASTED_NS (12 * NSEC_PER_MSEC)
#define CREATING_NS (2 * NSEC_PER_SEC)

static_assert(offsetof(struct baton_frame, turns) == BATON_FRAME_TURNS);

/*
 * CPU time of the creator when it began, ns. Guarded by baton_control_mutex. The CPU time itself is
 * that of the current task, to which a tick may add at any time.
 */
static u64 creation_began;

/* Process context; the current task is about to create or destroy a policy. */
void baton_turns_begin(void)
{
	creation_began = READ_ONCE(current->se.sum_exec_runtime);
}

static u32 max_looks(void)
{
	const struct baton_place *place = baton_current_place();

	return place ? place->max_looks : BATON_MAX_LOOKS;
}

/* How long the current call may last. Interrupts are off; any context. */
u64 baton_turns_limit_ns(void)
{
	return CALL_NS * max(max_looks(), BATON_MAX_LOOKS) / BATON_MAX_LOOKS;
}

static bool is_too_long(struct baton_frame *frame)
{
	u64 now = local_clock();

	if (frame->looks++)
		frame->lasted += min(now - frame->looked, MAX_LASTED_NS);
	else
		frame->lasted = 0;
	frame->looked = now;
	return frame->looks >= max_looks() || frame->lasted >= baton_turns_limit_ns();
}

/*
 * Called by guard.S for the loop, or the function, at `ip`. Does not return if the call is to end.
 * On the policy's stack; a call with interrupts off, or the creator of a policy.
 */
void baton_turns_look(unsigned long ip)
{
	raw_cpu_write(baton_frame.turns, BATON_TURNS);
	if (irqs_disabled()) {
		if (likely(!is_too_long(this_cpu_ptr(&baton_frame))))
			return;
		baton_say("the call did not end: its loops turned too often, or for too long", ip);
	} else {
		/* baton_prepare() runs before there is a policy (policy_module.c). */
		if (!baton_is_creator() ||
		    READ_ONCE(current->se.sum_exec_runtime) - creation_began < CREATING_NS)
			return;
		baton_say("it did not end within 2 s of CPU time", ip);
	}
	baton_abandon(baton_current_frame(), BATON_FAULT_KIND_ENDLESS_LOOP);
}
