/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Messages about tasks. In calls of the policy: see calls.c.
 */
#ifndef BATON_AGENT_ABOUT_H
#define BATON_AGENT_ABOUT_H

#include <linux/smp.h>

#include "enclave.h"

/* The place of this CPU's next message, or NULL if the ring is full. */
static inline struct baton_message *begin_message(struct session *session)
{
	u32 cpu = smp_processor_id(), entries = session->entries;
	u32 posted = session->served[cpu].posted;
	/* The position that the agent says it has read is used for this alone. */
	u32 unread = posted - READ_ONCE(session->transactions[cpu].read);

	if (unlikely(unread >= entries / 2) && !baton_fill_ring(session, cpu, unread))
		return NULL;
	return &session->rings[(size_t)cpu * entries + (posted & (entries - 1))];
}

/* The message of begin_message() is written, and the agent may read it. */
static inline void end_message(struct session *session)
{
	u32 cpu = smp_processor_id();

	/* the agent reads the message after this number */
	smp_store_release(&session->cpus[cpu].posted, ++session->served[cpu].posted);
}

/* A call of the policy that becomes a message. */
struct called {
	enum baton_method method;
	u16 flags;
	s16 waker;		/* CPU, or -1 */
	baton_token token;	/* or 0 */
};

/*
 * Writes a message about a task, with what is known of it. Its number orders it among all messages
 * about the task.
 */
static inline void tell_about(struct session *session, const struct baton_ctx *ctx,
			      const struct baton_task *task, struct called called)
{
	struct baton_agent_task *word = &session->tasks[task->slot];
	u32 sequence = word->sequence + 1;
	struct baton_message *place;

	WRITE_ONCE(word->runtime, task->runtime);
	WRITE_ONCE(word->cpu, task->cpu);
	WRITE_ONCE(word->nice, task->nice);
	WRITE_ONCE(word->sequence, sequence);
	place = begin_message(session);
	if (!place)
		return;
	*place = (struct baton_message){
		.now = ctx->now,
		.token = called.token,
		.runtime = task->runtime,
		.method = called.method,
		.flags = called.flags,
		.sequence = sequence,
		.slot = task->slot,
		.pid = task->pid,
		.nice = task->nice,
		.cpu = task->cpu,
		.waker = called.waker,
	};
	end_message(session);
}

#endif
