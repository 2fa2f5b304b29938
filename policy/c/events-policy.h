/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The functions of a policy (baton.h), made from its handlers of events. Included by events.h. They
 * take a struct events that is constant where they are compiled, so that handlers are called
 * directly, and absent ones leave no code.
 *
 * Who may change a thread. While PRESENT is set in its token: the call that set it and, once the
 * thread is in a queue, whoever holds that queue's lock. While it is not set: the kernel, which
 * makes no two calls about a thread at once. A token that the kernel refused may come back late, on
 * another CPU; it counts only if no newer one has been seen.
 */
#ifndef BATON_EVENTS_POLICY_H
#define BATON_EVENTS_POLICY_H

/*
 * Notes a token that the kernel has just made. Returns true if the thread is now this call's, to be
 * put into a queue.
 */
static __always_inline bool baton_own(struct thread *thread, baton_token token)
{
	return !(xchg(&thread->token, token >> 32 << 32 | BATON_PRESENT) & BATON_PRESENT);
}

/* The same for a token that comes back. It counts only if no newer one has been noted. */
static inline bool baton_own_again(struct thread *thread, baton_token token)
{
	u64 old = READ_ONCE(thread->token);

	do {
		/* Generations wrap. */
		if ((s32)((u32)(token >> 32) - (u32)(old >> 32)) < 0)
			return false;
	} while (!try_cmpxchg(&thread->token, &old, token >> 32 << 32 | BATON_PRESENT));
	return !(old & BATON_PRESENT);
}

/* The thread leaves the policy's queues. Returns its newest token. */
static __always_inline baton_token baton_disown(struct thread *thread)
{
	u64 old = READ_ONCE(thread->token);

	while (!try_cmpxchg(&thread->token, &old, old & ~(u64)BATON_PRESENT))
		;
	return old >> 32 << 32 | (thread->slot + 1);
}

/* The kernel's compilers fill variables with zeros otherwise. */
#define BATON_UNSET __attribute__((uninitialized))

/* Begins a call. `first` is the event that its first handler is of. */
#define BATON_BEGIN(POLICY, CTX, first)				\
	struct baton_call call_under_way BATON_UNSET;		\
	struct baton_call *const call = &call_under_way;	\
	call->policy = (POLICY);				\
	call->ctx = (CTX);					\
	call->handler = BATON_IN_##first;			\
	call->may_queue = false;				\
	call->migrating = 0;					\
	baton_host_set_call(call)

/* Calls a handler if it is present. */
#define BATON_HANDLE(name, ...)					\
	do {							\
		if (ev->name) {					\
			call->handler = BATON_IN_##name;	\
			ev->name(call->policy, __VA_ARGS__);	\
		}						\
	} while (0)

/* The same for the event that the call began with, or the one that takes its place. */
#define BATON_HANDLE_FIRST(name, ...)				\
	do {							\
		if (ev->name)					\
			ev->name(call->policy, __VA_ARGS__);	\
	} while (0)

/* Ends a call in which a handler may have taken threads out of queues: all must be back. */
static __always_inline void baton_end(struct baton_call *call)
{
	if (unlikely(call->migrating))
		baton_lost(call, call->moving);
}

static __always_inline void baton_update(struct thread *thread, const struct baton_task *task)
{
	thread->runtime = task->runtime;
}

/* Takes the lock of the thread's core. Returns NULL if it has none. */
static inline struct core *baton_lock_home(struct thread *thread)
{
	struct core *core;

	while ((core = baton_read_core(thread))) {
		lock_core(core);
		if (likely(thread->core == core))
			break;
		unlock_core(core);
	}
	return core;
}

/*
 * The same, and the policy's lock, so that no other call takes the thread out of its queue, if it
 * is in one (`is_queued`). Another call may have moved it to another core meanwhile.
 */
static inline struct core *baton_lock_queued(struct policy *policy, struct thread *thread,
					     bool *is_queued)
{
	struct core *core;

	for (;;) {
		core = baton_lock_home(thread);
		lock_policy(policy);
		/* In the reverse order of baton_change_state(). */
		*is_queued = READ_ONCE(thread->queue) && READ_ONCE(thread->state) == THREAD_READY;
		if (READ_ONCE(thread->core) == core)
			return core;
		unlock_policy(policy);
		if (core)
			unlock_core(core);
	}
}

/*
 * A thread blocks or, if it leaves, terminates. Its core's lock is held, if it has a core, and so
 * is the policy's if it is in a queue without a core.
 */
static __always_inline void baton_remove(const struct events *ev, struct baton_call *call,
					 struct thread *thread, bool leaves)
{
	u8 handler = call->handler;

	call->thread = thread;
	if (leaves)
		BATON_HANDLE(terminate, thread);
	else
		BATON_HANDLE(block, thread);
	/* It is gone, whatever the handler did. */
	if (thread->queue)
		baton_unlink(thread);
	call->handler = handler;
	thread->state = leaves ? THREAD_TERMINATED : THREAD_BLOCKED;
	if (thread->core && thread->core->running == thread)
		thread->core->running = NULL;
}

/* The thread is not where its state says, or has left the policy. The call owns it. */
static noinline void baton_oust(const struct events *ev, struct baton_call *call,
				struct thread *thread, bool leaves)
{
	struct core *core = baton_lock_home(thread);

	thread->flags |= leaves ? THREAD_DEPARTS : THREAD_OUSTED;
	baton_remove(ev, call, thread, leaves);
	if (core)
		unlock_core(core);
}

/*
 * Takes a thread for which a newer token has come out of its queue. Returns true if the call owns
 * it then, and false if another call does, as it is moving the thread: that one places it.
 */
static noinline bool baton_seize(const struct events *ev, struct baton_call *call,
				 struct thread *thread, bool leaves)
{
	bool is_mine;
	struct core *core = baton_lock_queued(call->policy, thread, &is_mine);

	if (is_mine) {
		thread->flags |= leaves ? THREAD_DEPARTS : THREAD_OUSTED;
		baton_remove(ev, call, thread, leaves);
	}
	unlock_policy(call->policy);
	if (core)
		unlock_core(core);
	return is_mine;
}

/*
 * Has a `_place` handler, or `preempt`, put `thread` into a queue of `core`. The call owns it.
 */
#define BATON_PLACE(...)				\
	do {						\
		call->thread = thread;			\
		call->may_queue = true;			\
		baton_lock(core, call);			\
		__VA_ARGS__;				\
		if (unlikely(call->may_queue))		\
			baton_lost(call, thread);	\
		unlock_core(core);			\
	} while (0)

static __always_inline void baton_unblock(const struct events *ev, struct baton_call *call,
					  struct thread *thread, struct core *core)
{
	/* No store where the call began with it. */
	call->handler = BATON_IN_unblock_place;
	BATON_PLACE(({
		if (ev->unblock_place)
			BATON_HANDLE_FIRST(unblock_place, thread, core);
		else
			BATON_HANDLE_FIRST(new_place, thread, core);
		BATON_HANDLE(unblock_end, thread, core);
	}));
}

/*
 * Has the thread left the policy while this call was moving it? Then it terminates, and is no
 * longer the call's.
 */
static __always_inline bool baton_ends(const struct events *ev, struct baton_call *call,
				       struct thread *thread)
{
	u64 token = READ_ONCE(thread->token);

	if (likely(!(token & BATON_GONE)))
		return false;
	baton_oust(ev, call, thread, true);
	if (!try_cmpxchg(&thread->token, &token, token >> 32 << 32))
		return false;	/* It is back already. */
	thread->flags = 0;
	return true;
}

/* Places a thread that was ousted on a core of the policy's choice. The call owns it. */
static noinline void baton_rehome(const struct events *ev, struct baton_call *call,
				  struct thread *thread, struct core *from)
{
	struct wake wake = { .prev = from, .waker = from };
	struct core *core = from, *other;

	call->thread = thread;
	call->claimed = NULL;
	if (baton_ends(ev, call, thread))
		return;
	if (ev->unblock_prepare) {
		call->handler = BATON_IN_unblock_prepare;
		core = ev->unblock_prepare(call->policy, thread, &wake);
	}
	if (!core || core->is_off || !thread_may_run(thread, core)) {
		core = NULL;
		for_each_core_near(from, LEVEL_MACHINE, other)
			if ((!core || core->is_off) && thread_may_run(thread, other))
				core = other;
		/* The kernel takes it back soon, from wherever it is. */
		if (!core)
			core = from;
	}
	baton_unblock(ev, call, thread, core);
	thread->flags &= ~THREAD_OUSTED;
	wake_core(core);
	/* The thread may have lost the claimed core meanwhile. */
	if (call->claimed && call->claimed != core)
		wake_core(call->claimed);
}

/* Policy */

#define BATON_SIZE(ev, what, align)								\
	((((ev)->what##_size ? (ev)->what##_size : sizeof(struct what)) + (align) - 1) &	\
	 ~((size_t)(align) - 1))

/* Of the types that embed the library's, and of these: another number when they change. */
#define BATON_LAYOUT(ev)						\
	((u64)1 << 60 | (u64)(BATON_SIZE(ev, policy, 128)) << 40 |	\
	 (u64)(BATON_SIZE(ev, core, 128)) << 20 | (BATON_SIZE(ev, thread, 8)))

static inline bool baton_is_behind(const struct baton_cpu *a, const struct baton_cpu *b)
{
	if (a->node != b->node)
		return a->node > b->node;
	return a->llc != b->llc ? a->llc > b->llc : a->core > b->core;
}

static inline bool baton_is_near(const struct baton_cpu *a, const struct baton_cpu *b,
				 enum level level)
{
	return level == LEVEL_MACHINE ||
	       (a->node == b->node &&
		(level == LEVEL_NODE ||
		 (a->llc == b->llc && (level == LEVEL_CACHE || a->core == b->core))));
}

/* Neighbours come to lie beside each other in `places`, and each group is a range of it. */
static inline void baton_place_cores(struct policy *policy, const struct baton_env *env)
{
	u32 i, at, level;

	for (i = 0; i < env->nr_cpus; i++) {
		for (at = i; at && baton_is_behind(&env->cpus[policy->places[at - 1]],
						   &env->cpus[i]); at--)
			policy->places[at] = policy->places[at - 1];
		policy->places[at] = i;
	}
	for (i = 0; i < env->nr_cpus; i++) {
		const struct baton_cpu *cpu = &env->cpus[policy->places[i]];
		struct core *core = core_at(policy, policy->places[i]);

		core->place = i;
		for (level = 0; level < NR_LEVELS; level++) {
			struct core *last = i ? core_at(policy, policy->places[i - 1]) : NULL;

			if (last && baton_is_near(cpu, &env->cpus[last->cpu], level)) {
				core->begin[level] = last->begin[level];
				continue;
			}
			core->begin[level] = i;
		}
	}
	for (i = env->nr_cpus; i--;) {
		struct core *core = core_at(policy, policy->places[i]);
		struct core *next =
			i + 1 < env->nr_cpus ? core_at(policy, policy->places[i + 1]) : NULL;

		for (level = 0; level < NR_LEVELS; level++)
			core->end[level] = next && next->begin[level] == core->begin[level]
						   ? next->end[level]
						   : i + 1;
		if (core->end[LEVEL_SMT] - core->begin[LEVEL_SMT] > 1)
			policy->has_smt = true;
	}
}

/* Zeroed memory. */
static inline void *baton_room(size_t count, size_t size, size_t align)
{
	void *at = baton_host_alloc(array_size(count, size), align);

	return at ? memset(at, 0, count * size) : NULL;
}

static void *baton_events_create(const struct events *ev, const struct baton_env *env)
{
	struct policy *policy = baton_room(1, BATON_SIZE(ev, policy, 128), 128);
	const char *why = "there is no memory for the policy";
	u32 i;

	if (!policy)
		goto failed;
	policy->users = 1;
	policy->nr_cores = env->nr_cpus;
	policy->nr_threads = env->max_tasks;
	policy->core_size = BATON_SIZE(ev, core, 128);
	policy->thread_size = BATON_SIZE(ev, thread, 8);
	policy->cores = baton_room(env->nr_cpus, policy->core_size, 128);
	policy->threads = baton_room(env->max_tasks, policy->thread_size, 64);
	policy->places = baton_room(env->nr_cpus, sizeof(*policy->places), 8);
	if (!policy->cores || !policy->threads || !policy->places)
		goto failed;		/* the host frees what was allocated */
	raw_res_spin_lock_init(&policy->lock);
	for (i = 0; i < env->nr_cpus; i++) {
		struct core *core = core_at(policy, i);

		raw_res_spin_lock_init(&core->lock);
		core->policy = policy;
		core->cpu = i;
		core->is_off = !env->cpus[i].online;
	}
	for (i = 0; i < env->max_tasks; i++)
		thread_at(policy, i)->slot = i;
	baton_place_cores(policy, env);
	if (!ev->init && env->options[0])
		why = "the policy has no options";
	else
		why = ev->init ? ev->init(policy, env) : NULL;
	if (!why)
		return policy;
failed:
	strscpy(env->message, why, BATON_MESSAGE_LEN);
	return NULL;
}

/* A version no longer uses the policy. */
static void baton_events_release(const struct events *ev, struct policy *policy)
{
	if (--policy->users)
		return;
	if (ev->exit)
		ev->exit(policy);
	baton_host_free(policy->places);
	baton_host_free(policy->threads);
	baton_host_free(policy->cores);
	baton_host_free(policy);
}

static void *baton_events_prepare(const struct events *ev, struct policy *policy)
{
	if (ev->export)
		ev->export(policy);
	policy->users++;
	return policy;
}

static void *baton_events_init(const struct events *ev, const struct baton_env *env,
			       struct policy *policy)
{
	const char *why = NULL;

	if (ev->import)
		why = ev->import(policy, env);
	else if (env->options[0])
		why = "the policy takes no options in an upgrade";
	if (!why)
		return policy;
	strscpy(env->message, why, BATON_MESSAGE_LEN);
	baton_events_release(ev, policy);
	return NULL;
}

/* As core_at() and thread_at(), with sizes that are known when this is compiled. */
static __always_inline struct core *baton_core(const struct events *ev, struct policy *policy,
					       s32 cpu)
{
	return (struct core *)(policy->cores + (size_t)(u32)cpu * BATON_SIZE(ev, core, 128));
}

static __always_inline struct thread *baton_thread(const struct events *ev, struct policy *policy,
						   u32 slot)
{
	return (struct thread *)(policy->threads + (size_t)slot * BATON_SIZE(ev, thread, 8));
}

/* Threads */

/* Has the thread been placed since its slot was taken over? */
static __always_inline bool baton_knows(const struct thread *thread)
{
	return thread->state > THREAD_NEW;
}

static inline void baton_renew(struct policy *policy, struct thread *thread,
			       const struct baton_task *task)
{
	u64 token = READ_ONCE(thread->token);

	memset(thread, 0, policy->thread_size);
	WRITE_ONCE(thread->token, token);
	thread->slot = task->slot;
	thread->pid = task->pid;
	thread->nice = task->nice;
	thread->state = THREAD_NEW;
	baton_update(thread, task);
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
	baton_renew(call->policy, call->thread, task);
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
		thread->state = THREAD_BLOCKED;
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
	core = ev->unblock_prepare(policy, thread, &wake);
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
	baton_renew(policy, thread, task);
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
			thread->state = THREAD_READY;
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

/* Cores */

static __always_inline baton_token baton_choose(const struct events *ev, struct baton_call *call,
						struct core *core, struct thread *prev)
{
	struct thread *chosen;
	baton_token token = BATON_PICK_NONE;

	call->core = core;
	baton_lock(core, call);
	core->running = prev && baton_runs(prev, core) ? prev : NULL;
	core->chosen = NULL;
	BATON_HANDLE_FIRST(schedule, core);
	chosen = core->chosen;
	if (likely(chosen)) {
		core->running = chosen;
		token = chosen == prev ? BATON_PICK_KEEP : baton_disown(chosen);
	} else if (prev) {
		if (core->running)
			prev->state = THREAD_RUNNING;
		token = BATON_PICK_KEEP;
	}
	baton_end(call);
	unlock_core(core);
	return token;
}

static __always_inline u64 baton_events_pick(const struct events *ev, struct policy *policy,
					     struct baton_ctx *ctx, s32 cpu,
					     const struct baton_task *task)
{
	struct thread *prev = NULL;
	BATON_BEGIN(policy, ctx, schedule);

	if (task) {
		prev = baton_thread(ev, policy, task->slot);
		baton_update(prev, task);
	}
	return baton_choose(ev, call, baton_core(ev, policy, cpu), prev);
}

static inline u64 baton_events_idle(const struct events *ev, struct policy *policy,
				    struct baton_ctx *ctx, s32 cpu)
{
	struct core *core = baton_core(ev, policy, cpu);
	BATON_BEGIN(policy, ctx, newly_idle);

	call->core = core;
	BATON_HANDLE_FIRST(newly_idle, core);
	baton_end(call);
	call->handler = BATON_IN_schedule;
	return baton_choose(ev, call, core, NULL);
}

/* enter_idle, exit_idle, core_entry */
#define BATON_EVENT_OF_CORE(function, name)							\
	static inline void baton_events_##function(const struct events *ev, struct policy *policy, \
						   struct baton_ctx *ctx, s32 cpu)		\
	{											\
		struct core *core = baton_core(ev, policy, cpu);				\
		BATON_BEGIN(policy, ctx, name);							\
												\
		lock_core(core);								\
		BATON_HANDLE(name, core);							\
		unlock_core(core);								\
		baton_end(call);								\
	}
BATON_EVENT_OF_CORE(enter_idle, enter_idle)
BATON_EVENT_OF_CORE(exit_idle, exit_idle)
BATON_EVENT_OF_CORE(entry, core_entry)
#undef BATON_EVENT_OF_CORE

static inline void baton_events_online(const struct events *ev, struct policy *policy,
				       struct baton_ctx *ctx, s32 cpu)
{
	baton_core(ev, policy, cpu)->is_off = false;
	baton_events_entry(ev, policy, ctx, cpu);
}

static inline void baton_events_offline(const struct events *ev, struct policy *policy,
					struct baton_ctx *ctx, s32 cpu)
{
	struct core *core = baton_core(ev, policy, cpu);
	struct thread *thread;
	struct queue *queue;
	u32 left;
	BATON_BEGIN(policy, ctx, core_exit);

	lock_core(core);
	core->running = NULL;
	core->is_off = true;
	BATON_HANDLE(core_exit, core);
	unlock_core(core);
	baton_end(call);
	/* Only as many as there are now: a thread that has no other core comes back. */
	for (queue = core->queues; queue; queue = queue->next_of_core)
		for (left = queue_count(queue); left; left--) {
			lock_core(core);
			thread = queue_first(queue);
			if (thread) {
				thread->flags |= THREAD_OUSTED;
				baton_remove(ev, call, thread, false);
			}
			unlock_core(core);
			if (thread)
				baton_rehome(ev, call, thread, core);
		}
}

static inline void baton_events_balance(const struct events *ev, struct policy *policy,
					struct baton_ctx *ctx, s32 cpu)
{
	struct core *core = baton_core(ev, policy, cpu);
	u64 now = ev->balancing_interval ? baton_host_now() : 0;
	BATON_BEGIN(policy, ctx, balancing_select);

	if (ev->balancing_interval && baton_before(now, core->balanced_at + ev->balancing_interval))
		return;
	core->balanced_at = now;
	BATON_HANDLE(balancing_select, core);
	baton_end(call);
}

static inline void baton_events_timer(const struct events *ev, struct policy *policy,
				      struct baton_ctx *ctx, s32 cpu)
{
	struct core *core = baton_core(ev, policy, cpu);
	BATON_BEGIN(policy, ctx, timer);

	BATON_HANDLE(timer, core);
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

#define BATON_OF_TASK(ev, name)						\
	static void glue_##name(void *this, struct baton_ctx *ctx,	\
				 const struct baton_task *task)		\
	{								\
		baton_events_##name(&ev, this, ctx, task);		\
	}

#define BATON_OF_CPU(ev, name)							\
	static void glue_##name(void *this, struct baton_ctx *ctx, s32 cpu)	\
	{									\
		baton_events_##name(&ev, this, ctx, cpu);			\
	}

/*
 * A function of every context switch. The handlers and what they call become part of it. It has no
 * arrays that could overflow.
 */
#define BATON_HOT __attribute__((flatten, no_stack_protector))

#ifdef __KERNEL__
/* Called by the module's initialisation. */
#define BATON_PREPARE void baton_prepare(void); void baton_prepare(void)
#else
#define BATON_PREPARE static void __attribute__((constructor)) baton_prepare(void)
#endif

/*
 * Makes the policy from its handlers. The functions that a policy may leave out are left out if
 * their handlers are absent, so that the host does not call them. No name of a function may be one
 * of baton.ko's, as the kernel finds the functions for BPF programs by their names.
 */
#define BATON_POLICY(ev)									\
	static void *glue_create(const struct baton_env *env)					\
	{											\
		return baton_events_create(&ev, env);						\
	}											\
	static void glue_destroy(void *this)							\
	{											\
		baton_events_release(&ev, this);						\
	}											\
	static void *glue_prepare_state(void *this)						\
	{											\
		return baton_events_prepare(&ev, this);						\
	}											\
	static void *glue_init_state(const struct baton_env *env, void *state)			\
	{											\
		return baton_events_init(&ev, env, state);					\
	}											\
	BATON_HOT										\
	static u64 glue_select(void *this, struct baton_ctx *ctx, const struct baton_task *task, \
				const struct baton_wake *wake)					\
	{											\
		return baton_events_select(&ev, this, ctx, task, wake);				\
	}											\
	static void glue_new(void *this, struct baton_ctx *ctx, const struct baton_task *task,	\
			      baton_token token)						\
	{											\
		baton_events_new(&ev, this, ctx, task, token);					\
	}											\
	BATON_HOT										\
	static void glue_wakeup(void *this, struct baton_ctx *ctx,				\
				 const struct baton_task *task, baton_token token)		\
	{											\
		baton_events_wakeup(&ev, this, ctx, task, token);				\
	}											\
	static void glue_restored(void *this, struct baton_ctx *ctx,				\
				   const struct baton_task *task, baton_token token)		\
	{											\
		baton_events_restored(&ev, this, ctx, task, token);				\
	}											\
	BATON_HOT										\
	static void glue_preempt(void *this, struct baton_ctx *ctx,				\
				  const struct baton_task *task, baton_token token)		\
	{											\
		baton_events_preempt(&ev, this, ctx, task, token, false);			\
	}											\
	static void glue_yield(void *this, struct baton_ctx *ctx, const struct baton_task *task, \
				baton_token token)						\
	{											\
		baton_events_preempt(&ev, this, ctx, task, token, true);			\
	}											\
	BATON_HOT										\
	static u64 glue_pick(void *this, struct baton_ctx *ctx, s32 cpu,			\
			      const struct baton_task *prev)					\
	{											\
		return baton_events_pick(&ev, this, ctx, cpu, prev);				\
	}											\
	static void glue_refused(void *this, struct baton_ctx *ctx, baton_token token,		\
				  enum baton_refusal why)					\
	{											\
		baton_events_refused(&ev, this, ctx, token, why);				\
	}											\
	static baton_token glue_dequeued(void *this, struct baton_ctx *ctx,			\
					  const struct baton_task *task)			\
	{											\
		return baton_events_take(&ev, this, ctx, task, false, false);			\
	}											\
	static baton_token glue_departed(void *this, struct baton_ctx *ctx,			\
					  const struct baton_task *task)			\
	{											\
		return baton_events_take(&ev, this, ctx, task, true, false);			\
	}											\
	static void glue_dead(void *this, struct baton_ctx *ctx, const struct baton_task *task)	\
	{											\
		baton_events_take(&ev, this, ctx, task, true, true);				\
	}											\
	BATON_OF_TASK(ev, blocked)								\
	BATON_OF_TASK(ev, reweight)								\
	BATON_OF_TASK(ev, tick)									\
	BATON_OF_CPU(ev, balance)								\
	BATON_OF_CPU(ev, timer)									\
	BATON_OF_CPU(ev, online)								\
	BATON_OF_CPU(ev, offline)								\
	BATON_OF_CPU(ev, enter_idle)								\
	BATON_OF_CPU(ev, exit_idle)								\
	static u64 glue_idle(void *this, struct baton_ctx *ctx, s32 cpu)			\
	{											\
		return baton_events_idle(&ev, this, ctx, cpu);					\
	}											\
	struct baton_policy BATON_POLICY_OPS __ro_after_init = {				\
		.abi = BATON_ABI,								\
		.language = 1,									\
		.create = glue_create,								\
		.destroy = glue_destroy,							\
		.reregister_prepare = glue_prepare_state,					\
		.reregister_init = glue_init_state,						\
		.reregister_drop = glue_destroy,						\
		.task_new = glue_new,								\
		.task_wakeup = glue_wakeup,							\
		.task_preempt = glue_preempt,							\
		.task_yield = glue_yield,							\
		.task_restored = glue_restored,							\
		.pick_next_task = glue_pick,							\
		.pick_refused = glue_refused,							\
		.task_dequeued = glue_dequeued,							\
		.task_departed = glue_departed,							\
		.task_dead = glue_dead,								\
		.task_prio_changed = glue_reweight,						\
		.cpu_online = glue_online,							\
		.cpu_offline = glue_offline,							\
	};											\
	BATON_PREPARE										\
	{											\
		struct baton_policy *ops = &BATON_POLICY_OPS;					\
												\
		baton_events = &ev;								\
		strscpy(ops->name, BATON_POLICY_NAME, BATON_NAME_LEN);				\
		ops->version = ev.version;							\
		strscpy(ops->state.name, BATON_POLICY_NAME, BATON_NAME_LEN);			\
		ops->state.version = ev.state_version;						\
		ops->state.layout = BATON_LAYOUT(&ev);						\
		ops->events = (ev.block ? BATON_EV_BLOCKED : 0) | (ev.tick ? BATON_EV_TICK : 0) | \
			      (ev.enter_idle || ev.exit_idle ? BATON_EV_IDLE : 0) |		\
			      (ev.balancing_select ? BATON_EV_BALANCE : 0);			\
		if (ev.unblock_prepare || ev.new_prepare)					\
			ops->select_task_rq = glue_select;					\
		if (ev.newly_idle)								\
			ops->newly_idle = glue_idle;						\
		if (ev.balancing_select)							\
			ops->balance = glue_balance;						\
		if (ev.block)									\
			ops->task_blocked = glue_blocked;					\
		if (ev.tick)									\
			ops->task_tick = glue_tick;						\
		if (ev.timer)									\
			ops->timer = glue_timer;						\
		if (ev.enter_idle)								\
			ops->enter_idle = glue_enter_idle;					\
		if (ev.exit_idle)								\
			ops->exit_idle = glue_exit_idle;					\
	}

#endif
