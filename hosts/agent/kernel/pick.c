// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a CPU of an enclave runs next: its agent, the task that a transaction names, one from the
 * standby ring, or the one that runs already. In calls of the policy: see calls.c.
 *
 * Each switch of a task comes through here, some several times. What all of them need is inlined.
 */
#include <linux/sched/signal.h>
#include <linux/smp.h>

#include "about.h"
#include "enclave.h"
#include "host.h"
#include "token.h"

#define MIN_SLICE (10 * NSEC_PER_USEC)
#define MAX_SLICE (10ULL * NSEC_PER_SEC)
#define AGENT_SLICE (1ULL * NSEC_PER_SEC)
#define STANDBY_TRIES 8

/* Of a transaction, beside an answer for the core: */
#define RUN_NOTHING U64_MAX		/* the CPU idles */
#define DOES_NOT_HOLD (U64_MAX - 1)	/* the agent chose a task that cannot run */

/*
 * Takes a token that an agent names out of its task's status word, and returns it. Returns 0 if the
 * enclave has no such task (*outcome is NOT_FOUND), or if the word lacks this token (STALE).
 */
static __always_inline baton_token judge(struct session *session, baton_token token,
					 enum baton_commit *outcome)
{
	u32 slot = slot_of(token);

	if (!is_task(session, slot)) {
		*outcome = BATON_COMMIT_NOT_FOUND;
		return 0;
	}
	if (!take(session, &session->tasks[slot], token)) {
		*outcome = BATON_COMMIT_STALE;
		return 0;
	}
	*outcome = BATON_COMMIT_COMPLETE;
	return token;
}

/* The answer of a CPU's transaction; BATON_PICK_NONE if there is none. */
static __always_inline u64 transaction(struct session *session, struct baton_ctx *ctx, u32 cpu,
				       bool may_keep)
{
	struct baton_transaction *shared = &session->transactions[cpu];
	enum baton_commit outcome;
	u64 token, slice, answer;

	if (READ_ONCE(shared->state) != BATON_TRANSACTION_STATE_READY ||
	    cmpxchg(&shared->state, BATON_TRANSACTION_STATE_READY,
		    BATON_TRANSACTION_STATE_CLAIMED) != BATON_TRANSACTION_STATE_READY)
		return BATON_PICK_NONE;
	token = READ_ONCE(shared->token);
	slice = READ_ONCE(shared->slice);
	if (token == BATON_PICK_KEEP) {
		answer = may_keep ? BATON_PICK_KEEP : BATON_PICK_NONE;
		outcome = may_keep ? BATON_COMMIT_COMPLETE : BATON_COMMIT_NOTHING_TO_KEEP;
	} else if (token == BATON_PICK_NONE) {
		/* The agent has nothing for this CPU, and need not be asked. */
		session->served[cpu].is_asked = true;
		answer = RUN_NOTHING;
		outcome = BATON_COMMIT_COMPLETE;
	} else {
		answer = judge(session, token, &outcome) ?: DOES_NOT_HOLD;
	}
	if (outcome == BATON_COMMIT_COMPLETE) {
		/* An agent that reads DONE also reads that the CPU is busy, and what runs there. */
		if (token > BATON_PICK_KEEP) {
			WRITE_ONCE(session->cpus[cpu].wants, 0);
			WRITE_ONCE(session->cpus[cpu].running, slot_of(token) + 1);
		}
		ctx->slice = slice ? clamp(slice, MIN_SLICE, MAX_SLICE) : 0;
	} else {
		session->cpus[cpu].stale++;
		/* The agent thinks that the CPU has a task, and must be asked again. */
		ask_again(&session->served[cpu]);
	}
	WRITE_ONCE(shared->outcome, outcome);
	smp_store_release(&shared->state, BATON_TRANSACTION_STATE_DONE);
	return answer;
}

/*
 * Has a commit claimed this CPU's transaction? A commit for a group may have seen that this CPU
 * runs its agent. Then it makes other CPUs run tasks that must not run beside a task that this CPU
 * would choose now. So this CPU runs nothing, and the commit kicks it at its end: see commit.c.
 */
static bool waits_for_request(struct session *session, u32 cpu)
{
	const u32 *state = &session->transactions[cpu].state;

	if (likely(READ_ONCE(*state) != BATON_TRANSACTION_STATE_CLAIMED))
		return false;
	WRITE_ONCE(session->cpus[cpu].wants, 1);
	WRITE_ONCE(session->cpus[cpu].running, 0);
	/* A request that does not see `wants` has ended before this. */
	smp_mb();
	return READ_ONCE(*state) == BATON_TRANSACTION_STATE_CLAIMED;
}

/* A token from the standby ring, or 0. */
static u64 standby(struct session *session)
{
	u32 *taken = &session->head->standby_taken, tries;
	enum baton_commit outcome;

	for (tries = 0; tries < STANDBY_TRIES; tries++) {
		u32 at = READ_ONCE(*taken);
		u32 left = smp_load_acquire(&session->standby->offered) - at;
		u64 token;

		if (!left || left > BATON_AGENT_STANDBY)
			return 0;
		token = READ_ONCE(session->tokens[at % BATON_AGENT_STANDBY]);
		if (cmpxchg(taken, at, at + 1) != at)
			continue;
		token = judge(session, token, &outcome);
		if (token)
			return token;
	}
	return 0;
}

/* The token of this CPU's agent, if it has something to do and is not running, else 0. */
static __always_inline baton_token agent_to_run(struct session *session, struct served *served)
{
	u32 slot = READ_ONCE(served->slot);
	struct baton_agent_task *word;
	baton_token token;

	if (slot == BATON_NO_SLOT)
		return 0;
	word = &session->tasks[slot];
	token = READ_ONCE(word->token);
	if (!token || (served->is_waiting && !READ_ONCE(served->attention) &&
		       !signal_pending(served->agent)))
		return 0;
	return take(session, word, token) ? token : 0;
}

/*
 * The token of an agent that lost its CPU and may run on this one, else 0. It runs as the task that
 * it is.
 */
static baton_token lost_agent(struct session *session, u32 cpu)
{
	bool has_more = false;
	u32 i;

	for (i = 0; i < session->nr_cpus; i++) {
		u32 slot = READ_ONCE(session->served[i].lost);
		struct baton_agent_task *word;
		baton_token token;

		if (slot == BATON_NO_SLOT)
			continue;
		has_more = true;
		word = &session->tasks[slot];
		token = READ_ONCE(word->token);
		if (token && baton_host_may_run(slot, cpu) && take(session, word, token))
			return token;
	}
	if (!has_more)
		WRITE_ONCE(session->has_lost, false);
	return 0;
}

static u64 run_agent(struct session *session, struct baton_ctx *ctx, u32 cpu, baton_token token)
{
	struct served *served = &session->served[cpu];

	/*
	 * `attention` stays: an agent that was preempted before it waits may not have read the
	 * messages that are announced by it. The agent clears it when its wait ends.
	 */
	served->is_waiting = false;
	WRITE_ONCE(served->is_urgent, false);
	WRITE_ONCE(served->asks_for_prev, false);
	WRITE_ONCE(session->cpus[cpu].wants, 0);
	WRITE_ONCE(session->cpus[cpu].running, slot_of(token) + 1);
	ctx->slice = AGENT_SLICE;
	return token;
}

static u64 run(struct session *session, u32 cpu, u64 answer)
{
	struct baton_agent_cpu *word = &session->cpus[cpu];

	ask_again(&session->served[cpu]);
	WRITE_ONCE(word->wants, 0);
	if (answer != BATON_PICK_KEEP) {
		WRITE_ONCE(word->running, slot_of(answer) + 1);
		word->picks++;
	}
	return answer;
}

/* Asks the agent whether `prev` goes on. */
static void ask_about(struct session *session, struct baton_ctx *ctx,
		      const struct baton_task *prev)
{
	struct called called = { .method = BATON_METHOD_PICK_NEXT_TASK, .waker = -1 };

	tell_about(session, ctx, prev, called);
}

/* Runs this CPU's agent, which answers before `prev` goes on. */
static u64 run_agent_for(struct session *session, struct baton_ctx *ctx, u32 cpu,
			 const struct baton_task *prev, baton_token token)
{
	struct served *served = &session->served[cpu];

	served->held = prev->slot;
	served->left_by = BATON_METHOD_NONE;
	return run_agent(session, ctx, cpu, token);
}

/*
 * Runs this CPU's own agent, if it has one, for a message that was just written. If the agent
 * sleeps, wakes it. `prev`, unless NULL, leaves the CPU for the agent. Returns `otherwise` if the
 * agent does not run now.
 */
static u64 ask(struct session *session, struct baton_ctx *ctx, u32 cpu,
	       const struct baton_task *prev, u64 otherwise)
{
	struct served *served = &session->served[cpu];
	baton_token token;

	if (served->slot == BATON_NO_SLOT)
		return otherwise;
	WRITE_ONCE(served->attention, 1);
	token = agent_to_run(session, served);
	if (token && prev)
		return run_agent_for(session, ctx, cpu, prev, token);
	if (token)
		return run_agent(session, ctx, cpu, token);
	if (READ_ONCE(served->is_blocked))
		baton_interrupt(&served->wake);
	return otherwise;
}

/*
 * The end of a task's slice: the agent decides whether it goes on. An agent that sleeps is woken
 * for that, and the task goes on until it is there.
 */
static u64 ask_at_end(struct session *session, struct baton_ctx *ctx, u32 cpu,
		      const struct baton_task *prev)
{
	struct served *served = &session->served[cpu];

	if (served->slot != BATON_NO_SLOT && READ_ONCE(served->is_blocked)) {
		WRITE_ONCE(served->is_urgent, true);
		WRITE_ONCE(served->asks_for_prev, true);
		WRITE_ONCE(served->attention, 1);
		baton_interrupt(&served->wake);
		return BATON_PICK_KEEP;
	}
	ask_about(session, ctx, prev);
	return ask(session, ctx, cpu, prev, BATON_PICK_KEEP);
}

/* A message about a task of which only the status word is at hand. */
static struct baton_message recall(const struct session *session, const struct baton_ctx *ctx,
				   u32 slot, u32 cpu, enum baton_method method)
{
	const struct baton_agent_task *word = &session->tasks[slot];

	return (struct baton_message){
		.now = ctx->now,
		.runtime = READ_ONCE(word->runtime),
		.method = method,
		.slot = slot,
		.pid = READ_ONCE(word->pid),
		.nice = READ_ONCE(word->nice),
		.cpu = cpu,
		.waker = -1,
	};
}

/*
 * The agent was asked whether a task goes on, and this is its answer. Returns the answer for the
 * core. If another task runs, the agent hears how the task left the CPU.
 */
static u64 release(struct session *session, struct baton_ctx *ctx, u32 cpu, u64 answer)
{
	struct served *served = &session->served[cpu];
	struct baton_agent_task *word = &session->tasks[served->held];
	struct baton_message message;
	u32 slot = served->held;
	u64 token;

	served->held = BATON_NO_SLOT;
	if (!(READ_ONCE(word->flags) & BATON_AGENT_TASK_HELD))
		return answer == BATON_PICK_KEEP ? BATON_PICK_NONE : answer;
	token = READ_ONCE(word->token);
	if (answer <= BATON_PICK_KEEP && token && take(session, word, token)) {
		WRITE_ONCE(word->flags, word->flags & ~BATON_AGENT_TASK_HELD);
		return token;
	}
	WRITE_ONCE(word->flags, word->flags & ~BATON_AGENT_TASK_HELD);
	if (answer == BATON_PICK_KEEP)
		answer = BATON_PICK_NONE;
	token = READ_ONCE(word->token);
	if (!token)
		return answer;
	count_queued(session, 1);
	WRITE_ONCE(word->sequence, word->sequence + 1);
	message = recall(session, ctx, slot, cpu, served->left_by);
	message.token = token;
	message.sequence = word->sequence;
	baton_post(session, &message);
	baton_alert(session, ctx, cpu, false);
	return answer;
}

u64 baton_agent_pick(void *this, struct baton_ctx *ctx, s32 cpu,
		     const struct baton_task *prev)
{
	struct session *session = this;
	struct served *served = &session->served[cpu];
	struct baton_agent_cpu *word = &session->cpus[cpu];
	bool is_own = prev && prev->slot == served->slot;
	baton_token token = agent_to_run(session, served);
	bool idles;
	u64 answer;

	if (token && prev && !is_own && READ_ONCE(served->asks_for_prev)) {
		ask_about(session, ctx, prev);
		return run_agent_for(session, ctx, cpu, prev, token);
	}
	if (token)
		return run_agent(session, ctx, cpu, token);
	if (READ_ONCE(session->has_lost)) {
		token = lost_agent(session, cpu);
		if (token)
			return token;
		if (prev && !is_own && is_agent(&session->tasks[prev->slot]))
			return BATON_PICK_KEEP;
	}
	if (is_own && !served->is_waiting) {
		ctx->slice = AGENT_SLICE;
		return BATON_PICK_KEEP;
	}
	if (served->slot != BATON_NO_SLOT && word->running == served->slot + 1) {
		/* see commit.c */
		WRITE_ONCE(word->running, 0);
		smp_mb();
	}
	if (served->slot != BATON_NO_SLOT && (!prev || is_own) && waits_for_request(session, cpu))
		return BATON_PICK_NONE;
	answer = transaction(session, ctx, cpu,
			     (prev && !is_own) || served->held != BATON_NO_SLOT);
	if (served->held != BATON_NO_SLOT)
		answer = release(session, ctx, cpu, answer);
	if (answer == BATON_PICK_NONE || answer == DOES_NOT_HOLD)
		answer = standby(session);
	if (answer != BATON_PICK_NONE && answer != RUN_NOTHING)
		return run(session, cpu, answer);
	if (prev && !is_own && answer != RUN_NOTHING) {
		/* `running` may still name a task that the core has just refused. */
		WRITE_ONCE(word->running, prev->slot + 1);
		if (!READ_ONCE(session->head->queued))
			return BATON_PICK_KEEP;
		return ask_at_end(session, ctx, cpu, prev);
	}
	WRITE_ONCE(word->wants, 1);
	WRITE_ONCE(word->running, 0);
	/*
	 * A writer that does not see `wants` has written its transaction, its message with a token,
	 * or `attention` before this barrier, so the code below sees it.
	 */
	smp_mb();
	token = agent_to_run(session, served);
	if (token)
		return run_agent(session, ctx, cpu, token);
	idles = answer == RUN_NOTHING;
	answer = transaction(session, ctx, cpu, false);
	if (answer == RUN_NOTHING || (answer == BATON_PICK_NONE && idles))
		return BATON_PICK_NONE;
	if (answer == BATON_PICK_NONE || answer == DOES_NOT_HOLD)
		answer = standby(session);
	if (answer != BATON_PICK_NONE)
		return run(session, cpu, answer);
	if (READ_ONCE(session->head->queued)) {
		if (served->is_asked)
			return BATON_PICK_NONE;
		served->is_asked = served->knows_idle = true;
		baton_tell_cpu(session, ctx, cpu, BATON_METHOD_PICK_NEXT_TASK);
		return ask(session, ctx, cpu, NULL, BATON_PICK_NONE);
	}
	/* A policy learns from a pick that a CPU idles. No agent need run for that alone. */
	if (!served->knows_idle) {
		served->knows_idle = true;
		baton_tell_cpu(session, ctx, cpu, BATON_METHOD_PICK_NEXT_TASK);
	}
	return BATON_PICK_NONE;
}

static enum baton_commit commit_of(enum baton_refusal why)
{
	switch (why) {
	case BATON_REFUSAL_NOT_ALLOWED:
		return BATON_COMMIT_NOT_ALLOWED;
	case BATON_REFUSAL_CPU_OFFLINE:
		return BATON_COMMIT_CPU_OFFLINE;
	case BATON_REFUSAL_NOTHING_TO_KEEP:
		return BATON_COMMIT_NOTHING_TO_KEEP;
	default:
		return BATON_COMMIT_STALE;
	}
}

/* The agent hears that a CPU does not run the task of a token, and has the token again. */
static void give_back(struct session *session, struct baton_ctx *ctx, u32 cpu, baton_token token,
		      enum baton_refusal why)
{
	struct baton_message message = recall(session, ctx, slot_of(token), cpu,
					      BATON_METHOD_PICK_REFUSED);

	message.token = token;
	message.flags = why;
	baton_post(session, &message);
	baton_alert(session, ctx, cpu, true);
}

/*
 * A CPU that goes offline takes no transaction. The agent gets the token of the one that waits, if
 * it is still its task's. A request that writes one just now sees that the CPU is offline: see
 * commit.c.
 */
void baton_agent_drop(struct session *session, struct baton_ctx *ctx, u32 cpu)
{
	struct baton_transaction *shared = &session->transactions[cpu];
	u64 token;

	if (cmpxchg(&shared->state, BATON_TRANSACTION_STATE_READY,
		    BATON_TRANSACTION_STATE_CLAIMED) != BATON_TRANSACTION_STATE_READY)
		return;
	token = READ_ONCE(shared->token);
	WRITE_ONCE(shared->outcome, BATON_COMMIT_CPU_OFFLINE);
	smp_store_release(&shared->state, BATON_TRANSACTION_STATE_DONE);
	if (token > BATON_PICK_KEEP && is_task(session, slot_of(token)) &&
	    READ_ONCE(session->tasks[slot_of(token)].token) == token)
		give_back(session, ctx, cpu, token, BATON_REFUSAL_CPU_OFFLINE);
}

/* Called on the CPU that picked. */
void baton_agent_refused(void *this, struct baton_ctx *ctx, baton_token token,
			 enum baton_refusal why)
{
	struct session *session = this;
	u32 cpu = smp_processor_id(), slot = slot_of(token);
	struct baton_agent_task *word;

	session->cpus[cpu].stale++;
	ask_again(&session->served[cpu]);
	WRITE_ONCE(session->transactions[cpu].outcome, commit_of(why));
	/* Such a token is worthless. Events of the task say what became of it. */
	if (why == BATON_REFUSAL_STALE || why == BATON_REFUSAL_FOREIGN || slot >= session->nr_slots)
		return;
	word = &session->tasks[slot];
	/* The kernel moves this CPU's agent away. */
	if (slot == session->served[cpu].slot)
		baton_lose_cpu(session, cpu);
	/* The task may have been enqueued again, with a newer token. */
	if (cmpxchg(&word->token, 0, token) || is_agent(word))
		return;
	count_queued(session, 1);
	give_back(session, ctx, cpu, token, why);
}
