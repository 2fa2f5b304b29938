// SPDX-License-Identifier: GPL-2.0-only
/*
 * The time in which the machine is stopped. Every CPU is in the stopper's thread, with interrupts
 * off, so no task runs. The CPUs divide the tasks among them and check their stacks. If all are
 * clear, one CPU changes the code, and the others wait until it has. Then every CPU serialises its
 * execution, before it leaves the window.
 */
#include <linux/cpu.h>
#include <linux/delay.h>
#include <linux/jump_label.h>
#include <linux/memory.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/stop_machine.h>
#include <linux/timekeeping.h>
#include <asm/sync_core.h>

#include "engine.h"

/* How often, and after which time in ms, it is tried again when a task is in the way. */
#define ATTEMPTS 200
#define PAUSE 5

enum phase {
	ENTER,
	CHECK,
	STORE,
	NR_PHASES,
};

struct attempt {
	bool install;
	struct task_struct *caller;
	struct baton_live_report *report;
	unsigned int cpus;
	atomic_t next_cpu;
	atomic_t arrived[NR_PHASES];
	u64 begun[NR_PHASES + 1];
	struct task_struct *busy;
	int err;
};

/* Waits until all CPUs have ended the phase. */
static void meet(struct attempt *attempt, enum phase phase)
{
	atomic_inc(&attempt->arrived[phase]);
	while (atomic_read(&attempt->arrived[phase]) < attempt->cpus)
		cpu_relax();
}

static void check(struct attempt *attempt, struct task_struct *task)
{
	unsigned long ip;

	/*
	 * A task that is on a CPU is that CPU's stopper. The one that waits for this window is in
	 * code of ours that stays.
	 */
	if (task->on_cpu || task == attempt->caller)
		return;
	if (baton_live_task_is_clear(task, attempt->install, &ip))
		return;
	WRITE_ONCE(attempt->err, -EAGAIN);
	if (cmpxchg(&attempt->busy, NULL, task))
		return;
	attempt->report->pid = task->pid;
	attempt->report->ip = ip;
	strscpy(attempt->report->comm, task->comm);
}

static int stopped(void *data)
{
	struct attempt *attempt = data;
	unsigned int me = atomic_inc_return(&attempt->next_cpu) - 1, i = 0;
	struct task_struct *process, *task;

	meet(attempt, ENTER);
	if (!me)
		attempt->begun[CHECK] = ktime_get_mono_fast_ns();
	for_each_process_thread(process, task)
		if (i++ % attempt->cpus == me)
			check(attempt, task);
	check(attempt, idle_task(smp_processor_id()));
	meet(attempt, CHECK);
	if (!me) {
		attempt->report->tasks = i;
		attempt->begun[STORE] = ktime_get_mono_fast_ns();
		if (!READ_ONCE(attempt->err))
			attempt->err = baton_live_store(attempt->install);
	}
	meet(attempt, STORE);
	sync_core();
	if (!me)
		attempt->begun[NR_PHASES] = ktime_get_mono_fast_ns();
	return READ_ONCE(attempt->err);
}

static int attempt_once(bool install, struct baton_live_report *report)
{
	struct attempt attempt = {
		.install = install,
		.caller = current,
		.report = report,
	};
	int err;

	cpus_read_lock();
	jump_label_lock();
	mutex_lock(&text_mutex);
	attempt.cpus = num_online_cpus();
	err = stop_machine_cpuslocked(stopped, &attempt, cpu_online_mask);
	mutex_unlock(&text_mutex);
	if (!err && !install)
		baton_live_sync_labels();
	jump_label_unlock();
	cpus_read_unlock();
	report->cpus = attempt.cpus;
	report->check = attempt.begun[STORE] - attempt.begun[CHECK];
	report->stores = attempt.begun[NR_PHASES] - attempt.begun[STORE];
	report->total = attempt.begun[NR_PHASES] - attempt.begun[CHECK];
	return err;
}

int baton_live_switch(bool install, struct baton_live_report *report)
{
	int err = -EAGAIN;

	*report = (struct baton_live_report){};
	while (err == -EAGAIN && report->attempts < ATTEMPTS) {
		if (report->attempts++)
			msleep(PAUSE);
		err = attempt_once(install, report);
	}
	return err == -EAGAIN ? -EBUSY : err;
}
