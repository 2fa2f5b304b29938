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
	u64 times;
	u32 policy;		/* its index */
	u32 line;		/* 0 if none is known */
	u32 pid;		/* of the first thread */
	bool is_logged;
	char handler[20], from[12], to[12], why[80];
};

#define MOST_PLACES 256

/* Guards the table. Taken in calls of policies, and nothing is taken inside. */
static DEFINE_RAW_SPINLOCK(moves_lock);
static struct move moves[MOST_PLACES];

static void log_moves(struct irq_work *work)
{
	struct move copy;
	unsigned long flags;
	bool is_new;
	int i;

	for (i = 0; i < MOST_PLACES; i++) {
		raw_spin_lock_irqsave(&moves_lock, flags);
		copy = moves[i];
		is_new = copy.times && !copy.is_logged;
		moves[i].is_logged |= is_new;
		raw_spin_unlock_irqrestore(&moves_lock, flags);
		if (is_new)
			pr_notice("baton: policy %s, %s: thread %u, %s to %s, line %u, refused: "
				  "%s\n", baton_places[copy.policy].name, copy.handler, copy.pid,
				  copy.from, copy.to, copy.line, copy.why);
	}
}
static struct baton_interrupt log_interrupt = BATON_INTERRUPT_INIT(log_interrupt, log_moves);

/* In a call of a policy: interrupts are off. */
void baton_host_refused(u32 pid, const char *handler, const char *from, const char *to, u32 line,
			const char *why)
{
	u32 policy = baton_core_current_policy(smp_processor_id());
	struct move *move, *place = NULL;

	raw_spin_lock(&moves_lock);
	for (move = moves; move < moves + MOST_PLACES; move++) {
		if (!move->times) {
			place = place ?: move;
		} else if (move->policy == policy && move->line == line &&
			   !strcmp(move->handler, handler) && !strcmp(move->why, why)) {
			place = move;
			break;
		}
	}
	/* When the table is full, further places are not counted. */
	if (place && !place->times) {
		place->policy = policy;
		place->line = line;
		place->pid = pid;
		place->is_logged = false;
		strscpy(place->handler, handler, sizeof(place->handler));
		strscpy(place->from, from, sizeof(place->from));
		strscpy(place->to, to, sizeof(place->to));
		strscpy(place->why, why, sizeof(place->why));
		baton_interrupt(&log_interrupt);
	}
	if (place)
		place->times++;
	raw_spin_unlock(&moves_lock);
}
EXPORT_SYMBOL_GPL(baton_host_refused);

/* Forgets the places of a policy. No call of it is in progress. */
void baton_moves_forget(u32 policy)
{
	unsigned long flags;
	int i;

	raw_spin_lock_irqsave(&moves_lock, flags);
	for (i = 0; i < MOST_PLACES; i++)
		if (moves[i].policy == policy)
			moves[i].times = 0;
	raw_spin_unlock_irqrestore(&moves_lock, flags);
}

/* Waits for the log. No policy is registered. */
void baton_moves_exit(void)
{
	baton_interrupt_sync(&log_interrupt);
}
