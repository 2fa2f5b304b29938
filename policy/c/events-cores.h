/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The functions of a policy that are about a core. Included by events.h.
 */
#ifndef BATON_EVENTS_CORES_H
#define BATON_EVENTS_CORES_H

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
			baton_set_state(prev, THREAD_RUNNING, 0);
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

#endif
