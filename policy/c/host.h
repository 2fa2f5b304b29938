/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The functions that a host provides to a policy. In the kernel, baton.ko exports them to GPL
 * modules. In user space, they are in hosts/native/c/host.c. The other half of the C interface is
 * baton.h: the functions that a policy provides to a host.
 *
 * Context: every method of a policy may call all functions, and none sleeps. The exceptions are
 * `create` and `destroy`, which may use the memory functions only.
 */
#ifndef BATON_HOST_H
#define BATON_HOST_H

#include <linux/types.h>
#include <asm/rqspinlock.h>

/*
 * A policy must use these locks, not raw_res_spin_lock. A lock that cannot be acquired (deadlock,
 * timeout) ends the call and the policy, not the machine, and all locks of the call are released. A
 * call may hold up to 31 locks at once, and releases them in the reverse order.
 */
void baton_host_lock(rqspinlock_t *lock);
bool baton_host_try_lock(rqspinlock_t *lock);	/* false when it is taken */
void baton_host_unlock(rqspinlock_t *lock);

/*
 * Returns NULL when there is no memory, or when more than 8 KiB are requested outside `create`. The
 * memory is not zeroed: in user space each byte is 0xa5. `align` must be a power of two.
 */
void *baton_host_alloc(size_t size, size_t align);
void baton_host_free(void *at);			/* NULL is ignored */

u64 baton_host_now(void);			/* ns; does not go back on one CPU */
u64 baton_host_random(void);

/*
 * Reports a value that was read and that other CPUs change without a lock. Such a value is an input
 * of the policy, and a recording must hold it. Needed only while baton_recording is not 0. Returns
 * the value; in a replay, the recorded one.
 */
u64 baton_host_read(u64 value);
extern u32 baton_recording;

/* Calls the policy's `timer` on this CPU, once, ns from now. Replaces the timer armed before. */
void baton_host_arm_timer(u64 after_ns);
void baton_host_cancel_timer(void);

/* May the task run on that CPU now? The answer may change until it is picked. */
bool baton_host_may_run(u32 slot, s32 cpu);
bool baton_host_cpu_online(s32 cpu);
bool baton_host_cpu_idle(s32 cpu);		/* idle and unclaimed */
/* false if no CPU is idle; one query instead of one per CPU */
bool baton_host_any_idle(void);
/* false when it was not idle or was already claimed */
bool baton_host_claim_idle(s32 cpu);

/*
 * Replies to the task in that slot, which has a queue to this policy, with BATON_HINT_WORDS words.
 * Returns an enum baton_reply_answer. See docs/hints.md.
 */
u32 baton_host_reply(u32 slot, u32 tag, const u64 *words);

/*
 * Ends the call and stops the policy, with a report of the location and the message. It does not
 * return, which is not declared: the kernel's objtool has a list of such functions, and warns of
 * any other.
 */
void baton_host_panic(const char *file, size_t file_len, u32 line, const char *message,
		      size_t message_len);

/* Calls baton_host_panic() unless the condition holds. */
#define baton_assert(condition)                                                            \
	do {                                                                               \
		if (unlikely(!(condition)))                                                \
			baton_host_panic(__FILE__, sizeof(__FILE__) - 1, __LINE__,         \
					 "it does not hold that " #condition,              \
					 sizeof("it does not hold that " #condition) - 1); \
	} while (0)

/*
 * A word of the policy's for the call under way on this CPU. It is kept while the call waits for a
 * lock, and lost when the call ends.
 */
#ifdef __KERNEL__
DECLARE_PER_CPU(void *, baton_call_word);	/* of the policy's module */
#define baton_host_get_call() this_cpu_read(baton_call_word)
#define baton_host_set_call(word) this_cpu_write(baton_call_word, word)
#else
void *baton_host_get_call(void);
void baton_host_set_call(void *word);
#endif

/*
 * For events.h: reports a change of a thread's state that was refused, with the line of the
 * policy's source (0 if there is none) and the reason. `pid` is the thread's.
 */
void baton_host_refused(u32 pid, const char *handler, const char *from, const char *to, u32 line,
			const char *why);

#ifndef __KERNEL__
/* The same for a change that was made. */
void baton_host_changed(u32 pid, const char *handler, const char *from, const char *to, u32 line);
#endif

/* For the glue of policies in Rust and events.h: reports that a token was lost. */
void baton_host_token_dropped(u64 token);

#endif
