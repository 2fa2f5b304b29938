/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the handlers of a policy call: run queues, locks of cores, and changes of a thread's state.
 * Included by events.h.
 */
#ifndef BATON_EVENTS_STATE_H
#define BATON_EVENTS_STATE_H

/*
 * Bits of `token` of a thread. PRESENT: the kernel has given the thread to the policy. It is in a
 * queue, or a function is about to put it into one. GONE: the kernel took it back before that
 * function could.
 */
#define BATON_PRESENT 1
#define BATON_GONE 2

/* The events, as reports name them. */
#define BATON_HANDLERS(X)									\
	X(new_prepare) X(new_place) X(new_end) X(unblock_prepare) X(unblock_place)		\
	X(unblock_end) X(block) X(yield) X(preempt) X(tick) X(reweight) X(terminate)		\
	X(schedule) X(newly_idle) X(enter_idle) X(exit_idle) X(balancing_select) X(timer)	\
	X(core_entry) X(core_exit) X(checkparam) X(setparam) X(getparam) X(attr_changed) X(hint)

enum baton_handler {
#define X(name) BATON_IN_##name,
	BATON_HANDLERS(X)
#undef X
};

/*
 * A call of the policy that is under way. On the stack of that call. Each store counts, so a member
 * is set only in the events that say so.
 */
struct baton_call {
	struct policy *policy;
	struct baton_ctx *ctx;
	struct thread *thread;		/* of a thread's event */
	struct core *core;		/* of `schedule` */
	struct core *claimed;		/* `_prepare`: by claim_idle */
	struct thread *moving;		/* the last one that it made MIGRATING, if there is one */
	/* One store initialises these. */
	u8 handler;			/* enum baton_handler */
	bool may_queue;			/* `thread` is this call's to put into a queue */
	u16 migrating;			/* threads that are MIGRATING */
};

/*
 * The policy's handlers. BATON_POLICY gives it its value, so that the compiler knows it, and leaves
 * out what they do not need.
 */
static const struct events *const baton_events __maybe_unused;

static __always_inline struct baton_call *baton_call(void)
{
	return baton_host_get_call();
}

/* Reads an integer that other CPUs change without a lock that this call holds. */
#define baton_read(place) ((__typeof__(place))baton_noted((u64)READ_ONCE(place)))

static __always_inline u64 baton_noted(u64 value)
{
	return unlikely(baton_recording) ? baton_host_read(value) : value;
}

/* Is time or vruntime `a` before `b`? Right as long as they are less than 2^63 apart. */
static __always_inline bool baton_before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

static __always_inline struct core *core_at(struct policy *policy, s32 cpu)
{
	return (struct core *)(policy->cores + (size_t)cpu * policy->core_size);
}

static __always_inline struct thread *thread_at(struct policy *policy, u32 slot)
{
	return (struct thread *)(policy->threads + (size_t)slot * policy->thread_size);
}

/* The thread's core, whose lock need not be held, or NULL. A recording has its number. */
static inline struct core *baton_read_core(const struct thread *thread)
{
	struct core *core = READ_ONCE(thread->core);
	s32 cpu;

	if (likely(!baton_recording))
		return core;
	cpu = (s32)baton_host_read(core ? core->cpu : -1);
	return cpu < 0 ? NULL : core_at(baton_call()->policy, cpu);
}

#define for_each_core(policy, core)						\
	for (s32 cpu__ = 0; cpu__ < (s32)(policy)->nr_cores &&			\
			    ((core) = (void *)core_at(policy, cpu__), true);	\
	     cpu__++)

/* The cores of the group of `from` at that level: itself first, and near ones before others. */
#define for_each_core_near(from, level, core)					\
	for (u32 i__ = 0, n__ = (from)->end[level] - (from)->begin[level];	\
	     i__ < n__ && ((core) = (void *)baton_core_near(from, i__), true); i__++)

static __always_inline struct core *baton_core_near(struct core *from, u32 i)
{
	u32 level = 0, place = from->place + i;

	while (i >= from->end[level] - from->begin[level])
		level++;
	/* In a larger group, the places behind the smaller one come first, then those before it. */
	if (level)
		place = i + from->begin[level - 1];
	if (place >= from->end[level])
		place -= from->end[level] - from->begin[level];
	return core_at(from->policy, from->policy->places[place]);
}

/* Locks */

static __always_inline bool core_is_locked(struct core *core)
{
	return core->holder == baton_call();
}

static __always_inline void baton_lock(struct core *core, struct baton_call *call)
{
	baton_host_lock(&core->lock);
	core->holder = call;
}

static __always_inline void lock_core(struct core *core)
{
	baton_lock(core, baton_call());
}

static __always_inline bool trylock_core(struct core *core)
{
	if (!baton_host_try_lock(&core->lock))
		return false;
	core->holder = baton_call();
	return true;
}

static __always_inline void unlock_core(struct core *core)
{
	core->holder = NULL;
	baton_host_unlock(&core->lock);
}

/* Two cores at once, in the order in which every CPU takes them. Without another lock held. */
static inline void lock_cores(struct core *a, struct core *b)
{
	lock_core(a->cpu < b->cpu ? a : b);
	if (a != b)
		lock_core(a->cpu < b->cpu ? b : a);
}

static inline void unlock_cores(struct core *a, struct core *b)
{
	if (a != b)
		unlock_core(a->cpu < b->cpu ? b : a);
	unlock_core(a->cpu < b->cpu ? a : b);
}

/* Of queues without a core. */
static __always_inline void lock_policy(struct policy *policy)
{
	baton_host_lock(&policy->lock);
	policy->holder = baton_call();
}

static __always_inline void unlock_policy(struct policy *policy)
{
	policy->holder = NULL;
	baton_host_unlock(&policy->lock);
}

/* Does this call hold the queue's lock? Not if there is no queue. */
static __always_inline bool queue_is_locked(const struct queue *queue)
{
	struct baton_call *call = baton_call();

	return queue && (queue->core ? queue->core->holder : call->policy->holder) == call;
}

/* Run queues */

/* A policy without an order has no other queues than FIFO. */
static __always_inline bool queue_is_tree(const struct queue *queue)
{
	return baton_events->before && queue->kind == QUEUE_RBTREE;
}

/* In `init`. `core` may be NULL. */
static inline void queue_init(struct queue *queue, struct core *core, enum queue_kind kind)
{
	/* Such a queue has an order. */
	baton_assert(kind == QUEUE_FIFO || baton_events->before);
	*queue = (struct queue){ .core = core, .kind = kind };
	if (core) {
		queue->next_of_core = core->queues;
		core->queues = queue;
	}
}

/* The first of the queue's threads, or NULL. The queue is locked. */
static __always_inline struct thread *queue_first(const struct queue *queue)
{
	struct rb_node *first;

	if (!queue_is_tree(queue))
		return queue->first;
	first = rb_first_cached(&queue->tree);
	return first ? rb_entry(first, struct thread, node) : NULL;
}

/* The one behind it, or NULL. The queue is locked. */
static __always_inline struct thread *queue_next(const struct thread *thread)
{
	struct rb_node *next;

	if (likely(!queue_is_tree(thread->queue)))
		return thread->next;
	next = rb_next(&thread->node);
	return next ? rb_entry(next, struct thread, node) : NULL;
}

/* The number of threads in a queue, which need not be locked. */
static __always_inline u32 queue_count(const struct queue *queue)
{
	return baton_read(queue->count);
}

static __always_inline void baton_link_behind(struct queue *queue, struct thread *at,
					      struct thread *thread)
{
	thread->prev = at;
	thread->next = at ? at->next : queue->first;
	*(at ? &at->next : &queue->first) = thread;
	*(thread->next ? &thread->next->prev : &queue->last) = thread;
}

static inline void baton_link_in_tree(struct queue *queue, struct thread *thread)
{
	struct rb_node **link = &queue->tree.rb_root.rb_node, *parent = NULL;
	bool is_first = true;

	while (*link) {
		parent = *link;
		if (baton_events->before(thread, rb_entry(parent, struct thread, node))) {
			link = &parent->rb_left;
		} else {
			link = &parent->rb_right;
			is_first = false;
		}
	}
	rb_link_node(&thread->node, parent, link);
	rb_insert_color_cached(&thread->node, &queue->tree, is_first);
}

static noinline void baton_link_in_order(struct queue *queue, struct thread *thread)
{
	struct thread *at = queue->last;

	if (queue->kind == QUEUE_RBTREE)
		return baton_link_in_tree(queue, thread);
	while (at && baton_events->before(thread, at))
		at = at->prev;
	baton_link_behind(queue, at, thread);
}

/* A queue without a core may be entered without the policy's lock: it is taken here. */
static __always_inline bool baton_guard_queue(const struct queue *queue)
{
	struct baton_call *call = baton_call();

	if (likely(queue->core) || call->policy->holder == call)
		return false;
	lock_policy(call->policy);
	return true;
}

static __always_inline void baton_link(struct queue *queue, struct thread *thread)
{
	bool guarded = baton_guard_queue(queue);

	if (baton_events->before && queue->kind != QUEUE_FIFO)
		baton_link_in_order(queue, thread);
	else
		baton_link_behind(queue, queue->last, thread);
	WRITE_ONCE(queue->count, queue->count + 1);
	WRITE_ONCE(thread->queue, queue);
	if (unlikely(guarded))
		unlock_policy(baton_call()->policy);
}

static __always_inline void baton_unlink(struct thread *thread)
{
	struct queue *queue = thread->queue;

	if (unlikely(queue_is_tree(queue))) {
		rb_erase_cached(&thread->node, &queue->tree);
	} else {
		*(thread->prev ? &thread->prev->next : &queue->first) = thread->next;
		*(thread->next ? &thread->next->prev : &queue->last) = thread->prev;
	}
	WRITE_ONCE(queue->count, queue->count - 1);
	WRITE_ONCE(thread->queue, NULL);
}

/* Requests. A call can make four at most for cores; further ones are lost. */

static __always_inline void baton_kick(struct core *core, u16 how)
{
	struct baton_ctx *ctx = baton_call()->ctx;

	if (ctx->nr_kicks < BATON_MAX_KICKS)
		ctx->kicks[ctx->nr_kicks++] = core->cpu | how;
}

/* The core asks `schedule` now, also if a thread runs there. */
static __always_inline void preempt_core(struct core *core)
{
	baton_kick(core, BATON_KICK_PREEMPT);
}

/* The core asks `schedule` if it is idle. */
static __always_inline void wake_core(struct core *core)
{
	baton_kick(core, BATON_KICK_IDLE);
}

/* In `schedule` and the `_prepare` events: how long the thread may run; 20 ms otherwise. */
static __always_inline void run_for(u64 slice_ns)
{
	baton_call()->ctx->slice = slice_ns;
}

/* This CPU's `timer` is called once, ns from now. Replaces the timer armed before. */
static __always_inline void arm_timer(u64 after_ns)
{
	baton_host_arm_timer(after_ns);
}

static __always_inline bool thread_may_run(const struct thread *thread, const struct core *core)
{
	return baton_host_may_run(thread->slot, core->cpu);
}

static __always_inline bool core_is_idle(const struct core *core)
{
	return baton_host_cpu_idle(core->cpu);
}

/* Are all SMT siblings of the core idle? */
static inline bool baton_siblings_idle(struct core *core)
{
	struct core *sibling;

	for_each_core_near(core, LEVEL_SMT, sibling)
		if (sibling != core && !core_is_idle(sibling))
			return false;
	return true;
}

static inline bool baton_claim(struct thread *thread, struct core *core, bool whole)
{
	if (!core_is_idle(core) || (whole && !baton_siblings_idle(core)) ||
	    !thread_may_run(thread, core) || !baton_host_claim_idle(core->cpu))
		return false;
	baton_call()->claimed = core;
	return true;
}

/* Out of line, so that the usual case needs no registers for it. */
static noinline __maybe_unused struct core *baton_search_idle(struct thread *thread,
							      struct core *from)
{
	struct core *core;
	int whole;

	for (whole = from->policy->has_smt; whole >= 0; whole--)
		for_each_core_near(from, LEVEL_MACHINE, core)
			if (baton_claim(thread, core, whole))
				return core;
	return NULL;
}

/*
 * Claims an idle core that the thread may use: the nearest to `from`, before others one whose SMT
 * siblings are idle as well. Returns NULL if there is none. In the `_prepare` events only.
 */
static inline struct core *claim_idle(struct thread *thread, struct core *from)
{
	if (!baton_host_any_idle())
		return NULL;
	/* Where it ran last is the nearest, and usually idles since then. */
	if (baton_claim(thread, from, from->policy->has_smt))
		return from;
	return baton_search_idle(thread, from);
}

/* Wakes an idle core that the thread may use, the nearest to `from`, if there is one. */
static noinline __maybe_unused void wake_idle_core(struct thread *thread, struct core *from)
{
	struct core *core;

	if (!baton_host_any_idle())
		return;
	for_each_core_near(from, LEVEL_MACHINE, core)
		if (core_is_idle(core) && thread_may_run(thread, core)) {
			wake_core(core);
			return;
		}
}

/* The weights of nice values (sched_prio_to_weight in the kernel): 10 % of CPU time a step. */
#define WEIGHT_OF_NICE_0 1024

static inline u32 weight_of_nice(s32 nice)
{
	static const u32 weights[] = {
		88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916,
		9548,  7620,  6100,  4904,  3906,  3121,  2501,	 1991,	1586,  1277,
		1024,  820,   655,   526,   423,   335,	  272,	 215,	172,   137,
		110,   87,    70,    56,    45,	   36,	  29,	 23,	18,    15,
	};

	return weights[nice + 20];
}

static inline u32 thread_weight(const struct thread *thread)
{
	return weight_of_nice(thread->nice);
}

/* The states */

#define BATON_STATE_NAMES	\
	{ "TERMINATED", "NEW", "READY", "READY_TICK", "RUNNING", "MIGRATING", "BLOCKED" }

static const char *const baton_handler_names[] = {
#define X(name) #name,
	BATON_HANDLERS(X)
#undef X
};

static const char *const baton_state_names[] = BATON_STATE_NAMES;

/* Reports a wrong change of a thread's state. */
static noinline void baton_refuse(struct baton_call *call, struct thread *thread,
				  enum thread_state to, u32 line, const char *why)
{
	baton_host_refused(thread->pid, baton_handler_names[call->handler],
			   baton_state_names[thread->state], baton_state_names[to], line, why);
}

/*
 * Sets the state of a thread. In user space, a host that wants to know is told; `line` is 0 if the
 * library does it.
 */
static __always_inline void baton_set_state(struct thread *thread, enum thread_state to, u32 line)
{
#ifndef __KERNEL__
	if (thread->state != to)
		baton_host_changed(thread->pid, baton_handler_names[baton_call()->handler],
				   baton_state_names[thread->state], baton_state_names[to], line);
#endif
	thread->state = to;
}

/* Stops the policy, as this thread would never run again. */
static noinline void baton_lost(struct baton_call *call, struct thread *thread)
{
	baton_refuse(call, thread, THREAD_READY, 0, "the thread is left without a queue");
	baton_host_token_dropped(thread->token >> 32 << 32 | (thread->slot + 1));
}

/*
 * Why a change is not legal, or NULL. `to` is known when this is compiled.
 */
static __always_inline const char *baton_judge(struct baton_call *call, struct thread *thread,
					       enum thread_state to, struct core *core,
					       struct queue *queue)
{
	enum thread_state from = thread->state;
	bool is_mine = thread == call->thread;

	switch (to) {
	case THREAD_READY:
		if (from == THREAD_MIGRATING ? !call->migrating : !(call->may_queue && is_mine))
			return "the thread is not this event's to put into a queue";
		if (!queue || !core || (queue->core != core && queue->core))
			return "a READY thread needs a core and one of its queues";
		/* A queue without a core locks itself. */
		return queue->core != core || core->holder == call ? NULL
								   : "the queue is not locked";
	case THREAD_RUNNING:
		if (queue)
			return "a RUNNING thread is in no queue";
		if (from == THREAD_BLOCKED)
			return call->handler == BATON_IN_unblock_prepare && is_mine && core &&
					       core == call->claimed && !call->may_queue
				       ? NULL
				       : "only a core that was claimed runs a woken thread at once";
		if (call->handler != BATON_IN_schedule || core != call->core)
			return "a core chooses its own thread, in `schedule`";
		if (core->chosen)
			return "the core has chosen its thread already";
		if (from == THREAD_READY)
			return queue_is_locked(READ_ONCE(thread->queue))
				       ? NULL
				       : "the queue is not locked";
		return from == THREAD_READY_TICK && thread == core->running
			       ? NULL
			       : "there is no such change";
	case THREAD_READY_TICK:
		if (from != THREAD_RUNNING || call->handler != BATON_IN_tick || !is_mine)
			return "only `tick` makes its RUNNING thread READY_TICK";
		if (!queue || core != thread->core || (queue->core && queue->core != core))
			return "a READY_TICK thread stays at its core, and needs a queue there";
		return NULL;
	case THREAD_MIGRATING:
		if (from != THREAD_READY || queue)
			return "only a READY thread can migrate, and leaves its queue";
		return queue_is_locked(READ_ONCE(thread->queue)) ? NULL : "the queue is not locked";
	case THREAD_BLOCKED:
		if (call->handler != BATON_IN_block || !is_mine || queue)
			return "a thread is BLOCKED by its own `block`, and leaves its queue";
		return NULL;
	case THREAD_TERMINATED:
		if (call->handler != BATON_IN_terminate || !is_mine || queue)
			return "a thread is TERMINATED by its own `terminate`";
		return NULL;
	default:
		return "no change leads to this state";
	}
}

/*
 * Changes the state of a thread, which leaves its queue, and enters `queue` if that is given.
 * Returns false if the change is refused; then nothing has changed.
 */
#define change_state(thread, to, core, queue)	\
	baton_change_state(&*(thread), to, core, queue, __LINE__)

static __always_inline bool baton_change_state(struct thread *thread, enum thread_state to,
					       struct core *core, struct queue *queue, u32 line)
{
	struct baton_call *call = baton_call();

#ifndef BATON_UNCHECKED
	const char *why = baton_judge(call, thread, to, core, queue);

	if (unlikely(why)) {
		baton_refuse(call, thread, to, line, why);
		return false;
	}
#endif
	if (to == THREAD_READY) {
		if (thread->state == THREAD_MIGRATING)
			call->migrating--;
		else
			call->may_queue = false;
		WRITE_ONCE(thread->core, core);
		/* Before another core can find it in a queue without a core. */
		baton_set_state(thread, to, line);
		baton_link(queue, thread);
		return true;
	}
	if (to == THREAD_READY_TICK) {
		/* The library links it when it has left the core. */
		core->after_tick = queue;
		preempt_core(core);
	} else {
		if (thread->queue)
			baton_unlink(thread);
		if (to == THREAD_MIGRATING) {
			call->migrating++;
			call->moving = thread;
		}
		if (to == THREAD_RUNNING) {
			WRITE_ONCE(thread->core, core);
			if (call->handler == BATON_IN_schedule)
				core->chosen = thread;
		}
	}
	baton_set_state(thread, to, line);
	return true;
}

/*
 * Has a woken thread run at once on the core that claim_idle() returned. A new or an ousted thread
 * is placed there instead.
 */
static __always_inline void run_at_once(struct thread *thread, struct core *core)
{
	if (likely(thread->state == THREAD_BLOCKED && !(thread->flags & THREAD_OUSTED)))
		change_state(thread, THREAD_RUNNING, core, NULL);
}

#endif
