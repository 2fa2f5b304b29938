// SPDX-License-Identifier: GPL-2.0-only
/*
 * The policy of an enclave: calls become messages, and transactions become answers.
 *
 * Context. All but create and destroy run with interrupts off, mostly with a run-queue lock held,
 * and on several CPUs at once. Nothing here sleeps, allocates or prints.
 *
 * Messages. A message goes into the ring of the CPU on which the call is made, so a ring has one
 * writer. Messages of one task can be in several rings. Their sequence numbers give the order, and
 * the kernel calls about one task one at a time, so a message is written before the next of its
 * task is numbered.
 *
 * Tokens. The enclave has a task's token in its status word, from the call that hands it over until
 * a pick or a dequeue takes it out by xchg or cmpxchg. A transaction only names a token, so an
 * agent can neither lose a task nor run one twice. A message that finds no room is lost, but the
 * status word is not: the agent reads the tasks from there again.
 */
#include <linux/sched/signal.h>
#include <linux/smp.h>
#include <linux/string.h>

#include "enclave.h"
#include "host.h"
#include "register.h"

#define MIN_SLICE (10 * NSEC_PER_USEC)
#define MAX_SLICE (10ULL * NSEC_PER_SEC)
#define AGENT_SLICE (1ULL * NSEC_PER_SEC)
#define STANDBY_TRIES 8

static u32 slot_of(baton_token token)
{
	return (u32)token - 1;
}

static bool is_agent(const struct baton_agent_task *word)
{
	return READ_ONCE(word->flags) & BATON_AGENT_TASK_AGENT;
}

static void count_queued(struct session *session, int by)
{
	atomic_add(by, (atomic_t *)&session->head->queued);
}

/* Does the task wait for an agent to run it? */
static bool is_counted(const struct baton_agent_task *word)
{
	return !(READ_ONCE(word->flags) & (BATON_AGENT_TASK_AGENT | BATON_AGENT_TASK_HELD));
}

/* Puts a token into the task's word, in place of an older one. */
static void keep(struct session *session, struct baton_agent_task *word, baton_token token)
{
	if (!xchg(&word->token, token) && is_counted(word))
		count_queued(session, 1);
}

/* Takes a token out of the task's word. False if it is not there. */
static bool take(struct session *session, struct baton_agent_task *word, baton_token token)
{
	if (cmpxchg(&word->token, token, 0) != token)
		return false;
	if (is_counted(word))
		count_queued(session, -1);
	return true;
}

/*
 * A place in this CPU's ring, or NULL if that is full. The position that the agent says it has read
 * is used for this alone.
 */
static struct baton_message *next_place(struct session *session, struct served *here, u32 cpu)
{
	u32 unread = here->posted - READ_ONCE(session->transactions[cpu].read);

	/* Few messages are announced to an agent, but none may be lost for that. */
	if (unread == session->entries / 2 && here->slot != BATON_NO_SLOT) {
		WRITE_ONCE(here->attention, 1);
		if (READ_ONCE(here->is_blocked))
			baton_interrupt(&here->wake);
	}
	if (unread >= session->entries) {
		atomic64_inc((atomic64_t *)&session->head->lost);
		return NULL;
	}
	return &session->rings[(size_t)cpu * session->entries +
			       (here->posted & (session->entries - 1))];
}

/* Writes a message. */
static void post(struct session *session, const struct baton_message *message)
{
	u32 cpu = smp_processor_id();
	struct served *here = &session->served[cpu];
	struct baton_message *place = next_place(session, here, cpu);

	if (!place)
		return;
	*place = *message;
	/* the agent reads the message after this number */
	smp_store_release(&session->cpus[cpu].posted, ++here->posted);
}

/* Adds a kick to those of a call. */
static void kick(struct baton_ctx *ctx, u32 cpu, bool preempt)
{
	if (ctx->nr_kicks < BATON_MAX_KICKS)
		ctx->kicks[ctx->nr_kicks++] =
			cpu | (preempt ? BATON_KICK_PREEMPT : BATON_KICK_IDLE);
}

/*
 * There is work for the agent of a CPU. `preempt`: also if the CPU runs another task, which does
 * not give way at once by itself.
 */
static void alert(struct session *session, struct baton_ctx *ctx, u32 cpu, bool preempt)
{
	struct served *served = &session->served[cpu];
	bool is_idle = READ_ONCE(session->cpus[cpu].wants);

	if (served->slot == BATON_NO_SLOT || (xchg(&served->attention, 1) && !preempt))
		return;
	if (READ_ONCE(served->is_blocked))
		baton_interrupt(&served->wake);
	else if ((preempt || is_idle) && READ_ONCE(served->is_waiting))
		kick(ctx, cpu, !is_idle);
}

static u64 *mask_of(struct session *session, const struct baton_task *task)
{
	return &session->masks[(size_t)task->slot * session->words];
}

/* A message about a task, with what is known of it. */
static struct baton_message about(struct session *session, const struct baton_ctx *ctx,
				  const struct baton_task *task, enum baton_method method,
				  baton_token token)
{
	struct baton_agent_task *word = &session->tasks[task->slot];

	WRITE_ONCE(word->runtime, task->runtime);
	WRITE_ONCE(word->cpu, task->cpu);
	WRITE_ONCE(word->nice, task->nice);
	WRITE_ONCE(word->sequence, word->sequence + 1);
	return (struct baton_message){
		.now = ctx->now,
		.token = token,
		.runtime = task->runtime,
		.method = method,
		.sequence = word->sequence,
		.slot = task->slot,
		.pid = task->pid,
		.nice = task->nice,
		.cpu = task->cpu,
		.waker = -1,
	};
}

/* A message about a task that hands no token over. */
static void tell(struct session *session, const struct baton_ctx *ctx,
		 const struct baton_task *task, enum baton_method method)
{
	struct baton_message message;

	if (is_agent(&session->tasks[task->slot]))
		return;
	message = about(session, ctx, task, method, 0);
	post(session, &message);
}

/* A message about a CPU. */
static void tell_cpu(struct session *session, const struct baton_ctx *ctx, u32 cpu,
		     const struct baton_task *task, enum baton_method method)
{
	struct baton_message message = {
		.now = ctx->now,
		.method = method,
		.slot = task ? task->slot : BATON_NO_SLOT,
		.pid = task ? task->pid : 0,
		.nice = task ? task->nice : 0,
		.runtime = task ? task->runtime : 0,
		.cpu = cpu,
		.waker = -1,
	};

	post(session, &message);
}

/* The token of a task is handed over. */
static void receive(struct session *session, struct baton_ctx *ctx, const struct baton_task *task,
		    enum baton_method method, baton_token token)
{
	struct baton_agent_task *word = &session->tasks[task->slot];
	struct waking *waking = &session->waking[task->slot];
	struct served *served = &session->served[smp_processor_id()];
	struct baton_message message;
	bool goes_on;

	if (is_agent(word)) {
		keep(session, word, token);
		return;
	}
	if (served->held == task->slot && served->left_by == BATON_METHOD_NONE &&
	    (method == BATON_METHOD_TASK_PREEMPT || method == BATON_METHOD_TASK_YIELD)) {
		served->left_by = method;
		WRITE_ONCE(word->flags, word->flags | BATON_AGENT_TASK_HELD);
		keep(session, word, token);
		return;
	}
	/* Before the number changes: an agent that reads the word again then misses no token. */
	keep(session, word, token);
	message = about(session, ctx, task, method, token);
	message.flags = waking->flags;
	message.waker = waking->waker;
	/*
	 * A task that leaves its CPU leaves it to a pick. So does a waker that is about to sleep.
	 * The kernel does not say whether it is when it wakes a task that is bound to one CPU: then
	 * the agent waits for the waker's next pick or tick.
	 */
	goes_on = !(waking->flags & BATON_F_SYNC) && method != BATON_METHOD_TASK_PREEMPT &&
		  method != BATON_METHOD_TASK_YIELD &&
		  (waking->waker >= 0 || task->cpu != smp_processor_id());
	*waking = (struct waking){ .waker = -1 };
	post(session, &message);
	alert(session, ctx, task->cpu, goes_on);
}

/* Is this new task of the enclave the agent of a CPU? */
static bool joins_as_agent(struct session *session, const struct baton_task *task)
{
	u32 cpu;

	for (cpu = 0; cpu < session->nr_cpus; cpu++) {
		struct served *served = &session->served[cpu];
		const struct task_struct *agent = smp_load_acquire(&served->agent);

		if (!agent || agent->pid != task->pid || served->slot != BATON_NO_SLOT)
			continue;
		WRITE_ONCE(session->cpus[cpu].agent, task->slot + 1);
		WRITE_ONCE(served->slot, task->slot);
		return true;
	}
	return false;
}

static void agent_task_new(void *this, struct baton_ctx *ctx, const struct baton_task *task,
			   baton_token token)
{
	struct session *session = this;
	struct baton_agent_task *word = &session->tasks[task->slot];

	baton_copy_mask(task->slot, mask_of(session, task), session->words);
	WRITE_ONCE(word->pid, task->pid);
	WRITE_ONCE(word->flags, BATON_AGENT_TASK_MEMBER);
	if (READ_ONCE(session->joining) && joins_as_agent(session, task)) {
		WRITE_ONCE(word->flags, BATON_AGENT_TASK_MEMBER | BATON_AGENT_TASK_AGENT);
		baton_keep_in_custody(task->slot);
	}
	receive(session, ctx, task, BATON_METHOD_TASK_NEW, token);
}

#define RECEIVES(name, METHOD) \
static void agent_##name(void *this, struct baton_ctx *ctx, const struct baton_task *task, \
			 baton_token token) \
{ \
	receive(this, ctx, task, BATON_METHOD_##METHOD, token); \
}

RECEIVES(task_wakeup, TASK_WAKEUP)
RECEIVES(task_preempt, TASK_PREEMPT)
RECEIVES(task_yield, TASK_YIELD)
RECEIVES(task_restored, TASK_RESTORED)

/* The agent chooses a CPU when it gets the message. Until then the task stays where it was. */
static u64 agent_select_task_rq(void *this, struct baton_ctx *ctx, const struct baton_task *task,
				const struct baton_wake *wake)
{
	struct session *session = this;

	session->waking[task->slot] = (struct waking){ .flags = wake->flags,
						       .waker = wake->waker_cpu };
	return (u32)wake->prev_cpu;
}

/*
 * Takes the token that an agent names out of its task's word. Returns 0 when it is there no more,
 * or never was; *outcome says which.
 */
static baton_token judge(struct session *session, baton_token token, enum baton_commit *outcome)
{
	u32 slot = slot_of(token);

	if (slot >= session->nr_slots ||
	    (READ_ONCE(session->tasks[slot].flags) &
	     (BATON_AGENT_TASK_MEMBER | BATON_AGENT_TASK_AGENT)) != BATON_AGENT_TASK_MEMBER) {
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

/* The answer of a CPU's transaction, if there is one that holds. */
static u64 transaction(struct session *session, struct baton_ctx *ctx, u32 cpu, bool may_keep)
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
	} else {
		answer = judge(session, token, &outcome);
	}
	if (answer != BATON_PICK_NONE) {
		ctx->slice = slice ? clamp(slice, MIN_SLICE, MAX_SLICE) : 0;
	} else {
		session->cpus[cpu].stale++;
		/* The agent thinks that the CPU has a task, and must be asked again. */
		session->served[cpu].is_asked = false;
	}
	WRITE_ONCE(shared->outcome, outcome);
	smp_store_release(&shared->state, BATON_TRANSACTION_STATE_DONE);
	return answer;
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
static baton_token agent_to_run(struct session *session, struct served *served)
{
	struct baton_agent_task *word;
	baton_token token;

	if (served->slot == BATON_NO_SLOT)
		return 0;
	word = &session->tasks[served->slot];
	token = READ_ONCE(word->token);
	if (!token || (served->is_waiting && !READ_ONCE(served->attention) &&
		       !signal_pending(served->agent)))
		return 0;
	return take(session, word, token) ? token : 0;
}

static u64 run_agent(struct session *session, struct baton_ctx *ctx, u32 cpu, baton_token token)
{
	struct served *served = &session->served[cpu];

	served->is_waiting = false;
	xchg(&served->attention, 0);
	WRITE_ONCE(session->cpus[cpu].wants, 0);
	WRITE_ONCE(session->cpus[cpu].running, served->slot + 1);
	ctx->slice = AGENT_SLICE;
	return token;
}

static u64 run(struct session *session, u32 cpu, u64 answer)
{
	struct baton_agent_cpu *word = &session->cpus[cpu];

	session->served[cpu].is_asked = false;
	WRITE_ONCE(word->wants, 0);
	if (answer != BATON_PICK_KEEP) {
		WRITE_ONCE(word->running, slot_of(answer) + 1);
		word->picks++;
	}
	return answer;
}

/*
 * Has the agent run for a message that was just written, if this CPU has one of its own. `prev`, or
 * NULL, leaves the CPU for that.
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
	if (token) {
		if (prev) {
			served->held = prev->slot;
			served->left_by = BATON_METHOD_NONE;
		}
		return run_agent(session, ctx, cpu, token);
	}
	if (READ_ONCE(served->is_blocked))
		baton_interrupt(&served->wake);
	return otherwise;
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
	message = (struct baton_message){
		.now = ctx->now,
		.token = token,
		.runtime = READ_ONCE(word->runtime),
		.method = served->left_by,
		.sequence = word->sequence,
		.slot = slot,
		.pid = READ_ONCE(word->pid),
		.nice = READ_ONCE(word->nice),
		.cpu = cpu,
		.waker = -1,
	};
	post(session, &message);
	alert(session, ctx, cpu, false);
	return answer;
}

static u64 agent_pick_next_task(void *this, struct baton_ctx *ctx, s32 cpu,
				const struct baton_task *prev)
{
	struct session *session = this;
	struct served *served = &session->served[cpu];
	struct baton_agent_cpu *word = &session->cpus[cpu];
	bool is_agent = prev && prev->slot == served->slot;
	baton_token token = agent_to_run(session, served);
	u64 answer;

	if (token)
		return run_agent(session, ctx, cpu, token);
	if (is_agent && !served->is_waiting) {
		ctx->slice = AGENT_SLICE;
		return BATON_PICK_KEEP;
	}
	if (served->slot != BATON_NO_SLOT && word->running == served->slot + 1) {
		/* see commit.c */
		WRITE_ONCE(word->running, 0);
		smp_mb();
	}
	answer = transaction(session, ctx, cpu,
			     (prev && !is_agent) || served->held != BATON_NO_SLOT);
	if (served->held != BATON_NO_SLOT)
		answer = release(session, ctx, cpu, answer);
	if (answer == BATON_PICK_NONE)
		answer = standby(session);
	if (answer != BATON_PICK_NONE)
		return run(session, cpu, answer);
	if (prev && !is_agent) {
		if (!READ_ONCE(session->head->queued))
			return BATON_PICK_KEEP;
		/* The end of a slice: the task goes on until the agent has decided. */
		tell_cpu(session, ctx, cpu, prev, BATON_METHOD_PICK_NEXT_TASK);
		return ask(session, ctx, cpu, prev, BATON_PICK_KEEP);
	}
	WRITE_ONCE(word->wants, 1);
	WRITE_ONCE(word->running, 0);
	/* An agent that does not see this has written its transaction, or a token's message, before. */
	smp_mb();
	answer = transaction(session, ctx, cpu, false);
	if (answer == BATON_PICK_NONE)
		answer = standby(session);
	if (answer != BATON_PICK_NONE)
		return run(session, cpu, answer);
	if (!READ_ONCE(session->head->queued) || served->is_asked)
		return BATON_PICK_NONE;
	served->is_asked = true;
	tell_cpu(session, ctx, cpu, NULL, BATON_METHOD_PICK_NEXT_TASK);
	return ask(session, ctx, cpu, NULL, BATON_PICK_NONE);
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

/* Called on the CPU that picked. */
static void agent_pick_refused(void *this, struct baton_ctx *ctx, baton_token token,
			       enum baton_refusal why)
{
	struct session *session = this;
	u32 cpu = smp_processor_id(), slot = slot_of(token);
	struct baton_agent_task *word;
	struct baton_message message;

	session->cpus[cpu].stale++;
	session->served[cpu].is_asked = false;
	WRITE_ONCE(session->transactions[cpu].outcome, commit_of(why));
	/* Such a token is worthless. Events of the task say what became of it. */
	if (why == BATON_REFUSAL_STALE || why == BATON_REFUSAL_FOREIGN || slot >= session->nr_slots)
		return;
	word = &session->tasks[slot];
	/* The task may have been enqueued again, with a newer token. */
	if (cmpxchg(&word->token, 0, token) || is_agent(word))
		return;
	count_queued(session, 1);
	message = (struct baton_message){
		.now = ctx->now,
		.token = token,
		.method = BATON_METHOD_PICK_REFUSED,
		.flags = why,
		.slot = slot,
		.pid = READ_ONCE(word->pid),
		.nice = READ_ONCE(word->nice),
		.cpu = cpu,
		.waker = -1,
	};
	post(session, &message);
	alert(session, ctx, cpu, true);
}

static void agent_task_blocked(void *this, struct baton_ctx *ctx, const struct baton_task *task)
{
	tell(this, ctx, task, BATON_METHOD_TASK_BLOCKED);
}

static baton_token take_back(struct session *session, const struct baton_task *task)
{
	struct baton_agent_task *word = &session->tasks[task->slot];
	baton_token token = xchg(&word->token, 0);

	if (token && is_counted(word))
		count_queued(session, -1);
	return token;
}

static baton_token agent_task_dequeued(void *this, struct baton_ctx *ctx,
				       const struct baton_task *task)
{
	baton_token token = take_back(this, task);

	tell(this, ctx, task, BATON_METHOD_TASK_DEQUEUED);
	return token;
}

/* The task leaves the enclave. If it is the agent of a CPU, the CPU's agent is gone. */
static void leave(struct session *session, const struct baton_task *task)
{
	struct baton_agent_task *word = &session->tasks[task->slot];

	if (is_agent(word))
		WRITE_ONCE(session->failure,
			   "the thread that answers for a CPU has ended or left the enclave");
	WRITE_ONCE(word->flags, 0);
}

static baton_token agent_task_departed(void *this, struct baton_ctx *ctx,
				       const struct baton_task *task)
{
	baton_token token = take_back(this, task);

	tell(this, ctx, task, BATON_METHOD_TASK_DEPARTED);
	leave(this, task);
	return token;
}

static void agent_task_dead(void *this, struct baton_ctx *ctx, const struct baton_task *task)
{
	take_back(this, task);
	tell(this, ctx, task, BATON_METHOD_TASK_DEAD);
	leave(this, task);
}

static void agent_task_affinity_changed(void *this, struct baton_ctx *ctx,
					const struct baton_task *task)
{
	struct session *session = this;

	baton_copy_mask(task->slot, mask_of(session, task), session->words);
	tell(session, ctx, task, BATON_METHOD_TASK_AFFINITY_CHANGED);
}

static void agent_task_prio_changed(void *this, struct baton_ctx *ctx,
				    const struct baton_task *task)
{
	tell(this, ctx, task, BATON_METHOD_TASK_PRIO_CHANGED);
}

static void agent_task_tick(void *this, struct baton_ctx *ctx, const struct baton_task *task)
{
	struct session *session = this;

	struct served *served = &session->served[task->cpu];

	if (is_agent(&session->tasks[task->slot]))
		return;
	if (session->events & BATON_EV_TICK) {
		tell(session, ctx, task, BATON_METHOD_TASK_TICK);
		alert(session, ctx, task->cpu, true);
	}
	/* Messages that could wait until now. */
	if (READ_ONCE(served->attention) && READ_ONCE(served->is_waiting))
		kick(ctx, task->cpu, true);
}

static void tell_and_alert(struct session *session, struct baton_ctx *ctx, s32 cpu,
			   enum baton_method method)
{
	tell_cpu(session, ctx, cpu, NULL, method);
	alert(session, ctx, cpu, true);
}

static void agent_balance(void *this, struct baton_ctx *ctx, s32 cpu)
{
	tell_and_alert(this, ctx, cpu, BATON_METHOD_BALANCE);
}

static void agent_cpu_online(void *this, struct baton_ctx *ctx, s32 cpu)
{
	struct session *session = this;

	WRITE_ONCE(session->cpus[cpu].online, 1);
	tell_and_alert(session, ctx, cpu, BATON_METHOD_CPU_ONLINE);
}

static void agent_cpu_offline(void *this, struct baton_ctx *ctx, s32 cpu)
{
	struct session *session = this;

	WRITE_ONCE(session->cpus[cpu].online, 0);
	WRITE_ONCE(session->cpus[cpu].wants, 0);
	tell_and_alert(session, ctx, cpu, BATON_METHOD_CPU_OFFLINE);
}

static void agent_enter_idle(void *this, struct baton_ctx *ctx, s32 cpu)
{
	tell_cpu(this, ctx, cpu, NULL, BATON_METHOD_ENTER_IDLE);
}

static void agent_exit_idle(void *this, struct baton_ctx *ctx, s32 cpu)
{
	tell_cpu(this, ctx, cpu, NULL, BATON_METHOD_EXIT_IDLE);
}

/* session.c adds create and destroy, enclave.c the name. */
const struct baton_policy baton_calls = {
	.abi = BATON_ABI,
	.version = 1,
	.events = BATON_EV_ALL,
	.language = 1,
	.select_task_rq = agent_select_task_rq,
	.task_new = agent_task_new,
	.task_wakeup = agent_task_wakeup,
	.task_preempt = agent_task_preempt,
	.task_yield = agent_task_yield,
	.task_restored = agent_task_restored,
	.pick_next_task = agent_pick_next_task,
	.pick_refused = agent_pick_refused,
	.balance = agent_balance,
	.task_blocked = agent_task_blocked,
	.task_dequeued = agent_task_dequeued,
	.task_departed = agent_task_departed,
	.task_dead = agent_task_dead,
	.task_affinity_changed = agent_task_affinity_changed,
	.task_prio_changed = agent_task_prio_changed,
	.task_tick = agent_task_tick,
	.cpu_online = agent_cpu_online,
	.cpu_offline = agent_cpu_offline,
	.enter_idle = agent_enter_idle,
	.exit_idle = agent_exit_idle,
};
