/* SPDX-License-Identifier: GPL-2.0-only */
/* Made from policy/seam/src/host_native.rs by `cargo xtask header`: change it there. */

#ifndef BATON_TABLE_H
#define BATON_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The functions that a host provides to a policy. The functions of this module call those of the
// table installed on the thread. All are called on that thread, inside a call of the policy.
struct table {
	// Takes a lock. Returns false when that is impossible; the call is then abandoned.
	bool (*lock)(const uint32_t *word);
	// Takes a lock if it is free.
	bool (*try_lock)(const uint32_t *word);
	// Releases a lock. Returns false when it is not the one taken last; the call is then
	// abandoned.
	bool (*unlock)(const uint32_t *word);
	// Reports that a policy dropped a `Schedulable`. Returns false when a task was lost; the call
	// is then abandoned.
	bool (*token_dropped)(uint64_t token);
	// Reports that the policy has panicked; the call is being abandoned. File and message are
	// UTF-8, not terminated, and valid during the call.
	void (*panicked)(const uint8_t *file,
			 uintptr_t file_len,
			 uint32_t line,
			 const uint8_t *message,
			 uintptr_t message_len);
	// The time, ns.
	uint64_t (*now)(void);
	// A random number.
	uint64_t (*random)(void);
	// Arms this policy's timer on this CPU, ns from now.
	void (*arm_timer)(uint64_t after_ns);
	// Cancels this policy's timer on this CPU.
	void (*cancel_timer)(void);
	// Reports a value that was read and that other CPUs change without a lock. Returns the value
	// for the policy.
	uint64_t (*read)(uint64_t value);
	// May the task in this slot run on that CPU now?
	bool (*may_run)(uint32_t slot, int32_t cpu);
	// Is the CPU online?
	bool (*cpu_online)(int32_t cpu);
	// Is the CPU idle and unclaimed?
	bool (*cpu_idle)(int32_t cpu);
	// May any CPU be idle?
	bool (*any_idle)(void);
	// Claims an idle CPU; false when it was not idle or was already claimed.
	bool (*claim_idle)(int32_t cpu);
	// May an allocation succeed?
	bool (*has_memory)(void);
	// Replies to a task, with six words. Returns a `BatonReplyAnswer`.
	uint32_t (*reply)(uint32_t slot, uint32_t tag, const uint64_t (*words)[6]);
	// Reports a change of a thread's state that was refused (policy/c/events.h). The texts are
	// UTF-8, NUL-terminated, and valid during the call. `line` is 0 if none is known.
	void (*refused)(uint32_t pid,
			const char *handler,
			const char *from,
			const char *to,
			uint32_t line,
			const char *why);
	// Reports a change of a thread's state that was made, with texts as above; `line` is 0 if the
	// library made it. Absent in hosts that do not ask.
	void (*changed)(uint32_t pid,
			const char *handler,
			const char *from,
			const char *to,
			uint32_t line);
	// Announces the use of one of the policy's own atomics. Only a policy that was built for the
	// checker calls this.
	void (*atomic)(void);
};

#endif  /* BATON_TABLE_H */
