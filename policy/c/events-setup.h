/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How the library creates a policy, hands it on in an upgrade, and frees it. Included by events.h.
 */
#ifndef BATON_EVENTS_SETUP_H
#define BATON_EVENTS_SETUP_H

#define BATON_SIZE_OF(ev, what)	((ev)->what##_size ? (ev)->what##_size : sizeof(struct what))
#define BATON_SIZE(ev, what, align)					\
	((BATON_SIZE_OF(ev, what) + (align) - 1) & ~((size_t)(align) - 1))

/* Of the types that embed the library's, and of these: another number when they change. */
#define BATON_LAYOUT(ev)						\
	((u64)1 << 60 | (u64)BATON_SIZE_OF(ev, policy) << 40 |		\
	 (u64)BATON_SIZE_OF(ev, core) << 20 | BATON_SIZE_OF(ev, thread))

static inline bool baton_is_behind(const struct baton_cpu *a, const struct baton_cpu *b)
{
	if (a->node != b->node)
		return a->node > b->node;
	if (a->llc != b->llc)
		return a->llc > b->llc;
	return a->cluster != b->cluster ? a->cluster > b->cluster : a->core > b->core;
}

static inline bool baton_is_near(const struct baton_cpu *a, const struct baton_cpu *b,
				 enum level level)
{
	return (level >= LEVEL_MACHINE || a->node == b->node) &&
	       (level >= LEVEL_NODE || a->llc == b->llc) &&
	       (level >= LEVEL_CACHE || a->cluster == b->cluster) &&
	       (level >= LEVEL_CLUSTER || a->core == b->core);
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

#ifdef __KERNEL__
#define BATON_THREADS_ALIGN 64
#else
/* The guard behind the memory begins where the last thread ends. */
#define BATON_THREADS_ALIGN 8
#endif

/* Zeroed memory. */
static inline void *baton_room(size_t count, size_t size, size_t align)
{
	void *at = baton_host_alloc(array_size(count, size), align);

	return at ? memset(at, 0, count * size) : NULL;
}

/* Why a policy with these handlers cannot run, or NULL. */
static inline const char *baton_judge_handlers(const struct events *ev)
{
	if ((ev->thread_size && ev->thread_size < sizeof(struct thread)) ||
	    (ev->core_size && ev->core_size < sizeof(struct core)) ||
	    (ev->policy_size && ev->policy_size < sizeof(struct policy)))
		return "a type that embeds one of the library's is as large as that at least";
	if (!ev->schedule)
		return "a policy needs the handler `schedule`";
	if (!ev->new_place && !ev->unblock_place)
		return "a policy needs one of the handlers `new_place` and `unblock_place`";
	return baton_judge_attributes(ev);
}

static void *baton_events_create(const struct events *ev, const struct baton_env *env)
{
	struct policy *policy = baton_room(1, BATON_SIZE(ev, policy, 128), 128);
	const char *why = "there is no memory for the policy";
	u32 i;

	if (!policy)
		goto failed;
	why = baton_judge_handlers(ev);
	if (why)
		goto failed;
	why = "there is no memory for the policy";
	policy->users = 1;
	policy->nr_cores = env->nr_cpus;
	policy->nr_threads = env->max_tasks;
	policy->core_size = BATON_SIZE(ev, core, 128);
	policy->thread_size = BATON_SIZE(ev, thread, 8);
	policy->cores = baton_room(env->nr_cpus, policy->core_size, 128);
	policy->threads = baton_room(env->max_tasks, policy->thread_size, BATON_THREADS_ALIGN);
	policy->places = baton_room(env->nr_cpus, sizeof(*policy->places), 8);
	if (!policy->cores || !policy->threads || !policy->places)
		goto failed;		/* the host frees what was allocated */
	raw_res_spin_lock_init(&policy->lock);
	raw_res_spin_lock_init(&policy->attributes_lock);
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

/* may_have */
static inline u64 baton_events_may_have(const struct events *ev, struct policy *policy,
					const struct baton_asked *asked)
{
	const char *why = NULL;

	if (asked->pid && ev->attach)
		why = ev->attach(policy, asked->pid, asked->nice, (const char *)asked->comm);
	else if (!asked->pid && ev->can_be_default)
		why = ev->can_be_default(policy);
	if (why)
		strscpy(asked->message, why, BATON_MESSAGE_LEN);
	return why != NULL;
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

#endif
