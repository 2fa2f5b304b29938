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

/* How many looks the watch remembers. */
#define MAX_LOOKS 32

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
		served->looks = 0;
		return false;
	}
	served->looks++;
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
 * Notes whether the agent of this CPU was runnable since the last look, and did not run. If it is
 * due, the enclave's tasks do not precede it: other tasks have its CPU.
 */
static void look_at_agent(struct session *session, u32 cpu)
{
	struct served *served = &session->served[cpu];
	struct task_struct *agent;
	bool is_starved = false;
	unsigned long switches;

	served->is_asleep = false;
	rcu_read_lock();
	agent = smp_load_acquire(&served->agent);
	if (agent) {
		switches = READ_ONCE(agent->nvcsw) + READ_ONCE(agent->nivcsw);
		served->is_asleep = !task_is_running(agent);
		is_starved = switches == served->switches && !served->is_asleep &&
			     !READ_ONCE(agent->on_cpu) &&
			     (READ_ONCE(served->attention) || !READ_ONCE(served->is_waiting));
		served->switches = switches;
	}
	rcu_read_unlock();
	served->starved = served->starved << 1 | is_starved;
}

/*
 * Is other tasks' use of the CPUs why the agent of this CPU is late? Either it was starved itself in
 * half of the looks since it last read messages, or it sleeps, and an agent was that may hold the
 * lock for which it waits.
 */
static bool is_starved(const struct session *session, u32 cpu)
{
	const struct served *served = &session->served[cpu];
	u32 looks = clamp_t(u32, served->looks, 1, MAX_LOOKS);
	u32 last = GENMASK(looks - 1, 0);
	u32 other;

	if (2 * hweight32(served->starved & last) >= looks)
		return true;
	for (other = 0; served->is_asleep && other < session->nr_cpus; other++)
		if (2 * hweight32(session->served[other].starved & last) >= looks)
			return true;
	return false;
}

void baton_watch_session(struct work_struct *work)
{
	struct session *session = container_of(to_delayed_work(work), struct session, watch);
	const char *failure = READ_ONCE(session->failure);
	enum baton_fault_kind kind = BATON_FAULT_KIND_AGENT_GONE;
	u32 cpu;

	if (failure && session->looks++ < LOOKS_FOR_STOP)
		failure = NULL;
	for (cpu = 0; cpu < session->nr_cpus; cpu++) {
		look_for_signal(session, cpu);
		/* So that it runs, should the kick have been too early. */
		if (READ_ONCE(session->has_lost) && READ_ONCE(session->cpus[cpu].online))
			baton_kick_cpu(cpu, false);
		look_at_agent(session, cpu);
	}
	for (cpu = 0; cpu < session->nr_cpus; cpu++) {
		if (!is_late(session, cpu))
			continue;
		if (is_starved(session, cpu) && !failure) {
			failure = "other tasks kept an agent from its CPU";
			kind = BATON_FAULT_KIND_AGENT_STARVED;
		} else if (!is_starved(session, cpu)) {
			failure = "the agent left messages unread for half of the limit";
			kind = BATON_FAULT_KIND_AGENT_GONE;
		}
	}
	if (failure)
		baton_session_gone(session, kind, failure);
	if (!READ_ONCE(session->head->ended))
		schedule_delayed_work(&session->watch,
				      msecs_to_jiffies(INTERVAL(session->enclave->limit)));
}
