/* SPDX-License-Identifier: GPL-2.0-only */
/* Hints: between hints.c, grants.c, and core-lib/src/hints.rs. */
#ifndef BATON_HINTS_H
#define BATON_HINTS_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "core.h"
#include "interrupt.h"

/* A queue as far as core-lib/src/hints.rs knows it. */
struct baton_rings {
	/* `entries` of each, in memory that an application writes to */
	const void *hints, *replies;
	u32 entries;
	u32 policy;		/* place in the table */
	u64 next_hint;		/* guarded by `busy` */
	u64 next_reply;		/* guarded by `reply_lock` */
};

/*
 * A thread's queue to a policy. It belongs to an open file of the device, and is freed a grace
 * period after that is closed.
 */
struct baton_queue {
	struct baton_rings rings;
	struct task_struct *task;	/* the thread that opened it */
	struct mm_struct *mm;		/* its memory then: only compared */
	struct pid_namespace *ns;	/* its own then */
	struct baton_hints_head *head;	/* what is mapped; written only */
	size_t size;
	u32 slot;
	u32 end;			/* enum baton_hints_end; written once, from any context */
	u32 refused, lost;		/* guarded as next_hint, next_reply */
	/* bit 0: its hints are being read. Tried, and never waited for with interrupts off. */
	unsigned long busy;
	raw_spinlock_t reply_lock;	/* nothing is taken under it */
	bool any_thread;
	bool is_closed;			/* its file; guarded by baton_hints_mutex */
	kuid_t user;
	u64 grant;			/* number of the one that it was opened by; 0 for none */
	wait_queue_head_t wait;
	struct baton_interrupt wake;
	struct list_head list;		/* of all that take memory; guarded by baton_hints_mutex */
	struct rcu_work free;
};

extern struct list_head baton_queues;

/* hints.c */
void baton_queue_end(struct baton_queue *queue, u32 why);

/* grants.c; under baton_hints_mutex */
struct baton_granted {
	u64 number;	/* 0: none is needed */
	bool any_thread;
	bool is_used_up;	/* of what is refused: for the number of queues */
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
