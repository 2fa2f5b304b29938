/* SPDX-License-Identifier: GPL-2.0-only */
/* The queue of a thread: interface between channel.c, hints.c and core-lib/src/hints.rs. */
#ifndef BATON_CHANNEL_H
#define BATON_CHANNEL_H

#include <linux/fs.h>
#include <linux/irq_work.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "core.h"
#include "interrupt.h"

/* The part of a queue that core-lib/src/hints.rs uses. */
struct baton_rings {
	/* `entries` entries each, in memory that an application writes to */
	const void *hints, *replies;
	u32 entries;
	u32 policy;		/* index in the table of policies */
	u64 next_hint;		/* guarded by `busy` */
	u64 next_reply;		/* guarded by `reply_lock` */
};

/*
 * The queue of a thread to a policy. It belongs to an open file of the device, and is freed one
 * grace period after the file is closed.
 */
struct baton_queue {
	struct baton_rings rings;
	struct task_struct *task;	/* the thread that opened it */
	struct mm_struct *mm;		/* its memory at that time; only compared */
	struct pid_namespace *ns;	/* its namespace when it opened the queue */
	struct baton_hints_head *head;	/* the mapped memory; the host only writes the head */
	size_t size;
	u32 slot;
	u32 end;			/* enum baton_hints_end; written once, from any context */
	u32 refused, lost;		/* guarded like next_hint and next_reply respectively */
	/* bit 0: the hints are being read. A trylock: never waited for with interrupts off. */
	unsigned long busy;
	raw_spinlock_t reply_lock;	/* no lock is taken under it */
	bool any_thread;
	bool is_closed;			/* its file is; guarded by baton_hints_mutex */
	kuid_t user;
	u64 grant;			/* number of the grant that allowed it; 0 for none */
	wait_queue_head_t wait;
	struct baton_interrupt wake;
	/* all queues that take memory; guarded by baton_hints_mutex */
	struct list_head list;
	struct rcu_work free;
};

/* hints.c; read in RCU read-side sections */
extern struct baton_queue **baton_queues_by_slot;
extern u32 baton_nr_slots;

/* The queue of a slot, or NULL. In an RCU read-side section. */
static inline struct baton_queue *baton_queue_in(u32 slot)
{
	return slot < baton_nr_slots ? smp_load_acquire(&baton_queues_by_slot[slot]) : NULL;
}

/* channel.c */
void baton_queue_end(struct baton_queue *queue, u32 why);
void baton_queue_wake_readers(struct irq_work *work);
int baton_queue_give(struct baton_queue *queue, struct baton_hints_send *arg);
__poll_t baton_queue_poll(struct file *file, poll_table *table);
int baton_queue_mmap(struct file *file, struct vm_area_struct *vma);

/* core-lib/src/hints.rs; any context */
bool baton_core_hints_ready(const struct baton_rings *rings);
bool baton_core_hints_unread(const struct baton_rings *rings);
/* Interrupts off */
u32 baton_core_hints_drain(struct baton_rings *rings, u64 from, struct baton_ctx *ctx,
			   struct baton_frame *frame, const struct baton_cpu_state *cpu);
u32 baton_core_hint(struct baton_rings *rings, u64 from, struct baton_ctx *ctx,
		    struct baton_frame *frame, const struct baton_cpu_state *cpu,
		    const struct baton_hint *hint);
bool baton_core_hints_reply(struct baton_rings *rings, const struct baton_hint *reply);

#endif
