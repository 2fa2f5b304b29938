// SPDX-License-Identifier: GPL-2.0-only
/*
 * The policy of an enclave: calls become messages (message.c), and transactions become answers
 * (pick.c).
 *
 * Context. All but create and destroy run with interrupts off, mostly with a run-queue lock held,
 * and on several CPUs at once. Nothing here sleeps, allocates or prints.
 *
 * Messages. A message goes into the ring of the CPU on which the call is made, so a ring has one
 * writer. Messages of one task can be in several rings. Their sequence numbers give the order, and
 * the kernel calls about one task one at a time, so a message is written before the next of its
 * task is numbered.
 *
 * Tokens (token.h). A transaction only names a token, so an agent can neither lose a task nor run
 * one twice. A message that finds no room is lost, but the task's status word is not: the agent
 * reads the tasks from there again.
 */
#include <linux/sched/signal.h>
#include <linux/smp.h>
#include <linux/string.h>

#include "about.h"
#include "enclave.h"
#include "host.h"
#include "register.h"
#include "token.h"

static u64 *mask_of(struct session *session, const struct baton_task *task)
{
	return &session->masks[(size_t)task->slot * session->words];
}

/* A message about a task that hands no token over. */
static void tell(struct session *session, const struct baton_ctx *ctx,
		 const struct baton_task *task, enum baton_method method)
{
	struct called called = { .method = method, .waker = -1 };

	if (!is_agent(&session->tasks[task->slot]))
		tell_about(session, ctx, task, called);
}

/* The CPU's agent can no longer run there. It may run elsewhere, and leaves the enclave. */
void baton_lose_cpu(struct session *session, u32 cpu)
{
	struct served *served = &session->served[cpu];

	if (served->slot == BATON_NO_SLOT)
		return;
	WRITE_ONCE(served->lost, served->slot);
	WRITE_ONCE(served->slot, BATON_NO_SLOT);
	WRITE_ONCE(session->cpus[cpu].agent, 0);
	WRITE_ONCE(session->has_lost, true);
	WRITE_ONCE(served->attention, 1);
	if (READ_ONCE(served->is_blocked))
		baton_interrupt(&served->wake);
}

/* The CPU whose agent this task is, or nr_cpus. O(CPUs). */
static u32 cpu_of_agent(const struct session *session, u32 slot)
{
	u32 cpu;

	for (cpu = 0; cpu < session->nr_cpus; cpu++)
		if (READ_ONCE(session->served[cpu].slot) == slot)
			break;
	return cpu;
}

/* The token of a CPU's agent is in custody, until the CPU picks it. */
static void receive_agent(struct session *session, struct baton_ctx *ctx,
			  const struct baton_task *task)
{
	struct served *served = &session->served[task->cpu];
	u32 cpu;

	if (served->slot == task->slot) {
		/* It was asleep when it was needed. */
		if (READ_ONCE(served->is_urgent))
			baton_add_kick(ctx, task->cpu, true);
		return;
	}
	/* The kernel moved it from a CPU that goes offline. */
	cpu = cpu_of_agent(session, task->slot);
	if (cpu < session->nr_cpus)
		baton_lose_cpu(session, cpu);
	WRITE_ONCE(session->has_lost, true);
	baton_add_kick(ctx, task->cpu, true);
}

/* The task waits on its waker's CPU. The agent hears where it ran. */
static noinline void tell_following(struct session *session, const struct baton_ctx *ctx,
				    const struct baton_task *task, struct called called, s32 prev)
{
	struct baton_task before = *task;

	before.cpu = prev;
	called.flags &= ~FOLLOWS;
	tell_about(session, ctx, &before, called);
}

/* The token of a task is handed over. */
static void receive(struct session *session, struct baton_ctx *ctx, const struct baton_task *task,
		    enum baton_method method, baton_token token)
{
	struct baton_agent_task *word = &session->tasks[task->slot];
	struct waking *waking = &session->waking[task->slot];
	struct served *served = &session->served[smp_processor_id()];
	struct called called;
	bool goes_on, follows;

	if (is_agent(word)) {
		keep(session, word, token);
		receive_agent(session, ctx, task);
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
	called = (struct called){ .method = method, .flags = waking->flags,
				  .waker = waking->waker, .token = token };
	/*
	 * A task that leaves its CPU leaves it to a pick. So does a waker that is about to sleep.
	 * The kernel does not say whether it is when it wakes a task that is bound to one CPU: then
	 * the agent waits for the waker's next pick or tick.
	 */
	goes_on = !(waking->flags & BATON_F_SYNC) && method != BATON_METHOD_TASK_PREEMPT &&
		  method != BATON_METHOD_TASK_YIELD &&
		  (waking->waker >= 0 || task->cpu != smp_processor_id());
	follows = waking->flags & FOLLOWS;
	waking->flags = 0;
	waking->waker = -1;
	if (unlikely(follows))
		tell_following(session, ctx, task, called, waking->prev);
	else
		tell_about(session, ctx, task, called);
	baton_alert(session, ctx, task->cpu, goes_on);
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
	if (READ_ONCE(session->is_per_cpu) && joins_as_agent(session, task)) {
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

/*
 * The agent chooses a CPU when it gets the message. Until then the task stays where it was. If its
 * waker is about to sleep, it waits on the waker's CPU: that needs no interrupt, which would only
 * wake a CPU before the agent has chosen. An agent of the task's own CPU must hear of it there.
 */
static u64 agent_select_task_rq(void *this, struct baton_ctx *ctx, const struct baton_task *task,
				const struct baton_wake *wake)
{
	struct session *session = this;

	struct waking *waking = &session->waking[task->slot];

	waking->flags = wake->flags;
	waking->waker = wake->waker_cpu;
	if (READ_ONCE(session->is_per_cpu) || !(wake->flags & BATON_F_SYNC) ||
	    wake->waker_cpu < 0 || wake->waker_cpu == wake->prev_cpu ||
	    !READ_ONCE(session->cpus[wake->waker_cpu].online) ||
	    !may_run(session, task->slot, wake->waker_cpu))
		return (u32)wake->prev_cpu;
	waking->flags |= FOLLOWS;
	waking->prev = wake->prev_cpu;
	return (u32)wake->waker_cpu;
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
	WRITE_ONCE(word->flags, word->flags & ~BATON_AGENT_TASK_HELD);
	return token;
}

static baton_token agent_task_dequeued(void *this, struct baton_ctx *ctx,
				       const struct baton_task *task)
{
	baton_token token = take_back(this, task);

	tell(this, ctx, task, BATON_METHOD_TASK_DEQUEUED);
	return token;
}

/* The agent of a CPU leaves the enclave. That is no failure if it cannot run there. */
static void lose_agent(struct session *session, u32 slot)
{
	u32 cpu = cpu_of_agent(session, slot);

	if (cpu < session->nr_cpus) {
		baton_lose_cpu(session, cpu);
		if (!READ_ONCE(session->served[cpu].is_leaving))
			WRITE_ONCE(session->failure,
				   "the thread that answers for a CPU has ended or left the enclave");
	}
	for (cpu = 0; cpu < session->nr_cpus; cpu++)
		if (session->served[cpu].lost == slot)
			WRITE_ONCE(session->served[cpu].lost, BATON_NO_SLOT);
}

/* The task leaves the enclave. */
static void leave(struct session *session, const struct baton_task *task)
{
	struct baton_agent_task *word = &session->tasks[task->slot];

	if (is_agent(word))
		lose_agent(session, task->slot);
	WRITE_ONCE(word->flags, 0);
	session->waking[task->slot] = (struct waking){ .waker = -1 };
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
	u32 cpu;

	baton_copy_mask(task->slot, mask_of(session, task), session->words);
	tell(session, ctx, task, BATON_METHOD_TASK_AFFINITY_CHANGED);
	if (!is_agent(&session->tasks[task->slot]))
		return;
	cpu = cpu_of_agent(session, task->slot);
	if (cpu < session->nr_cpus && !may_run(session, task->slot, cpu))
		baton_lose_cpu(session, cpu);
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
		baton_alert(session, ctx, task->cpu, true);
	}
	/* Messages that could wait until now. */
	if (READ_ONCE(served->attention) && READ_ONCE(served->is_waiting))
		baton_add_kick(ctx, task->cpu, true);
}

/* A message about a CPU, which may have no agent of its own: then any other one reads it. */
static void tell_and_alert(struct session *session, struct baton_ctx *ctx, s32 cpu,
			   enum baton_method method)
{
	u32 i;

	baton_tell_cpu(session, ctx, cpu, method);
	baton_alert(session, ctx, cpu, true);
	if (session->served[cpu].slot != BATON_NO_SLOT || !READ_ONCE(session->is_per_cpu))
		return;
	for (i = 0; i < session->nr_cpus; i++) {
		if (session->served[i].slot == BATON_NO_SLOT)
			continue;
		baton_alert(session, ctx, i, true);
		return;
	}
}

/*
 * Comes also while another CPU makes a call about the task: a thread can send a hint by a system
 * call while others change its affinity. So the message has no number, and says which messages it
 * follows.
 */
static u64 agent_hint(void *this, struct baton_ctx *ctx, const struct baton_task *from,
		      const struct baton_hint *hint)
{
	struct session *session = this;
	const struct baton_agent_task *word = &session->tasks[from->slot];
	u32 named = hint->thread - 1;
	struct baton_message message = {
		.now = ctx->now,
		.runtime = from->runtime,
		.method = BATON_METHOD_HINT,
		.slot = from->slot,
		.pid = from->pid,
		.nice = from->nice,
		.cpu = from->cpu,
		.waker = -1,
		.after = READ_ONCE(word->sequence),
	};

	if (named < session->nr_slots) {
		message.after_named = READ_ONCE(session->tasks[named].sequence);
		message.named_pid = READ_ONCE(session->tasks[named].pid);
	}
	if (is_agent(word) || !baton_post_hint(session, &message, hint))
		return 1;
	baton_alert(session, ctx, smp_processor_id(), false);
	return 0;
}

static void agent_balance(void *this, struct baton_ctx *ctx, s32 cpu)
{
	tell_and_alert(this, ctx, cpu, BATON_METHOD_BALANCE);
}

static void agent_cpu_online(void *this, struct baton_ctx *ctx, s32 cpu)
{
	struct session *session = this;

	/* The agent has forgotten what it was asked for this CPU, which does not pick yet. */
	ask_again(&session->served[cpu]);
	WRITE_ONCE(session->cpus[cpu].online, 1);
	/* It says whether it idles: see session.c. */
	baton_add_kick(ctx, cpu, false);
	tell_and_alert(session, ctx, cpu, BATON_METHOD_CPU_ONLINE);
}

static void agent_cpu_offline(void *this, struct baton_ctx *ctx, s32 cpu)
{
	struct session *session = this;

	WRITE_ONCE(session->cpus[cpu].online, 0);
	WRITE_ONCE(session->cpus[cpu].wants, 0);
	baton_lose_cpu(session, cpu);
	tell_and_alert(session, ctx, cpu, BATON_METHOD_CPU_OFFLINE);
	/* A request that has written a transaction since sees that the CPU is offline. */
	smp_mb();
	baton_agent_drop(session, ctx, cpu);
}

static void agent_enter_idle(void *this, struct baton_ctx *ctx, s32 cpu)
{
	struct session *session = this;
	struct served *served = &session->served[cpu];

	baton_tell_cpu(session, ctx, cpu, BATON_METHOD_ENTER_IDLE);
	/*
	 * The CPU has picked already. If this message half fills the ring, it looks again for its
	 * agent. One that sleeps is woken for that.
	 */
	if (served->slot != BATON_NO_SLOT && READ_ONCE(served->attention) &&
	    READ_ONCE(served->is_waiting) && !READ_ONCE(served->is_blocked))
		baton_add_kick(ctx, cpu, false);
}

static void agent_exit_idle(void *this, struct baton_ctx *ctx, s32 cpu)
{
	baton_tell_cpu(this, ctx, cpu, BATON_METHOD_EXIT_IDLE);
}

/* session.c adds create and destroy, enclave.c the name. */
const struct baton_policy baton_calls = {
	.abi = BATON_ABI,
	.version = 1,
	.events = BATON_EV_ALL,
	.language = BATON_LANGUAGE_C,
	.select_task_rq = agent_select_task_rq,
	.task_new = agent_task_new,
	.task_wakeup = agent_task_wakeup,
	.task_preempt = agent_task_preempt,
	.task_yield = agent_task_yield,
	.task_restored = agent_task_restored,
	.pick_next_task = baton_agent_pick,
	.pick_refused = baton_agent_refused,
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
	.hint = agent_hint,
};
