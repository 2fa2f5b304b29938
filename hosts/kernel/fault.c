// SPDX-License-Identifier: GPL-2.0-only
/*
 * The report of a fault. It is made once, by the CPU that stops the policy, often with a run-queue
 * lock held. So nothing is printed here directly. An irq_work prints the one line in the kernel's
 * log a moment later.
 */
#include <linux/rcupdate.h>
#include <linux/pid.h>
#include <linux/string.h>

#include "core.h"
#include "interrupt.h"
#include "place.h"

static atomic64_t serial;

/* In the order of `enum baton_fault_kind` and `enum baton_method`. */
static const char *const kinds[] = BATON_FAULT_NAMES;
static const char *const methods[] = BATON_METHOD_NAMES;

static const char *name(const char *const *names, size_t count, u32 number)
{
	return number < count ? names[number] : "?";
}

/* Converts a coarse time (core.h) to ns since the boot. */
static u64 since_boot(u64 coarse)
{
	return coarse - (u64)INITIAL_JIFFIES * TICK_NSEC;
}

/*
 * log_lock serialises the log, as two CPUs can run this interrupt at once. `logged` is the newest
 * serial in the log.
 */
static DEFINE_RAW_SPINLOCK(log_lock);
static u64 logged;

static void log_faults(struct irq_work *work)
{
	u64 newest;
	int i;

	raw_spin_lock(&log_lock);
	newest = logged;
	for (i = 0; i < BATON_MAX_POLICIES; i++) {
		const struct baton_fault *fault = &baton_places[i].fault;

		if (fault->kind == 0 || fault->serial <= logged)
			continue;
		newest = max(newest, fault->serial);
		pr_notice("baton: policy %s stopped: %s in %s, pid %u, cpu %u: %s",
			  fault->policy, name(kinds, ARRAY_SIZE(kinds), fault->kind),
			  name(methods, ARRAY_SIZE(methods), fault->method), fault->pid, fault->cpu,
			  fault->message);
		if (fault->file[0])
			pr_cont(" %s:%u", fault->file, fault->line);
		pr_cont("\n");
	}
	logged = newest;
	raw_spin_unlock(&log_lock);
	baton_upgrade_fault();
}
static struct baton_interrupt log_interrupt = BATON_INTERRUPT_INIT(log_interrupt, log_faults);

void baton_khost_report(u32 policy, enum baton_fault_kind kind, enum baton_method method, u32 pid,
			u64 now, const void *cpu);
void baton_khost_report(u32 policy, enum baton_fault_kind kind, enum baton_method method, u32 pid,
			u64 now, const void *cpu)
{
	struct baton_last_words *words = baton_last_words();
	struct baton_fault *fault = &baton_places[policy].fault;
	struct task_struct *task;
	u32 i;

	memset(fault, 0, sizeof(*fault));
	fault->index = policy;
	fault->method = method;
	fault->cpu = raw_smp_processor_id();
	fault->pid = pid;
	fault->now = now ? since_boot(now) : 0;
	fault->serial = atomic64_inc_return(&serial);
	strscpy(fault->policy, baton_places[policy].name, sizeof(fault->policy));
	if (pid) {
		rcu_read_lock();
		task = pid_task(find_pid_ns(pid, &init_pid_ns), PIDTYPE_PID);
		if (task)
			strscpy(fault->comm, task->comm, sizeof(fault->comm));
		rcu_read_unlock();
	}
	if (kind == BATON_FAULT_KIND_PANIC || kind == BATON_FAULT_KIND_OUT_OF_MEMORY ||
	    kind == BATON_FAULT_KIND_DEADLOCK || kind == BATON_FAULT_KIND_LOCK_TIMEOUT ||
	    kind == BATON_FAULT_KIND_STACK_OVERFLOW || kind == BATON_FAULT_KIND_AGENT_GONE ||
	    kind == BATON_FAULT_KIND_AGENT_STARVED || kind == BATON_FAULT_KIND_ENDLESS_LOOP) {
		strscpy(fault->file, words->file, sizeof(fault->file));
		strscpy(fault->message, words->message, sizeof(fault->message));
		fault->line = words->line;
		fault->ip = words->ip;
	} else if (kind == BATON_FAULT_KIND_LOST_TASK && method == BATON_METHOD_NONE) {
		strscpy(fault->message,
			"the task is queued, and the policy has its Schedulable no more: it was forgotten",
			sizeof(fault->message));
	} else if (kind == BATON_FAULT_KIND_LOST_TASK) {
		strscpy(fault->message,
			"a Schedulable was dropped: its task would never have run again",
			sizeof(fault->message));
	} else if (kind == BATON_FAULT_KIND_STALL) {
		strscpy(fault->message,
			"the task was queued and not picked for longer than the stall limit",
			sizeof(fault->message));
	} else if (kind == BATON_FAULT_KIND_REFUSAL_LOOP) {
		strscpy(fault->message, "64 answers in a row were refused", sizeof(fault->message));
	}
	for (i = 0; cpu && i < ARRAY_SIZE(fault->events); i++) {
		baton_core_event(cpu, ARRAY_SIZE(fault->events) - 1 - i,
				 &fault->events[fault->nr_events]);
		if (fault->events[fault->nr_events].now) {
			fault->events[fault->nr_events].now =
				since_boot(fault->events[fault->nr_events].now);
			fault->nr_events++;
		}
	}
	smp_store_release(&fault->kind, kind);
	baton_interrupt(&log_interrupt);
}

void baton_fault_clear(struct baton_place *place)
{
	memset(&place->fault, 0, sizeof(place->fault));
}

/* Waits for the log line. Process context; no further fault is possible. */
void baton_fault_exit(void)
{
	baton_interrupt_sync(&log_interrupt);
}
