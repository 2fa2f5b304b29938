/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tokens of an enclave's tasks. The enclave has a task's token in its status word, from the call
 * that hands it over until a pick or a dequeue takes it out by xchg or cmpxchg. Any context.
 */
#ifndef BATON_AGENT_TOKEN_H
#define BATON_AGENT_TOKEN_H

#include "enclave.h"

static inline u32 slot_of(baton_token token)
{
	return (u32)token - 1;
}

static inline bool is_agent(const struct baton_agent_task *word)
{
	return READ_ONCE(word->flags) & BATON_AGENT_TASK_AGENT;
}

/* Is this the slot of a task that the agent may name? */
static inline bool is_task(const struct session *session, u32 slot)
{
	return slot < session->nr_slots &&
	       (READ_ONCE(session->tasks[slot].flags) &
		(BATON_AGENT_TASK_MEMBER | BATON_AGENT_TASK_AGENT)) == BATON_AGENT_TASK_MEMBER;
}

/* Does the affinity of the task in this slot allow the CPU? */
static inline bool may_run(const struct session *session, u32 slot, u32 cpu)
{
	u64 mask = READ_ONCE(session->masks[(size_t)slot * session->words + cpu / 64]);

	return mask >> (cpu % 64) & 1;
}

static inline void count_queued(struct session *session, int by)
{
	atomic_add(by, (atomic_t *)&session->head->queued);
}

/* Does the task wait for an agent to run it? */
static inline bool is_counted(const struct baton_agent_task *word)
{
	return !(READ_ONCE(word->flags) & (BATON_AGENT_TASK_AGENT | BATON_AGENT_TASK_HELD));
}

/* Puts a token into the task's word, in place of an older one. */
static inline void keep(struct session *session, struct baton_agent_task *word, baton_token token)
{
	if (!xchg(&word->token, token) && is_counted(word))
		count_queued(session, 1);
}

/* Takes a token out of the task's word. False if it is not there. */
static inline bool take(struct session *session, struct baton_agent_task *word, baton_token token)
{
	if (cmpxchg(&word->token, token, 0) != token)
		return false;
	if (is_counted(word))
		count_queued(session, -1);
	return true;
}

#endif
