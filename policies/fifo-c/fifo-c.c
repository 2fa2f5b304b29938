// SPDX-License-Identifier: GPL-2.0-only
/*
 * `fifo_c`: one first-in first-out queue for each CPU, in C.
 *
 * 1. A thread whose waker is about to sleep goes to the waker's core, if it may run there. Any
 *    other woken or new thread goes to an idle core: the nearest to where it last ran, one whose
 *    SMT siblings are idle before others. If no core is idle, it stays where it last ran.
 * 2. Unless an idle core runs it at once, it waits at the end of that core's queue.
 * 3. A core runs the first thread of its queue for the host's default slice (20 ms). At the end of
 *    the slice the thread goes to the end of the queue.
 * 4. Queues are never balanced.
 *
 * These are the rules of policies/fifo, without its option.
 */
#include "events.h"

struct fifo_core {
	struct core core;
	struct queue ready;
};

static struct queue *ready(struct core *core)
{
	return &container_of(core, struct fifo_core, core)->ready;
}

static const char *fifo_init(struct policy *policy, const struct baton_env *env)
{
	struct core *core;

	for_each_core(policy, core)
		queue_init(ready(core), core, QUEUE_FIFO);
	return env->options[0] ? "fifo_c has no options" : NULL;
}

static struct core *fifo_prepare(struct policy *policy, struct thread *thread,
				 const struct wake *wake)
{
	struct core *idle;

	if (wake->sync && (wake->waker == wake->prev || thread_may_run(thread, wake->waker)))
		return wake->waker;
	idle = claim_idle(thread, wake->prev);
	if (!idle)
		return wake->prev;
	run_at_once(thread, idle);
	return idle;
}

static void fifo_place(struct policy *policy, struct thread *thread, struct core *core)
{
	change_state(thread, THREAD_READY, core, ready(core));
}

static void fifo_schedule(struct policy *policy, struct core *core)
{
	struct thread *first = queue_first(ready(core));

	if (first)
		change_state(first, THREAD_RUNNING, core, NULL);
}

static const struct events fifo_c = {
	.version = 2,
	.core_size = sizeof(struct fifo_core),
	.init = fifo_init,
	.new_prepare = fifo_prepare,
	.new_place = fifo_place,
	.unblock_prepare = fifo_prepare,
	.unblock_place = fifo_place,
	.schedule = fifo_schedule,
};

BATON_POLICY(fifo_c);
