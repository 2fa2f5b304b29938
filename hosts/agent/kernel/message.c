// SPDX-License-Identifier: GPL-2.0-only
/*
 * Messages of an enclave, and how an agent is made to read them. In calls of the policy: see
 * calls.c.
 */
#include <linux/smp.h>
#include <linux/string.h>

#include "about.h"
#include "enclave.h"

/* Is there room for a message in the ring of this CPU, which is half full at least? */
bool baton_fill_ring(struct session *session, u32 cpu, u32 unread)
{
	struct served *here = &session->served[cpu];

	/* Few messages are announced to an agent, but none may be lost for that. */
	if (here->slot != BATON_NO_SLOT) {
		WRITE_ONCE(here->attention, 1);
		if (READ_ONCE(here->is_blocked))
			baton_interrupt(&here->wake);
	}
	if (unread < session->entries)
		return true;
	atomic64_inc((atomic64_t *)&session->head->lost);
	return false;
}

/*
 * Writes a message about a hint, and the hint. False if less than half of the ring is free: an
 * application must not keep messages about tasks out.
 */
bool baton_post_hint(struct session *session, const struct baton_message *message,
		     const struct baton_hint *hint)
{
	u32 cpu = smp_processor_id(), entries = session->entries;
	struct served *here = &session->served[cpu];
	struct baton_message *ring = &session->rings[(size_t)cpu * entries];

	if (here->posted - READ_ONCE(session->transactions[cpu].read) >= entries / 2)
		return false;
	ring[here->posted & (entries - 1)] = *message;
	memcpy(&ring[(here->posted + 1) & (entries - 1)], hint, sizeof(*hint));
	here->posted += 2;
	/* the agent reads both after this number */
	smp_store_release(&session->cpus[cpu].posted, here->posted);
	return true;
}

/* Writes a message. */
void baton_post(struct session *session, const struct baton_message *message)
{
	struct baton_message *place = begin_message(session);

	if (!place)
		return;
	*place = *message;
	end_message(session);
}

/* Adds a kick to those of a call. */
void baton_add_kick(struct baton_ctx *ctx, u32 cpu, bool preempt)
{
	if (ctx->nr_kicks < BATON_MAX_KICKS)
		ctx->kicks[ctx->nr_kicks++] =
			cpu | (preempt ? BATON_KICK_PREEMPT : BATON_KICK_IDLE);
}

/*
 * There is work for the agent of a CPU. `preempt`: also if the CPU runs another task, which does
 * not give way at once by itself.
 */
void baton_alert(struct session *session, struct baton_ctx *ctx, u32 cpu, bool preempt)
{
	struct served *served = &session->served[cpu];
	bool is_idle;

	if (preempt)
		WRITE_ONCE(served->is_urgent, true);
	/* Also before the agent's slot is known: it then does not wait. */
	if ((xchg(&served->attention, 1) && !preempt) || served->slot == BATON_NO_SLOT)
		return;
	/* A CPU that is not idle here sees `attention` before it is. */
	is_idle = READ_ONCE(session->cpus[cpu].wants);
	if (READ_ONCE(served->is_blocked))
		baton_interrupt(&served->wake);
	else if ((preempt || is_idle) && READ_ONCE(served->is_waiting))
		baton_add_kick(ctx, cpu, !is_idle);
}

/* A message about a CPU. */
void baton_tell_cpu(struct session *session, const struct baton_ctx *ctx, u32 cpu,
		    enum baton_method method)
{
	struct baton_message message = {
		.now = ctx->now,
		.method = method,
		.slot = BATON_NO_SLOT,
		.cpu = cpu,
		.waker = -1,
	};

	baton_post(session, &message);
}
