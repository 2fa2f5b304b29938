// SPDX-License-Identifier: GPL-2.0-only
/*
 * Changes of version: an upgrade, or a rollback to the version before. Also the switch of all tasks
 * from one policy to another.
 *
 * The running version hands its state on (reregister_prepare), and both versions share it. The new
 * version is made from that state (reregister_init) while the old one runs. Then one pointer is
 * swapped, and no CPU waits. Only a state of another type is converted (reregister_convert). The
 * part of such a state that changes with every call is taken over while all CPUs are held
 * (reregister_take). A failure before the swap does not affect the running version.
 *
 * Memory that a version allocated before it panicked stays allocated until the policy is unloaded.
 * That version had the state of the running version, which might contain pointers to such memory.
 *
 * Process context, under the control mutex, unless noted.
 */
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/sched/clock.h>
#include <linux/workqueue.h>

#include "core.h"
#include "place.h"

/* bytes of memory that an upgrade may use beyond twice what the policy has */
#define TRANSFER_LIMIT (32ULL << 20)

static bool same_type(const struct baton_state_type *a, const struct baton_state_type *b)
{
	return a->name[0] && a->version == b->version && a->layout == b->layout &&
	       !strncmp(a->name, b->name, BATON_NAME_LEN);
}

static int refuse(struct baton_upgrade *arg, int err, const char *why)
{
	strscpy(arg->message, why, sizeof(arg->message));
	return err;
}

/* A call failed: appends the version's own reason, if it gave one. */
static int failed(struct baton_upgrade *arg, u64 result, const char *what)
{
	char why[BATON_MESSAGE_LEN];

	if (result == BATON_ABORTED)
		baton_describe_panic(why, sizeof(why));
	else
		strscpy(why, arg->message, sizeof(why));
	scnprintf(arg->message, sizeof(arg->message), "%s: %s", what,
		  why[0] ? why : "it does not say why");
	return result == BATON_ABORTED ? -EFAULT : -EINVAL;
}

static bool is_failure(u64 made)
{
	return !made || made == BATON_ABORTED;
}

struct hold {
	struct baton_place *place;
	struct baton_version *to;
	const void *older;	/* NULL: `to` takes nothing over and knows no task */
	u64 result;
	u64 in_callback, in_policy;	/* ns */
	/* called before the tasks are handed to `to`; may be NULL */
	void (*begin)(struct baton_place *place, void *data);
	void *data;
};

/* All other CPUs are held, and interrupts are off. */
static void change_while_held(void *data)
{
	struct hold *hold = data;
	struct baton_frame *frame = this_cpu_ptr(&baton_frame);
	u64 begin = local_clock();

	if (hold->older) {
		struct baton_older older = { .state = hold->older,
					     .nr_slots = baton_core_used_slots() };

		hold->result = baton_make(hold->place, hold->to->ops.reregister_take,
					  hold->to->this, &older);
		hold->in_policy = local_clock() - begin;
	}
	if (!hold->result) {
		baton_hints_replace(hold->place, hold->to);
		baton_core_swap(baton_place_index(hold->place), hold->to,
				baton_events_of(hold->to));
	}
	if (hold->begin)
		hold->begin(hold->place, hold->data);
	/* Either the version took nothing over, or its queues were only partly taken over. */
	if (hold->result || !hold->older)
		baton_core_hand_anew(baton_place_index(hold->place), !hold->older,
				     baton_coarse_now(), frame, frame->cpu);
	hold->in_callback = local_clock() - begin;
}

static int hold_and_change(struct baton_place *place, struct baton_version *to, const void *older,
			   struct baton_upgrade *arg)
{
	struct hold hold = { .place = place, .to = to, .older = older };

	baton_record_end(place, BATON_RECORD_END_REPLACED);
	mutex_lock(&baton_hints_mutex);
	arg->change.held = baton_hold_all(change_while_held, &hold);
	mutex_unlock(&baton_hints_mutex);
	arg->change.policy = hold.in_policy;
	arg->change.core = hold.in_callback - hold.in_policy;
	if (hold.result)
		return failed(arg, hold.result, "the new version could not take the state over");
	return 0;
}

/*
 * Upgrade with a state of the same type: the new version is made from it and replaces the old one.
 * No CPU is held.
 */
static int change_same(struct baton_place *place, struct baton_version *to,
		       struct baton_creation *creation, void *state, struct baton_upgrade *arg)
{
	u64 made = baton_make(place, to->ops.reregister_init, &creation->env, state);

	if (is_failure(made))
		return failed(arg, made, "the new version could not be made of the state");
	to->this = (void *)made;
	/* A recording covers one version. */
	baton_record_end(place, BATON_RECORD_END_REPLACED);
	mutex_lock(&baton_hints_mutex);
	/* An event that is reading a ring still delivers its hints to the old version. */
	if (baton_hints_replace(place, to))
		synchronize_rcu();
	baton_core_swap(baton_place_index(place), to, baton_events_of(to));
	mutex_unlock(&baton_hints_mutex);
	return 0;
}

static int change_converted(struct baton_place *place, struct baton_version *to,
			    struct baton_creation *creation, void *older, struct baton_upgrade *arg)
{
	u64 state, made;
	int err;

	state = baton_make(place, to->ops.reregister_convert, &creation->env, older);
	if (is_failure(state))
		return failed(arg, state, "the new version could not convert the state");
	made = baton_make(place, to->ops.reregister_init, &creation->env, (void *)state);
	if (is_failure(made))
		return failed(arg, made,
			      "the new version could not be made of the converted state");
	to->this = (void *)made;
	err = hold_and_change(place, to, older, arg);
	if (err)
		baton_unmake(place, to, NULL);
	return err;
}

/* The version begins with an empty state of its own, and all tasks of the policy are new to it. */
static int change_anew(struct baton_place *place, struct baton_version *to,
		       struct baton_creation *creation, struct baton_upgrade *arg)
{
	u64 made = baton_make(place, to->ops.create, &creation->env, NULL);

	if (is_failure(made))
		return failed(arg, made, "the version before could not be made");
	to->this = (void *)made;
	arg->change.anew = 1;
	return hold_and_change(place, to, NULL, arg);
}

static int change(struct baton_place *place, struct baton_version *to, struct baton_creation *creation,
		  struct baton_upgrade *arg)
{
	const struct baton_version *from = place->active;
	bool same = same_type(&from->ops.state, &to->ops.state);
	u64 state;
	int err;

	if (!same && !same_type(&from->ops.state, &to->ops.older)) {
		if (arg->rollback)
			return change_anew(place, to, creation, arg);
		return refuse(arg, -EPROTOTYPE,
			      from->ops.state.name[0] ? "the states are of different types"
						      : "the running version hands no state on");
	}
	state = baton_make(place, from->ops.reregister_prepare, from->this, NULL);
	if (is_failure(state)) {
		if (arg->rollback)
			return change_anew(place, to, creation, arg);
		return failed(arg, state, "the running version could not hand its state on");
	}
	if (same)
		return change_same(place, to, creation, (void *)state, arg);
	err = change_converted(place, to, creation, (void *)state, arg);
	baton_make(place, from->ops.reregister_drop, (void *)state, NULL);
	return err;
}

/*
 * Replaces the running version by a new instance of it without its state: all tasks of the policy
 * are new to that instance. `held` is called while all CPUs are held, before the instance gets its
 * first task. `cpus`, with room for all CPUs, is filled with the description of the CPUs that the
 * instance got.
 */
int baton_renew(struct baton_place *place, struct baton_cpu *cpus,
		void (*held)(struct baton_place *, void *), void *data, char *message)
{
	struct baton_version *from = place->active;
	struct baton_version *to = kmemdup(from, sizeof(*from), GFP_KERNEL);
	struct hold hold = { .place = place, .to = to, .begin = held, .data = data };
	struct baton_creation creation;
	u64 made;
	int err;

	if (!to)
		return -ENOMEM;
	err = baton_begin_create(place, &creation, place->options, message);
	if (err)
		goto free;
	made = baton_make(place, to->ops.create, &creation.env, NULL);
	memcpy(cpus, creation.cpus, array_size(nr_cpu_ids, sizeof(*cpus)));
	baton_end_create(&creation);
	if (is_failure(made)) {
		if (made)
			baton_describe_panic(message, BATON_MESSAGE_LEN);
		err = made ? -EFAULT : -EINVAL;
		goto free;
	}
	to->this = (void *)made;
	mutex_lock(&baton_hints_mutex);
	baton_hold_all(change_while_held, &hold);
	mutex_unlock(&baton_hints_mutex);
	/* Calls that began before run with interrupts off, which is a read-side section. */
	synchronize_rcu();
	baton_unmake(place, from, NULL);
	place->active = to;
	to = from;
free:
	kfree(to);
	return err;
}

static void remember(struct baton_place *place, const struct baton_change *change)
{
	place->history[place->changes++ % BATON_CHANGES_KEPT] = *change;
}

int baton_upgrade(struct baton_place *place, struct baton_upgrade *arg)
{
	struct baton_version *to = arg->rollback ? place->before : place->next;
	struct baton_version *from = place->active;
	char options[BATON_OPTIONS_LEN];
	struct baton_creation creation;
	u64 memory = place->memory;
	int err;

	arg->message[0] = 0;
	if (baton_place_state(place) != BATON_POLICY_STATE_RUNNING)
		return refuse(arg, -ENODEV, "the policy is not running");
	if (!to)
		return refuse(arg, -ENOENT,
			      arg->rollback ? "no version before is kept"
					    : "no other version is loaded");
	arg->running = from->ops.state;
	arg->state = to->ops.state;
	arg->older = to->ops.older;
	arg->change = (struct baton_change){
		.kind = arg->rollback ? BATON_CHANGE_KIND_ROLLBACK : BATON_CHANGE_KIND_UPGRADE,
		.from_version = from->ops.version,
		.to_version = to->ops.version,
	};
	/* The module of a rollback is referenced already. */
	if (!arg->rollback && !try_module_get(to->module))
		return refuse(arg, -ENOENT, "the other version is being unloaded");
	if (arg->rollback)
		memcpy(options, place->options_before, sizeof(options));
	else
		strscpy(options, arg->options, sizeof(options));
	err = baton_begin_create(place, &creation, options, arg->message);
	if (!err) {
		place->memory_limit = min(place->memory_limit, 2 * place->memory + TRANSFER_LIMIT);
		err = change(place, to, &creation, arg);
		place->memory_limit = BATON_MEMORY_LIMIT;
		baton_end_create(&creation);
	}
	if (err) {
		if (!arg->rollback)
			module_put(to->module);
		return err;
	}
	arg->change.memory = place->memory > memory ? place->memory - memory : 0;
	/*
	 * Calls of the old version that began before the swap run with interrupts off, which is a
	 * read-side section.
	 */
	synchronize_rcu();
	baton_unmake(place, from, NULL);
	from->this = NULL;
	arg->change.now = ktime_get_boottime_ns();
	if (arg->rollback) {
		module_put(from->module);
		place->before = NULL;
		/* The version may be used again, as one that is loaded for the next upgrade. */
		if (place->next)
			baton_forget_version(&from);
		else
			place->next = from;
	} else {
		if (place->before) {
			module_put(place->before->module);
			baton_forget_version(&place->before);
		}
		place->before = from;
		place->next = NULL;
		memcpy(place->options_before, place->options, sizeof(place->options));
	}
	place->active = to;
	memcpy(place->options, options, sizeof(place->options));
	place->on_probation = !arg->rollback && arg->probation;
	place->probation_end = jiffies + msecs_to_jiffies(arg->probation);
	remember(place, &arg->change);
	return 0;
}

struct handover {
	u32 from, to;
};

/* All other CPUs are held, and interrupts are off. */
static void hand_over_while_held(void *data)
{
	struct handover *handover = data;
	struct baton_frame *frame = this_cpu_ptr(&baton_frame);

	baton_partition_switch(&baton_places[handover->from], &baton_places[handover->to], true);
	baton_core_hand_over(handover->from, handover->to, baton_coarse_now(), frame, frame->cpu);
	baton_partition_switch(&baton_places[handover->from], &baton_places[handover->to], false);
}

/*
 * Gives all tasks of one policy to another. Both are running. Returns how long CPUs were held, ns.
 */
u64 baton_switch(struct baton_place *from, struct baton_place *to)
{
	struct handover handover = { .from = baton_place_index(from), .to = baton_place_index(to) };

	return baton_hold_all(hand_over_while_held, &handover);
}

/*
 * A version on probation had a fault. As a call was cut short, its state cannot be trusted. So the
 * version before begins anew under the same id, and its tasks return from the fallback one by one.
 */
static void bring_back(struct baton_place *place)
{
	struct baton_version *from = place->active, *to = place->before;
	bool was_default = baton_core_is_default(baton_place_index(place));
	struct baton_change change = {
		.kind = BATON_CHANGE_KIND_FAULT_ROLLBACK,
		.anew = 1,
		.from_version = from->ops.version,
		.to_version = to->ops.version,
	};
	char message[BATON_MESSAGE_LEN];
	struct baton_creation creation;
	u64 made;

	place->on_probation = false;
	baton_record_end(place, BATON_RECORD_END_REPLACED);
	baton_core_stop(baton_place_index(place));
	synchronize_rcu();
	baton_timers_stop(place);
	baton_core_rescue_again();
	baton_free_all(place);
	from->this = NULL;
	place->before = NULL;
	place->active = to;
	memcpy(place->options, place->options_before, sizeof(place->options));
	module_put(from->module);
	if (place->next)
		baton_forget_version(&from);
	else
		place->next = from;
	if (baton_begin_create(place, &creation, place->options, message))
		return module_put(to->module);
	made = baton_make(place, to->ops.create, &creation.env, NULL);
	baton_end_create(&creation);
	if (is_failure(made)) {
		pr_notice("baton: policy %s: the version before could not be made: %s\n",
			  place->name, message);
		baton_free_all(place);
		return module_put(to->module);
	}
	to->this = (void *)made;
	change.now = ktime_get_boottime_ns();
	remember(place, &change);
	baton_core_start(baton_place_index(place), to);
	baton_hints_offer(place);
	if (was_default)
		baton_core_set_default(baton_place_index(place));
	pr_notice("baton: policy %s: version %u had a fault on probation, version %u is back\n",
		  place->name, change.from_version, change.to_version);
}

static void bring_back_all(struct work_struct *work)
{
	int i;

	mutex_lock(&baton_control_mutex);
	for (i = 0; i < BATON_MAX_POLICIES; i++) {
		struct baton_place *place = &baton_places[i];

		if (place->active && baton_core_state(i) == BATON_POLICY_STATE_FAULTED)
			baton_hints_withdraw(place, BATON_HINTS_END_FAULT);
		if (place->active && place->on_probation && place->before &&
		    baton_core_state(i) == BATON_POLICY_STATE_FAULTED &&
		    time_before(jiffies, place->probation_end))
			bring_back(place);
	}
	baton_flight_go_on();
	mutex_unlock(&baton_control_mutex);
}
static DECLARE_WORK(bring_back_work, bring_back_all);

/*
 * A fault has stopped a policy. Runs in an interrupt (fault.c), as a run-queue lock may be held
 * where the fault occurs.
 */
void baton_upgrade_fault(void)
{
	schedule_work(&bring_back_work);
}

/* No policy is registered. */
void baton_upgrade_exit(void)
{
	flush_work(&bring_back_work);
}
