/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a host gives to a policy. In the kernel: exported by baton.ko to GPL modules. In user space:
 * hosts/native/c/host.c. The other half of the C interface is baton.h, what a policy gives to a
 * host.
 *
 * Context: all may be called from every method of a policy and none sleeps, but for `create` and
 * `destroy`, which may use the memory functions only.
 */
#ifndef BATON_HOST_H
#define BATON_HOST_H

#include <linux/types.h>
#include <asm/rqspinlock.h>

/*
 * A policy's locks are these, not raw_res_spin_lock: one that cannot be had (a deadlock, or not in
 * time) ends the call and the policy, not the machine, and what the call holds is released. Up to
 * 31 at once, released in the reverse order.
 */
void baton_host_lock(rqspinlock_t *lock);
bool baton_host_try_lock(rqspinlock_t *lock);	/* false when it is taken */
void baton_host_unlock(rqspinlock_t *lock);

/*
 * NULL when there is no memory, or more than 8 KiB are asked for outside `create`. Not zeroed: in
 * user space each byte is 0xa5. `align` is a power of two.
 */
void *baton_host_alloc(size_t size, size_t align);
void baton_host_free(void *at);			/* NULL is nothing */

u64 baton_host_now(void);			/* ns; does not go back on one CPU */
u64 baton_host_random(void);

/*
 * Tells the host of a value that was read and that other CPUs change without a lock: an input of
 * the policy, which a recording must have. Needed only while baton_recording is not 0.
 */
void baton_host_read(u64 value);
extern u32 baton_recording;

/* Has the policy's `timer` called on this CPU, once; ns from now. Replaces the one armed before. */
void baton_host_arm_timer(u64 after_ns);
void baton_host_cancel_timer(void);

/* may the task run on that CPU now? It may change until it is picked. */
bool baton_host_may_run(u32 slot, s32 cpu);
bool baton_host_cpu_online(s32 cpu);
bool baton_host_cpu_idle(s32 cpu);		/* idle, and claimed by nobody */
/* false: none is; one look, where asking for each is one per CPU */
bool baton_host_any_idle(void);
/* false when it was not idle, or another was first */
bool baton_host_claim_idle(s32 cpu);

/*
 * Replies to the task in that slot, which has a queue to this policy, with BATON_HINT_WORDS words:
 * an enum baton_reply_answer. See docs/hints.md.
 */
u32 baton_host_reply(u32 slot, u32 tag, const u64 *words);

/* Ends the call and stops the policy, with a report that has place and message. */
void __noreturn baton_host_panic(const char *file, size_t file_len, u32 line, const char *message,
				 size_t message_len);

/* Does so unless the condition holds. */
#define baton_assert(condition)                                                            \
	do {                                                                               \
		if (unlikely(!(condition)))                                                \
			baton_host_panic(__FILE__, sizeof(__FILE__) - 1, __LINE__,         \
					 "it does not hold that " #condition,              \
					 sizeof("it does not hold that " #condition) - 1); \
	} while (0)

/* For the glue of policies in Rust: a Schedulable that was dropped. */
void baton_host_token_dropped(u64 token);

#endif
