/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The engine that puts a changed scheduler in the place of the kernel's own, and takes it out
 * again.
 *
 * sites.c has the places in the kernel's code that are changed, stacks.c finds out whether a task
 * is inside code that must not be left, window.c stops the machine for both, engine.c is what the
 * module's user sees.
 *
 * Symbols of the kernel that are not exported are found by its loader, as for a live patch
 * (Documentation/livepatch/module-elf-format.rst).
 */
#ifndef BATON_LIVE_ENGINE_H
#define BATON_LIVE_ENGINE_H

#include <linux/types.h>

struct task_struct;

/* An entry of the table that is made with the module (live/src/extract.rs). */
struct baton_live_function {
	unsigned long old;	/* the kernel's function, or the rarely executed part of one */
	unsigned long new;	/* in its place; 0 if only replaced ones call it */
	u32 size;		/* of the old one, in bytes */
	u32 jump;		/* where in the old one the jump to the new one goes */
};

extern const struct baton_live_function baton_live_functions[];
extern const struct baton_live_function baton_live_functions_end[];

/* What the last attempt to switch found. Times are in ns. */
struct baton_live_report {
	unsigned int attempts;
	unsigned int cpus;
	unsigned int tasks;
	u64 total;		/* of the last attempt, while all CPUs were stopped */
	u64 check;		/* of the stacks */
	u64 stores;		/* into the code */
	/* Of a refusal: the task in the way, and where it is. */
	char comm[16];
	int pid;
	unsigned long ip;
};

/* sites.c */
int baton_live_plan(void);
void baton_live_forget(void);
unsigned int baton_live_sites(void);
/* With the machine stopped, on one CPU. An error leaves the code as it was. */
int baton_live_store(bool install);
/* With the machine running again, in the context that took the jump labels' lock. */
void baton_live_sync_labels(void);

/* stacks.c */
int baton_live_ranges(void);
void baton_live_forget_ranges(void);
/* With the machine stopped. Is the task outside all code that must not be left? */
bool baton_live_task_is_clear(struct task_struct *task, bool install, unsigned long *ip);

/* window.c */
int baton_live_switch(bool install, struct baton_live_report *report);

#endif
