// SPDX-License-Identifier: GPL-2.0-only
/*
 * Agents of CPUs. The agent of a CPU is a thread that is bound to it and is a task of the enclave.
 * The enclave keeps its token in custody, and runs it when there are messages for the CPU. So a
 * message needs no wakeup, and an agent that gives way stays runnable.
 *
 * sched_ext keeps the only runnable task of a CPU running. An agent that gives way to nothing
 * therefore sleeps, and must be woken. Messages come with a run-queue lock held, so that is done in
 * an interrupt.
 */
#include <linux/cpumask.h>
#include <linux/irqflags.h>
#include <linux/jiffies.h>
#include <linux/pid.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/uaccess.h>

#include "enclave.h"
#include "register.h"

/* What keeps an agent's task until no CPU looks at it any more. */
struct server {
	struct rcu_head rcu;
	struct task_struct *task;
};

static void put_server(struct rcu_head *rcu)
{
	struct server *server = container_of(rcu, struct server, rcu);

	put_task_struct(server->task);
	kfree(server);
}

/* Wakes the agent. Hard interrupt. */
static void wake(struct irq_work *work)
{
	struct served *served = container_of(work, struct served, wake.work);
	struct task_struct *agent = smp_load_acquire(&served->agent);

	if (agent)
		wake_up_process(agent);
}

/* The time that the agent waits for has come. Hard interrupt on its CPU. */
static enum hrtimer_restart expired(struct hrtimer *timer)
{
	struct served *served = container_of(timer, struct served, timer);

	WRITE_ONCE(served->attention, 1);
	if (READ_ONCE(served->is_blocked))
		wake_up_process(smp_load_acquire(&served->agent));
	else
		baton_kick_cpu(smp_processor_id(), true);
	return HRTIMER_NORESTART;
}

void baton_serve_init(struct session *session)
{
	u32 cpu;

	for (cpu = 0; cpu < session->nr_cpus; cpu++) {
		struct served *served = &session->served[cpu];

		served->slot = BATON_NO_SLOT;
		served->lost = BATON_NO_SLOT;
		served->held = BATON_NO_SLOT;
		served->read_at = jiffies;
		served->wake = (struct baton_interrupt)BATON_INTERRUPT_INIT(served->wake, wake);
		hrtimer_setup(&served->timer, expired, CLOCK_MONOTONIC,
			      HRTIMER_MODE_REL_PINNED_HARD);
	}
}

/* Lets the agents go: none waits any more. Any process context. */
void baton_serve_end(struct session *session)
{
	u32 cpu;

	rcu_read_lock();
	for (cpu = 0; cpu < session->nr_cpus; cpu++) {
		struct task_struct *agent = smp_load_acquire(&session->served[cpu].agent);

		if (agent)
			wake_up_process(agent);
	}
	rcu_read_unlock();
}

/* No call and no agent uses the session any more. */
void baton_serve_free(struct session *session)
{
	u32 cpu;

	for (cpu = 0; cpu < session->nr_cpus; cpu++) {
		struct served *served = &session->served[cpu];

		hrtimer_cancel(&served->timer);
		baton_interrupt_sync(&served->wake);
		if (served->agent)
			put_server(&served->server->rcu);
	}
}

static void alert(struct served *served, struct task_struct *agent, u32 cpu, bool preempt)
{
	if (preempt) {
		WRITE_ONCE(served->is_urgent, true);
		WRITE_ONCE(served->asks_for_prev, true);
	}
	if (xchg(&served->attention, 1) && !preempt)
		return;
	if (READ_ONCE(served->is_blocked))
		wake_up_process(agent);
	else
		baton_kick_cpu(cpu, preempt);
}

/*
 * Has a CPU's agent run when the CPU next looks for a task. With `preempt`, at once: the policy has
 * a task for the CPU that may precede the one that runs there. Process context.
 */
void baton_serve_alert(struct served *served, u32 cpu, bool preempt)
{
	struct task_struct *agent;

	rcu_read_lock();
	agent = smp_load_acquire(&served->agent);
	if (agent)
		alert(served, agent, cpu, preempt);
	rcu_read_unlock();
}

/* The CPU can have another agent. Its agent alone calls this. */
static void release(struct served *served)
{
	struct server *server = served->server;

	smp_store_release(&served->agent, NULL);
	call_rcu(&server->rcu, put_server);
}

/* BATON_AGENT_IOC_SERVE */
int baton_serve(struct session *session, const struct baton_agent_serve __user *user)
{
	struct baton_agent_serve arg;
	struct served *served;
	struct server *server;
	int err;

	if (copy_from_user(&arg, user, sizeof(arg)))
		return -EFAULT;
	/* The thread becomes a task of the enclave, on a CPU of the enclave. */
	if (arg.cpu >= session->nr_cpus)
		return -EINVAL;
	if (!READ_ONCE(session->cpus[arg.cpu].online))
		return -ENXIO;
	/* It goes offline, and the enclave hears of that only after a grace period of RCU. */
	if (!cpu_active(arg.cpu))
		return -EAGAIN;
	if (current->nr_cpus_allowed != 1 || !cpumask_test_cpu(arg.cpu, current->cpus_ptr))
		return -EXDEV;
	served = &session->served[arg.cpu];
	/*
	 * No lock that sleeps: a task of the enclave may hold it, and wait for this agent. The first
	 * event of the thread in the enclave finds its CPU by this.
	 */
	server = kmalloc(sizeof(*server), GFP_NOWAIT);
	if (!server)
		return -ENOMEM;
	server->task = get_task_struct(current);
	if (cmpxchg(&served->agent, NULL, current)) {
		put_server(&server->rcu);
		return -EBUSY;
	}
	served->server = server;
	WRITE_ONCE(session->is_per_cpu, true);
	err = baton_join(&session->enclave->ops, current);
	if (err)
		release(served);
	return err;
}

/*
 * The session has ended. Its agents leave the enclave: as tasks of it they could end only when the
 * next agent runs them, and that may be a thread of the same process that waits for them.
 */
void baton_serve_dismiss(struct session *session)
{
	u32 cpu;

	for (cpu = 0; cpu < session->nr_cpus; cpu++) {
		struct served *served = &session->served[cpu];

		if (smp_load_acquire(&served->agent) == current && !served->has_left) {
			served->has_left = true;
			baton_leave(current);
		}
	}
}

/*
 * BATON_AGENT_IOC_LEAVE: this thread is no longer the agent of a CPU. For a CPU that went offline,
 * or that the enclave has lost.
 */
int baton_serve_leave(struct session *session)
{
	u32 cpu;

	for (cpu = 0; cpu < session->nr_cpus; cpu++) {
		struct served *served = &session->served[cpu];

		if (smp_load_acquire(&served->agent) != current)
			continue;
		hrtimer_cancel(&served->timer);
		WRITE_ONCE(served->is_leaving, true);
		/* The call by which it leaves clears its slot: see calls.c. */
		baton_leave(current);
		WRITE_ONCE(served->is_leaving, false);
		release(served);
		return 0;
	}
	return -ESRCH;
}

/*
 * Gives way. Returns when the enclave has picked this thread, or at once if nothing else can run.
 */
static void give_way(struct served *served)
{
	local_irq_disable();
	current->scx.slice = 0;	/* so that it is enqueued, and the enclave has its token */
	set_tsk_need_resched(current);
	set_preempt_need_resched();
	local_irq_enable();
	schedule();
}

/* Sleeps until there is a message. */
static void block(const struct session *session, struct served *served)
{
	set_current_state(TASK_INTERRUPTIBLE);
	WRITE_ONCE(served->is_blocked, true);
	/* A message from here on finds the thread blocked, and one from before is seen below. */
	smp_mb();
	if (!READ_ONCE(served->attention) && !READ_ONCE(session->head->ended) &&
	    !signal_pending(current))
		schedule();
	__set_current_state(TASK_RUNNING);
	WRITE_ONCE(served->is_blocked, false);
}

/* BATON_AGENT_IOC_WAIT, for at most `after` ns if that is not 0. */
int baton_serve_wait(struct session *session, u64 after)
{
	struct served *served = &session->served[raw_smp_processor_id()];

	if (served->agent != current)
		return -EPERM;
	if (after)
		hrtimer_start(&served->timer, ns_to_ktime(min_t(u64, after, KTIME_MAX)),
			      HRTIMER_MODE_REL_PINNED_HARD);
	WRITE_ONCE(served->is_waiting, true);
	/* A message that does not see this has set `attention` before. */
	smp_mb();
	if (!READ_ONCE(served->attention))
		give_way(served);
	while (READ_ONCE(served->is_waiting) && !READ_ONCE(served->attention) &&
	       !READ_ONCE(session->head->ended) && !signal_pending(current))
		block(session, served);
	WRITE_ONCE(served->is_waiting, false);
	xchg(&served->attention, 0);
	if (after)
		hrtimer_cancel(&served->timer);
	if (READ_ONCE(session->head->ended))
		return -ESHUTDOWN;
	return signal_pending(current) ? -EINTR : 0;
}
