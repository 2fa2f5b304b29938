// SPDX-License-Identifier: GPL-2.0-only
/*
 * Membership by cgroup (version 2): all tasks in a cgroup and in those below it belong to its
 * policy, including tasks that join later.
 *
 * Two tracepoints report that something may have changed. Then all tasks are checked. An assignment
 * of one thread by the administrator (BATON_IOC_ASSIGN) takes precedence over its cgroup.
 *
 * Everything but the probes runs in process context under baton_control_mutex.
 */
#include <linux/cgroup.h>
#include <linux/jiffies.h>
#include <linux/sched.h>
#include <linux/sched/task.h>
#include <linux/tracepoint.h>
#include <linux/workqueue.h>

#include "core.h"
#include "place.h"

#define SETTLED HZ	/* a fork that began before a change has ended after this time */
#define AGAIN_MS 10

static struct {
	u64 cgroup;	/* its id, which is never reused; 0 for no rule */
	u32 policy;	/* index in the table of policies */
} rules[BATON_MAX_RULES];

static bool watching;
/* jiffies of the last change of a rule, of a task's cgroup, or of an assignment by them */
static unsigned long changed;

/*
 * Index of the policy to which the task's cgroup belongs, or -1. The innermost rule applies. In an
 * RCU read-side section.
 */
static s32 policy_of(struct task_struct *task)
{
	struct cgroup *cgroup;
	int i;

	for (cgroup = task_dfl_cgroup(task); cgroup; cgroup = cgroup_parent(cgroup))
		for (i = 0; i < BATON_MAX_RULES; i++)
			if (rules[i].cgroup && rules[i].cgroup == cgroup_id(cgroup))
				return rules[i].policy;
	return -1;
}

static void look(struct work_struct *work);
static DECLARE_DELAYED_WORK(look_work, look);

/*
 * Assigns every task according to its cgroup. O(task slots). A child that is not fully set up has
 * no cgroup of its own yet, and its class must not be changed. It is checked again later.
 */
void baton_cgroup_apply(void)
{
	bool any = false, again = false;
	u32 slot;

	for (slot = 0; slot < baton_core_used_slots(); slot++) {
		struct task_struct *task;
		s32 policy = -1;
		bool is_new = false;

		rcu_read_lock();
		task = baton_core_task_of_slot(slot);
		if (task && READ_ONCE(task->__state) & TASK_NEW) {
			again = true;
		} else if (task && !(task->flags & PF_EXITING)) {
			policy = policy_of(task);
			is_new = baton_core_assign_by_rule(slot, policy);
			any |= is_new;
		}
		if (is_new)
			get_task_struct(task);
		rcu_read_unlock();
		if (is_new) {
			/* A real-time task keeps its class. */
			if (!READ_ONCE(baton_attached_all))
				baton_set_class(task, policy >= 0);
			put_task_struct(task);
		}
		cond_resched();
	}
	/* A fork in progress may have copied the old assignment. */
	if (any)
		WRITE_ONCE(changed, jiffies);
	if (again && watching)
		schedule_delayed_work(&look_work, msecs_to_jiffies(AGAIN_MS));
}

static void look(struct work_struct *work)
{
	mutex_lock(&baton_control_mutex);
	baton_cgroup_apply();
	mutex_unlock(&baton_control_mutex);
}

static void note_change(void)
{
	WRITE_ONCE(changed, jiffies);
	schedule_delayed_work(&look_work, 0);
}

/* Tracepoint cgroup_attach_task: interrupts off, locks of cgroups held. */
static void attached(void *data, struct cgroup *to, const char *path, struct task_struct *task,
		     bool threadgroup)
{
	note_change();
}

/*
 * Tracepoint sched_process_fork. A child inherits its parent's assignment, unless that changed
 * meanwhile or the child begins in another cgroup.
 */
static void forked(void *data, struct task_struct *parent, struct task_struct *child)
{
	bool moved;

	rcu_read_lock();
	moved = task_dfl_cgroup(parent) != task_dfl_cgroup(child);
	rcu_read_unlock();
	if (moved)
		note_change();
	else if (time_before(jiffies, READ_ONCE(changed) + SETTLED))
		schedule_delayed_work(&look_work, 1);
}

static struct {
	const char *name;
	void *probe;
	struct tracepoint *at;
} probes[] = {
	{ "cgroup_attach_task", attached },
	{ "sched_process_fork", forked },
};

static void find_tracepoint(struct tracepoint *at, void *unused)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(probes); i++)
		if (!strcmp(at->name, probes[i].name))
			probes[i].at = at;
}

static void stop_watching(int count)
{
	while (count-- > 0)
		tracepoint_probe_unregister(probes[count].at, probes[count].probe, NULL);
	tracepoint_synchronize_unregister();
	watching = false;
}

static int start_watching(void)
{
	int i, err = 0;

	if (watching)
		return 0;
	for_each_kernel_tracepoint(find_tracepoint, NULL);
	for (i = 0; i < ARRAY_SIZE(probes) && !err; i++)
		err = probes[i].at ? tracepoint_probe_register(probes[i].at, probes[i].probe, NULL)
				   : -EOPNOTSUPP;
	watching = true;
	WRITE_ONCE(changed, jiffies);
	if (err)
		stop_watching(i - 1);
	return err;
}

static void tidy(void)
{
	int i;

	for (i = 0; i < BATON_MAX_RULES; i++)
		if (rules[i].cgroup)
			return;
	if (watching)
		stop_watching(ARRAY_SIZE(probes));
}

static bool is_gone(u64 cgroup)
{
	struct cgroup *found = cgroup_get_from_id(cgroup);

	if (IS_ERR(found))
		return true;
	cgroup_put(found);
	return false;
}

/* Assigns a cgroup to a policy or, with `place` NULL, to none. */
int baton_cgroup_set(u64 cgroup, const struct baton_place *place)
{
	int i, at = -1, err;

	if (!cgroup)
		return -EINVAL;
	/* an existing rule of the cgroup, else a free one */
	for (i = 0; i < BATON_MAX_RULES; i++)
		if (rules[i].cgroup == cgroup ||
		    (at < 0 && (!rules[i].cgroup || is_gone(rules[i].cgroup))))
			at = i;
	if (!place) {
		if (at < 0 || rules[at].cgroup != cgroup)
			return -ENOENT;
		rules[at].cgroup = 0;
	} else {
		if (at < 0)
			return -ENOSPC;
		if (is_gone(cgroup))
			return -ESRCH;
		err = start_watching();
		if (err)
			return err;
		rules[at].cgroup = cgroup;
		rules[at].policy = baton_place_index(place);
	}
	WRITE_ONCE(changed, jiffies);
	baton_cgroup_apply();
	tidy();
	return 0;
}

/* Reads the rule at an index. */
void baton_cgroup_info(struct baton_rule *arg)
{
	u32 index = arg->index;

	memset(arg, 0, sizeof(*arg));
	arg->index = index;
	if (!rules[index].cgroup)
		return;
	arg->cgroup = rules[index].cgroup;
	strscpy(arg->name, baton_places[rules[index].policy].name, sizeof(arg->name));
}

/*
 * Changes all rules of one policy to another policy. With `to` NULL the rules are removed, as the
 * policy will be forgotten.
 */
void baton_cgroup_change(const struct baton_place *from, const struct baton_place *to)
{
	bool any = false;
	int i;

	for (i = 0; i < BATON_MAX_RULES; i++) {
		if (!rules[i].cgroup || rules[i].policy != baton_place_index(from))
			continue;
		if (to)
			rules[i].policy = baton_place_index(to);
		else
			rules[i].cgroup = 0;
		any = true;
	}
	if (any)
		baton_cgroup_apply();
	tidy();
}

/* No policy is registered. So there are no rules, and nothing can queue the work. */
void baton_cgroup_exit(void)
{
	cancel_delayed_work_sync(&look_work);
}
