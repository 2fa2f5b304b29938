// SPDX-License-Identifier: GPL-2.0-only
/*
 * The table of policies: how the versions of a policy enter and leave it, and how a policy is
 * started and stopped.
 *
 * Everything here runs in process context under baton_control_mutex. The module of a policy calls
 * baton_register() and baton_unregister(), which take it.
 */
#include <linux/ctype.h>
#include <linux/export.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>

#include "core.h"
#include "place.h"
#include "register.h"

struct baton_place baton_places[BATON_MAX_POLICIES];

struct baton_place *baton_find(const char *name)
{
	int i;

	for (i = 0; i < BATON_MAX_POLICIES; i++)
		if (baton_places[i].active && !strcmp(baton_places[i].name, name))
			return &baton_places[i];
	return NULL;
}

static bool valid(const struct baton_policy *ops)
{
	int i, len = strnlen(ops->name, BATON_NAME_LEN);

	if (len == 0 || len == BATON_NAME_LEN)
		return false;
	for (i = 0; i < len; i++)
		if (!islower(ops->name[i]) && !isdigit(ops->name[i]) && ops->name[i] != '_')
			return false;
	if (ops->hint && (!memchr(ops->hint_type.name, 0, BATON_NAME_LEN) ||
			  !memchr(ops->reply_type.name, 0, BATON_NAME_LEN)))
		return false;
#define HAS(method) && ops->method
	return true BATON_NEEDED_METHODS(HAS);
#undef HAS
}

u32 baton_events_of(const struct baton_version *version)
{
	return (version->ops.events & BATON_EV_ALL) |
	       (version->ops.select_task_rq ? 0 : BATON_EV_NO_SELECT);
}

/*
 * Registers a version. If a version of the policy is running, the new one is kept for the next
 * upgrade.
 */
static int register_version(struct baton_version *version)
{
	struct baton_place *place = baton_find(version->ops.name);
	s32 index;
	int err;

	if (place) {
		if (baton_place_state(place) != BATON_POLICY_STATE_RUNNING || place->next)
			return -EEXIST;
		place->next = version;
		return 0;
	}
	index = baton_core_register(baton_events_of(version));
	if (index < 0)
		return -ENOSPC;
	place = &baton_places[index];
	memset(place, 0, sizeof(*place));
	INIT_LIST_HEAD(&place->blocks);
	raw_res_spin_lock_init(&place->memory_lock);
	place->memory_limit = BATON_MEMORY_LIMIT;
	place->max_looks = BATON_MAX_LOOKS;
	strscpy(place->name, version->ops.name, sizeof(place->name));
	err = baton_timers_add(place);
	if (err)
		baton_core_unregister(index);
	else
		place->active = version;
	if (!err)
		baton_measure_add(place);
	return err;
}

int baton_register(const struct baton_policy *ops, struct module *module)
{
	struct baton_version *version;
	int err;

	if (ops->abi != BATON_ABI) {
		pr_notice("baton: a policy module was built for version %u of the interface, not %u: build it again\n",
			  ops->abi, BATON_ABI);
		return -ENOEXEC;
	}
	if (!valid(ops))
		return -EINVAL;
	version = kzalloc(sizeof(*version), GFP_KERNEL);
	if (!version)
		return -ENOMEM;
	version->ops = *ops;
	version->registered = ops;
	version->module = module;
	mutex_lock(&baton_control_mutex);
	err = register_version(version);
	if (!err)
		baton_traps_add(module);
	mutex_unlock(&baton_control_mutex);
	if (err)
		kfree(version);
	return err;
}
EXPORT_SYMBOL_GPL(baton_register);

/*
 * Forgets a version that is not the current one. Its module is no longer referenced, and may stay
 * loaded.
 */
void baton_forget_version(struct baton_version **version)
{
	kfree(*version);
	*version = NULL;
}

void baton_unregister(const struct baton_policy *ops, const struct module *module)
{
	struct baton_place *place;

	mutex_lock(&baton_control_mutex);
	place = baton_find(ops->name);
	if (place && place->next && place->next->registered == ops) {
		baton_forget_version(&place->next);
	} else if (place && place->active->registered == ops) {
		struct baton_version *version = place->active;

		baton_partition_leave(place);
		baton_cgroup_change(place, NULL);
		baton_flight_forget(place);
		baton_core_unregister(baton_place_index(place));
		place->active = NULL;
		/*
		 * a call that read the entry before may still run: see the beginning of Host::call
		 */
		synchronize_rcu();
		baton_measure_remove(place);
		baton_moves_forget(baton_place_index(place));
		baton_timers_remove(place);
		kfree(version);
	}
	baton_traps_remove(module);
	mutex_unlock(&baton_control_mutex);
}
EXPORT_SYMBOL_GPL(baton_unregister);

/*
 * Stops a policy that is running or faulted, and takes back all its resources. `message` receives
 * the panic of its `destroy`, if there is one.
 */
void baton_place_stop(struct baton_place *place, char *message)
{
	bool faulted = baton_place_state(place) == BATON_POLICY_STATE_FAULTED;

	baton_hints_withdraw(place, BATON_HINTS_END_UNLOADED);
	baton_record_end(place, BATON_RECORD_END_UNLOADED);
	baton_flight_forget(place);
	if (!baton_core_stop(baton_place_index(place)))
		return;
	/* Calls run with interrupts off, which is a read-side section. */
	synchronize_rcu();
	baton_timers_stop(place);
	baton_core_rescue_again();
	/*
	 * The state of a faulted policy cannot be trusted. So its memory is taken back without a
	 * call of the policy.
	 */
	if (!faulted)
		baton_unmake(place, place->active, message);
	baton_free_all(place);
	module_put(place->active->module);
	place->on_probation = false;
	if (place->before) {
		module_put(place->before->module);
		baton_forget_version(&place->before);
	}
	if (place->next)
		baton_forget_version(&place->next);
}

int baton_place_start(struct baton_start *arg)
{
	struct baton_version *version;
	struct baton_creation creation;
	struct baton_place *place;
	u64 made;
	int err;

	place = baton_find(arg->name);
	if (!place)
		return -ENOENT;
	if (arg->turns && (arg->turns < BATON_TURNS_MIN || arg->turns > BATON_TURNS_MAX))
		return -ERANGE;
	if (baton_place_state(place) != BATON_POLICY_STATE_REGISTERED)
		return -EBUSY;
	version = place->active;
	if (!try_module_get(version->module))
		return -ENOENT;
	baton_fault_clear(place);
	baton_moves_forget(baton_place_index(place));
	strscpy(place->options, arg->options, sizeof(place->options));
	if (arg->turns)
		place->max_looks = DIV_ROUND_UP(arg->turns, BATON_TURNS);
	err = baton_begin_create(place, &creation, place->options, arg->message);
	if (err) {
		module_put(version->module);
		return err;
	}
	made = baton_make(place, version->ops.create, &creation.env, NULL);
	baton_end_create(&creation);
	if (!made || made == BATON_ABORTED) {
		if (made)
			baton_describe_panic(arg->message, sizeof(arg->message));
		baton_free_all(place);
		module_put(version->module);
		return made ? -EFAULT : -EINVAL;
	}
	version->this = (void *)made;
	baton_core_start(baton_place_index(place), version);
	baton_hints_offer(place);
	return 0;
}
