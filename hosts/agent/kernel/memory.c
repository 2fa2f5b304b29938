// SPDX-License-Identifier: GPL-2.0-only
/*
 * The memory of a session: the status mapping, the shared mapping, and what only the kernel sees.
 * Process context.
 */
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "enclave.h"

#define BYTES_MAX (1ULL << 32)

/* Makes all of it. False if there is too little, or if the mapping would be too large. */
static bool allocate(struct session *session, const struct baton_env *env)
{
	u32 words = DIV_ROUND_UP(env->nr_cpus, 64);
	u64 cpus = PAGE_SIZE;
	u64 tasks = PAGE_ALIGN(cpus + (u64)env->nr_cpus * sizeof(*session->cpus));
	u64 masks = PAGE_ALIGN(tasks + (u64)env->max_tasks * sizeof(*session->tasks));
	u64 rings = PAGE_ALIGN(masks + (u64)env->max_tasks * words * sizeof(*session->masks));
	u64 status = PAGE_ALIGN(rings + (u64)env->nr_cpus * session->entries *
						sizeof(*session->rings));
	u64 standby = PAGE_ALIGN((u64)env->nr_cpus * sizeof(*session->transactions));
	u64 shared = PAGE_ALIGN(standby + sizeof(*session->standby) +
				BATON_AGENT_STANDBY * sizeof(*session->tokens));

	if (status > BYTES_MAX)
		return false;
	session->head = vmalloc_user(status);
	session->transactions = vmalloc_user(shared);
	session->topology = kvmemdup(env->cpus, env->nr_cpus * sizeof(*env->cpus), GFP_KERNEL);
	session->waking = kvcalloc(env->max_tasks, sizeof(*session->waking), GFP_KERNEL);
	session->served = vzalloc(array_size(env->nr_cpus, sizeof(*session->served)));
	if (!session->head || !session->transactions || !session->topology || !session->waking ||
	    !session->served)
		return false;
	session->cpus = (void *)session->head + cpus;
	session->tasks = (void *)session->head + tasks;
	session->words = words;
	session->masks = (void *)session->head + masks;
	session->rings = (void *)session->head + rings;
	session->status_size = status;
	session->standby = (void *)session->transactions + standby;
	session->tokens = (void *)(session->standby + 1);
	session->shared_size = shared;
	return true;
}

/*
 * Makes the memory of a session of which the number of entries is set. False if there is too
 * little: the caller frees what there is.
 */
bool baton_memory_make(struct session *session, const struct baton_env *env)
{
	u32 i;

	session->nr_cpus = env->nr_cpus;
	session->nr_slots = env->max_tasks;
	if (!allocate(session, env))
		return false;
	for (i = 0; i < env->nr_cpus; i++)
		session->cpus[i].online = env->cpus[i].online;
	for (i = 0; i < env->max_tasks; i++)
		session->waking[i].waker = -1;
	return true;
}

/* Says where in the mappings everything is. */
void baton_memory_layout(const struct session *session, struct baton_agent_attach *arg)
{
	arg->nr_cpus = session->nr_cpus;
	arg->nr_slots = session->nr_slots;
	arg->entries = session->entries;
	arg->cpus = (void *)session->cpus - (void *)session->head;
	arg->tasks = (void *)session->tasks - (void *)session->head;
	arg->masks = (void *)session->masks - (void *)session->head;
	arg->rings = (void *)session->rings - (void *)session->head;
	arg->status_size = session->status_size;
	arg->standby = (void *)session->standby - (void *)session->transactions;
	arg->shared_size = session->shared_size;
}

void baton_memory_free(struct session *session)
{
	vfree(session->head);
	vfree(session->transactions);
	kvfree(session->topology);
	kvfree(session->waking);
	vfree(session->served);
}
