/* SPDX-License-Identifier: GPL-2.0-only */
/* Hints: interface between hints.c, grants.c and core-lib/src/hints.rs. */
#ifndef BATON_HINTS_H
#define BATON_HINTS_H

#include <linux/list.h>
#include <linux/mutex.h>
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
	struct mm_struct *mm;		/* its memory when it opened the queue; only compared */
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
	bool is_closed;			/* the file is closed; guarded by baton_hints_mutex */
	kuid_t user;
	u64 grant;			/* number of the grant that allowed it; 0 for none */
	wait_queue_head_t wait;
	struct baton_interrupt wake;
	/* all queues that take memory; guarded by baton_hints_mutex */
	struct list_head list;
	struct rcu_work free;
};

extern struct list_head baton_queues;

/* hints.c */
void baton_queue_end(struct baton_queue *queue, u32 why);

/* grants.c; under baton_hints_mutex */
struct baton_granted {
	u64 number;	/* 0: no grant was needed */
	bool any_thread;
	bool is_used_up;	/* the reason of the refusal: too many queues */
};
bool baton_may_open(void);
const char *baton_granted(const char *policy, u32 entries, struct baton_granted *granted);

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
