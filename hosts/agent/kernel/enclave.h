/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Enclaves: policies of Baton whose answers come from a process, the agent.
 *
 * An enclave is registered with baton.ko as a policy of its name. While an agent is attached, the
 * policy runs, and there is a session: the memory that the two share, and what the enclave keeps of
 * each CPU. Each call of the policy becomes a message (calls.c), and a pick is answered by a
 * transaction that the agent wrote (pick.c). The core checks the answer as that of any policy.
 *
 * Locks. baton_enclaves_mutex guards the list, and the session of each enclave. Lock order:
 * baton_enclaves_mutex > baton.ko's control mutex. Calls of the policy take no lock: a CPU alone
 * writes to its ring, and tokens and transactions change owners by compare and swap.
 */
#ifndef BATON_ENCLAVE_H
#define BATON_ENCLAVE_H

#include <linux/atomic.h>
#include <linux/hrtimer.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/mutex.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include "baton.h"
#include "interrupt.h"

#define BATON_NO_SLOT (~0U)

struct session;

struct enclave {
	struct list_head list;
	struct kref ref;		/* the list, each open file, and each session */
	struct baton_policy ops;	/* what is registered with baton.ko */
	struct miscdevice device;
	char node[BATON_NAME_LEN + 32];	/* name of the device's file */
	u32 entries;			/* of each CPU's ring */
	u32 limit;			/* ms */
	struct session *session;	/* of the present agent, or NULL */
	u64 attached;
	bool is_gone;			/* destroyed; open files remain */
};

/* What the enclave keeps of a CPU. Written on that CPU with interrupts off, unless noted. */
struct served {
	u32 posted;			/* messages, as in the status mapping */
	bool is_asked;			/* the agent has a message about a CPU without a task */
	bool knows_idle;		/* the same, also if no task was queued */
	/*
	 * The task that the CPU ran when it began to ask its own agent for another one, and the
	 * call by which it left the CPU for that. If the agent answers that it goes on, the agent
	 * never hears of that call.
	 */
	u32 held;
	u32 left_by;			/* enum baton_method; NONE as long as it has not left */
	/*
	 * The CPU's own agent. `agent` is set and cleared by the agent, and read under RCU. Its
	 * slot is known from its first event in the enclave until it leaves it.
	 */
	struct task_struct *agent;
	struct server *server;		/* of the agent, which alone uses it */
	u32 slot;
	/*
	 * The slot of an agent that can no longer run on this CPU, until it has left the enclave.
	 * Written with the agent's run-queue lock, or while its CPU goes offline.
	 */
	u32 lost;
	bool is_waiting;		/* it has given way */
	bool is_blocked;		/* it sleeps, and must be woken */
	bool is_leaving;		/* the enclave, as it wants; written by the agent */
	bool has_left;			/* the session has ended; written by the agent */
	/* messages for this CPU's agent; any CPU */
	u32 attention;
	/* the CPU's task leaves the CPU for the agent, also if that must be woken first; any CPU */
	bool is_urgent;
	/* the agent is to be asked whether the task that it interrupts goes on; any CPU */
	bool asks_for_prev;
	struct baton_interrupt wake;
	struct hrtimer timer;
	/*
	 * watch.c: the number of messages read, whether more were to be read, and when the watch
	 * saw either change last
	 */
	u32 read;
	bool had_work;
	unsigned long read_at;		/* jiffies */
	/* watch.c: its looks since then */
	u32 looks;
	/*
	 * watch.c: how often the agent had left a CPU, whether it sleeps, and for each look, the
	 * last in bit 0, whether it was starved
	 */
	unsigned long switches;
	bool is_asleep;
	u32 starved;
} ____cacheline_aligned;

/* From the last select_task_rq of a task until its next message; by slot. */
struct waking {
	u16 flags;	/* with FOLLOWS if the task left `prev` to follow its waker */
	s16 waker;
	s16 prev;
	u16 reserved;
};
#define FOLLOWS (1U << 15)	/* no flag of BATON_F_* */

struct session {
	struct enclave *enclave;
	struct pid *process;		/* of the agent */
	u32 nr_cpus, nr_slots, entries;
	u32 words;			/* of a mask of CPUs */
	u32 events;			/* BATON_EV_* that the agent wants messages about */
	u32 policy;			/* index of the enclave's policy */
	struct baton_cpu *topology;
	struct served *served;
	struct waking *waking;
	bool is_per_cpu;		/* CPUs have agents of their own, or are about to */
	bool has_lost;			/* there may be agents that lost their CPU, and wait */
	/* the status mapping */
	struct baton_agent_head *head;
	struct baton_agent_cpu *cpus;
	struct baton_agent_task *tasks;
	u64 *masks;			/* `words` for each slot */
	struct baton_message *rings;
	size_t status_size;
	/* the shared mapping */
	struct baton_transaction *transactions;
	struct baton_standby *standby;
	u64 *tokens;
	size_t shared_size;
	struct delayed_work watch;
	/* why the watch is to end the session, or NULL; set once, in any context */
	const char *failure;
	u32 looks;			/* of the watch, since there is a failure */
};

/* The agent thinks that the CPU has a task, or knows nothing of it. In calls of the policy. */
static inline void ask_again(struct served *served)
{
	served->is_asked = served->knows_idle = false;
}

extern struct mutex baton_enclaves_mutex;

/* enclave.c */
int baton_enclave_set(struct baton_enclave *arg);
struct enclave *baton_enclave_get(unsigned int minor);
void baton_enclave_put(struct enclave *enclave);
void baton_enclaves_destroy_all(void);

/* session.c */
extern const struct file_operations baton_session_fops;
void baton_session_calls(struct baton_policy *ops);
void baton_session_end(struct session *session, const struct baton_agent_fail *report);
void baton_session_gone(struct session *session, enum baton_fault_kind kind, const char *why);

/* calls.c */
extern const struct baton_policy baton_calls;	/* without create and destroy */
void baton_lose_cpu(struct session *session, u32 cpu);

/* message.c */
bool baton_fill_ring(struct session *session, u32 cpu, u32 unread);
void baton_post(struct session *session, const struct baton_message *message);
bool baton_post_hint(struct session *session, const struct baton_message *message,
		     const struct baton_hint *hint);
void baton_tell_cpu(struct session *session, const struct baton_ctx *ctx, u32 cpu,
		    enum baton_method method);
void baton_alert(struct session *session, struct baton_ctx *ctx, u32 cpu, bool preempt);
void baton_add_kick(struct baton_ctx *ctx, u32 cpu, bool preempt);

/* pick.c: calls of the policy */
u64 baton_agent_pick(void *this, struct baton_ctx *ctx, s32 cpu, const struct baton_task *prev);
void baton_agent_drop(struct session *session, struct baton_ctx *ctx, u32 cpu);
void baton_agent_refused(void *this, struct baton_ctx *ctx, baton_token token,
			 enum baton_refusal why);

/* commit.c */
int baton_commit(struct session *session, struct baton_agent_commits __user *user);
int baton_kick(struct session *session, const struct baton_agent_kick __user *user);

/* memory.c */
bool baton_memory_make(struct session *session, const struct baton_env *env);
void baton_memory_layout(const struct session *session, struct baton_agent_attach *arg);
void baton_memory_free(struct session *session);

/* serve.c: agents of CPUs */
int baton_serve(struct session *session, const struct baton_agent_serve __user *user);
int baton_serve_wait(struct session *session, u64 after);
void baton_serve_alert(struct served *served, u32 cpu, bool preempt);
void baton_serve_init(struct session *session);
void baton_serve_end(struct session *session);
void baton_serve_dismiss(struct session *session);
int baton_serve_leave(struct session *session);
void baton_serve_free(struct session *session);

/* watch.c */
void baton_watch_session(struct work_struct *work);

#endif
