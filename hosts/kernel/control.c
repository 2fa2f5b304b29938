// SPDX-License-Identifier: GPL-2.0-only
/*
 * The control device /dev/baton.
 *
 * Only root may open the device. Each request is one ioctl with one structure of fixed size, which
 * is copied in, checked, and copied out. Everything here runs in process context under
 * baton_control_mutex.
 */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/ioctl.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <uapi/linux/sched/types.h>

#include "core.h"
#include "place.h"

DEFINE_MUTEX(baton_control_mutex);
u32 baton_stall_ms = 10000;
module_param_named(stall_ms, baton_stall_ms, uint, 0644);
MODULE_PARM_DESC(stall_ms, "a queued task that waits longer is a stall of its policy, ms");

/* Moves a thread into or out of class SCHED_EXT. Its nice value stays. */
int baton_set_class(struct task_struct *task, bool ext)
{
	struct sched_attr attr = { .size = sizeof(attr),
				   .sched_policy = ext ? SCHED_EXT : SCHED_NORMAL };

	if (task->policy != SCHED_EXT && task->policy != SCHED_NORMAL &&
	    task->policy != SCHED_BATCH && task->policy != SCHED_IDLE)
		return -EINVAL;	/* real-time tasks keep their class */
	attr.sched_nice = task_nice(task);
	return sched_setattr_nocheck(task, &attr);
}

/*
 * Asks a policy whether it may be given a task, or with NULL all tasks that have no policy.
 * `message` receives the reason if it refuses (-EACCES), or why it failed (-EFAULT).
 */
static int ask(struct baton_place *place, struct task_struct *task, char *message)
{
	const struct baton_version *version = place->active;
	struct baton_asked asked = { .message = message };
	u64 answer;

	if (!version->ops.may_have || baton_place_state(place) != BATON_POLICY_STATE_RUNNING)
		return 0;
	if (task) {
		asked.pid = task->pid;
		asked.nice = task_nice(task);
		strscpy(asked.comm, task->comm, sizeof(asked.comm));
	}
	answer = baton_make(place, version->ops.may_have, version->this, &asked);
	if (answer == BATON_ABORTED) {
		baton_describe_panic(message, BATON_MESSAGE_LEN);
		return -EFAULT;
	}
	message[answer ? BATON_MESSAGE_LEN - 1 : 0] = 0;
	return answer ? -EACCES : 0;
}

static int assign(struct baton_assign *arg)
{
	struct baton_place *place = NULL;
	struct task_struct *task;
	int err = 0;

	memset(arg->message, 0, sizeof(arg->message));

	if (arg->set_class > 1)
		return -EINVAL;
	if (arg->name[0]) {
		place = baton_find(arg->name);
		if (!place)
			return -ENOENT;
	}
	if (!arg->pid) {
		if (place && baton_place_state(place) != BATON_POLICY_STATE_RUNNING)
			return -ENODEV;
		err = place ? ask(place, NULL, arg->message) : 0;
		if (err)
			return err;
		baton_core_set_default(place ? (s32)baton_place_index(place) : -1);
		return 0;
	}
	rcu_read_lock();
	task = pid_task(find_vpid(arg->pid), PIDTYPE_PID);
	if (task)
		get_task_struct(task);
	rcu_read_unlock();
	if (!task)
		return -ESRCH;
	err = place ? ask(place, task, arg->message) : 0;
	if (err)
		goto out;
	if (!baton_core_assign(task->pid, place ? (s32)baton_place_index(place) : -1))
		err = -ESRCH;
	else if (arg->set_class)
		err = baton_set_class(task, place);
out:
	put_task_struct(task);
	return err;
}

static void name_module(u8 *name, const struct baton_version *version)
{
	if (version)
		strscpy(name, version->module->name, BATON_MODULE_LEN);
}

static void policy_info(struct baton_policy_info *info)
{
	const struct baton_place *place;
	u32 index = info->index;
	u64 i, kept;

	memset(info, 0, sizeof(*info));
	info->index = index;
	place = &baton_places[index];
	if (!place->active)
		return;
	baton_core_policy_info(info);
	info->version = place->active->ops.version;
	info->language = place->active->ops.language;
	info->memory = place->memory;
	info->recording = baton_is_recorded(place);
	info->flight = place->flight;
	info->recorded = baton_flight_has_fault(place);
	strscpy(info->name, place->name, sizeof(info->name));
	strscpy(info->options, place->options, sizeof(info->options));
	name_module(info->modules[0], place->active);
	name_module(info->modules[1], place->next);
	name_module(info->modules[2], place->before);
	strscpy(info->partition, baton_partition_name(baton_core_partition_of_policy(index)),
		sizeof(info->partition));
	info->changes = place->changes;
	kept = min(place->changes, BATON_CHANGES_KEPT);
	for (i = 0; i < kept; i++)
		info->history[i] = place->history[(place->changes - kept + i) % BATON_CHANGES_KEPT];
}

static int task_info(struct baton_task_info *info)
{
	struct task_struct *task;

	if (!baton_core_task_info(info))
		return -EINVAL;
	memset(info->comm, 0, sizeof(info->comm));
	rcu_read_lock();
	task = info->pid ? pid_task(find_pid_ns(info->pid, &init_pid_ns), PIDTYPE_PID) : NULL;
	if (task)
		strscpy(info->comm, task->comm, sizeof(info->comm));
	rcu_read_unlock();
	return 0;
}

union request {
	struct baton_core_info core;
	struct baton_policy_info policy;
	struct baton_fault fault;
	struct baton_cpu_info cpu;
	struct baton_start start;
	struct baton_stop stop;
	struct baton_assign assign;
	struct baton_task_info task;
	struct baton_upgrade upgrade;
	struct baton_switch change;
	struct baton_order order;
	struct baton_share share;
	struct baton_partition partition;
	struct baton_rule rule;
	struct baton_record record;
	struct baton_grant grant;
	struct baton_record_block block;
	struct baton_record_checkpoint checkpoint;
	struct baton_refused_change refused;
	struct baton_measure measure;
	struct baton_calls calls;
};

/* Is this string from user space terminated? */
static bool terminated(const char *text, size_t size)
{
	return strnlen(text, size) < size;
}

static int switch_policies(struct baton_switch *arg)
{
	struct baton_place *from, *to;

	if (!terminated(arg->from, sizeof(arg->from)) || !terminated(arg->to, sizeof(arg->to)))
		return -EINVAL;
	from = baton_find(arg->from);
	to = baton_find(arg->to);
	if (!from || !to)
		return -ENOENT;
	if (from == to)
		return -EINVAL;
	if (baton_place_state(from) != BATON_POLICY_STATE_RUNNING ||
	    baton_place_state(to) != BATON_POLICY_STATE_RUNNING)
		return -ENODEV;
	if (baton_core_partition_of_policy(baton_place_index(to)) &&
	    baton_core_partition_of_policy(baton_place_index(to)) !=
		    baton_core_partition_of_policy(baton_place_index(from)))
		return -EXDEV;
	baton_record_end(from, BATON_RECORD_END_REPLACED);
	arg->held = baton_switch(from, to);
	baton_cgroup_change(from, to);
	baton_hints_close(from);
	return 0;
}

static int rule(struct baton_rule *arg)
{
	const struct baton_place *place = NULL;

	switch (arg->set) {
	case BATON_RULE_ACT_READ:
		if (arg->index >= BATON_MAX_RULES)
			return -EINVAL;
		baton_cgroup_info(arg);
		return 0;
	case BATON_RULE_ACT_ASSIGN:
		if (!terminated(arg->name, sizeof(arg->name)))
			return -EINVAL;
		if (arg->name[0]) {
			place = baton_find(arg->name);
			if (!place)
				return -ENODEV;
		}
		return baton_cgroup_set(arg->cgroup, place);
	case BATON_RULE_ACT_APPLY:
		baton_cgroup_apply();
		return 0;
	}
	return -EINVAL;
}

static int set_order(const struct baton_order *arg)
{
	u32 places[BATON_MAX_POLICIES], count;

	for (count = 0; count < BATON_MAX_POLICIES && arg->names[count][0]; count++) {
		const struct baton_place *place;

		if (!terminated(arg->names[count], sizeof(arg->names[count])))
			return -EINVAL;
		place = baton_find(arg->names[count]);
		if (!place)
			return -ENOENT;
		places[count] = baton_place_index(place);
	}
	baton_core_set_order(places, count);
	return 0;
}

static int handle(struct file *file, unsigned int cmd, union request *r)
{
	struct baton_place *place;

	switch (cmd) {
	case BATON_IOC_CORE:
		memset(&r->core, 0, sizeof(r->core));
		baton_core_info(&r->core);
		r->core.attached = READ_ONCE(baton_attached);
		r->core.all = READ_ONCE(baton_attached_all);
		r->core.nr_cpus = nr_cpu_ids;
		r->core.no_slot = READ_ONCE(baton_no_slot);
		r->core.stall_ms = READ_ONCE(baton_stall_ms);
		return 0;
	case BATON_IOC_POLICY:
		if (r->policy.index >= BATON_MAX_POLICIES)
			return -EINVAL;
		policy_info(&r->policy);
		return 0;
	case BATON_IOC_FAULT:
		if (r->fault.index >= BATON_MAX_POLICIES)
			return -EINVAL;
		r->fault = baton_places[r->fault.index].fault;
		return 0;
	case BATON_IOC_CPU:
		return baton_core_cpu_info(&r->cpu) ? 0 : -EINVAL;
	case BATON_IOC_TASK:
		return task_info(&r->task);
	case BATON_IOC_START:
		if (!terminated(r->start.name, sizeof(r->start.name)) ||
		    !terminated(r->start.options, sizeof(r->start.options)))
			return -EINVAL;
		return baton_place_start(&r->start);
	case BATON_IOC_STOP:
		if (!terminated(r->stop.name, sizeof(r->stop.name)))
			return -EINVAL;
		place = baton_find(r->stop.name);
		if (!place)
			return -ENOENT;
		r->stop.message[0] = 0;
		baton_place_stop(place, r->stop.message);
		return 0;
	case BATON_IOC_ASSIGN:
		if (!terminated(r->assign.name, sizeof(r->assign.name)))
			return -EINVAL;
		return assign(&r->assign);
	case BATON_IOC_UPGRADE:
		if (!terminated(r->upgrade.name, sizeof(r->upgrade.name)) ||
		    !terminated(r->upgrade.options, sizeof(r->upgrade.options)) ||
		    r->upgrade.rollback > 1)
			return -EINVAL;
		place = baton_find(r->upgrade.name);
		return place ? baton_upgrade(place, &r->upgrade) : -ENOENT;
	case BATON_IOC_SWITCH:
		return switch_policies(&r->change);
	case BATON_IOC_ORDER:
		return set_order(&r->order);
	case BATON_IOC_SHARE:
		if (!terminated(r->share.name, sizeof(r->share.name)))
			return -EINVAL;
		place = baton_find(r->share.name);
		if (!place)
			return -ENOENT;
		return baton_core_set_share(baton_place_index(place), r->share.share) ? 0 : -ERANGE;
	case BATON_IOC_PARTITION:
		if (r->partition.set > 1)
			return -EINVAL;
		if (r->partition.set)
			return baton_set_partition(&r->partition);
		if (r->partition.index >= BATON_MAX_PARTITIONS)
			return -EINVAL;
		baton_partition_info(&r->partition);
		return 0;
	case BATON_IOC_RULE:
		return rule(&r->rule);
	case BATON_IOC_GRANT:
		return terminated(r->grant.name, sizeof(r->grant.name)) ? baton_grant(&r->grant)
									: -EINVAL;
	case BATON_IOC_REFUSED_CHANGE:
		return baton_moves_read(&r->refused);
	case BATON_IOC_MEASURE:
		return baton_measure(r->measure.ms);
	case BATON_IOC_CALLS:
		return baton_measured_calls(&r->calls);
	case BATON_IOC_RECORD:
	case BATON_IOC_RECORD_TAKE:
	case BATON_IOC_RECORD_STOP:
	case BATON_IOC_RECORD_CHECKPOINT:
		return baton_record_request(file, cmd, r);
	}
	return -ENOTTY;
}

static long control(struct file *file, unsigned int cmd, unsigned long arg)
{
	void __user *user = (void __user *)arg;
	union request *request;
	long err;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (_IOC_TYPE(cmd) != _IOC_TYPE(BATON_IOC_CORE) || _IOC_SIZE(cmd) > sizeof(*request))
		return -ENOTTY;
	request = kzalloc(sizeof(*request), GFP_KERNEL);
	if (!request)
		return -ENOMEM;
	if (copy_from_user(request, user, _IOC_SIZE(cmd))) {
		err = -EFAULT;
		goto out;
	}
	/* Not interruptible: a request completes even if the tool is killed. */
	mutex_lock(&baton_control_mutex);
	err = handle(file, cmd, request);
	baton_flight_go_on();
	mutex_unlock(&baton_control_mutex);
	/* A refused request returns with the reason. */
	if ((!err || cmd == BATON_IOC_START || cmd == BATON_IOC_ASSIGN ||
	     cmd == BATON_IOC_UPGRADE || cmd == BATON_IOC_PARTITION || cmd == BATON_IOC_RECORD) &&
	    copy_to_user(user, request, _IOC_SIZE(cmd)))
		err = -EFAULT;
out:
	kfree(request);
	return err;
}

/* private_data holds the recording of the file, not what misc_open() left there. */
static int control_open(struct inode *inode, struct file *file)
{
	file->private_data = NULL;
	return 0;
}

static int control_release(struct inode *inode, struct file *file)
{
	baton_record_release(file);
	return 0;
}

static const struct file_operations control_fops = {
	.owner = THIS_MODULE,
	.open = control_open,
	.release = control_release,
	.unlocked_ioctl = control,
	.read = baton_record_read,
	.mmap = baton_record_mmap,
};

static struct miscdevice control_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "baton",
	.fops = &control_fops,
	.mode = 0600,
};

int baton_control_init(void)
{
	return misc_register(&control_device);
}

void baton_control_exit(void)
{
	misc_deregister(&control_device);
}
