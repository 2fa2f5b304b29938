/* SPDX-License-Identifier: GPL-2.0-only */
/* Recording: interface for the services of the host (host.c, timer.c, memory.c). */
#ifndef BATON_RECORD_H
#define BATON_RECORD_H

#include <linux/jump_label.h>
#include <linux/kref.h>
#include <linux/percpu.h>
#include <linux/spinlock.h>
#include <linux/types.h>

#include "core.h"

#define BATON_RECORDER_SIZE 320	/* core-lib/src/record.rs checks it */

/*
 * The part of a CPU's ring that core-lib/src/record.rs uses. It belongs to that CPU alone while
 * calls are recorded.
 */
struct baton_ring {
	void *block;	/* the block being written, or NULL */
	u32 cpu;
	u32 reserved;
	u8 recorder[BATON_RECORDER_SIZE] __aligned(8);
};

#define BATON_NO_BLOCK U16_MAX
/* bytes reserved for a state at first, and on top of what it says that it needs */
#define BATON_STATE_ROOM (1 << 20)

/* A complete ring: record.c, flight.c. */
struct ring {
	struct baton_ring head;
	struct baton_recording *recording;
	/* guards the rest; the CPU takes it once for each block. No lock is taken under it. */
	raw_spinlock_t lock;
	bool is_full;		/* whether the ring was full since the last checkpoint */
	u16 current_block;	/* number of head.block */
	u16 read_block;		/* the block that the reader has */
	u32 nr_blocks;		/* number of blocks; never decreases */
	u32 nr_free, nr_filled, first_filled;
	u32 nr_before;		/* filled blocks from before the newest checkpoint */
	void **blocks;		/* `bound` entries */
	u16 *free;		/* a stack of numbers */
	u16 *filled;		/* a queue of numbers, `bound` entries */
};

/* A saved state of a policy. */
struct saved {
	void *at;
	size_t room;
	/* length of the state; more than `room` if it did not fit, or BATON_ABORTED */
	u64 length;
	u64 stamp;	/* time at which it was saved */
};

struct baton_recording {
	/*
	 * references: of the file, or of the policy's entry and of the files that read the kept
	 * recording
	 */
	struct kref users;
	struct baton_place *place;	/* NULL once the recording has ended */
	struct baton_record about;
	/* maximum blocks of a ring, plus one for the end mark */
	u32 bound;
	/* enum baton_record_end; any CPU may write it when a ring is full */
	u32 end;
	struct baton_cpu *cpus;		/* the description of the CPUs that the policy got */
	/*
	 * state at the beginning, if there is one; in a recording into a file, that of the newest
	 * checkpoint
	 */
	struct saved state;
	struct saved spare;
	/* Only for a flight recorder (flight.c). */
	u64 fault;			/* serial of the fault that ended it */
	struct saved newer;
	bool has_newer;
	bool wants_checkpoint;		/* written by any CPU */
	struct ring *rings[];		/* by CPU */
};

static inline bool baton_is_flight(const struct baton_recording *recording)
{
	return recording->about.how == BATON_RECORD_HOW_FLIGHT;
}

/* record.c */
int baton_record_begin(struct baton_place *place, struct baton_record *arg);
void baton_record_put(struct baton_recording *recording);
void baton_ring_next(struct baton_ring *head);
void baton_ring_drop_oldest(struct ring *ring);

/* checkpoint.c */
int baton_save(struct baton_place *place, struct saved *to);
int baton_save_held(struct saved *to, u64 length, int (*held)(void *), void *data);
int baton_checkpoint(struct baton_recording *recording, struct baton_record_checkpoint *arg);

/* flight.c */
void baton_flight_wants_checkpoint(struct baton_recording *recording);

DECLARE_STATIC_KEY_FALSE(baton_recording_key);

/* core-lib/src/record.rs; in a recorded call */
void baton_core_record_lock(struct baton_ring *ring, const void *lock);
void baton_core_record_busy(struct baton_ring *ring, const void *lock);
void baton_core_record_now(struct baton_ring *ring, u64 now);
void baton_core_record_random(struct baton_ring *ring, u64 number);
void baton_core_record_read(struct baton_ring *ring, u64 value);
void baton_core_record_may_run(struct baton_ring *ring, u32 slot, s32 cpu, bool yes);
void baton_core_record_online(struct baton_ring *ring, s32 cpu, bool yes);
void baton_core_record_idle(struct baton_ring *ring, s32 cpu, bool yes);
void baton_core_record_claim(struct baton_ring *ring, s32 cpu, bool yes);
void baton_core_record_any_idle(struct baton_ring *ring, bool yes);
void baton_core_record_arm_timer(struct baton_ring *ring, u64 after);
void baton_core_record_cancel_timer(struct baton_ring *ring);
void baton_core_record_no_memory(struct baton_ring *ring, u64 after);
void baton_core_record_reply(struct baton_ring *ring, u32 slot, const struct baton_hint *reply,
			     u32 answer);
void baton_core_record_dropped(struct baton_ring *ring, u64 token);
void baton_core_record_begin(struct baton_ring *ring);
void baton_core_record_cut(struct baton_ring *ring, u64 stamp, bool forget);
bool baton_core_record_end(struct baton_ring *ring, void *block);

#ifdef BATON_WITHOUT_RECORDING
#define baton_is_recording() false
#else
/* May the current call be recorded? While nothing is recorded, a jump that is not taken. */
#define baton_is_recording() static_branch_unlikely(&baton_recording_key)
#endif

/*
 * Records an action of the current call, if the call is recorded. For slow paths, and for functions
 * that are already separate from the hot path.
 */
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
