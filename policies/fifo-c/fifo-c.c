// SPDX-License-Identifier: GPL-2.0-only
/*
 * `fifo_c`: one first-in first-out queue for each CPU, in C.
 *
 * 1. A task whose waker is about to sleep goes to the waker's CPU, if it may run there and no task
 *    waits there. Any other woken or new task goes to an idle CPU: the first by number from where
 *    it last ran upwards, on an idle core if there is one. If no CPU is idle, it stays where it
 *    last ran.
 * 2. Unless an idle CPU runs it at once, it waits at the end of that CPU's queue.
 * 3. A CPU runs the first task of its queue for the host's default slice (20 ms). At the end of the
 *    slice the task goes to the end of the queue.
 * 4. Queues are never balanced.
 *
 * Rules 2 to 4 are those of policies/fifo, without its option. Rule 1 differs: policies/fifo does
 * not look at the waker's queue, and takes the nearest idle CPU. This policy uses the interface
 * below the Rust one (policy/c).
 *
 * Context. All but create and destroy run with interrupts off, mostly with a kernel run-queue lock
 * held, and on several CPUs at once. Nothing here may sleep, print or allocate.
 *
 * Locks. A queue's lock guards its list, and `linked` of every task that is in the list. The locks
 * are the host's (baton_host_lock), not raw_res_spin_lock. A deadlock then ends this policy instead
 * of the machine, and the locks that it holds are released. A function holds one lock at a time.
 *
 * Memory. It comes from baton_host_alloc(), so that the host counts it. After a fault of the policy
 * the host frees it, and destroy is not called.
 *
 * C has no bound on the stack here, and no checks of indices and pointers. A wrong pointer is an
 * oops.
 */
#include <linux/atomic.h>
#include <linux/string.h>

#include "baton.h"
#include "host.h"

extern const struct baton_policy BATON_POLICY_OPS;

#define NOWHERE (-1)
#define NO_SLOT (~0U)

/* A task that waits, by slot. */
struct waiter {
	/*
	 * Its token; 0 when the task is in no queue. The function that changes it from 0 puts the
	 * task into a queue, and the one that takes the task out changes it to 0.
	 */
	u64 token;
	s32 linked;		/* the CPU whose list it is in, or NOWHERE */
	s32 home;		/* the CPU into whose list it was last put */
	u32 next, prev;		/* slots, or NO_SLOT */
};

struct queue {
	rqspinlock_t lock;
	u32 first, last;	/* slots, or NO_SLOT */
} __aligned(128);		/* lines are fetched in pairs */

struct fifo {
	u32 nr_cpus;
	bool has_smt;
	struct waiter *waiters;
	s32 *siblings;		/* by CPU: the next CPU of its core, in a ring */
	struct queue queues[];
};

static u32 slot_of(baton_token token)
{
	return (u32)token - 1;
}

static u32 generation_of(baton_token token)
{
	return token >> 32;
}

/* The queue's lock is held. */
static void link_last(struct fifo *fifo, s32 cpu, u32 slot)
{
	struct queue *queue = &fifo->queues[cpu];
	struct waiter *waiter = &fifo->waiters[slot];

	waiter->next = NO_SLOT;
	waiter->prev = queue->last;
	if (queue->last == NO_SLOT)
		WRITE_ONCE(queue->first, slot);
	else
		fifo->waiters[queue->last].next = slot;
	queue->last = slot;
	WRITE_ONCE(waiter->home, cpu);
	WRITE_ONCE(waiter->linked, cpu);
}

/* The queue's lock is held, and the task is in its list. Returns the task's newest token. */
static baton_token unlink(struct fifo *fifo, s32 cpu, u32 slot)
{
	struct queue *queue = &fifo->queues[cpu];
	struct waiter *waiter = &fifo->waiters[slot];

	if (waiter->prev == NO_SLOT)
		WRITE_ONCE(queue->first, waiter->next);
	else
		fifo->waiters[waiter->prev].next = waiter->next;
	if (waiter->next == NO_SLOT)
		queue->last = waiter->prev;
	else
		fifo->waiters[waiter->next].prev = waiter->prev;
	WRITE_ONCE(waiter->linked, NOWHERE);
	/* Only now may another CPU put the task into its own queue. */
	return xchg(&waiter->token, 0);
}

/*
 * Puts a task at the end of a queue.
 *
 * The task is usually in no queue. But one CPU may be putting a refused token back while the kernel
 * enqueues the same task again on another. Then the first of the two has put the task into a queue,
 * and the newer token replaces the older.
 */
static void put(struct fifo *fifo, s32 cpu, baton_token token)
{
	struct queue *queue = &fifo->queues[cpu];
	struct waiter *waiter = &fifo->waiters[slot_of(token)];
	u64 there = 0;

	baton_host_lock(&queue->lock);
	while (!try_cmpxchg(&waiter->token, &there, token)) {
		/* Generations wrap. */
		if (there && (s32)(generation_of(there) - generation_of(token)) > 0)
			break;
	}
	if (!there)
		link_last(fifo, cpu, slot_of(token));
	baton_host_unlock(&queue->lock);
}

/* The next CPU of the same core; the CPU itself if the core has no other. */
static s32 next_sibling(const struct baton_env *env, u32 cpu)
{
	u32 next = cpu;

	do
		next = next + 1 < env->nr_cpus ? next + 1 : 0;
	while (env->cpus[next].core != env->cpus[cpu].core);
	return next;
}

static void *fifo_create(const struct baton_env *env)
{
	struct fifo *fifo;
	u32 i;

	if (env->options[0]) {
		strscpy(env->message, "fifo_c has no options", BATON_MESSAGE_LEN);
		return NULL;
	}
	fifo = baton_host_alloc(struct_size(fifo, queues, env->nr_cpus), __alignof__(*fifo));
	if (!fifo)
		goto no_memory;
	fifo->waiters = baton_host_alloc(array_size(env->max_tasks, sizeof(*fifo->waiters)),
					 __alignof__(*fifo->waiters));
	if (!fifo->waiters)
		goto no_memory;	/* the host frees what was allocated */
	fifo->siblings = baton_host_alloc(array_size(env->nr_cpus, sizeof(*fifo->siblings)),
					  __alignof__(s32));
	if (!fifo->siblings)
		goto no_memory;
	fifo->nr_cpus = env->nr_cpus;
	fifo->has_smt = false;
	for (i = 0; i < env->nr_cpus; i++) {
		fifo->siblings[i] = next_sibling(env, i);
		fifo->has_smt |= fifo->siblings[i] != (s32)i;
		raw_res_spin_lock_init(&fifo->queues[i].lock);
		fifo->queues[i].first = NO_SLOT;
		fifo->queues[i].last = NO_SLOT;
	}
	for (i = 0; i < env->max_tasks; i++)
		fifo->waiters[i] = (struct waiter){ .linked = NOWHERE };
	return fifo;
no_memory:
	strscpy(env->message, "there is no memory for the queues", BATON_MESSAGE_LEN);
	return NULL;
}

static void fifo_destroy(void *this)
{
	struct fifo *fifo = this;

	baton_host_free(fifo->siblings);
	baton_host_free(fifo->waiters);
	baton_host_free(fifo);
}

/* Claims an idle CPU for a task, or returns NOWHERE. `whole`: only on a wholly idle core. */
static s32 claim_idle(struct fifo *fifo, u32 slot, s32 from, bool whole)
{
	s32 cpu = from, other;

	do {
		for (other = fifo->siblings[cpu];
		     whole && other != cpu && baton_host_cpu_idle(other);)
			other = fifo->siblings[other];
		if ((!whole || other == cpu) && baton_host_may_run(slot, cpu) &&
		    baton_host_claim_idle(cpu))
			return cpu;
		cpu = cpu + 1 < (s32)fifo->nr_cpus ? cpu + 1 : 0;
	} while (cpu != from);
	return NOWHERE;
}

static u64 fifo_select_task_rq(void *this, struct baton_ctx *ctx, const struct baton_task *task,
			       const struct baton_wake *wake)
{
	struct fifo *fifo = this;
	s32 cpu = NOWHERE;

	if ((wake->flags & BATON_F_SYNC) &&
	    READ_ONCE(fifo->queues[wake->waker_cpu].first) == NO_SLOT &&
	    baton_host_may_run(task->slot, wake->waker_cpu))
		return (u32)wake->waker_cpu;
	if (fifo->has_smt && baton_host_any_idle())
		cpu = claim_idle(fifo, task->slot, wake->prev_cpu, true);
	if (cpu == NOWHERE)
		cpu = claim_idle(fifo, task->slot, wake->prev_cpu, false);
	return cpu == NOWHERE ? (u32)wake->prev_cpu : (u32)cpu | BATON_SELECT_DIRECT;
}

/* task_new, task_wakeup, task_preempt, task_yield and task_restored. */
static void fifo_put(void *this, struct baton_ctx *ctx, const struct baton_task *task,
		     baton_token token)
{
	put(this, task->cpu, token);
}

static baton_token take_first(struct fifo *fifo, s32 cpu)
{
	struct queue *queue = &fifo->queues[cpu];
	baton_token token = BATON_PICK_NONE;

	baton_host_lock(&queue->lock);
	if (queue->first != NO_SLOT)
		token = unlink(fifo, cpu, queue->first);
	baton_host_unlock(&queue->lock);
	return token;
}

static u64 fifo_pick_next_task(void *this, struct baton_ctx *ctx, s32 cpu,
			       const struct baton_task *prev)
{
	baton_token token = take_first(this, cpu);

	if (token != BATON_PICK_NONE)
		return token;
	return prev ? BATON_PICK_KEEP : BATON_PICK_NONE;
}

/*
 * Queues a task elsewhere, as its CPU has gone or may not be used any more. If there is no other
 * CPU for it, the kernel will enqueue it again.
 */
static void rehome(struct fifo *fifo, struct baton_ctx *ctx, baton_token token)
{
	s32 cpu;

	for (cpu = 0; cpu < (s32)fifo->nr_cpus; cpu++)
		if (baton_host_may_run(slot_of(token), cpu))
			break;
	if (cpu == (s32)fifo->nr_cpus)
		cpu = READ_ONCE(fifo->waiters[slot_of(token)].home);
	put(fifo, cpu, token);
	/*
	 * A busy CPU picks the task by itself. So does an idle one for which there is no room here,
	 * with its next task.
	 */
	if (ctx->nr_kicks < BATON_MAX_KICKS)
		ctx->kicks[ctx->nr_kicks++] = cpu | BATON_KICK_IDLE;
}

static void fifo_pick_refused(void *this, struct baton_ctx *ctx, baton_token token,
			      enum baton_refusal why)
{
	/* such a token is worthless */
	if (why != BATON_REFUSAL_STALE && why != BATON_REFUSAL_FOREIGN)
		rehome(this, ctx, token);
}

/* task_dequeued and task_departed. */
static baton_token fifo_take(void *this, struct baton_ctx *ctx, const struct baton_task *task)
{
	struct fifo *fifo = this;
	struct waiter *waiter = &fifo->waiters[task->slot];
	s32 home = READ_ONCE(waiter->home);
	baton_token token = BATON_PICK_NONE;

	baton_host_lock(&fifo->queues[home].lock);
	if (READ_ONCE(waiter->linked) == home)
		token = unlink(fifo, home, task->slot);
	baton_host_unlock(&fifo->queues[home].lock);
	return token;
}

static void fifo_cpu_offline(void *this, struct baton_ctx *ctx, s32 cpu)
{
	struct fifo *fifo = this;
	struct queue *queue = &fifo->queues[cpu];
	u32 slot, waiting = 0;

	baton_host_lock(&queue->lock);
	for (slot = queue->first; slot != NO_SLOT; slot = fifo->waiters[slot].next)
		waiting++;
	baton_host_unlock(&queue->lock);
	/* only as many as there are now: a task that has no other CPU comes back */
	while (waiting--) {
		baton_token token = take_first(fifo, cpu);

		if (token == BATON_PICK_NONE)
			return;
		rehome(fifo, ctx, token);
	}
}

const struct baton_policy BATON_POLICY_OPS = {
	.abi = BATON_ABI,
	.version = 1,
	.events = 0,
	.language = 1,
	.name = "fifo_c",
	.create = fifo_create,
	.destroy = fifo_destroy,
	.select_task_rq = fifo_select_task_rq,
	.task_new = fifo_put,
	.task_wakeup = fifo_put,
	.task_preempt = fifo_put,
	.task_yield = fifo_put,
	.task_restored = fifo_put,
	.pick_next_task = fifo_pick_next_task,
	.pick_refused = fifo_pick_refused,
	.task_dequeued = fifo_take,
	.task_departed = fifo_take,
	.cpu_offline = fifo_cpu_offline,
};
