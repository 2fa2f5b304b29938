// SPDX-License-Identifier: GPL-2.0-only
/*
 * Refused changes of threads' states (policy/c/events.h): a table of the places in policies where
 * they occur, with how often. Each place gets one line in the kernel's log. A change is refused
 * with a run-queue lock held, so the line is printed a moment later by an irq_work.
 */
#include <linux/export.h>
#include <linux/printk.h>
#include <linux/spinlock.h>
#include <linux/string.h>

#include "core.h"
#include "host.h"
#include "interrupt.h"
#include "place.h"

struct move {
	struct baton_refused_change what;
	bool is_logged;
};

/* Guards the table. Taken in calls of policies, and nothing is taken inside. */
static DEFINE_RAW_SPINLOCK(moves_lock);
static struct move moves[BATON_REFUSED_PLACES];

static void log_moves(struct irq_work *work)
{
	struct baton_refused_change what;
	unsigned long flags;
	bool is_new;
	int i;

	for (i = 0; i < BATON_REFUSED_PLACES; i++) {
		raw_spin_lock_irqsave(&moves_lock, flags);
		what = moves[i].what;
		is_new = what.times && !moves[i].is_logged;
		moves[i].is_logged |= is_new;
		raw_spin_unlock_irqrestore(&moves_lock, flags);
		if (is_new)
			pr_notice("baton: policy %s, %s: thread %u, %s to %s, line %u, refused: "
				  "%s\n", baton_places[what.policy].name, what.handler, what.pid,
				  what.from, what.to, what.line, what.why);
	}
}
static struct baton_interrupt log_interrupt = BATON_INTERRUPT_INIT(log_interrupt, log_moves);

/* In a call of a policy: interrupts are off. */
void baton_host_refused(u32 pid, const char *handler, const char *from, const char *to, u32 line,
			const char *why)
{
	u32 policy = baton_core_current_policy(smp_processor_id());
	struct move *move, *free = NULL, *found = NULL;
	struct baton_refused_change *what;

	raw_spin_lock(&moves_lock);
	for (move = moves; move < moves + BATON_REFUSED_PLACES && !found; move++) {
		what = &move->what;
		if (!what->times)
			free = free ?: move;
		else if (what->policy == policy && what->line == line &&
			 !strcmp(what->handler, handler) && !strcmp(what->why, why))
			found = move;
	}
	/* When the table is full, further places are not counted. */
	if (!found && free) {
		found = free;
		found->is_logged = false;
		what = &found->what;
		what->policy = policy;
		what->line = line;
		what->pid = pid;
		strscpy(what->handler, handler, sizeof(what->handler));
		strscpy(what->from, from, sizeof(what->from));
		strscpy(what->to, to, sizeof(what->to));
		strscpy(what->why, why, sizeof(what->why));
		baton_interrupt(&log_interrupt);
	}
	if (found)
		found->what.times++;
	raw_spin_unlock(&moves_lock);
}
EXPORT_SYMBOL_GPL(baton_host_refused);

/* BATON_IOC_REFUSED_CHANGE. Under the control mutex, so that no policy goes meanwhile. */
int baton_moves_read(struct baton_refused_change *what)
{
	unsigned long flags;
	u32 i;

	if (what->place >= BATON_REFUSED_PLACES)
		return -EINVAL;
	for (i = what->place; i < BATON_REFUSED_PLACES; i++) {
		raw_spin_lock_irqsave(&moves_lock, flags);
		*what = moves[i].what;
		raw_spin_unlock_irqrestore(&moves_lock, flags);
		what->place = i;
		if (what->times)
			return 0;
	}
	memset(what, 0, sizeof(*what));
	return 0;
}

/* Forgets the places of a policy. No call of it is in progress. */
void baton_moves_forget(u32 policy)
{
	unsigned long flags;
	int i;

	raw_spin_lock_irqsave(&moves_lock, flags);
	for (i = 0; i < BATON_REFUSED_PLACES; i++)
		if (moves[i].what.policy == policy)
			moves[i].what.times = 0;
	raw_spin_unlock_irqrestore(&moves_lock, flags);
}

/* Waits for the log. No policy is registered. */
void baton_moves_exit(void)
{
	baton_interrupt_sync(&log_interrupt);
}
