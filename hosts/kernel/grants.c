// SPDX-License-Identifier: GPL-2.0-only
/*
 * Grants: which users, groups and cgroups may open queues to which policy (hints.c). The
 * administrator sets them at the control device. The superuser needs no grant.
 *
 * Process context, under baton_hints_mutex.
 */
#include <linux/capability.h>
#include <linux/cgroup.h>
#include <linux/cred.h>
#include <linux/log2.h>
#include <linux/uidgid.h>

#include "hints.h"

static struct {
	struct baton_grant what;	/* `set` is BATON_GRANT_ACT_GRANT if the entry is in use */
	u64 number;			/* unique, never reused */
} grants[BATON_MAX_GRANTS];

static u64 last_number;

static bool same_one(const struct baton_grant *a, const struct baton_grant *b)
{
	return a->who == b->who && a->user == b->user && a->group == b->group &&
	       a->cgroup == b->cgroup && !strcmp(a->name, b->name);
}

static bool in_cgroup(u64 id)
{
	struct cgroup *cgroup;
	bool is_in = false;

	rcu_read_lock();
	for (cgroup = task_dfl_cgroup(current); cgroup && !is_in; cgroup = cgroup_parent(cgroup))
		is_in = cgroup_id(cgroup) == id;
	rcu_read_unlock();
	return is_in;
}

static bool is_for_caller(const struct baton_grant *grant)
{
	return (!(grant->who & BATON_GRANT_USER) ||
		uid_eq(current_euid(), make_kuid(&init_user_ns, grant->user))) &&
	       (!(grant->who & BATON_GRANT_GROUP) ||
		in_egroup_p(make_kgid(&init_user_ns, grant->group))) &&
	       (!(grant->who & BATON_GRANT_CGROUP) || in_cgroup(grant->cgroup));
}

/*
 * The number of queues that were opened by a grant and take memory: open ones, and ones closed a
 * moment ago. Counts the queues of `user`, or of all users if `user` is NULL.
 */
static u32 count(u64 number, const kuid_t *user)
{
	const struct baton_queue *queue;
	u32 held = 0;

	list_for_each_entry(queue, &baton_queues, list)
		held += queue->grant == number && (!user || uid_eq(queue->user, *user));
	return held;
}

/* May the caller open the device? */
bool baton_may_open(void)
{
	u32 i;

	for (i = 0; i < BATON_MAX_GRANTS; i++)
		if (grants[i].what.set && is_for_caller(&grants[i].what))
			return true;
	return capable(CAP_SYS_ADMIN);
}

/*
 * Checks whether the caller may open a queue to this policy, with rings of `entries` entries.
 * Returns NULL and fills `granted`, or returns the reason of the refusal. The superuser may name
 * threads of any process, with a grant and without one.
 */
const char *baton_granted(const char *policy, u32 entries, struct baton_granted *granted)
{
	const char *why = "no grant permits that: see baton hints grant";
	kuid_t user = current_euid();
	u32 i;

	for (i = 0; i < BATON_MAX_GRANTS; i++) {
		const struct baton_grant *grant = &grants[i].what;

		if (!grant->set || strcmp(grant->name, policy) || !is_for_caller(grant))
			continue;
		if (entries > grant->entries) {
			why = "that is more entries than were granted";
		} else if (count(grants[i].number, &user) >= grant->queues) {
			why = "you have as many queues open as were granted";
			granted->is_used_up = true;
		} else {
			granted->number = grants[i].number;
			granted->is_used_up = false;
			granted->any_thread = grant->any_thread ||
					      ns_capable_noaudit(&init_user_ns, CAP_SYS_ADMIN);
			return NULL;
		}
	}
	granted->any_thread = capable(CAP_SYS_ADMIN);
	return granted->any_thread ? NULL : why;
}

static int set(const struct baton_grant *arg)
{
	u32 i, place = BATON_MAX_GRANTS;

	if (!arg->who || arg->who & ~BATON_GRANT_ALL || arg->entries < BATON_HINTS_MIN_ENTRIES ||
	    arg->entries > BATON_HINTS_MAX_ENTRIES || !is_power_of_2(arg->entries) ||
	    !arg->queues || arg->any_thread > 1 || !arg->name[0])
		return -EINVAL;
	for (i = BATON_MAX_GRANTS; i-- > 0;)
		if (!grants[i].what.set)
			place = i;
	for (i = 0; i < BATON_MAX_GRANTS; i++)
		if (grants[i].what.set && same_one(&grants[i].what, arg))
			place = i;
	if (place == BATON_MAX_GRANTS)
		return -ENOSPC;
	/* A grant that is set again keeps its queues. */
	if (!grants[place].what.set)
		grants[place].number = ++last_number;
	grants[place].what = *arg;
	return 0;
}

static int take_back(const struct baton_grant *arg)
{
	struct baton_queue *queue;
	u32 i;

	for (i = 0; i < BATON_MAX_GRANTS; i++)
		if (grants[i].what.set && same_one(&grants[i].what, arg))
			break;
	if (i == BATON_MAX_GRANTS)
		return -ENOENT;
	list_for_each_entry(queue, &baton_queues, list)
		if (queue->grant == grants[i].number)
			baton_queue_end(queue, BATON_HINTS_END_REVOKED);
	memset(&grants[i], 0, sizeof(grants[i]));
	return 0;
}

static int ask(struct baton_grant *arg)
{
	u32 index = arg->index;

	if (index >= BATON_MAX_GRANTS)
		return -EINVAL;
	*arg = grants[index].what;
	arg->index = index;
	arg->open = arg->set ? count(grants[index].number, NULL) : 0;
	return 0;
}

/* BATON_IOC_GRANT. The name is terminated. */
int baton_grant(struct baton_grant *arg)
{
	int err;

	mutex_lock(&baton_hints_mutex);
	switch (arg->set) {
	case BATON_GRANT_ACT_READ:
		err = ask(arg);
		break;
	case BATON_GRANT_ACT_GRANT:
		err = set(arg);
		break;
	case BATON_GRANT_ACT_REVOKE:
		err = take_back(arg);
		break;
	default:
		err = -EINVAL;
	}
	mutex_unlock(&baton_hints_mutex);
	return err;
}
