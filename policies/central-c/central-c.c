// SPDX-License-Identifier: GPL-2.0-only
/*
 * `central_c`: one core decides for all, in C.
 *
 * 1. Threads wait in one queue, first in, first out.
 * 2. The central core is the one with the lowest number that is online. It gives each core that
 *    wants a thread the first one that may run there, whenever it chooses a thread for itself, and
 *    by a timer every millisecond.
 * 3. A core wants a thread when it has none, and when its thread has run for a slice (20 ms). It
 *    runs what it is given at once, and goes on with its thread until then.
 * 4. A core that has no thread wakes the central core if that one is idle; so does a thread that
 *    comes to wait.
 *
 * Other cores take the one lock only when a thread comes to wait. The central core runs threads
 * like any other.
 */
#include "events.h"

#define PERIOD 1000000ULL

struct central {
	struct policy policy;
	struct queue waiting;
	s32 cpu;		/* of the central core */
};

struct central_core {
	struct core core;
	struct queue given;	/* at most one thread */
	bool wants;
	bool is_armed;		/* its timer */
};

static struct central *all(struct policy *policy)
{
	return container_of(policy, struct central, policy);
}

static struct central_core *at(struct core *core)
{
	return container_of(core, struct central_core, core);
}

static struct core *central_core(struct policy *policy)
{
	return core_at(policy, baton_read(all(policy)->cpu));
}

static const char *central_init(struct policy *policy, const struct baton_env *env)
{
	struct core *core;

	queue_init(&all(policy)->waiting, NULL, QUEUE_FIFO);
	for_each_core(policy, core) {
		queue_init(&at(core)->given, core, QUEUE_FIFO);
		at(core)->wants = true;
		if (!env->cpus[all(policy)->cpu].online)
			all(policy)->cpu = core->cpu;
	}
	return env->options[0] ? "central_c has no options" : NULL;
}

/* Gives threads to the cores that want one. `here`, the central core, may be locked. */
static void central_give(struct policy *policy, struct core *here)
{
	struct thread *thread;
	struct core *core;

	lock_policy(policy);
	for_each_core_near(here, LEVEL_MACHINE, core) {
		bool is_mine = core_is_locked(core);

		if (!queue_first(&all(policy)->waiting))
			break;
		if (!baton_read(at(core)->wants) || (!is_mine && !trylock_core(core)))
			continue;
		thread = queue_first(&all(policy)->waiting);
		while (thread && !thread_may_run(thread, core))
			thread = queue_next(thread);
		if (thread && at(core)->wants) {
			change_state(thread, THREAD_MIGRATING, core, NULL);
			change_state(thread, THREAD_READY, core, &at(core)->given);
			at(core)->wants = false;
			if (core != here)
				preempt_core(core);
		}
		if (!is_mine)
			unlock_core(core);
	}
	unlock_policy(policy);
}

static void central_place(struct policy *policy, struct thread *thread, struct core *core)
{
	change_state(thread, THREAD_READY, core, &all(policy)->waiting);
	wake_core(central_core(policy));
}

static void central_schedule(struct policy *policy, struct core *core)
{
	struct thread *first = queue_first(&at(core)->given);

	if (core == central_core(policy)) {
		if (!at(core)->is_armed)
			arm_timer(PERIOD);
		at(core)->is_armed = true;
		if (!first)
			at(core)->wants = true;
		central_give(policy, core);
		first = queue_first(&at(core)->given);
	}
	at(core)->wants = !first;
	if (first)
		change_state(first, THREAD_RUNNING, core, NULL);
	else if (!core->running)
		wake_core(central_core(policy));
}

static void central_timer(struct policy *policy, struct core *core)
{
	if (core != central_core(policy)) {
		at(core)->is_armed = false;
		return;
	}
	arm_timer(PERIOD);
	central_give(policy, core);
	if (at(core)->given.count)
		preempt_core(core);
}

/* The central core is the first that is online; `except` goes offline. */
static void central_choose(struct policy *policy, struct core *except)
{
	struct core *core;

	for_each_core(policy, core)
		if (core != except && baton_host_cpu_online(core->cpu)) {
			WRITE_ONCE(all(policy)->cpu, core->cpu);
			preempt_core(core);
			return;
		}
}

static void central_entry(struct policy *policy, struct core *core)
{
	at(core)->is_armed = false;
	central_choose(policy, NULL);
}

static void central_exit(struct policy *policy, struct core *core)
{
	at(core)->wants = false;
	central_choose(policy, core);
}

static const struct events central_c = {
	.version = 1,
	.policy_size = sizeof(struct central),
	.core_size = sizeof(struct central_core),
	.init = central_init,
	.new_place = central_place,
	.unblock_place = central_place,
	.schedule = central_schedule,
	.timer = central_timer,
	.core_entry = central_entry,
	.core_exit = central_exit,
};

BATON_POLICY(central_c);
