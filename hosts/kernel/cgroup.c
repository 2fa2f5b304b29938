// SPDX-License-Identifier: GPL-2.0-only
/*
 * Membership by cgroup (version 2): tasks that are in a cgroup, or below it, belong to its policy,
 * those that come later too.
 *
 * Which task that is nobody has to say: two tracepoints tell that something may have changed, and
 * then all tasks are looked at. What an administrator said of one thread (BATON_IOC_ASSIGN) goes
 * before what its cgroup says.
 *
 * Everything here is in process context under baton_control_mutex, but for the probes.
 */
#include <linux/cgroup.h>
#include <linux/jiffies.h>
#include <linux/sched.h>
#include <linux/sched/task.h>
#include <linux/tracepoint.h>
#include <linux/workqueue.h>

#include "core.h"

#define SETTLED HZ	/* a fork that began before a change is over so long after it */
#define AGAIN_MS 10

static struct {
	u64 cgroup;	/* its id, which is never used again; 0 for no rule */
	u32 policy;	/* place in the table */
} rules[BATON_MAX_RULES];

static bool watching;
/* jiffies of the last change: of a rule, of a task's cgroup, or of what came of them */
static unsigned long changed;

/*
 * The place of the policy that the task's cgroup belongs to, or -1. The innermost rule counts. In
 * an RCU read-side section.
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
 * Puts every task where its cgroup says. O(task slots). A child that is not whole yet is in no
 * cgroup of its own, and its class must not be changed: it is looked at again.
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
			/* A real-time task stays what it is. */
			if (!READ_ONCE(baton_attached_all))
				baton_set_class(task, policy >= 0);
			put_task_struct(task);
		}
		cond_resched();
	}
	/* A fork that is under way may have copied what was before. */
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

/* Tracepoint cgroup_attach_task: interrupts off, locks of the cgroups' held. */
static void attached(void *data, struct cgroup *to, const char *path, struct task_struct *task,
		     bool threadgroup)
{
	note_change();
}

/*
 * Tracepoint sched_process_fork. A child has its parent's assignment, unless that changed
 * meanwhile, or it begins elsewhere.
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

/* Gives a cgroup to a policy, or, with place NULL, to none. */
int baton_cgroup_set(u64 cgroup, const struct baton_place *place)
{
	int i, at = -1, err;

	if (!cgroup)
		return -EINVAL;
	/* its own, else the first that is free */
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
		rules[at].policy = place - baton_places;
	}
	WRITE_ONCE(changed, jiffies);
	baton_cgroup_apply();
	tidy();
	return 0;
}

/* The rule at an index. */
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
 * All that is one policy's is another's; or, with NULL, nobody's, as the policy is about to be
 * forgotten.
 */
void baton_cgroup_change(const struct baton_place *from, const struct baton_place *to)
{
	bool any = false;
	int i;

	for (i = 0; i < BATON_MAX_RULES; i++) {
		if (!rules[i].cgroup || rules[i].policy != from - baton_places)
			continue;
		if (to)
			rules[i].policy = to - baton_places;
		else
			rules[i].cgroup = 0;
		any = true;
	}
	if (any)
		baton_cgroup_apply();
	tidy();
}

/* No policy is registered, so there is no rule, and nothing that could queue the work. */
void baton_cgroup_exit(void)
{
	cancel_delayed_work_sync(&look_work);
}
