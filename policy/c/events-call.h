/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A call of a policy that was made from handlers of events: how it begins and ends, which calls own
 * a thread, and how a thread leaves a queue and is placed in another one. Included by events.h.
 *
 * Who may change a thread. While PRESENT is set in its token: the call that set it and, once the
 * thread is in a queue, whoever holds that queue's lock. While it is not set: the kernel, which
 * makes no two calls about a thread at once. A token that the kernel refused may come back late, on
 * another CPU; it counts only if no newer one has been seen.
 */
#ifndef BATON_EVENTS_CALL_H
#define BATON_EVENTS_CALL_H

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

/*
 * A statement that calls a handler which is to become part of the function: `flatten` does not do
 * it, as clang marks the calls before it knows their handlers.
 */
#ifdef __clang__
#define BATON_INLINED [[clang::always_inline]]
#else
#define BATON_INLINED
#endif

/* The same for the event that the call began with, or the one that takes its place. */
#define BATON_HANDLE_FIRST(name, ...)					\
	do {								\
		if (ev->name)						\
			BATON_INLINED ev->name(call->policy, __VA_ARGS__); \
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
	/* Without such a handler, or if it did not. */
	baton_set_state(thread, leaves ? THREAD_TERMINATED : THREAD_BLOCKED, 0);
	call->handler = handler;
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

#endif
