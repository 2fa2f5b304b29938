/* SPDX-License-Identifier: GPL-2.0-only */
/* The table of policies. Process context, under baton_control_mutex, unless noted. */
#ifndef BATON_PLACE_H
#define BATON_PLACE_H

#include <linux/hrtimer.h>
#include <linux/list.h>
#include <linux/percpu.h>
#include <linux/types.h>
#include <asm/rqspinlock.h>

#include "core.h"

#define BATON_MEMORY_LIMIT (256ULL << 20)	/* bytes that a policy may allocate */

struct baton_timer {
	struct hrtimer timer;
	u32 policy;
};

/*
 * One version of a policy. core-lib/src/kernel.rs depends on the layout of the first two fields,
 * which every call reads.
 */
struct baton_version {
	/* set before the version runs, constant while it runs */
	void *this;
	/* a copy, so that one pointer leads to all that a call needs */
	struct baton_policy ops;
	const struct baton_policy *registered;
	/* referenced while the version runs, has faulted, or is kept for a rollback */
	struct module *module;
};

/*
 * One entry of the table of policies: the C side of baton_core's PolicyEntry. Guarded by
 * control_mutex unless noted.
 */
struct baton_place {
	struct baton_version *active;	/* NULL if the entry is free */
	struct baton_version *next;	/* loaded, for the next upgrade */
	struct baton_version *before;	/* kept for a rollback, with its module */
	struct baton_timer __percpu *timers;
	char name[BATON_NAME_LEN];
	char options[BATON_OPTIONS_LEN];
	char options_before[BATON_OPTIONS_LEN];
	/* turns.c; constant while the policy runs */
	u32 max_looks;
	/* upgrade.c */
	u64 changes;
	/* the newest is at (changes - 1) % BATON_CHANGES_KEPT */
	struct baton_change history[BATON_CHANGES_KEPT];
	unsigned long probation_end;	/* jiffies */
	bool on_probation;
	/* memory.c; guarded by memory_lock, which may be taken with interrupts off */
	rqspinlock_t memory_lock;
	struct list_head blocks;
	u64 memory;
	u64 memory_limit;
	struct baton_recording *recording;	/* record.c; NULL if not recorded */
	struct baton_recording *kept;	/* flight.c; recording of the last fault, or NULL */
	/* blocks of the flight recorder of each CPU; 0 for no flight recorder */
	u32 flight;
	/*
	 * fault.c; written once per start, by the CPU that stops the policy; read under
	 * control_mutex
	 */
	struct baton_fault fault;
};

extern struct baton_place baton_places[BATON_MAX_POLICIES];

/* The index of an entry, which is that of the policy in the rules. Any context. */
static inline u32 baton_place_index(const struct baton_place *place)
{
	return place - baton_places;
}

/* enum baton_policy_state of the policy in an entry. Any context. */
static inline u32 baton_place_state(const struct baton_place *place)
{
	return baton_core_state(baton_place_index(place));
}

/* memory.c */
struct baton_place *baton_current_place(void);

/* place.c */
struct baton_place *baton_find(const char *name);
u32 baton_events_of(const struct baton_version *version);
void baton_forget_version(struct baton_version **version);
int baton_place_start(struct baton_start *arg);
void baton_place_stop(struct baton_place *place, char *message);

#endif
