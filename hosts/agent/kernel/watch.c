// SPDX-License-Identifier: GPL-2.0-only
/*
 * The watch over an agent: it ends a session whose agent leaves messages unread for longer than the
 * enclave's limit allows, as one does that is stopped, or in an endless loop. The core watches for
 * tasks that an agent reads of and never picks (hosts/kernel/watch.c).
 *
 * A work item, in process context.
 */
#include <linux/bitops.h>
#include <linux/jiffies.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>

#include "enclave.h"
#include "register.h"

#define MAX_INTERVAL_MS 50

/*
 * Parts of the limit: how long messages may be unread, and when the watch looks again. The rest of
 * the limit is for the tasks that have waited meanwhile: the fallback runs them in turn.
 */
#define PATIENCE(limit) ((limit) / 2)
#define INTERVAL(limit) min((limit) / 8, MAX_INTERVAL_MS)

/* An agent is starved if it was in half of the looks for which a message may be unread. */
#define MAX_LOOKS 32
#define LOOKS(limit) min(PATIENCE(limit) / INTERVAL(limit), MAX_LOOKS)

/* A policy that is being stopped loses its agents, too. The session then ends within this time. */
#define LOOKS_FOR_STOP 3

/*
 * Has the agent left messages of this CPU unread for so long that the limit could pass before the
 * watch looks again? An agent of a CPU need not read messages that were not announced to it.
 */
static bool is_late(struct session *session, u32 cpu)
{
	struct served *served = &session->served[cpu];
	u32 read = READ_ONCE(session->transactions[cpu].read), limit = session->enclave->limit;
	bool has_work = read != READ_ONCE(served->posted);

	if (READ_ONCE(session->is_per_cpu))
		has_work = has_work && READ_ONCE(served->agent) && READ_ONCE(served->attention);

	/* Not since the watch last looked: the message may be new, and that look long ago. */
	if (read != served->read || !has_work || !served->had_work) {
		served->read = read;
		served->read_at = jiffies;
		served->had_work = has_work;
		return false;
	}
	/* The message is older than the look that found it, by an interval at most. */
	return time_after(jiffies, served->read_at + msecs_to_jiffies(PATIENCE(limit) -
								      INTERVAL(limit)));
}

/*
 * An agent in custody is runnable and does not run, so that nobody tells the enclave of a signal
 * for it.
 */
static void look_for_signal(struct session *session, u32 cpu)
{
	struct served *served = &session->served[cpu];
	struct task_struct *agent;

	rcu_read_lock();
	agent = smp_load_acquire(&served->agent);
	if (agent && READ_ONCE(served->is_waiting) && signal_pending(agent)) {
		WRITE_ONCE(served->attention, 1);
		baton_kick_cpu(cpu, true);
	}
	rcu_read_unlock();
}

/*
 * Has the agent of this CPU been runnable since the last look, and has not run? If it is due, the
 * enclave's tasks do not precede it: a higher class has its CPU.
 */
static bool is_starved(struct session *session, u32 cpu)
{
	struct served *served = &session->served[cpu];
	struct task_struct *agent;
	bool is_starved = false;
	unsigned long switches;

	rcu_read_lock();
	agent = smp_load_acquire(&served->agent);
	if (agent) {
		switches = READ_ONCE(agent->nvcsw) + READ_ONCE(agent->nivcsw);
		is_starved = switches == served->switches && task_is_running(agent) &&
			     !READ_ONCE(agent->on_cpu) &&
			     (READ_ONCE(served->attention) || !READ_ONCE(served->is_waiting));
		served->switches = switches;
	}
	rcu_read_unlock();
	return is_starved;
}

/* The fault of an agent that is late. It may also wait for a lock of an agent that is starved. */
static enum baton_fault_kind late_kind(const struct session *session)
{
	u32 looks = LOOKS(session->enclave->limit);
	u32 starved = hweight32(session->starved & GENMASK(looks - 1, 0));

	return 2 * starved >= looks ? BATON_FAULT_KIND_AGENT_STARVED : BATON_FAULT_KIND_AGENT_GONE;
}

void baton_watch_session(struct work_struct *work)
{
	struct session *session = container_of(to_delayed_work(work), struct session, watch);
	const char *failure = READ_ONCE(session->failure);
	enum baton_fault_kind kind = BATON_FAULT_KIND_AGENT_GONE;
	bool late = false, starved = false;
	u32 cpu;

	if (failure && session->looks++ < LOOKS_FOR_STOP)
		failure = NULL;
	for (cpu = 0; cpu < session->nr_cpus; cpu++) {
		look_for_signal(session, cpu);
		/* So that it runs, should the kick have been too early. */
		if (READ_ONCE(session->has_lost) && READ_ONCE(session->cpus[cpu].online))
			baton_kick_cpu(cpu, false);
		starved |= is_starved(session, cpu);
		late |= is_late(session, cpu);
	}
	session->starved = session->starved << 1 | starved;
	if (late) {
		kind = late_kind(session);
		failure = kind == BATON_FAULT_KIND_AGENT_STARVED ?
				  "tasks of a higher class kept the agent from its CPU" :
				  "the agent left messages unread for half of the limit";
	}
	if (failure)
		baton_session_gone(session, kind, failure);
	if (!READ_ONCE(session->head->ended))
		schedule_delayed_work(&session->watch,
				      msecs_to_jiffies(INTERVAL(session->enclave->limit)));
}
