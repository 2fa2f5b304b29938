// SPDX-License-Identifier: GPL-2.0-only
/*
 * `global_fifo`: one first-in first-out queue for all CPUs, in C.
 *
 * 1. A woken or new thread goes to an idle core: the nearest to where it last ran, one whose SMT
 *    siblings are idle before others. If no core is idle, it goes to where it last ran.
 * 2. There it waits at the end of the one queue.
 * 3. A core runs the first thread of the queue that may run there, for the host's default slice
 *    (20 ms). At the end of the slice the thread goes to the end of the queue.
 * 4. A thread that comes into the queue wakes the nearest core that may run it and found nothing
 *    there when it last looked.
 *
 * All cores take one lock: the policy is for machines of some dozens of CPUs.
 */
#include "events.h"

struct global {
	struct policy policy;
	struct queue ready;
};

struct global_core {
	struct core core;
	bool is_free;		/* rule 4; guarded by the policy's lock */
};

static struct queue *ready(struct policy *policy)
{
	return &container_of(policy, struct global, policy)->ready;
}

static bool *is_free(struct core *core)
{
	return &container_of(core, struct global_core, core)->is_free;
}

static const char *global_init(struct policy *policy, const struct baton_env *env)
{
	queue_init(ready(policy), NULL, QUEUE_FIFO);
	return env->options[0] ? "global_fifo has no options" : NULL;
}

static struct core *global_prepare(struct policy *policy, struct thread *thread,
				   const struct wake *wake)
{
	struct core *idle = claim_idle(thread, wake->prev);

	return idle ? idle : wake->prev;
}

static void global_place(struct policy *policy, struct thread *thread, struct core *core)
{
	struct core *other;

	lock_policy(policy);
	change_state(thread, THREAD_READY, core, ready(policy));
	for_each_core_near(core, LEVEL_MACHINE, other)
		if (*is_free(other) && thread_may_run(thread, other)) {
			*is_free(other) = false;
			preempt_core(other);
			break;
		}
	unlock_policy(policy);
}

static void global_schedule(struct policy *policy, struct core *core)
{
	struct thread *thread;

	lock_policy(policy);
	thread = queue_first(ready(policy));
	while (thread && !thread_may_run(thread, core))
		thread = queue_next(thread);
	if (thread)
		change_state(thread, THREAD_RUNNING, core, NULL);
	*is_free(core) = !thread && !core->running;
	unlock_policy(policy);
}

static const struct events global_fifo = {
	.version = 1,
	.policy_size = sizeof(struct global),
	.core_size = sizeof(struct global_core),
	.init = global_init,
	.new_prepare = global_prepare,
	.new_place = global_place,
	.unblock_prepare = global_prepare,
	.unblock_place = global_place,
	.schedule = global_schedule,
};

BATON_POLICY(global_fifo);
