/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A scheduling policy in C, as handlers of events.
 *
 * A policy is a struct events: one function for each event that it cares about. This library keeps
 * the run queues, the states of threads and the locks, and checks every change of a state. It is
 * the layer above baton.h and host.h, and the same in the kernel and in user space. docs/c.md is
 * the tutorial, and policies/fifo-c an example.
 *
 * Include this file first, define the handlers, and end the file with BATON_POLICY.
 *
 * States of a thread. A handler moves a thread by change_state(). Any other move is refused, named
 * with its line, and counted; the thread stays as it was.
 *
 *            new_place           schedule
 *     NEW -------------> READY -----------> RUNNING ----------> BLOCKED
 *                        ^ | ^               | |       block       |
 *                        | | +---------------+ | tick              |
 *              balancing | | yield, preempt    v                   |
 *                        v |               READY_TICK              |
 *                  MIGRATING |                 |                   |
 *                            +-----------------+-------------------+
 *                                      unblock_place
 *
 *     READY -> MIGRATING, and MIGRATING -> READY: any handler that holds the locks.
 *     RUNNING -> READY_TICK: `tick`. The thread gives up its core at once. The library makes it
 *         READY, in the queue that was named, when it has left the core; it goes on RUNNING if
 *         `schedule` chooses no other.
 *     BLOCKED -> RUNNING: `unblock_prepare`, for an idle core that it has claimed (claim_idle). The
 *         thread runs there at once, and no `unblock_place` follows.
 *     READY, READY_TICK or MIGRATING -> BLOCKED: `block` with THREAD_OUSTED.
 *     any -> TERMINATED: `terminate`.
 *
 * Locks. Each core has one. It guards the core, its queues, and each thread whose core it is. The
 * library takes the lock of the event's core before it calls a handler, except where struct events
 * says otherwise. A queue without a core is guarded by the policy's lock. Order: core, then policy.
 * Locks are released in the reverse order of taking them. The host detects deadlocks, and stops the
 * policy.
 *
 * Context. Handlers run with interrupts off, on several CPUs at once, and cannot sleep, print or
 * allocate; `init` and `exit` run in process context.
 */
#ifndef BATON_EVENTS_H
#define BATON_EVENTS_H

#include <linux/atomic.h>
#include <linux/cache.h>
#include <linux/container_of.h>
#include <linux/limits.h>
#include <linux/minmax.h>
#include <linux/overflow.h>
#include <linux/rbtree.h>
#include <linux/stddef.h>
#include <linux/string.h>

#include "baton.h"
#include "host.h"

enum thread_state {
	THREAD_TERMINATED,	/* also: there is no thread in this slot */
	THREAD_NEW,
	THREAD_READY,
	THREAD_READY_TICK,
	THREAD_RUNNING,
	THREAD_MIGRATING,
	THREAD_BLOCKED,
};

/* Bits of `flags` of a thread, valid during an event. */
#define THREAD_OUSTED	(1 << 0)	/* awake: its affinity, attributes or CPU changed */
#define THREAD_DEPARTS	(1 << 1)	/* `terminate`: it lives on without this policy */

enum queue_kind { QUEUE_FIFO, QUEUE_LIST, QUEUE_RBTREE };

/* Groups of cores, from near to far. Each contains those before it. */
enum level { LEVEL_SMT, LEVEL_CLUSTER, LEVEL_CACHE, LEVEL_NODE, LEVEL_MACHINE, NR_LEVELS };

struct policy;
struct core;
struct queue;
struct baton_call;

/*
 * A thread. A policy that has data of its own for each thread embeds this as the first member of
 * its own type. The memory is zeroed when the thread is new.
 */
struct thread {
	/*
	 * The host's token: its generation in the high half, PRESENT and GONE below. The function
	 * that sets PRESENT owns the thread until it is in a queue.
	 */
	u64 token;
	u32 slot;
	u32 pid;
	s8 nice;		/* -20 to 19 */
	u8 state;		/* enum thread_state */
	u16 flags;
	u64 runtime;		/* CPU time since it was created, ns */
	struct core *core;
	struct queue *queue;	/* NULL if it is in none */
	union {
		struct {
			struct thread *next, *prev;
		};
		struct rb_node node;
	};
};

/* A run queue. Guarded by the lock of its core, or the policy's if it has none. */
struct queue {
	struct core *core;
	u32 count;
	u8 kind;		/* enum queue_kind */
	union {
		struct {
			struct thread *first, *last;
		};
		struct rb_root_cached tree;
	};
	struct queue *next_of_core;
};

/* A CPU. A policy that has data of its own embeds this as the first member of its own type. */
struct core {
	rqspinlock_t lock;
	s32 cpu;
	bool is_off;			/* offline */
	struct baton_call *holder;	/* of the lock */
	struct policy *policy;
	/*
	 * In `schedule`: the thread that ran, and goes on if no other is chosen; NULL if it cannot.
	 * Elsewhere: the thread that the policy chose last, until it leaves the core.
	 */
	struct thread *running;
	struct thread *chosen;		/* in `schedule` */
	struct queue *after_tick;	/* for the thread that is READY_TICK */
	struct queue *queues;
	u64 balanced_at;
	/* Its groups are ranges of `places` of the policy. */
	u32 place, begin[NR_LEVELS], end[NR_LEVELS];
};

/*
 * What the versions of a policy share: an upgrade hands it on as it is. As above, for data of its
 * own. Zeroed before `init`.
 */
struct policy {
	rqspinlock_t lock;
	rqspinlock_t attributes_lock;	/* of requests about attributes; before a core's lock */
	struct baton_call *holder;
	u32 users;			/* versions that share it; guarded by the host */
	u32 nr_cores, core_size;
	u32 nr_threads, thread_size;
	bool has_smt;
	char *cores, *threads;
	s32 *places;			/* all CPUs, neighbours beside each other */
};

/* How a thread came to need a core. */
struct wake {
	struct core *prev;		/* where it ran last */
	struct core *waker;		/* of the waker, or of the parent */
	bool sync;			/* the waker is about to sleep */
};

/* An attribute of threads: a number that applications and the administrator can set. */
struct attribute {
	const char *name;		/* at most 15 letters */
	s64 min, max;			/* both are allowed */
	s64 initial;			/* of new threads */
	enum baton_attribute_unit unit;
};

/*
 * The handlers. Each may be absent; `schedule` and one of the `_place` handlers are needed. The
 * lock of the core that is named, or of the thread's core, is held unless "no lock" is said.
 */
struct events {
	u32 version;			/* for users */
	/*
	 * Of the types below: another number when the meaning of a member changes. A version takes
	 * over from another one if it has the same number and all sizes are equal.
	 */
	u32 state_version;
	/* sizeof the types that embed struct policy, core and thread; 0 for these themselves */
	u32 policy_size, core_size, thread_size;

	/* No lock; may sleep and allocate. Returns NULL, or why the policy cannot be created. */
	const char *(*init)(struct policy *policy, const struct baton_env *env);
	void (*exit)(struct policy *policy);
	/*
	 * Upgrade: `export` by the old version, then `import` by the new one in the place of
	 * `init`, while threads are scheduled. No lock may be taken.
	 */
	void (*export)(struct policy *policy);
	const char *(*import)(struct policy *policy, const struct baton_env *env);

	/*
	 * Asked before the policy is made that of all tasks without one (`baton load --all`), and
	 * before a thread is given to it by name (`baton attach`, `baton run`; not its children).
	 * Returns NULL, or why not. They may read the policy, and nothing else: no core, queue or
	 * thread. `name` is what the thread calls itself.
	 */
	const char *(*can_be_default)(const struct policy *policy);
	const char *(*attach)(const struct policy *policy, u32 pid, s32 nice, const char *name);

	/*
	 * Does `a` run before `b`? The order of queues of kinds LIST and RBTREE. For times and
	 * vruntimes, use baton_before().
	 */
	bool (*before)(const struct thread *a, const struct thread *b);

	/*
	 * A new thread. `new_prepare` comes first, without a lock, and returns a core; without it,
	 * that is `wake->prev`. It is not called for a thread that is bound to one core or has
	 * existed before, and a core that is not allowed is refused: then the kernel chooses.
	 * `new_place` puts the thread into a queue, and `new_end` follows it.
	 */
	struct core *(*new_prepare)(struct policy *policy, struct thread *thread,
				    const struct wake *wake);
	void (*new_place)(struct policy *policy, struct thread *thread, struct core *core);
	void (*new_end)(struct policy *policy, struct thread *thread, struct core *core);

	/* The same for a thread that was asleep, or was ousted (THREAD_OUSTED). */
	struct core *(*unblock_prepare)(struct policy *policy, struct thread *thread,
					const struct wake *wake);
	void (*unblock_place)(struct policy *policy, struct thread *thread, struct core *core);
	void (*unblock_end)(struct policy *policy, struct thread *thread, struct core *core);

	/* The running thread goes to sleep, or is ousted from its core or queue. */
	void (*block)(struct policy *policy, struct thread *thread);
	/* The running thread has called sched_yield(). Without it: as `preempt`. */
	void (*yield)(struct policy *policy, struct thread *thread);
	/* The running thread has lost its core. Without it: as `unblock_place`. */
	void (*preempt)(struct policy *policy, struct thread *thread);
	void (*tick)(struct policy *policy, struct thread *thread);
	/* Its nice value was another; `thread->nice` is the new one. */
	void (*reweight)(struct policy *policy, struct thread *thread, s32 old_nice);
	void (*terminate)(struct policy *policy, struct thread *thread);

	/* Chooses the thread that runs next: change_state(thread, THREAD_RUNNING, core, NULL). */
	void (*schedule)(struct policy *policy, struct core *core);
	/* No lock. The core found nothing to run; `schedule` is asked again afterwards. */
	void (*newly_idle)(struct policy *policy, struct core *core);
	void (*enter_idle)(struct policy *policy, struct core *core);
	void (*exit_idle)(struct policy *policy, struct core *core);
	/* No lock. Called on each busy core every 16 ticks, or at a longer interval (ns). */
	u64 balancing_interval;
	void (*balancing_select)(struct policy *policy, struct core *core);
	/* No lock. The timer that this core armed (arm_timer) has expired. */
	void (*timer)(struct policy *policy, struct core *core);
	void (*core_entry)(struct policy *policy, struct core *core);
	/* Threads that are left in the core's queues are ousted afterwards. */
	void (*core_exit)(struct policy *policy, struct core *core);

	/*
	 * Attributes of threads (docs/attributes.md), in their order, and where they are: a struct
	 * of as many s64 in the type that embeds struct thread. See BATON_ATTRIBUTES_AT.
	 */
	struct attribute attributes[BATON_MAX_ATTRIBUTES];
	u32 attributes_at, attributes_size;
	/*
	 * Somebody sets some of them. `attributes` points to all, as they will be; those that are
	 * set are in their range. The thread's core is locked, which does not keep a sleeping
	 * thread from waking up elsewhere meanwhile: use baton_read(thread->state) and
	 * baton_read_core(thread). `checkparam` returns NULL, or why they cannot be so, in at most
	 * 39 letters. `setparam` stores them, without it the library does; then comes
	 * `attr_changed`. `getparam` reads what `setparam` stored, and is called before each of
	 * these, too.
	 */
	const char *(*checkparam)(struct policy *policy, struct thread *thread,
				  const void *attributes);
	void (*setparam)(struct policy *policy, struct thread *thread, const void *attributes);
	void (*getparam)(struct policy *policy, struct thread *thread, void *attributes);
	void (*attr_changed)(struct policy *policy, struct thread *thread);

	/*
	 * No lock. Other hints of applications (docs/hints.md), and their type. `named` is NULL, or
	 * the thread that the hint is about; its state is THREAD_NEW or THREAD_TERMINATED if the
	 * policy has not placed it yet. Returns false if the hint is not of the type.
	 */
	struct baton_state_type hint_type, reply_type;
	bool (*hint)(struct policy *policy, struct thread *from, struct thread *named,
		     const struct baton_hint *hint);
};

/* The attributes are `member` of the policy's type of threads. */
#define BATON_ATTRIBUTES_AT(type, member)			\
	.attributes_at = offsetof(type, member),		\
	.attributes_size = sizeof(((type *)NULL)->member)

#include "events-state.h"
#include "events-call.h"
#include "events-attributes.h"
#include "events-setup.h"
#include "events-threads.h"
#include "events-cores.h"
#include "events-policy.h"

#endif
