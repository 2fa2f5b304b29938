/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The functions of a policy (baton.h), made from its handlers of events. Included by events.h. They
 * take a struct events that is constant where they are compiled, so that handlers are called
 * directly, and absent ones leave no code.
 */
#ifndef BATON_EVENTS_POLICY_H
#define BATON_EVENTS_POLICY_H

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
	static const struct events *const baton_events = &ev;					\
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
	static u64 glue_may_have(void *this, const struct baton_asked *asked)			\
	{											\
		return baton_events_may_have(&ev, this, asked);					\
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
	static u64 glue_hint(void *this, struct baton_ctx *ctx, const struct baton_task *from,	\
			     const struct baton_hint *hint)					\
	{											\
		return baton_events_hint(&ev, this, ctx, from, hint);				\
	}											\
	static u64 glue_idle(void *this, struct baton_ctx *ctx, s32 cpu)			\
	{											\
		return baton_events_idle(&ev, this, ctx, cpu);					\
	}											\
	struct baton_policy BATON_POLICY_OPS __ro_after_init = {				\
		.abi = BATON_ABI,								\
		.language = BATON_LANGUAGE_EVENTS,						\
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
		strscpy(ops->name, BATON_POLICY_NAME, BATON_NAME_LEN);				\
		ops->version = ev.version;							\
		strscpy(ops->state.name, BATON_POLICY_NAME, BATON_NAME_LEN);			\
		ops->state.version = ev.state_version;						\
		ops->state.layout = BATON_LAYOUT(&ev);						\
		ops->events = (ev.block ? BATON_EV_BLOCKED : 0) | (ev.tick ? BATON_EV_TICK : 0) | \
			      (ev.enter_idle || ev.exit_idle ? BATON_EV_IDLE : 0) |		\
			      (ev.balancing_select ? BATON_EV_BALANCE : 0);			\
		if (ev.can_be_default || ev.attach)						\
			ops->may_have = glue_may_have;						\
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
		if (ev.hint || baton_nr_attributes(&ev)) {					\
			ops->hint = glue_hint;							\
			baton_hint_types(&ev, &ops->hint_type, &ops->reply_type);		\
		}										\
	}

#endif
