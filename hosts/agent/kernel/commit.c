// SPDX-License-Identifier: GPL-2.0-only
/*
 * Requests of an agent that reach CPUs. Process context.
 *
 * BATON_AGENT_IOC_COMMIT: transactions for several CPUs by one call.
 * The agent can also write a transaction into the shared memory itself. policy/abi/src/agent.rs has
 * the states of a transaction. Here the kernel writes it, and reports at once which transactions it
 * refuses. A CPU checks its transaction again when it takes it, because the task's state may have
 * changed by then.
 */
#include <linux/preempt.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/smp.h>
#include <linux/uaccess.h>

#include "enclave.h"
#include "host.h"
#include "register.h"
#include "token.h"

static u32 cpu_of(const struct baton_agent_commit *commit)
{
	return commit->cpu & ~BATON_KICK_PREEMPT;
}

/* Would the CPU run this task, as far as can be said now? */
static enum baton_commit judge(const struct session *session, const struct baton_agent_commit *it,
			       bool together)
{
	u32 slot = slot_of(it->token), cpu = cpu_of(it);
	const struct baton_agent_task *word = &session->tasks[slot];

	if (!READ_ONCE(session->cpus[cpu].online))
		return BATON_COMMIT_CPU_OFFLINE;
	if (it->token == BATON_PICK_KEEP || (together && it->token == BATON_PICK_NONE))
		return BATON_COMMIT_COMPLETE;
	if (!is_task(session, slot))
		return BATON_COMMIT_NOT_FOUND;
	if (READ_ONCE(word->token) != it->token)
		return BATON_COMMIT_STALE;
	if (!may_run(session, slot, cpu))
		return BATON_COMMIT_NOT_ALLOWED;
	return BATON_COMMIT_COMPLETE;
}

/*
 * Claims the CPU's transaction for this call. A CPU that finds a claimed transaction does not spin.
 * It idles until look() or let_go() kicks it (waits_for_request() in pick.c). A second commit for
 * the CPU fails meanwhile.
 */
static bool claim(struct session *session, u32 cpu)
{
	u32 *state = &session->transactions[cpu].state;
	u32 was = READ_ONCE(*state);

	return (was == BATON_TRANSACTION_STATE_EMPTY || was == BATON_TRANSACTION_STATE_DONE) &&
	       cmpxchg(state, was, BATON_TRANSACTION_STATE_CLAIMED) == was;
}

/* Ends the claim: the CPU may take the transaction, or there is none. */
static void settle(struct session *session, u32 cpu, enum baton_transaction_state state)
{
	smp_store_release(&session->transactions[cpu].state, state);
}

/*
 * Called after a claim that ended without a transaction. A CPU that saw the claim went idle, and
 * must look for a task again. See waits_for_request() in pick.c.
 */
static void let_go(const struct session *session, u32 cpu)
{
	if (READ_ONCE(session->cpus[cpu].wants))
		baton_kick_cpu(cpu, false);
}

/* Writes a transaction that is claimed. */
static void write_order(struct session *session, const struct baton_agent_commit *it)
{
	struct baton_transaction *transaction = &session->transactions[cpu_of(it)];

	WRITE_ONCE(transaction->token, it->token);
	WRITE_ONCE(transaction->slice, it->slice);
}

/*
 * Makes the CPU of a transaction look at the transaction. Returns false if the CPU has gone offline
 * and the transaction is withdrawn here. If baton_agent_drop() took it first, returns true.
 */
static bool look(struct session *session, struct baton_agent_commit *it)
{
	u32 cpu = cpu_of(it);
	bool preempt = it->cpu & BATON_KICK_PREEMPT;

	if (!READ_ONCE(session->cpus[cpu].online)) {
		if (cmpxchg(&session->transactions[cpu].state, BATON_TRANSACTION_STATE_READY,
			    BATON_TRANSACTION_STATE_EMPTY) != BATON_TRANSACTION_STATE_READY)
			return true;
		it->outcome = BATON_COMMIT_CPU_OFFLINE;
		return false;
	}
	if (preempt || READ_ONCE(session->cpus[cpu].wants))
		baton_kick_cpu(cpu, preempt);
	return true;
}

/*
 * Has the CPU picked its agent, and switched to it? Between the two, the task before it is still
 * there.
 */
static bool runs_its_agent(const struct session *session, u32 cpu)
{
	u32 slot = READ_ONCE(session->cpus[cpu].agent);
	const struct task_struct *agent;
	bool is_there;

	rcu_read_lock();
	agent = smp_load_acquire(&session->served[cpu].agent);
	/* set by the kernel's context_switch(); the agent is bound to this CPU */
	is_there = agent && smp_load_acquire(&agent->on_cpu);
	rcu_read_unlock();
	return is_there && slot && READ_ONCE(session->cpus[cpu].running) == slot;
}

/* Commits each transaction independently of the others. */
static u32 commit_each(struct session *session, struct baton_agent_commit *commits, u32 count)
{
	u32 i, accepted = 0;

	for (i = 0; i < count; i++) {
		struct baton_agent_commit *it = &commits[i];

		it->outcome = BATON_COMMIT_BUSY;
		if (!claim(session, cpu_of(it)))
			continue;
		it->outcome = judge(session, it, false);
		if (it->outcome != BATON_COMMIT_COMPLETE) {
			settle(session, cpu_of(it), BATON_TRANSACTION_STATE_EMPTY);
			continue;
		}
		write_order(session, it);
		settle(session, cpu_of(it), BATON_TRANSACTION_STATE_READY);
	}
	/* A CPU that found nothing before this has set `wants`. */
	smp_mb();
	for (i = 0; i < count; i++)
		if (commits[i].outcome == BATON_COMMIT_COMPLETE)
			accepted += look(session, &commits[i]);
		else if (commits[i].outcome != BATON_COMMIT_BUSY)
			let_go(session, cpu_of(&commits[i]));
	return accepted;
}

/*
 * Commits all transactions, or none. A CPU whose agent gives way clears `running` before it looks
 * for a transaction. So if `running` still names the agent after all transactions were claimed, the
 * CPU has not looked yet, or it finds the claimed transaction and runs nothing until the claim
 * ends.
 */
static u32 commit_together(struct session *session, struct baton_agent_commit *commits, u32 count)
{
	enum baton_transaction_state state;
	u32 i, good = 0, claimed;

	for (claimed = 0; claimed < count; claimed++)
		if (!claim(session, cpu_of(&commits[claimed])))
			break;
	for (i = 0; i < claimed; i++) {
		commits[i].outcome = judge(session, &commits[i], true);
		write_order(session, &commits[i]);
		good += commits[i].outcome == BATON_COMMIT_COMPLETE;
	}
	for (; i < count; i++)
		commits[i].outcome = i == claimed ? BATON_COMMIT_BUSY : BATON_COMMIT_NOT_ALONE;
	smp_mb();
	for (i = 0; i < claimed; i++) {
		if (runs_its_agent(session, cpu_of(&commits[i])) ||
		    commits[i].outcome != BATON_COMMIT_COMPLETE)
			continue;
		commits[i].outcome = BATON_COMMIT_NO_AGENT;
		good--;
	}
	state = good == count ? BATON_TRANSACTION_STATE_READY : BATON_TRANSACTION_STATE_EMPTY;
	for (i = 0; i < claimed; i++)
		settle(session, cpu_of(&commits[i]), state);
	/* A CPU that found nothing before this has set `wants`. */
	smp_mb();
	if (good == count) {
		for (i = 0, good = 0; i < count; i++)
			good += look(session, &commits[i]);
		return good;
	}
	for (i = 0; i < claimed; i++) {
		if (commits[i].outcome == BATON_COMMIT_COMPLETE)
			commits[i].outcome = BATON_COMMIT_NOT_ALONE;
		let_go(session, cpu_of(&commits[i]));
	}
	return 0;
}

int baton_commit(struct session *session, struct baton_agent_commits __user *user)
{
	/* Not initialized, as only the entries that are copied from user space are used. */
	struct baton_agent_commit commits[BATON_AGENT_CPUS_AT_ONCE]
		__attribute__((__uninitialized__));
	struct baton_agent_commits arg;
	void __user *those;
	u32 i;

	if (copy_from_user(&arg, user, sizeof(arg)))
		return -EFAULT;
	if (arg.count > BATON_AGENT_CPUS_AT_ONCE || arg.flags & ~BATON_AGENT_TOGETHER)
		return -EINVAL;
	those = u64_to_user_ptr(arg.commits);
	if (copy_from_user(commits, those, arg.count * sizeof(*commits)))
		return -EFAULT;
	for (i = 0; i < arg.count; i++)
		if (cpu_of(&commits[i]) >= session->nr_cpus)
			return -EINVAL;
	/* A CPU that finds its transaction claimed may run nothing until the claim ends. */
	preempt_disable();
	arg.accepted = arg.flags & BATON_AGENT_TOGETHER ?
			       commit_together(session, commits, arg.count) :
			       commit_each(session, commits, arg.count);
	preempt_enable();
	if (copy_to_user(those, commits, arg.count * sizeof(*commits)) ||
	    put_user(arg.accepted, &user->accepted))
		return -EFAULT;
	return 0;
}

/* BATON_AGENT_IOC_KICK */
int baton_kick(struct session *session, const struct baton_agent_kick __user *user)
{
	struct baton_agent_kick arg;
	int err = 0;
	u32 i;

	if (copy_from_user(&arg, user, sizeof(arg)))
		return -EFAULT;
	if (arg.count > BATON_AGENT_CPUS_AT_ONCE)
		return -EINVAL;
	for (i = 0; i < arg.count; i++) {
		u32 cpu = arg.cpus[i] & ~(BATON_KICK_PREEMPT | BATON_AGENT_KICK_AGENT);

		/*
		 * An agent may disturb only CPUs on which its enclave is asked. One that has just
		 * gone offline does not keep the others from being kicked.
		 */
		if (cpu >= session->nr_cpus || !READ_ONCE(session->cpus[cpu].online))
			err = -EINVAL;
		else if (arg.cpus[i] & BATON_AGENT_KICK_AGENT)
			baton_serve_alert(&session->served[cpu], cpu,
					  arg.cpus[i] & BATON_KICK_PREEMPT);
		else
			baton_kick_cpu(cpu, arg.cpus[i] & BATON_KICK_PREEMPT);
	}
	return err;
}
