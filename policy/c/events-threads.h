/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The functions of a policy that are about a thread. Included by events.h.
 */
#ifndef BATON_EVENTS_THREADS_H
#define BATON_EVENTS_THREADS_H

/* Has the thread been placed since its slot was taken over? */
static __always_inline bool baton_knows(const struct thread *thread)
{
	return thread->state > THREAD_NEW;
}

/*
 * The slot has a new thread, which this call owns. A request about attributes may hold the lock of
 * the core that the slot's last thread had.
 */
static inline void baton_begin_thread(const struct events *ev, struct policy *policy,
				      struct thread *thread, const struct baton_task *task)
{
	struct core *core = baton_lock_home(thread);
	u64 token = READ_ONCE(thread->token);
	u32 i;

	memset(thread, 0, policy->thread_size);
	WRITE_ONCE(thread->token, token);
	thread->slot = task->slot;
	thread->pid = task->pid;
	thread->nice = task->nice;
	baton_set_state(thread, THREAD_NEW, 0);
	for (i = 0; i < baton_nr_attributes(ev); i++)
		baton_attributes(ev, thread)[i] = ev->attributes[i].initial;
	baton_update(thread, task);
	if (core)
		unlock_core(core);
}

/* Another thread than one that is asleep. */
static noinline u64 baton_select_other(const struct events *ev, struct baton_call *call,
				       const struct baton_task *task,
				       const struct baton_wake *how)
{
	struct wake wake = { .prev = core_at(call->policy, how->prev_cpu),
			     .waker = core_at(call->policy, how->waker_cpu),
			     .sync = how->flags & BATON_F_SYNC };
	struct core *core;

	/*
	 * The policy is told when the thread is placed that it is not where its state says. And the
	 * thread that the slot was of before may have been left in a queue.
	 */
	if (baton_knows(call->thread) || READ_ONCE(call->thread->token) & BATON_PRESENT)
		return (u32)how->prev_cpu;
	baton_begin_thread(ev, call->policy, call->thread, task);
	if (!ev->new_prepare)
		return (u32)how->prev_cpu;
	call->handler = BATON_IN_new_prepare;
	core = ev->new_prepare(call->policy, call->thread, &wake);
	return core ? (u32)core->cpu : (u32)how->prev_cpu;
}

/*
 * Is the thread asleep? Without a `block` handler, its wakeup is the first that is heard of it.
 */
static __always_inline bool baton_sleeps(const struct events *ev, struct thread *thread)
{
	if (!ev->block && thread->state == THREAD_RUNNING) {
		baton_set_state(thread, THREAD_BLOCKED, 0);
		return true;
	}
	return likely(thread->state == THREAD_BLOCKED);
}

static __always_inline u64 baton_events_select(const struct events *ev, struct policy *policy,
					       struct baton_ctx *ctx,
					       const struct baton_task *task,
					       const struct baton_wake *how)
{
	struct thread *thread = baton_thread(ev, policy, task->slot);
	struct wake wake = { .prev = baton_core(ev, policy, how->prev_cpu),
			     .waker = baton_core(ev, policy, how->waker_cpu),
			     .sync = how->flags & BATON_F_SYNC };
	struct core *core;
	BATON_BEGIN(policy, ctx, unblock_prepare);

	call->thread = thread;
	call->claimed = NULL;
	if (!baton_sleeps(ev, thread))
		return baton_select_other(ev, call, task, how);
	if (!ev->unblock_prepare)
		return (u32)how->prev_cpu;
	BATON_INLINED core = ev->unblock_prepare(policy, thread, &wake);
	if (!core)
		return (u32)how->prev_cpu;
	/* By run_at_once(). */
	if (thread->state == THREAD_RUNNING)
		return (u32)core->cpu | BATON_SELECT_DIRECT;
	return (u32)core->cpu;
}

static noinline void baton_events_new(const struct events *ev, struct policy *policy,
				    struct baton_ctx *ctx, const struct baton_task *task,
				    baton_token token)
{
	struct thread *thread = baton_thread(ev, policy, task->slot);
	struct core *core = baton_core(ev, policy, task->cpu);
	BATON_BEGIN(policy, ctx, new_place);

	/*
	 * The thread that the slot was of before may have been left in a queue, or another call may
	 * be moving it.
	 */
	if (!baton_own(thread, token) && !baton_seize(ev, call, thread, true)) {
		thread->pid = task->pid;
		thread->nice = task->nice;
		return;
	}
	baton_begin_thread(ev, policy, thread, task);
	BATON_PLACE(({
		if (ev->new_place)
			BATON_HANDLE_FIRST(new_place, thread, core);
		else
			BATON_HANDLE_FIRST(unblock_place, thread, core);
		BATON_HANDLE(new_end, thread, core);
	}));
}

/*
 * Is this thread running here by the policy's own choice? Not if the kernel
 * dropped a later choice of another core because the thread was running here already.
 */
static __always_inline bool baton_runs(const struct thread *thread, const struct core *core)
{
	return thread->core == core &&
	       (thread->state == THREAD_RUNNING || thread->state == THREAD_READY_TICK);
}

/*
 * Places a thread, which this call owns, on the core where the kernel has put it: after a change of
 * its attributes, or because it is not where its state says.
 */
static noinline void baton_restore(const struct events *ev, struct baton_call *call,
				   struct thread *thread, struct core *core)
{
	if (thread->state != THREAD_BLOCKED)
		baton_oust(ev, call, thread, false);
	thread->flags |= THREAD_OUSTED;
	baton_unblock(ev, call, thread, core);
	thread->flags &= ~THREAD_OUSTED;
	/* The core may have found nothing while the thread was between two queues. */
	wake_core(core);
}

/* Another thread than one that is asleep. */
static noinline void baton_wake_other(const struct events *ev, struct baton_call *call,
				      const struct baton_task *task, baton_token token)
{
	struct thread *thread = thread_at(call->policy, task->slot);

	if (!baton_knows(thread))
		baton_events_new(ev, call->policy, call->ctx, task, token);
	else if (baton_own(thread, token) || baton_seize(ev, call, thread, false))
		baton_restore(ev, call, thread, core_at(call->policy, task->cpu));
}

static __always_inline void baton_events_wakeup(const struct events *ev, struct policy *policy,
						struct baton_ctx *ctx,
						const struct baton_task *task, baton_token token)
{
	struct thread *thread = baton_thread(ev, policy, task->slot);
	BATON_BEGIN(policy, ctx, unblock_place);

	baton_update(thread, task);
	if (!baton_sleeps(ev, thread))
		return baton_wake_other(ev, call, task, token);
	if (unlikely(!baton_own(thread, token)) && !baton_seize(ev, call, thread, false))
		return;
	baton_unblock(ev, call, thread, baton_core(ev, policy, task->cpu));
}

/* task_restored */
static inline void baton_events_restored(const struct events *ev, struct policy *policy,
					 struct baton_ctx *ctx, const struct baton_task *task,
					 baton_token token)
{
	BATON_BEGIN(policy, ctx, unblock_place);

	baton_update(baton_thread(ev, policy, task->slot), task);
	baton_wake_other(ev, call, task, token);
}

/* task_preempt, and task_yield if `yields`. */
static __always_inline void baton_events_preempt(const struct events *ev, struct policy *policy,
						 struct baton_ctx *ctx,
						 const struct baton_task *task,
						 baton_token token, bool yields)
{
	struct thread *thread = baton_thread(ev, policy, task->slot);
	struct core *core = baton_core(ev, policy, task->cpu);
	BATON_BEGIN(policy, ctx, preempt);

	baton_update(thread, task);
	if (unlikely(!baton_runs(thread, core)))
		return baton_wake_other(ev, call, task, token);
	if (unlikely(!baton_own(thread, token)) && !baton_seize(ev, call, thread, false))
		return;
	BATON_PLACE(({
		if (core->running == thread)
			core->running = NULL;
		if (ev->tick && thread->state == THREAD_READY_TICK) {
			call->may_queue = false;
			baton_link(core->after_tick, thread);
			baton_set_state(thread, THREAD_READY, 0);
		} else if (yields && ev->yield) {
			BATON_HANDLE(yield, thread);
		} else if (ev->preempt) {
			BATON_HANDLE_FIRST(preempt, thread);
		} else if (ev->unblock_place) {
			BATON_HANDLE_FIRST(unblock_place, thread, core);
		} else {
			BATON_HANDLE_FIRST(new_place, thread, core);
		}
	}));
}

static inline void baton_events_blocked(const struct events *ev, struct policy *policy,
					struct baton_ctx *ctx, const struct baton_task *task)
{
	struct thread *thread = baton_thread(ev, policy, task->slot);
	struct core *core;
	BATON_BEGIN(policy, ctx, block);

	baton_update(thread, task);
	core = baton_lock_home(thread);
	if (thread->state == THREAD_RUNNING || thread->state == THREAD_READY_TICK)
		baton_remove(ev, call, thread, false);
	if (core)
		unlock_core(core);
}

/* task_dequeued, task_departed if `leaves`, and task_dead if `dies` as well. */
static inline baton_token baton_events_take(const struct events *ev, struct policy *policy,
					    struct baton_ctx *ctx, const struct baton_task *task,
					    bool leaves, bool dies)
{
	struct thread *thread = baton_thread(ev, policy, task->slot);
	baton_token token = 0;
	struct core *core;
	bool is_queued;
	BATON_BEGIN(policy, ctx, block);

	baton_update(thread, task);
	core = baton_lock_queued(policy, thread, &is_queued);
	if (is_queued) {
		thread->flags |= leaves ? THREAD_DEPARTS : THREAD_OUSTED;
		baton_remove(ev, call, thread, leaves);
		thread->flags = 0;
		token = baton_disown(thread);
	} else if (leaves && READ_ONCE(thread->token) & BATON_PRESENT) {
		/* Another call is moving it, and ends it, or else the one that chooses it later. */
		u64 old = READ_ONCE(thread->token);

		while (!try_cmpxchg(&thread->token, &old, old | BATON_GONE))
			;
	} else if (leaves && thread->state != THREAD_TERMINATED) {
		thread->flags |= dies ? 0 : THREAD_DEPARTS;
		baton_remove(ev, call, thread, true);
		thread->flags = 0;
	}
	unlock_policy(policy);
	if (core)
		unlock_core(core);
	return token;
}

static inline void baton_events_reweight(const struct events *ev, struct policy *policy,
					 struct baton_ctx *ctx, const struct baton_task *task)
{
	struct thread *thread = baton_thread(ev, policy, task->slot);
	s32 old = thread->nice;
	struct core *core;
	BATON_BEGIN(policy, ctx, reweight);

	baton_update(thread, task);
	core = baton_lock_home(thread);
	call->thread = thread;
	thread->nice = task->nice;
	BATON_HANDLE(reweight, thread, old);
	if (core)
		unlock_core(core);
}

static inline void baton_events_tick(const struct events *ev, struct policy *policy,
				     struct baton_ctx *ctx, const struct baton_task *task)
{
	struct thread *thread = baton_thread(ev, policy, task->slot);
	struct core *core;
	BATON_BEGIN(policy, ctx, tick);

	baton_update(thread, task);
	core = baton_lock_home(thread);
	call->thread = thread;
	if (core && thread->state == THREAD_RUNNING)
		BATON_HANDLE(tick, thread);
	if (core)
		unlock_core(core);
	baton_end(call);
}

/*
 * The kernel refused a thread that `schedule` chose. Either it may not run there any more, and gets
 * another core; or the kernel took it back meanwhile, and the policy learns that it does not run.
 */
static inline void baton_events_refused(const struct events *ev, struct policy *policy,
					struct baton_ctx *ctx, baton_token token,
					enum baton_refusal why)
{
	struct thread *thread = thread_at(policy, (u32)token - 1);
	bool is_stale = why == BATON_REFUSAL_STALE || why == BATON_REFUSAL_FOREIGN;
	bool has_left = READ_ONCE(thread->token) & BATON_GONE;
	u64 noted = token >> 32 << 32 | BATON_PRESENT;
	BATON_BEGIN(policy, ctx, block);

	if (!baton_own_again(thread, token))
		return;
	if (thread->state == THREAD_RUNNING)
		baton_oust(ev, call, thread, is_stale && has_left);
	/*
	 * A stale token is worthless, unless a newer one has come meanwhile: then its call has left
	 * the thread to this one.
	 */
	if (is_stale && try_cmpxchg(&thread->token, &noted, token >> 32 << 32)) {
		thread->flags = 0;
		return;
	}
	thread->flags |= THREAD_OUSTED;
	baton_rehome(ev, call, thread, thread->core);
}

#endif
