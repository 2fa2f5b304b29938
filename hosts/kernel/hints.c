// SPDX-License-Identifier: GPL-2.0-only
/*
 * Hints: the queues from threads of applications to policies, which hints each policy takes, and
 * the device /dev/baton-hints that opens queues. What passes through an open queue is in channel.c.
 *
 * A thread opens its own queue. So a queue has one writer, and the sender of a hint needs no proof.
 *
 * Every user sees the device. Grants decide which users may open it, and what they may do with it
 * (grants.c).
 *
 * Lock order: the control mutex > baton_hints_mutex. Events take neither: they find a queue by its
 * slot in an RCU read-side section.
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/ioctl.h>
#include <linux/log2.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/pid_namespace.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "hints.h"
#include "place.h"

/*
 * A change of the key patches code. The delay keeps the key enabled while queues are opened and
 * closed frequently.
 */
DEFINE_STATIC_KEY_DEFERRED_FALSE(baton_hints_key, HZ);
DEFINE_MUTEX(baton_hints_mutex);
LIST_HEAD(baton_queues);

struct baton_queue **baton_queues_by_slot;
u32 baton_nr_slots;
static struct workqueue_struct *freeing;

/* The hints that running policies accept, by index in the table. Guarded by baton_hints_mutex. */
static struct {
	bool takes_hints;
	char name[BATON_NAME_LEN];
	struct baton_state_type hint, reply;
} offers[BATON_MAX_POLICIES];

/* Closes the queue of a task that exits, or that the shim no longer serves. */
void baton_hints_gone(u64 handle)
{
	struct baton_queue *queue;

	rcu_read_lock();
	queue = baton_queue_in((u32)handle - 1);
	if (queue && cmpxchg(&baton_queues_by_slot[(u32)handle - 1], queue, NULL) == queue)
		baton_queue_end(queue, queue->task->flags & PF_EXITING ? BATON_HINTS_END_GONE
								       : BATON_HINTS_END_UNLOADED);
	rcu_read_unlock();
}

/* Is type `b` acceptable where `a` is expected? A layout of 0 matches any layout. */
static bool accepts(const struct baton_state_type *a, const struct baton_state_type *b)
{
	return a->version == b->version && (a->layout == b->layout || !a->layout || !b->layout) &&
	       !strncmp(a->name, b->name, BATON_NAME_LEN);
}

static bool same(const struct baton_state_type *a, const struct baton_state_type *b)
{
	return accepts(a, b) && a->layout == b->layout;
}

static void end_all(u32 policy, u32 why)
{
	struct baton_queue *queue;

	list_for_each_entry(queue, &baton_queues, list)
		if (queue->rings.policy == policy)
			baton_queue_end(queue, why);
}

static void offer(u32 index, const struct baton_version *version)
{
	offers[index].takes_hints = version->ops.hint;
	memcpy(offers[index].name, version->ops.name, BATON_NAME_LEN);
	offers[index].hint = version->ops.hint_type;
	offers[index].reply = version->ops.reply_type;
}

/* A policy was started; offers its hints if it takes any. Under the control mutex. */
void baton_hints_offer(const struct baton_place *place)
{
	mutex_lock(&baton_hints_mutex);
	offer(baton_place_index(place), place->active);
	mutex_unlock(&baton_hints_mutex);
}

/* The policy no longer runs: closes its queues. Under the control mutex. */
void baton_hints_withdraw(const struct baton_place *place, u32 why)
{
	mutex_lock(&baton_hints_mutex);
	offers[baton_place_index(place)].takes_hints = false;
	end_all(baton_place_index(place), why);
	mutex_unlock(&baton_hints_mutex);
}

/*
 * The tasks of the policy were switched to another policy: closes its queues. Under the control
 * mutex.
 */
void baton_hints_close(const struct baton_place *place)
{
	mutex_lock(&baton_hints_mutex);
	end_all(baton_place_index(place), BATON_HINTS_END_REPLACED);
	mutex_unlock(&baton_hints_mutex);
}

/*
 * Another version replaces the active one. Queues stay open if both versions have the same types of
 * hints and replies. Otherwise they are closed, and the result is true. Called where the version
 * changes, possibly with all CPUs held, under baton_hints_mutex.
 */
bool baton_hints_replace(const struct baton_place *place, const struct baton_version *to)
{
	const struct baton_policy *old = &place->active->ops;
	bool goes_on = !old->hint == !to->ops.hint &&
		       same(&old->hint_type, &to->ops.hint_type) &&
		       same(&old->reply_type, &to->ops.reply_type);

	if (!goes_on)
		end_all(baton_place_index(place), BATON_HINTS_END_REPLACED);
	offer(baton_place_index(place), to);
	return !goes_on;
}

static int refuse(struct baton_hints_open *arg, int err, const char *why)
{
	strscpy(arg->message, why, sizeof(arg->message));
	return err;
}

static DECLARE_WAIT_QUEUE_HEAD(freed);
static u64 nr_freed;	/* written under baton_hints_mutex */

static void free_queue(struct work_struct *work)
{
	struct baton_queue *queue = container_of(to_rcu_work(work), struct baton_queue, free);

	baton_interrupt_sync(&queue->wake);
	vfree(queue->head);
	mmdrop(queue->mm);
	put_pid_ns(queue->ns);
	put_task_struct(queue->task);
	mutex_lock(&baton_hints_mutex);
	list_del(&queue->list);
	WRITE_ONCE(nr_freed, nr_freed + 1);
	mutex_unlock(&baton_hints_mutex);
	kfree(queue);
	wake_up_all(&freed);
}

/* Does this user have closed queues whose memory is not yet free? Under baton_hints_mutex. */
static bool has_closed(kuid_t user)
{
	const struct baton_queue *queue;

	list_for_each_entry(queue, &baton_queues, list)
		if (queue->is_closed && uid_eq(queue->user, user))
			return true;
	return false;
}

/* Allocates a queue of the calling thread; it is not yet published. */
static struct baton_queue *make_queue(u32 entries)
{
	struct baton_queue *queue = kzalloc(sizeof(*queue), GFP_KERNEL_ACCOUNT);

	if (!queue)
		return NULL;
	queue->size =
		PAGE_ALIGN(sizeof(*queue->head) + 2 * entries * sizeof(struct baton_hints_entry));
	queue->head = __vmalloc(queue->size, GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!queue->head) {
		kfree(queue);
		return NULL;
	}
	queue->head->entries = entries;
	queue->rings = (struct baton_rings){
		.hints = queue->head + 1,
		.replies = (struct baton_hints_entry *)(queue->head + 1) + entries,
		.entries = entries,
	};
	queue->task = get_task_struct(current);
	queue->mm = current->mm;
	mmgrab(queue->mm);
	queue->ns = get_pid_ns(task_active_pid_ns(current));
	queue->user = current_euid();
	raw_spin_lock_init(&queue->reply_lock);
	init_waitqueue_head(&queue->wait);
	queue->wake = (struct baton_interrupt)BATON_INTERRUPT_INIT(queue->wake,
								   baton_queue_wake_readers);
	INIT_RCU_WORK(&queue->free, free_queue);
	return queue;
}

static s32 find_offer(const char *name)
{
	s32 i;

	for (i = 0; i < BATON_MAX_POLICIES; i++)
		if (offers[i].takes_hints && !strcmp(offers[i].name, name))
			return i;
	return -1;
}

/* Under baton_hints_mutex. A refused request allocates nothing. */
static int open_queue(struct file *file, struct baton_hints_open *arg)
{
	u32 slot = (u32)current->scx.dsq_vtime - 1;
	struct baton_granted granted = {};
	struct baton_queue *queue, *old;
	const char *why;
	s32 policy;

	if (file->private_data)
		return refuse(arg, -EBUSY, "this file has a queue already");
	why = baton_granted(arg->policy, arg->entries, &granted);
	if (why)
		return refuse(arg, granted.is_used_up ? -EDQUOT : -EACCES, why);
	policy = find_offer(arg->policy);
	if (policy < 0)
		return refuse(arg, -ENOENT, "no policy of that name runs and takes hints");
	if (!accepts(&arg->hint, &offers[policy].hint))
		return refuse(arg, -EPROTOTYPE,
			      "the policy's hints are of another type or version");
	if (!accepts(&arg->reply, &offers[policy].reply))
		return refuse(arg, -EPROTOTYPE,
			      "the policy's replies are of another type or version");
	if (slot >= baton_nr_slots)
		return refuse(arg, -ESRCH,
			      "this thread is no task of Baton's: see baton run and baton attach");
	old = baton_queues_by_slot[slot];
	if (old && !READ_ONCE(old->end))
		return refuse(arg, -EBUSY, "this thread has a queue already");
	queue = make_queue(arg->entries);
	if (!queue)
		return -ENOMEM;
	static_branch_deferred_inc(&baton_hints_key);
	queue->slot = slot;
	queue->rings.policy = policy;
	queue->grant = granted.number;
	queue->any_thread = granted.any_thread;
	list_add(&queue->list, &baton_queues);
	/*
	 * From here on events drain the ring. The slot belongs to this thread until its exit, which
	 * cannot come before the end of this function.
	 */
	smp_store_release(&baton_queues_by_slot[slot], queue);
	/*
	 * If the shim was just detached, the slot is gone as well. Either baton_hints_gone() finds
	 * this queue, or the check below sees the change.
	 */
	smp_mb();
	if ((u32)READ_ONCE(current->scx.dsq_vtime) - 1 != slot)
		baton_queue_end(queue, BATON_HINTS_END_UNLOADED);
	/* mmap(), poll() and this ioctl may run concurrently. */
	smp_store_release(&file->private_data, queue);
	arg->size = queue->size;
	return 0;
}

static int open_ioctl(struct file *file, struct baton_hints_open *arg)
{
	bool again;
	u64 seen;
	int err;

	arg->message[0] = 0;
	if (strnlen(arg->policy, BATON_NAME_LEN) == BATON_NAME_LEN || !current->mm)
		return -EINVAL;
	arg->entries = max(arg->entries, BATON_HINTS_MIN_ENTRIES);
	if (arg->entries > BATON_HINTS_MAX_ENTRIES || !is_power_of_2(arg->entries))
		return refuse(arg, -EINVAL,
			      "the number of entries is no power of two, or too large");
	do {
		mutex_lock(&baton_hints_mutex);
		err = open_queue(file, arg);
		/* Closed queues of the user count until their memory is free, which is soon. */
		again = err == -EDQUOT && has_closed(current_euid());
		seen = nr_freed;
		mutex_unlock(&baton_hints_mutex);
		if (again && wait_event_killable(freed, READ_ONCE(nr_freed) != seen))
			return -EINTR;
	} while (again);
	return err == -EDQUOT ? -EACCES : err;
}

union request {
	struct baton_hints_open open;
	struct baton_hints_send send;
};

static long hints_ioctl(struct file *file, unsigned int cmd, unsigned long at)
{
	struct baton_queue *queue = smp_load_acquire(&file->private_data);
	void __user *user = (void __user *)at;
	union request request;
	long err;

	if (cmd != BATON_HINTS_IOC_OPEN && cmd != BATON_HINTS_IOC_SEND)
		return -ENOTTY;
	if (copy_from_user(&request, user, _IOC_SIZE(cmd)))
		return -EFAULT;
	if (cmd == BATON_HINTS_IOC_OPEN)
		err = open_ioctl(file, &request.open);
	else if (!queue)
		err = -ENODATA;
	else
		err = queue->task == current ? baton_queue_give(queue, &request.send) : -EPERM;
	/* A refused request returns with the reason. */
	if ((!err || cmd == BATON_HINTS_IOC_OPEN) && copy_to_user(user, &request, _IOC_SIZE(cmd)))
		return -EFAULT;
	return err;
}

/*
 * A caller that could not open a queue cannot open the device, and so holds no reference to the
 * module.
 */
static int hints_open(struct inode *inode, struct file *file)
{
	bool may;

	mutex_lock(&baton_hints_mutex);
	may = baton_may_open();
	mutex_unlock(&baton_hints_mutex);
	file->private_data = NULL;
	return may ? 0 : -EACCES;
}

/*
 * The queue is closed when its own process closes the file. A child that inherited the file does
 * not keep the queue open.
 */
static int hints_flush(struct file *file, fl_owner_t id)
{
	struct baton_queue *queue = smp_load_acquire(&file->private_data);

	/*
	 * Compare the process, not the memory: after vfork a child shares the memory until it runs
	 * its program.
	 */
	if (queue && same_thread_group(current, queue->task))
		baton_queue_end(queue, BATON_HINTS_END_GONE);
	return 0;
}

/* The last reference to the file is gone, however its owner ended. */
static int hints_release(struct inode *inode, struct file *file)
{
	struct baton_queue *queue = file->private_data;

	if (!queue)
		return 0;
	mutex_lock(&baton_hints_mutex);
	queue->is_closed = true;
	cmpxchg(&baton_queues_by_slot[queue->slot], queue, NULL);
	mutex_unlock(&baton_hints_mutex);
	baton_queue_end(queue, BATON_HINTS_END_GONE);
	static_branch_slow_dec_deferred(&baton_hints_key);
	/* After a grace period no event uses the queue. */
	queue_rcu_work(freeing, &queue->free);
	return 0;
}

static const struct file_operations hints_fops = {
	.owner = THIS_MODULE,
	.open = hints_open,
	.flush = hints_flush,
	.release = hints_release,
	.unlocked_ioctl = hints_ioctl,
	.poll = baton_queue_poll,
	.mmap = baton_queue_mmap,
};

static struct miscdevice hints_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "baton-hints",
	.fops = &hints_fops,
	.mode = 0666,	/* grants decide, see above */
};

int baton_hints_init(u32 max_tasks)
{
	int err = -ENOMEM;

	baton_nr_slots = max_tasks;
	baton_queues_by_slot = vzalloc(array_size(max_tasks, sizeof(*baton_queues_by_slot)));
	freeing = alloc_workqueue("baton_hints", WQ_UNBOUND, 0);
	if (baton_queues_by_slot && freeing)
		err = misc_register(&hints_device);
	if (err) {
		if (freeing)
			destroy_workqueue(freeing);
		vfree(baton_queues_by_slot);
	}
	return err;
}

/* No file of the device is open, as each would hold a reference to the module. */
void baton_hints_exit(void)
{
	misc_deregister(&hints_device);
	static_key_deferred_flush(&baton_hints_key);
	rcu_barrier();
	destroy_workqueue(freeing);
	vfree(baton_queues_by_slot);
}
