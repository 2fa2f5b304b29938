// SPDX-License-Identifier: GPL-2.0-only
/*
 * `wrong_c`: the rules of fifo_c, and in each handler every change of a thread's state that is not
 * legal there, for tests. A change that is not refused is a panic.
 *
 * 1. Threads wait in a queue of each core, first in, first out. A thread stays where it ran last,
 *    and gives up its core at every fourth tick if another waits there.
 * 2. At each balancing, one thread of the own queue leaves it and comes back at its end.
 * 3. With the option wrong=lost, `preempt` forgets a thread; with wrong=moving, the balancing does;
 *    with wrong=lock it takes a core's lock twice, with wrong=order it releases two in the wrong
 *    order, with wrong=held it keeps one; with wrong=core a wakeup names a core that the thread may
 *    not use; with wrong=sleep its `init` sleeps. With wrong=levels it is not created, and the reason
 *    is the number of cores in each group of CPU 0. With wrong=picky it refuses to have all tasks, and
 *    each thread of a positive nice value or the name true.
 */
#ifdef __KERNEL__
#include <linux/delay.h>
#endif

#include "events.h"

struct wrong {
	struct policy policy;
	bool lost, moving, lock, order, held, core, picky;
};

struct wrong_core {
	struct core core;
	struct queue ready;
	u32 ticks;
};

static struct wrong_core *mine(struct core *core)
{
	return container_of(core, struct wrong_core, core);
}

static const struct wrong *options(const struct policy *policy)
{
	return container_of(policy, struct wrong, policy);
}

#define BIT_OF(state) (1 << THREAD_##state)

/*
 * Tries to give the thread each state but those whose bits are set: these would be legal here.
 */
static void try_all(struct policy *policy, struct thread *thread, u32 legal)
{
	struct core *core = thread->core ? thread->core : core_at(policy, 0);
	enum thread_state before = thread->state;
	struct queue *queue = thread->queue;

#define TRY(to, where, into)                                                               \
	do {                                                                               \
		if (!(legal & 1 << (to)))                                                  \
			baton_assert(!change_state(thread, to, where, into));              \
	} while (0)
	TRY(THREAD_TERMINATED, NULL, NULL);
	TRY(THREAD_NEW, NULL, NULL);
	TRY(THREAD_READY, core, &mine(core)->ready);
	TRY(THREAD_READY_TICK, core, &mine(core)->ready);
	TRY(THREAD_RUNNING, core, NULL);
	TRY(THREAD_MIGRATING, core, NULL);
	TRY(THREAD_BLOCKED, NULL, NULL);
#undef TRY
	/* legal states, with arguments that are not */
	baton_assert(!change_state(thread, THREAD_READY, core, NULL));
	baton_assert(!change_state(thread, THREAD_READY, NULL, &mine(core)->ready));
	baton_assert(!change_state(thread, THREAD_READY_TICK, core, NULL));
	baton_assert(!change_state(thread, THREAD_RUNNING, NULL, NULL));
	baton_assert(!change_state(thread, THREAD_RUNNING, core, &mine(core)->ready));
	baton_assert(!change_state(thread, THREAD_MIGRATING, core, &mine(core)->ready));
	baton_assert(!change_state(thread, THREAD_BLOCKED, core, &mine(core)->ready));
	baton_assert(!change_state(thread, THREAD_TERMINATED, core, &mine(core)->ready));
	baton_assert(thread->state == before && thread->queue == queue);
}

static const char *levels(struct policy *policy)
{
	static char text[3 * NR_LEVELS];
	struct core *core, *first = core_at(policy, 0);
	u32 level, count;
	char *end = text;

	for (level = 0; level < NR_LEVELS; level++) {
		count = 0;
		for_each_core_near(first, level, core) {
			/* The nearest groups come first, each once. */
			baton_assert(count || core == first);
			count++;
		}
		*end++ = '0' + count / 10 % 10;
		*end++ = '0' + count % 10;
		*end++ = level + 1 < NR_LEVELS ? ' ' : 0;
	}
	return text;
}

static const char *wrong_init(struct policy *policy, const struct baton_env *env)
{
	struct wrong *wrong = container_of(policy, struct wrong, policy);
	struct core *core;

	for_each_core(policy, core)
		queue_init(&mine(core)->ready, core, QUEUE_FIFO);
	wrong->lost = !strcmp(env->options, "wrong=lost");
	wrong->moving = !strcmp(env->options, "wrong=moving");
	wrong->lock = !strcmp(env->options, "wrong=lock");
	wrong->order = !strcmp(env->options, "wrong=order");
	wrong->held = !strcmp(env->options, "wrong=held");
	wrong->core = !strcmp(env->options, "wrong=core");
	wrong->picky = !strcmp(env->options, "wrong=picky");
#ifdef __KERNEL__
	if (!strcmp(env->options, "wrong=sleep"))
		msleep(100);
#endif
	return strcmp(env->options, "wrong=levels") ? NULL : levels(policy);
}

static const char *wrong_default(const struct policy *policy)
{
	return options(policy)->picky ? "it is for few threads" : NULL;
}

static const char *wrong_attach(const struct policy *policy, u32 pid, s32 nice, const char *name)
{
	if (!options(policy)->picky)
		return NULL;
	if (!strcmp(name, "true"))
		return "it is true";
	return nice > 0 ? "its nice value is positive" : NULL;
}

static struct core *wrong_prepare(struct policy *policy, struct thread *thread,
				  const struct wake *wake)
{
	struct core *core;

	try_all(policy, thread, 0);
	if (options(policy)->core)
		for_each_core(policy, core)
			if (!thread_may_run(thread, core))
				return core;
	return wake->prev;
}

static void wrong_place(struct policy *policy, struct thread *thread, struct core *core)
{
	try_all(policy, thread, BIT_OF(READY));
	baton_assert(change_state(thread, THREAD_READY, core, &mine(core)->ready));
	try_all(policy, thread, BIT_OF(MIGRATING));
}

static void wrong_end(struct policy *policy, struct thread *thread, struct core *core)
{
	try_all(policy, thread, BIT_OF(MIGRATING));
}

static void wrong_preempt(struct policy *policy, struct thread *thread)
{
	if (!options(policy)->lost)
		wrong_place(policy, thread, thread->core);
}

static void wrong_block(struct policy *policy, struct thread *thread)
{
	try_all(policy, thread,
		BIT_OF(BLOCKED) | (thread->state == THREAD_READY ? BIT_OF(MIGRATING) : 0));
	baton_assert(change_state(thread, THREAD_BLOCKED, NULL, NULL));
	try_all(policy, thread, BIT_OF(BLOCKED));
}

static void wrong_terminate(struct policy *policy, struct thread *thread)
{
	try_all(policy, thread,
		BIT_OF(TERMINATED) | (thread->state == THREAD_READY ? BIT_OF(MIGRATING) : 0));
	baton_assert(change_state(thread, THREAD_TERMINATED, NULL, NULL));
	try_all(policy, thread, BIT_OF(TERMINATED));
}

static void wrong_tick(struct policy *policy, struct thread *thread)
{
	struct core *core = thread->core;

	try_all(policy, thread, BIT_OF(READY_TICK));
	if (!options(policy)->lost && ++mine(core)->ticks % 4 == 0 &&
	    queue_first(&mine(core)->ready)) {
		baton_assert(change_state(thread, THREAD_READY_TICK, core, &mine(core)->ready));
		try_all(policy, thread, 0);
	}
}

static void wrong_reweight(struct policy *policy, struct thread *thread, s32 old_nice)
{
	try_all(policy, thread, thread->state == THREAD_READY ? BIT_OF(MIGRATING) : 0);
}

static void wrong_schedule(struct policy *policy, struct core *core)
{
	struct thread *first = queue_first(&mine(core)->ready);

	if (core->running)
		try_all(policy, core->running,
			core->running->state == THREAD_READY_TICK ? BIT_OF(RUNNING) : 0);
	if (!first)
		return;
	try_all(policy, first, BIT_OF(RUNNING) | BIT_OF(MIGRATING));
	baton_assert(change_state(first, THREAD_RUNNING, core, NULL));
	try_all(policy, first, 0);
	/* a second choice */
	first = queue_first(&mine(core)->ready);
	if (first)
		try_all(policy, first, BIT_OF(MIGRATING));
}

static void wrong_balance(struct policy *policy, struct core *core)
{
	struct core *other = core_at(policy, core->cpu ? 0 : policy->nr_cores - 1);
	struct thread *first;

	/* without the lock */
	first = READ_ONCE(mine(core)->ready.first);
	if (first)
		baton_assert(!change_state(first, THREAD_MIGRATING, core, NULL));
	if (options(policy)->lock) {
		lock_core(core);
		lock_core(core);
	}
	if (options(policy)->held) {
		lock_core(core);
		return;
	}
	lock_cores(core, other);
	if (options(policy)->order && core != other) {
		unlock_core(core->cpu < other->cpu ? core : other);
		return;
	}
	first = queue_first(&mine(core)->ready);
	if (first) {
		try_all(policy, first, BIT_OF(MIGRATING));
		baton_assert(change_state(first, THREAD_MIGRATING, other, NULL));
		if (options(policy)->moving) {
			unlock_cores(core, other);
			return;
		}
		try_all(policy, first, BIT_OF(READY));
		if (core != other)
			baton_assert(!change_state(first, THREAD_READY, core, &mine(other)->ready));
		baton_assert(change_state(first, THREAD_READY, core, &mine(core)->ready));
	}
	unlock_cores(core, other);
}

static const struct events wrong_c = {
	.version = 1,
	.policy_size = sizeof(struct wrong),
	.core_size = sizeof(struct wrong_core),
	.init = wrong_init,
	.can_be_default = wrong_default,
	.attach = wrong_attach,
	.new_prepare = wrong_prepare,
	.new_place = wrong_place,
	.new_end = wrong_end,
	.unblock_prepare = wrong_prepare,
	.unblock_place = wrong_place,
	.unblock_end = wrong_end,
	.block = wrong_block,
	.preempt = wrong_preempt,
	.yield = wrong_preempt,
	.tick = wrong_tick,
	.reweight = wrong_reweight,
	.terminate = wrong_terminate,
	.schedule = wrong_schedule,
	.balancing_select = wrong_balance,
};

BATON_POLICY(wrong_c);
