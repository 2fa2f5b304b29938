/* SPDX-License-Identifier: GPL-2.0-only */
/* Recording: what the host's functions (host.c, timer.c, memory.c) need of it. */
#ifndef BATON_RECORD_H
#define BATON_RECORD_H

#include <linux/jump_label.h>
#include <linux/percpu.h>
#include <linux/types.h>

#include "core.h"

#define BATON_RECORDER_SIZE 320	/* core-lib/src/record.rs checks it */

/* One CPU's ring, as far as core-lib/src/record.rs knows it: that CPU's alone while calls are recorded. */
struct baton_ring {
	void *block;	/* being written; NULL when there is none */
	u32 cpu;
	u32 reserved;
	u8 recorder[BATON_RECORDER_SIZE] __aligned(8);
};

DECLARE_STATIC_KEY_FALSE(baton_recording_key);

/* core-lib/src/record.rs; in a call that is recorded */
void baton_core_record_lock(struct baton_ring *ring, const void *lock);
void baton_core_record_busy(struct baton_ring *ring, const void *lock);
void baton_core_record_now(struct baton_ring *ring, u64 now);
void baton_core_record_random(struct baton_ring *ring, u64 number);
void baton_core_record_read(struct baton_ring *ring, u64 value);
void baton_core_record_may_run(struct baton_ring *ring, u32 slot, s32 cpu, bool yes);
void baton_core_record_cpu(struct baton_ring *ring, u32 which, s32 cpu, bool yes);
void baton_core_record_any_idle(struct baton_ring *ring, bool yes);
void baton_core_record_arm_timer(struct baton_ring *ring, u64 after);
void baton_core_record_cancel_timer(struct baton_ring *ring);
void baton_core_record_no_memory(struct baton_ring *ring);
void baton_core_record_dropped(struct baton_ring *ring, u64 token);
void baton_core_record_begin(struct baton_ring *ring);
bool baton_core_record_end(struct baton_ring *ring, void *block);

/* Questions about a CPU. */
#define BATON_RECORD_ONLINE 0
#define BATON_RECORD_IDLE 1
#define BATON_RECORD_CLAIM 2

#ifdef BATON_WITHOUT_RECORDING
#define baton_is_recording() false
#else
/* May the call under way be recorded? Off, a jump that is not taken. */
#define baton_is_recording() static_branch_unlikely(&baton_recording_key)
#endif

/* Records what the call under way did, if it is recorded. For what is not on the hot path, or already apart from it. */
#define baton_record(what, ...)								\
	do {										\
		if (baton_is_recording()) {						\
			struct baton_ring *ring_ = this_cpu_read(baton_frame.ring);	\
											\
			if (ring_)							\
				baton_core_record_##what(ring_, ##__VA_ARGS__);		\
		}									\
	} while (0)

#endif
