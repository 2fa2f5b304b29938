/* SPDX-License-Identifier: GPL-2.0-only */
/* Recording: what the host's functions (host.c, timer.c, memory.c) need of it. */
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
 * One CPU's ring, as far as core-lib/src/record.rs knows it: that CPU's alone while calls are
 * recorded.
 */
struct baton_ring {
	void *block;	/* being written; NULL when there is none */
	u32 cpu;
	u32 reserved;
	u8 recorder[BATON_RECORDER_SIZE] __aligned(8);
};

#define BATON_NO_BLOCK U16_MAX
#define BATON_STATE_ROOM (1 << 20)	/* bytes that are tried for a state; more, if it says that it needs more */

/* The rest of a ring: record.c, flight.c. */
struct ring {
	struct baton_ring head;
	struct baton_recording *recording;
	/* guards the rest; its CPU takes it once in a block. Nothing is taken under it. */
	raw_spinlock_t lock;
	bool is_full;		/* since when the last checkpoint was made */
	u16 current_block;	/* head.block's number */
	u16 read_block;		/* the one that the reader has */
	u32 nr_blocks;		/* of `blocks`; never fewer */
	u32 nr_free, nr_filled, first_filled;
	u32 nr_before;		/* of the filled, those before the newest checkpoint */
	void **blocks;		/* `bound` places */
	u16 *free;		/* a stack of numbers */
	u16 *filled;		/* a queue of numbers, `bound` places */
};

/* A policy's state, as it saved it. */
struct saved {
	void *at;
	size_t room;
	/* of what is there; more than `room`, if it did not fit, or BATON_ABORTED */
	u64 length;
	u64 stamp;	/* of when it was saved */
};

struct baton_recording {
	/* the file, or the place and files that read what it keeps */
	struct kref users;
	struct baton_place *place;	/* NULL when it has ended */
	struct baton_record about;
	/* blocks that a ring may have, and one for the mark of the end */
	u32 bound;
	/* enum baton_record_end; written by any CPU when a ring is full */
	u32 end;
	struct baton_cpu *cpus;		/* as the policy was told */
	/* where it begins with one; of a file's, the newest, if there were checkpoints */
	struct saved state;
	struct saved spare;
	/* Of a flight recorder (flight.c). */
	u64 fault;			/* number of the one that ended it */
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
void baton_core_record_no_memory(struct baton_ring *ring, u64 after);
void baton_core_record_reply(struct baton_ring *ring, u32 slot, const struct baton_hint *reply,
			     u32 answer);
void baton_core_record_dropped(struct baton_ring *ring, u64 token);
void baton_core_record_begin(struct baton_ring *ring);
void baton_core_record_cut(struct baton_ring *ring, u64 stamp, bool forget);
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

/*
 * Records what the call under way did, if it is recorded. For what is not on the hot path, or
 * already apart from it.
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
