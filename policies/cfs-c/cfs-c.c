// SPDX-License-Identifier: GPL-2.0-only
/*
 * `cfs_c`: a fair scheduler with a virtual runtime, in C.
 *
 * 1. A woken thread whose waker is about to sleep goes to the waker's core if none waits there. Any
 *    other woken or new thread goes to an idle core: the nearest to where it last ran, one whose
 *    SMT siblings are idle before others. If no core is idle, it stays where it last ran.
 * 2. A thread's vruntime grows by the CPU time that it uses, divided by the weight of its nice
 *    value. The threads of a core wait in the order of their vruntime.
 * 3. A thread that comes to a core keeps its distance to that core's least vruntime, but gets no
 *    more than `latency` (6 ms) of a lead. A new thread starts at the least vruntime.
 * 4. A core runs the thread with the least vruntime for its share of `latency`, at least 750 us, or
 *    for the thread's attribute `slice`, if that is not 0. A woken thread preempts one that is more
 *    than 1 ms of vruntime ahead of it.
 * 5. Every 16 ticks, a busy core looks for one with at least two threads more: first among its SMT
 *    siblings, then under its cache, in its node and in the machine. It takes half of the
 *    difference from the first that has threads which may move. A core that becomes idle takes one
 *    thread in the same way. A thread that comes to wait wakes an idle core for that, and so does
 *    each tick while one waits.
 * 6. No thread starves, whatever the weights: one that is found waiting for the ninth time by
 *    rule 5 is next.
 */
#include "events.h"

#define LATENCY 6000000ULL
#define LEAST_SLICE 750000ULL
#define WAKEUP 1000000ULL
#define LOOKS 9
#define LEAST_OWN_SLICE 100000

/* Set by `baton attr`. */
struct cfs_attributes {
	s64 slice;		/* ns; 0, or 100 us to 100 ms */
};

struct cfs_thread {
	struct thread thread;
	u64 vruntime;		/* ns at nice 0; while it sleeps, relative to its core's least */
	u64 runtime;		/* up to which it is charged */
	u32 weight;		/* with which it is counted */
	u32 looks;		/* how often it was found waiting (rule 6) */
	struct cfs_attributes attributes;
};

struct cfs_core {
	struct core core;
	struct queue ready, starved;
	u64 least;		/* vruntime; does not go back */
	u64 load;		/* weights of the threads that wait or run */
	u32 count;		/* of these */
};

static struct cfs_thread *of(const struct thread *thread)
{
	return container_of(thread, struct cfs_thread, thread);
}

static struct cfs_core *at(struct core *core)
{
	return container_of(core, struct cfs_core, core);
}

static bool cfs_before(const struct thread *a, const struct thread *b)
{
	return baton_before(of(a)->vruntime, of(b)->vruntime);
}

static const char *cfs_init(struct policy *policy, const struct baton_env *env)
{
	struct core *core;

	for_each_core(policy, core) {
		queue_init(&at(core)->ready, core, QUEUE_RBTREE);
		queue_init(&at(core)->starved, core, QUEUE_FIFO);
	}
	return env->options[0] ? "cfs_c has no options" : NULL;
}

/* The thread is counted at this core from now on, or no longer. */
static void count(struct core *core, struct thread *thread, int by)
{
	if (by > 0)
		of(thread)->weight = thread_weight(thread);
	baton_assert(by > 0 || at(core)->load >= of(thread)->weight);
	WRITE_ONCE(at(core)->count, at(core)->count + by);
	at(core)->load += by * (s64)of(thread)->weight;
}

/* Charges a thread that runs or ran for the time since it was charged last. */
static void charge(struct thread *thread)
{
	of(thread)->vruntime += (thread->runtime - of(thread)->runtime) * WEIGHT_OF_NICE_0 /
				thread_weight(thread);
	of(thread)->runtime = thread->runtime;
}

/* The core's least vruntime follows its threads. */
static void advance(struct core *core)
{
	struct thread *first = queue_first(&at(core)->ready);
	struct thread *least = core->running ? core->running : first;

	if (first && least && cfs_before(first, least))
		least = first;
	if (least && baton_before(at(core)->least, of(least)->vruntime))
		at(core)->least = of(least)->vruntime;
}

/* Puts a thread into the core's queue, with a vruntime that was relative to a core's least. */
static void join(struct thread *thread, struct core *core, s64 distance)
{
	if (distance < -(s64)LATENCY)
		distance = -(s64)LATENCY;
	of(thread)->vruntime = at(core)->least + distance;
	if (change_state(thread, THREAD_READY, core, &at(core)->ready))
		count(core, thread, 1);
	if (at(core)->count > 1)
		wake_idle_core(thread, core);
}

static struct core *cfs_prepare(struct policy *policy, struct thread *thread,
				const struct wake *wake)
{
	struct core *idle;

	if (wake->sync && wake->waker != wake->prev && queue_count(&at(wake->waker)->ready) == 0 &&
	    thread_may_run(thread, wake->waker))
		return wake->waker;
	idle = claim_idle(thread, wake->prev);
	return idle ? idle : wake->prev;
}

static void cfs_new(struct policy *policy, struct thread *thread, struct core *core)
{
	of(thread)->runtime = thread->runtime;
	join(thread, core, 0);
}

static void cfs_unblock(struct policy *policy, struct thread *thread, struct core *core)
{
	struct thread *running = core->running;

	join(thread, core, (s64)of(thread)->vruntime);
	if (running && baton_before(of(thread)->vruntime + WAKEUP, of(running)->vruntime))
		preempt_core(core);
}

static void cfs_block(struct policy *policy, struct thread *thread)
{
	struct core *core = thread->core;

	if (thread->state != THREAD_READY)
		charge(thread);
	advance(core);
	count(core, thread, -1);
	/* kept relative, as it may wake elsewhere */
	of(thread)->vruntime -= at(core)->least;
	change_state(thread, THREAD_BLOCKED, core, NULL);
}

static void cfs_terminate(struct policy *policy, struct thread *thread)
{
	if (thread->state != THREAD_BLOCKED && thread->state != THREAD_NEW)
		count(thread->core, thread, -1);
	change_state(thread, THREAD_TERMINATED, NULL, NULL);
}

static void cfs_preempt(struct policy *policy, struct thread *thread)
{
	charge(thread);
	change_state(thread, THREAD_READY, thread->core, &at(thread->core)->ready);
	advance(thread->core);
	wake_idle_core(thread, thread->core);
}

static void cfs_tick(struct policy *policy, struct thread *thread)
{
	struct thread *first = queue_first(&at(thread->core)->ready);

	if (first)
		wake_idle_core(first, thread->core);
}

static void cfs_reweight(struct policy *policy, struct thread *thread, s32 old_nice)
{
	if (thread->state == THREAD_RUNNING || thread->state == THREAD_READY) {
		count(thread->core, thread, -1);
		count(thread->core, thread, 1);
	}
}

static void cfs_schedule(struct policy *policy, struct core *core)
{
	struct thread *starved = queue_first(&at(core)->starved), *prev = core->running;
	struct thread *first = starved ? starved : queue_first(&at(core)->ready);
	struct thread *next = first ? first : prev;
	u64 slice;

	if (prev)
		charge(prev);
	if (!next)
		return;
	if (prev && first && !starved && !cfs_before(first, prev))
		next = prev;
	slice = LATENCY * thread_weight(next) / at(core)->load;
	if (slice < LEAST_SLICE)
		slice = LEAST_SLICE;
	run_for(of(next)->attributes.slice ? (u64)of(next)->attributes.slice : slice);
	if (next != prev)
		change_state(next, THREAD_RUNNING, core, NULL);
	of(next)->looks = 0;
	advance(core);
}

/* Takes up to `most` threads from the nearest core that has two more and one that may move. */
static void cfs_pull(struct core *core, u32 most)
{
	struct thread *thread, *next;
	struct core *other;
	u32 take, took = 0;

	for_each_core_near(core, LEVEL_MACHINE, other) {
		if (baton_read(at(other)->count) < baton_read(at(core)->count) + 2)
			continue;
		lock_cores(core, other);
		take = at(other)->count > at(core)->count ? at(other)->count - at(core)->count : 0;
		take = min(take / 2, most);
		thread = queue_first(&at(other)->ready);
		for (; thread && took < take; thread = next) {
			s64 distance = (s64)(of(thread)->vruntime - at(other)->least);

			next = queue_next(thread);
			if (!thread_may_run(thread, core) ||
			    !change_state(thread, THREAD_MIGRATING, core, NULL))
				continue;
			count(other, thread, -1);
			join(thread, core, distance);
			took++;
		}
		unlock_cores(core, other);
		if (took)
			return;
	}
}

/* Rule 6. */
static void cfs_look(struct core *core)
{
	struct thread *thread, *next;

	lock_core(core);
	for (thread = queue_first(&at(core)->ready); thread; thread = next) {
		next = queue_next(thread);
		if (++of(thread)->looks < LOOKS ||
		    !change_state(thread, THREAD_MIGRATING, core, NULL))
			continue;
		change_state(thread, THREAD_READY, core, &at(core)->starved);
	}
	unlock_core(core);
}

static void cfs_balance(struct policy *policy, struct core *core)
{
	cfs_look(core);
	cfs_pull(core, U32_MAX);
}

static void cfs_newly_idle(struct policy *policy, struct core *core)
{
	cfs_pull(core, 1);
}

static const char *cfs_check(struct policy *policy, struct thread *thread, const void *attributes)
{
	const struct cfs_attributes *new = attributes;

	return new->slice && new->slice < LEAST_OWN_SLICE ? "slice is 0, or 100 us or more" : NULL;
}

static void cfs_changed(struct policy *policy, struct thread *thread)
{
	struct core *core = baton_read_core(thread);

	/* It is chosen anew, with its new slice. */
	if (core && baton_read(thread->state) == THREAD_RUNNING)
		preempt_core(core);
}

static const struct events cfs_c = {
	.version = 1,
	.core_size = sizeof(struct cfs_core),
	.thread_size = sizeof(struct cfs_thread),
	.before = cfs_before,
	.init = cfs_init,
	.new_prepare = cfs_prepare,
	.new_place = cfs_new,
	.unblock_prepare = cfs_prepare,
	.unblock_place = cfs_unblock,
	.block = cfs_block,
	.preempt = cfs_preempt,
	.tick = cfs_tick,
	.reweight = cfs_reweight,
	.terminate = cfs_terminate,
	.schedule = cfs_schedule,
	.newly_idle = cfs_newly_idle,
	.balancing_select = cfs_balance,
	BATON_ATTRIBUTES_AT(struct cfs_thread, attributes),
	.attributes = { { "slice", 0, 100000000, 0, BATON_ATTRIBUTE_UNIT_TIME } },
	.checkparam = cfs_check,
	.attr_changed = cfs_changed,
};

BATON_POLICY(cfs_c);
