// SPDX-License-Identifier: GPL-2.0-only
/*
 * The rest of an enclave's kernel half in user space: what stands for ../../kernel/session.c and
 * ../../kernel/serve.c. The other half is ../src.
 */
#include "enclave.h"
#include "kernel.h"
#include "register.h"

/* The session for which `create` is called. */
static _Thread_local struct session *beginning;

/* No CPU has an agent of its own, so none is woken and none is alerted: see ../src/lib.rs. */
void baton_interrupt(struct baton_interrupt *interrupt)
{
}

void baton_serve_alert(struct served *served, u32 cpu, bool preempt)
{
}

/* The policy's `create`: session.c. */
static void *model_create(const struct baton_env *env)
{
	struct session *session = beginning;
	u32 cpu;

	beginning = NULL;
	if (!session || !baton_memory_make(session, env))
		return NULL;
	for (cpu = 0; cpu < env->nr_cpus; cpu++) {
		struct served *served = &session->served[cpu];

		served->slot = served->lost = served->held = BATON_NO_SLOT;
	}
	return session;
}

/* The policy's `destroy`. The memory stays until the agent has let go of it. */
static void model_destroy(void *this)
{
	struct session *session = this;

	session->head->ended = 1;
}

/* The functions of the policy. */
void baton_model_calls(struct baton_policy *ops)
{
	*ops = baton_calls;
	strscpy((char *)ops->name, "enclave", sizeof(ops->name));
	ops->create = model_create;
	ops->destroy = model_destroy;
}

/* Makes a session that the next `create` of this thread begins. NULL if there is no memory. */
struct session *baton_model_new(u32 entries, u32 events)
{
	struct session *session = zeroed(sizeof(*session));

	if (!session)
		return NULL;
	session->entries = entries;
	session->events = events;
	beginning = session;
	return session;
}

void baton_model_free(struct session *session)
{
	if (beginning == session)
		beginning = NULL;
	baton_memory_free(session);
	free(session);
}

void baton_model_layout(const struct session *session, struct baton_agent_attach *arg,
			void **status, void **shared)
{
	baton_memory_layout(session, arg);
	*status = session->head;
	*shared = session->transactions;
}

/* Has the agent messages that it has not read? */
bool baton_model_has_unread(const struct session *session)
{
	u32 cpu;

	for (cpu = 0; cpu < session->nr_cpus; cpu++)
		if (session->served[cpu].posted != session->transactions[cpu].read)
			return true;
	return false;
}

u64 baton_model_lost(const struct session *session)
{
	return session->head->lost;
}

u32 baton_model_read(const struct session *session, u32 cpu)
{
	return session->transactions[cpu].read;
}

/* The message of this number in a CPU's ring. */
const struct baton_message *baton_model_message(const struct session *session, u32 cpu, u32 number)
{
	return &session->rings[(size_t)cpu * session->entries + (number & (session->entries - 1))];
}

/* Is there a message about the task in this slot that the agent has not read? */
static bool has_unread_about(const struct session *session, u32 slot)
{
	u32 cpu, number;

	for (cpu = 0; cpu < session->nr_cpus; cpu++)
		for (number = baton_model_read(session, cpu);
		     number != session->served[cpu].posted; number++) {
			const struct baton_message *message =
				baton_model_message(session, cpu, number);

			if (message->slot == slot)
				return true;
			/* The hint itself follows. */
			if (message->method == BATON_METHOD_HINT)
				number++;
		}
	return false;
}

/*
 * Is the agent wrong to make this commit, by what it has read? 1: its token was taken back, or is
 * not the newest. 2: another CPU has a transaction with the token. No call is under way.
 */
u32 baton_model_judge(const struct session *session, const struct baton_agent_commit *commit)
{
	u32 slot = (u32)commit->token - 1, cpu;

	if (commit->token <= BATON_PICK_KEEP)
		return 0;
	if (slot >= session->nr_slots)
		return 1;
	if (has_unread_about(session, slot))
		return 0;
	for (cpu = 0; cpu < session->nr_cpus; cpu++) {
		const struct baton_transaction *other = &session->transactions[cpu];

		if (cpu != (commit->cpu & ~BATON_KICK_PREEMPT) && other->token == commit->token &&
		    other->state == BATON_TRANSACTION_STATE_READY)
			return 2;
	}
	return session->tasks[slot].token != commit->token;
}
