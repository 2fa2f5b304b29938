/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Registration of a policy's module with baton.ko (place.c), and what else a module needs that
 * makes policies while it is loaded (outside.c). Process context, may sleep, unless noted.
 */
#ifndef BATON_REGISTER_H
#define BATON_REGISTER_H

#include <linux/types.h>

struct baton_agent_fail;
struct baton_hint;
struct baton_policy;
struct module;
struct task_struct;

/*
 * Returns 0, or an error. -ENOEXEC: the module was built for another version of the interface.
 * -EINVAL: it lacks a needed function, or its name is not [a-z0-9_]. -EEXIST: a policy of that name
 * is registered. -ENOSPC: the table is full. -ENOMEM.
 */
int baton_register(const struct baton_policy *ops, struct module *module);

/* The policy is not running, as a running one holds a reference to its module. */
void baton_unregister(const struct baton_policy *ops, const struct module *module);

/*
 * Starts a registered policy, or one that was stopped by a fault, with these events. It takes the
 * hints that `ops` says now. Returns the policy's index, or an error. `message` has
 * BATON_MESSAGE_LEN bytes and receives the reason for a refusal.
 */
int baton_start(const struct baton_policy *ops, u32 events, const char *options, char *message);

/* Stops a policy. When it returns, no call of the policy is in progress. */
void baton_stop(const struct baton_policy *ops);

/*
 * Stops a running policy with this report, once, if `this` is what its `create` returned. Its tasks
 * go on under the fallback at once. When it returns, no call of the policy is in progress.
 */
void baton_fail(const struct baton_policy *ops, const void *this,
		const struct baton_agent_fail *report);

/* Assigns a thread to a policy, and moves it into class SCHED_EXT. */
int baton_join(const struct baton_policy *ops, struct task_struct *task);

/* Assigns a thread to no policy, and moves it out of class SCHED_EXT. */
void baton_leave(struct task_struct *task);

/*
 * The task in this slot is an agent: the policy may keep its token for any time. In a call of the
 * policy about the task.
 */
void baton_keep_in_custody(u32 slot);

/*
 * Copies the CPUs that the task in this slot may use: a bit for each CPU, in so many words. In a
 * call of the policy about the task.
 */
void baton_copy_mask(u32 slot, u64 *mask, u32 words);

/*
 * Sends a reply to the task in this slot, from the policy of this index, which is not unregistered
 * meanwhile. Returns an enum baton_reply_answer. Any context except NMI.
 */
u32 baton_reply(u32 index, u32 slot, const struct baton_hint *reply);

/*
 * Makes a CPU dispatch: one that is idle, or, with `preempt`, also one that runs a task of class
 * SCHED_EXT. Any context except NMI.
 */
void baton_kick_cpu(u32 cpu, bool preempt);

#endif
