/* SPDX-License-Identifier: GPL-2.0-only */
/* Hints: interface between hints.c and grants.c. */
#ifndef BATON_HINTS_H
#define BATON_HINTS_H

#include <linux/list.h>

#include "channel.h"

/* All queues that take memory; under baton_hints_mutex. */
extern struct list_head baton_queues;

/* grants.c; under baton_hints_mutex */
struct baton_granted {
	u64 number;	/* 0: no grant was needed */
	bool any_thread;
	bool is_used_up;	/* the reason of the refusal: too many queues */
};
bool baton_may_open(void);
const char *baton_granted(const char *policy, u32 entries, struct baton_granted *granted);

#endif
