// SPDX-License-Identifier: GPL-2.0-only
/*
 * The channel between a thread and its policy: how hints and replies pass through the rings of an
 * open queue, how the thread maps the rings, and how it waits for replies.
 *
 * Hints are read at scheduling events of the current task (it wakes another task, sleeps, is
 * preempted, has a tick), and of the task that is woken. There is no polling. While no queue is
 * open, an event costs a jump that is not taken.
 *
 * An application may write to the mapped memory at any time. Only core-lib/src/hints.rs reads it,
 * and trusts nothing in it. The host keeps its own position in a ring outside that memory.
 *
 * An event may come with a run-queue lock held, so threads that wait for replies are woken by an
 * irq_work (interrupt.c).
 */
#include <linux/export.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/pid_namespace.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/vmalloc.h>

#include "channel.h"
#include "host.h"
#include "record.h"
#include "register.h"

/* Closes a queue, once. Any context in which the queue exists. */
void baton_queue_end(struct baton_queue *queue, u32 why)
{
	if (cmpxchg(&queue->end, BATON_HINTS_END_NONE, why) == BATON_HINTS_END_NONE) {
		WRITE_ONCE(queue->head->end, why);
		baton_interrupt(&queue->wake);
	}
}

/* The handler of `wake`: wakes the threads that poll the queue. */
void baton_queue_wake_readers(struct irq_work *work)
{
	wake_up_all(&container_of(work, struct baton_queue, wake.work)->wait);
}

/*
 * For core-lib: the handle of the thread with this id if a hint may name that thread, else 0. In an
 * RCU read-side section.
 */
u64 baton_khost_thread(const struct baton_rings *rings, u32 id);
u64 baton_khost_thread(const struct baton_rings *rings, u32 id)
{
	const struct baton_queue *queue = container_of(rings, struct baton_queue, rings);
	struct task_struct *task;
	u64 handle = 0;

	rcu_read_lock();
	task = pid_task(find_pid_ns(id, queue->ns), PIDTYPE_PID);
	if (task && (queue->any_thread || same_thread_group(task, queue->task)))
		handle = task->scx.dsq_vtime;
	rcu_read_unlock();
	return handle;
}

/* Is the queue open, and does its thread still run the program that opened it? Closes it if not. */
static bool is_open(struct baton_queue *queue)
{
	if (READ_ONCE(queue->end))
		return false;
	if (likely(READ_ONCE(queue->task->mm) == queue->mm))
		return true;
	baton_queue_end(queue, BATON_HINTS_END_GONE);
	return false;
}

/* Delivers hints from the ring. The caller holds `busy`. */
static void read_ring(struct baton_queue *queue, struct baton_ctx *ctx, struct baton_frame *frame)
{
	u32 refused = baton_core_hints_drain(&queue->rings, queue->task->scx.dsq_vtime, ctx, frame,
					     frame->cpu);

	if (refused) {
		queue->refused += refused;
		WRITE_ONCE(queue->head->refused, queue->refused);
	}
}

static void drain(struct baton_queue *queue, struct baton_ctx *ctx, struct baton_frame *frame)
{
	if (!baton_core_hints_ready(&queue->rings) || !is_open(queue))
		return;
	/* Another CPU reads the ring, for another event of the thread. */
	if (test_and_set_bit_lock(0, &queue->busy))
		return;
	read_ring(queue, ctx, frame);
	clear_bit_unlock(0, &queue->busy);
}

/*
 * Delivers the hints of the current task and of the task `ctx->task`, before an event of theirs.
 * Interrupts off.
 */
void baton_hints_event(struct baton_ctx *ctx, struct baton_frame *frame)
{
	struct baton_queue *queue = baton_queue_in((u32)current->scx.dsq_vtime - 1);

	if (queue && queue->task == current)
		drain(queue, ctx, frame);
	if (ctx->task == current->scx.dsq_vtime)
		return;
	queue = baton_queue_in((u32)ctx->task - 1);
	if (queue && queue->task->scx.dsq_vtime == ctx->task)
		drain(queue, ctx, frame);
}

/* In an RCU read-side section, with interrupts off. */
static u32 send_reply(u32 policy, u32 slot, const struct baton_hint *reply)
{
	struct baton_queue *queue = baton_queue_in(slot);
	bool fits;

	if (!queue || READ_ONCE(queue->end) || queue->rings.policy != policy)
		return BATON_REPLY_ANSWER_NO_QUEUE;
	raw_spin_lock(&queue->reply_lock);
	fits = baton_core_hints_reply(&queue->rings, reply);
	if (!fits)
		WRITE_ONCE(queue->head->lost, ++queue->lost);
	raw_spin_unlock(&queue->reply_lock);
	if (!fits)
		return BATON_REPLY_ANSWER_FULL;
	if (wq_has_sleeper(&queue->wait))
		baton_interrupt(&queue->wake);
	return BATON_REPLY_ANSWER_SENT;
}

u32 baton_host_reply(u32 slot, u32 tag, const u64 *words)
{
	struct baton_hint reply = { .tag = tag };
	u32 answer;

	if (baton_creating())
		return BATON_REPLY_ANSWER_NO_QUEUE;
	memcpy(reply.words, words, sizeof(reply.words));
	answer = send_reply(baton_core_current_policy(smp_processor_id()), slot, &reply);
	baton_record(reply, slot, &reply, answer);
	return answer;
}
EXPORT_SYMBOL_GPL(baton_host_reply);

u32 baton_reply(u32 index, u32 slot, const struct baton_hint *reply)
{
	unsigned long flags;
	u32 answer;

	local_irq_save(flags);
	answer = send_reply(index, slot, reply);
	local_irq_restore(flags);
	return answer;
}
EXPORT_SYMBOL_GPL(baton_reply);

/*
 * Delivers to the policy the hints in the ring of the current thread, and then the hint of `arg`,
 * if any. In process context of the queue's own thread. Only an event that wakes the thread can use
 * the ring at the same time.
 */
int baton_queue_give(struct baton_queue *queue, struct baton_hints_send *arg)
{
	u32 left = queue->rings.entries;
	bool is_done = false;
	int err = 0;

	while (!is_done) {
		struct baton_ctx ctx = {};
		struct baton_frame *frame;
		unsigned long flags;

		local_irq_save(flags);
		if (!is_open(queue)) {
			err = -ESHUTDOWN;
			is_done = true;
		} else if (!test_and_set_bit_lock(0, &queue->busy)) {
			ctx.now = baton_coarse_now();
			ctx.cpu = smp_processor_id();
			frame = this_cpu_ptr(&baton_frame);
			read_ring(queue, &ctx, frame);
			left -= min(left, BATON_HINTS_AT_ONCE);
			is_done = !left || !baton_core_hints_ready(&queue->rings);
			if (is_done && arg)
				arg->answer = baton_core_hint(&queue->rings,
							      queue->task->scx.dsq_vtime, &ctx,
							      frame, frame->cpu, &arg->hint);
			clear_bit_unlock(0, &queue->busy);
			baton_khost_kick(&ctx);
		}
		local_irq_restore(flags);
		cond_resched();
	}
	return err;
}

__poll_t baton_queue_poll(struct file *file, poll_table *table)
{
	struct baton_queue *queue = smp_load_acquire(&file->private_data);
	__poll_t ready = 0;

	if (!queue)
		return EPOLLERR;
	poll_wait(file, &queue->wait, table);
	/*
	 * Deliver the hints before the thread waits for a reply. The coming sleep may cause no
	 * event, and one event reads at most BATON_HINTS_AT_ONCE hints.
	 */
	if (queue->task == current && baton_core_hints_ready(&queue->rings))
		baton_queue_give(queue, NULL);
	if (baton_core_hints_unread(&queue->rings))
		ready |= EPOLLIN | EPOLLRDNORM;
	if (READ_ONCE(queue->end))
		ready |= EPOLLHUP;
	return ready;
}

static vm_fault_t hints_fault(struct vm_fault *vmf)
{
	const struct baton_queue *queue = vmf->vma->vm_private_data;

	if (vmf->pgoff >= queue->size / PAGE_SIZE || vmf->vma->vm_mm != queue->mm)
		return VM_FAULT_SIGBUS;
	vmf->page = vmalloc_to_page((void *)queue->head + vmf->pgoff * PAGE_SIZE);
	get_page(vmf->page);
	return 0;
}

static const struct vm_operations_struct vm_ops = {
	.fault = hints_fault,
};

/*
 * Only the process of the thread may map the queue, and a child does not inherit the mapping. The
 * mapping holds a reference to the file, and the file to the queue.
 */
int baton_queue_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct baton_queue *queue = smp_load_acquire(&file->private_data);

	if (!queue)
		return -ENODATA;
	if (current->mm != queue->mm || !(vma->vm_flags & VM_SHARED))
		return -EPERM;
	vm_flags_set(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	vma->vm_private_data = queue;
	vma->vm_ops = &vm_ops;
	return 0;
}
