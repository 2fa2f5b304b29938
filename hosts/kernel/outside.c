// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a module needs that makes policies while it is loaded: hosts/agent/kernel makes one for each
 * enclave. register.h describes the functions.
 *
 * Process context. baton_start and baton_stop take baton_control_mutex.
 */
#include <linux/bitmap.h>
#include <linux/cpumask.h>
#include <linux/export.h>
#include <linux/irqflags.h>
#include <linux/rcupdate.h>
#include <linux/smp.h>
#include <linux/string.h>

#include "core.h"
#include "place.h"
#include "register.h"

/*
 * The place of a policy that its module has registered, and in *version what it has registered.
 * NULL if there is none. Under the control mutex, or with interrupts off: that is a read-side
 * section, so the version is not freed, and the policy is not stopped and started again, which
 * waits for a grace period.
 */
static struct baton_place *place_of(const struct baton_policy *ops,
				    const struct baton_version **version)
{
	struct baton_place *place = baton_find(ops->name);

	*version = place ? READ_ONCE(place->active) : NULL;
	return *version && (*version)->registered == ops ? place : NULL;
}

int baton_start(const struct baton_policy *ops, u32 events, const char *options, char *message)
{
	const struct baton_version *version;
	struct baton_start start = {};
	struct baton_place *place;
	int result = -ENOENT;

	strscpy(start.name, ops->name, sizeof(start.name));
	strscpy(start.options, options, sizeof(start.options));
	mutex_lock(&baton_control_mutex);
	place = place_of(ops, &version);
	if (place) {
		if (baton_place_state(place) == BATON_POLICY_STATE_FAULTED)
			baton_place_stop(place, NULL);
		place->active->ops.hint = ops->hint;
		place->active->ops.hint_type = ops->hint_type;
		place->active->ops.reply_type = ops->reply_type;
		events &= BATON_EV_ALL;
		baton_core_set_events(baton_place_index(place),
				      events | (baton_events_of(place->active) & ~BATON_EV_ALL));
		result = baton_place_start(&start) ?: (int)baton_place_index(place);
	}
	mutex_unlock(&baton_control_mutex);
	strscpy(message, start.message, BATON_MESSAGE_LEN);
	return result;
}
EXPORT_SYMBOL_GPL(baton_start);

void baton_stop(const struct baton_policy *ops)
{
	const struct baton_version *version;
	struct baton_place *place;

	mutex_lock(&baton_control_mutex);
	place = place_of(ops, &version);
	if (place)
		baton_place_stop(place, NULL);
	mutex_unlock(&baton_control_mutex);
}
EXPORT_SYMBOL_GPL(baton_stop);

/*
 * Takes no lock, so that a task of the policy that holds one, and that its agent does not run, does
 * not keep the policy from being stopped.
 */
void baton_fail(const struct baton_policy *ops, const void *this,
		const struct baton_agent_fail *report)
{
	const struct baton_version *version;
	struct baton_last_words *words;
	struct baton_place *place;
	unsigned long flags;

	local_irq_save(flags);
	place = place_of(ops, &version);
	if (place && version->this == this) {
		words = baton_last_words();
		words->line = report->line;
		strscpy(words->file, report->file, sizeof(words->file));
		strscpy(words->message, report->message, sizeof(words->message));
		baton_core_fault(baton_place_index(place), report->kind, report->method,
				 report->pid, baton_coarse_now());
	}
	local_irq_restore(flags);
	/* Calls run with interrupts off, too. */
	synchronize_rcu();
}
EXPORT_SYMBOL_GPL(baton_fail);

/*
 * Takes no lock, as a task of the policy that holds one may wait for this very agent. The caller
 * keeps the policy's module loaded, and a place stays with the name of its policy.
 */
int baton_join(const struct baton_policy *ops, struct task_struct *task)
{
	const struct baton_version *version;
	struct baton_place *place;
	bool is_assigned = false;
	unsigned long flags;

	local_irq_save(flags);
	place = place_of(ops, &version);
	if (place)
		is_assigned = baton_core_assign(task->pid, baton_place_index(place));
	local_irq_restore(flags);
	return is_assigned ? baton_set_class(task, true) : -ESRCH;
}
EXPORT_SYMBOL_GPL(baton_join);

/* Takes no lock, as baton_join. */
void baton_leave(struct task_struct *task)
{
	unsigned long flags;

	local_irq_save(flags);
	baton_core_assign(task->pid, -1);
	local_irq_restore(flags);
	/* Fails for a real-time task, which is not in class SCHED_EXT. */
	baton_set_class(task, false);
}
EXPORT_SYMBOL_GPL(baton_leave);

/* In a call of a policy. */
void baton_keep_in_custody(u32 slot)
{
	baton_core_set_in_custody(slot);
}
EXPORT_SYMBOL_GPL(baton_keep_in_custody);

/* In a call of a policy. */
void baton_copy_mask(u32 slot, u64 *mask, u32 words)
{
	const struct task_struct *task = baton_core_task_of_slot(slot);

	memset(mask, 0, words * sizeof(*mask));
	if (task)
		bitmap_to_arr64(mask, cpumask_bits(task->cpus_ptr),
				min(words * 64, nr_cpu_ids));
}
EXPORT_SYMBOL_GPL(baton_copy_mask);
