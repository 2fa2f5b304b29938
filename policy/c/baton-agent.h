/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For schedulers in C: the agent of an enclave. See docs/agents.md. The structures are in baton.h
 * beside this file.
 *
 * The agent polls for messages on a CPU of its own, and decides for all others. One thread uses a
 * struct baton_agent.
 */
#ifndef BATON_AGENT_CLIENT_H
#define BATON_AGENT_CLIENT_H

#ifndef _GNU_SOURCE
#error "define _GNU_SOURCE before the first header: sched_setaffinity() needs it"
#endif

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "baton.h"

struct baton_agent;

/* What a CPU is to run. */
struct baton_choice {
	uint64_t token;
	uint64_t slice;	/* ns; 0 for the default */
};

/* What a scheduler does. Those that are marked may be NULL. */
struct baton_agent_ops {
	/*
	 * The task waits for a CPU: the method of the message says why. BATON_METHOD_NONE: it was
	 * found in its status word after messages were lost.
	 */
	void (*ready)(struct baton_agent *agent, const struct baton_message *task);
	/* Chooses a task for a CPU that has none, or whose task's slice has ended. */
	bool (*pick)(struct baton_agent *agent, uint32_t cpu, struct baton_choice *choice);
	/* The task sleeps, or its token is no longer valid. */
	void (*gone)(struct baton_agent *agent, const struct baton_message *task);
	/* Optional: every other message. */
	void (*other)(struct baton_agent *agent, const struct baton_message *message);
	/* Messages were lost. Forget all tasks: `ready` follows for those that wait. */
	void (*reset)(struct baton_agent *agent);
	/* Optional: a task sent a hint. baton_agent_reply() answers. Needs `hint_type`. */
	void (*hint)(struct baton_agent *agent, const struct baton_message *task,
		     const struct baton_hint *hint);
	/* What `hint` takes, and replies. A layout of 0 fits any layout of an application. */
	struct baton_state_type hint_type, reply_type;
};

struct baton_agent {
	const struct baton_agent_ops *ops;
	void *data;				/* the scheduler's */
	uint32_t nr_cpus, nr_slots, own;
	char message[BATON_MESSAGE_LEN];	/* why it was not attached, and the remedy */
	/* private */
	int fd;
	uint64_t lost;
	uint32_t *seen;				/* by slot: the last message */
	uint64_t *found;			/* by slot: a token whose message has yet to come */
	struct baton_agent_attach layout;
	struct baton_agent_head *head;
	struct baton_agent_cpu *cpus;
	struct baton_agent_task *tasks;
	uint64_t *masks;
	struct baton_message *rings;
	struct baton_transaction *transactions;
	struct baton_agent_commit commits[BATON_AGENT_CPUS_AT_ONCE];
	uint32_t nr_commits;
};

static inline int baton_agent_refuse(struct baton_agent *agent, const char *why)
{
	int saved = errno;

	snprintf(agent->message, sizeof(agent->message), "%s%s%s", why, saved ? ": " : "",
		 saved ? strerror(saved) : "");
	if (agent->fd >= 0)
		close(agent->fd);
	free(agent->seen);
	free(agent->found);
	errno = saved;
	return -1;
}

/*
 * Makes this process the agent of an enclave. `events` are those of BATON_EV_*. Returns 0, or -1
 * with errno and a message.
 */
static inline int baton_agent_attach(struct baton_agent *agent, const char *enclave,
				     const struct baton_agent_ops *ops, uint32_t events)
{
	struct baton_agent_attach *layout = &agent->layout;
	char path[BATON_NAME_LEN + 32];
	char *status, *shared;

	memset(agent, 0, sizeof(*agent));
	agent->ops = ops;
	snprintf(path, sizeof(path), "/dev/baton-enclave-%s", enclave);
	agent->fd = open(path, O_RDWR | O_CLOEXEC);
	if (agent->fd < 0)
		return baton_agent_refuse(agent, "the enclave's device cannot be opened; is it "
						 "there (baton enclave list)?");
	layout->abi = BATON_ABI;
	layout->events = events;
	layout->hint_type = ops->hint_type;
	layout->reply_type = ops->reply_type;
	if (ioctl(agent->fd, BATON_AGENT_IOC_ATTACH, layout)) {
		layout->message[sizeof(layout->message) - 1] = 0;
		return baton_agent_refuse(agent, (char *)layout->message);
	}
	agent->nr_cpus = layout->nr_cpus;
	agent->nr_slots = layout->nr_slots;
	agent->seen = calloc(agent->nr_slots, sizeof(*agent->seen));
	agent->found = calloc(agent->nr_slots, sizeof(*agent->found));
	status = mmap(NULL, layout->status_size, PROT_READ, MAP_SHARED, agent->fd, 0);
	shared = mmap(NULL, layout->shared_size, PROT_READ | PROT_WRITE, MAP_SHARED, agent->fd,
		      BATON_AGENT_SHARED);
	if (!agent->seen || !agent->found || status == MAP_FAILED || shared == MAP_FAILED)
		return baton_agent_refuse(agent, "there is no memory for the enclave's rings");
	agent->head = (struct baton_agent_head *)status;
	agent->cpus = (struct baton_agent_cpu *)(status + layout->cpus);
	agent->tasks = (struct baton_agent_task *)(status + layout->tasks);
	agent->masks = (uint64_t *)(status + layout->masks);
	agent->rings = (struct baton_message *)(status + layout->rings);
	agent->transactions = (struct baton_transaction *)shared;
	return 0;
}

/* Is the CPU online, and does it belong to the enclave? */
static inline bool baton_agent_is_online(const struct baton_agent *agent, uint32_t cpu)
{
	return __atomic_load_n(&agent->cpus[cpu].online, __ATOMIC_RELAXED);
}

/* May the task in this slot use the CPU? */
static inline bool baton_agent_may_run(const struct baton_agent *agent, uint32_t slot, uint32_t cpu)
{
	size_t at = (size_t)slot * ((agent->nr_cpus + 63) / 64) + cpu / 64;

	return __atomic_load_n(&agent->masks[at], __ATOMIC_RELAXED) >> (cpu % 64) & 1 &&
	       baton_agent_is_online(agent, cpu);
}

/* Has the CPU found nothing to run, and no transaction of it is waiting? */
static inline bool baton_agent_is_idle(const struct baton_agent *agent, uint32_t cpu)
{
	uint32_t state = __atomic_load_n(&agent->transactions[cpu].state, __ATOMIC_ACQUIRE);

	return __atomic_load_n(&agent->cpus[cpu].wants, __ATOMIC_RELAXED) &&
	       state != BATON_TRANSACTION_STATE_READY && state != BATON_TRANSACTION_STATE_CLAIMED;
}

/* Commits what was collected. A token that was refused comes back by `ready`. */
static inline void baton_agent_flush(struct baton_agent *agent)
{
	struct baton_agent_commits ask = {
		.count = agent->nr_commits,
		.commits = (uintptr_t)agent->commits,
	};
	uint32_t i;

	agent->nr_commits = 0;
	/* fails only when the session has ended */
	if (!ask.count || ioctl(agent->fd, BATON_AGENT_IOC_COMMIT, &ask))
		return;
	for (i = 0; i < ask.count; i++) {
		const struct baton_agent_commit *it = &agent->commits[i];
		uint32_t slot = (uint32_t)it->token - 1;
		struct baton_message task = {
			.token = it->token,
			.method = BATON_METHOD_PICK_REFUSED,
			.slot = slot,
			.waker = -1,
		};

		/* The messages of the task say what became of a stale token. */
		if (it->outcome == BATON_COMMIT_COMPLETE || it->outcome == BATON_COMMIT_STALE ||
		    it->outcome == BATON_COMMIT_NOT_FOUND || slot >= agent->nr_slots)
			continue;
		task.pid = agent->tasks[slot].pid;
		task.cpu = agent->tasks[slot].cpu;
		task.nice = agent->tasks[slot].nice;
		task.runtime = agent->tasks[slot].runtime;
		agent->ops->ready(agent, &task);
	}
}

/* Has a CPU run what `pick` chooses, if anything. */
static inline void baton_agent_serve(struct baton_agent *agent, uint32_t cpu, bool preempt)
{
	struct baton_choice choice = { 0, 0 };

	if (!agent->ops->pick(agent, cpu, &choice))
		return;
	if (agent->nr_commits == BATON_AGENT_CPUS_AT_ONCE)
		baton_agent_flush(agent);
	agent->commits[agent->nr_commits++] = (struct baton_agent_commit){
		.token = choice.token,
		.slice = choice.slice,
		.cpu = cpu | (preempt ? BATON_KICK_PREEMPT : 0),
	};
}

static inline void baton_agent_handle(struct baton_agent *agent,
				      const struct baton_message *message)
{
	uint64_t found = 0;

	if (message->sequence) {
		found = agent->found[message->slot];
		agent->found[message->slot] = 0;
	}
	switch (message->method) {
	case BATON_METHOD_TASK_NEW:
	case BATON_METHOD_TASK_WAKEUP:
	case BATON_METHOD_TASK_PREEMPT:
	case BATON_METHOD_TASK_YIELD:
	case BATON_METHOD_TASK_RESTORED:
	case BATON_METHOD_PICK_REFUSED:
		/* A refusal has no number: it can be read after messages that are newer. */
		if (!message->sequence && agent->tasks[message->slot].token != message->token)
			break;
		if (found != message->token)
			agent->ops->ready(agent, message);
		break;
	case BATON_METHOD_TASK_BLOCKED:
	case BATON_METHOD_TASK_DEQUEUED:
	case BATON_METHOD_TASK_DEPARTED:
	case BATON_METHOD_TASK_DEAD:
		agent->ops->gone(agent, message);
		break;
	case BATON_METHOD_PICK_NEXT_TASK:
		if (message->slot != UINT32_MAX)
			baton_agent_serve(agent, message->cpu, true);
		break;
	default:
		if (agent->ops->other)
			agent->ops->other(agent, message);
	}
}

/* Has the number of this slot's last message been read? */
static inline bool baton_agent_has_read(const struct baton_agent *agent, uint32_t slot,
					uint32_t number)
{
	return slot >= agent->nr_slots || (int32_t)(agent->seen[slot] - number) >= 0;
}

/* A message about a hint, which the next entry has. False if others must be read before. */
static inline bool baton_agent_take_hint(struct baton_agent *agent,
					 const struct baton_message *message, const void *entry)
{
	struct baton_hint hint;

	memcpy(&hint, entry, sizeof(hint));
	if (!baton_agent_has_read(agent, message->slot, message->after) ||
	    !baton_agent_has_read(agent, hint.thread - 1, message->after_named))
		return false;
	/* Else a task has died, and its slot may be another's. */
	if (agent->ops->hint && agent->tasks[message->slot].pid == message->pid &&
	    (hint.thread - 1 >= agent->nr_slots ||
	     agent->tasks[hint.thread - 1].pid == message->named_pid))
		agent->ops->hint(agent, message, &hint);
	return true;
}

/* Replies to the hints of the task in a slot. Returns an enum baton_reply_answer. */
static inline uint32_t baton_agent_reply(struct baton_agent *agent, uint32_t slot,
					 const struct baton_hint *reply)
{
	struct baton_agent_reply ask = { .slot = slot, .reply = *reply };

	/* fails only when the session has ended */
	if (ioctl(agent->fd, BATON_AGENT_IOC_REPLY, &ask))
		return BATON_REPLY_ANSWER_NO_QUEUE;
	return ask.answer;
}

/* Answers the messages of a CPU's ring, up to one that another ring's must come before. */
static inline void baton_agent_read(struct baton_agent *agent, uint32_t cpu)
{
	struct baton_transaction *shared = &agent->transactions[cpu];
	uint32_t entries = agent->layout.entries;
	/* What comes meanwhile is read after the other rings. */
	uint32_t end = __atomic_load_n(&agent->cpus[cpu].posted, __ATOMIC_ACQUIRE);

	while (shared->read != end) {
		const struct baton_message *ring = &agent->rings[(size_t)cpu * entries];
		struct baton_message message = ring[shared->read % entries];
		uint32_t next = shared->read + 1;
		int32_t ahead = message.sequence - (message.sequence ? agent->seen[message.slot] : 0);

		if (message.sequence && ahead > 1)
			return;
		if (message.sequence && ahead == 1)
			agent->seen[message.slot] = message.sequence;
		if (message.method == BATON_METHOD_HINT) {
			if (!baton_agent_take_hint(agent, &message, &ring[next % entries]))
				return;
			next++;
		} else if (!message.sequence || ahead == 1) {
			baton_agent_handle(agent, &message);
		}
		__atomic_store_n(&shared->read, next, __ATOMIC_RELEASE);
	}
}

/* Messages were lost: what they said is in the status words. */
static inline void baton_agent_resync(struct baton_agent *agent)
{
	uint32_t cpu, slot;

	agent->lost = __atomic_load_n(&agent->head->lost, __ATOMIC_ACQUIRE);
	for (cpu = 0; cpu < agent->nr_cpus; cpu++)
		__atomic_store_n(&agent->transactions[cpu].read,
				 __atomic_load_n(&agent->cpus[cpu].posted, __ATOMIC_ACQUIRE),
				 __ATOMIC_RELEASE);
	agent->ops->reset(agent);
	for (cpu = 0; cpu < agent->nr_cpus; cpu++) {
		uint32_t ready = BATON_TRANSACTION_STATE_READY;

		/* A transaction that waits would be made again. */
		__atomic_compare_exchange_n(&agent->transactions[cpu].state, &ready,
					    BATON_TRANSACTION_STATE_EMPTY, false, __ATOMIC_ACQ_REL,
					    __ATOMIC_RELAXED);
	}
	for (slot = 0; slot < agent->nr_slots; slot++) {
		const struct baton_agent_task *word = &agent->tasks[slot];
		struct baton_message task = { .slot = slot, .waker = -1 };

		/* The number first: the token is then not older. */
		agent->seen[slot] = __atomic_load_n(&word->sequence, __ATOMIC_ACQUIRE);
		task.token = __atomic_load_n(&word->token, __ATOMIC_ACQUIRE);
		task.pid = word->pid;
		task.cpu = word->cpu;
		task.nice = word->nice;
		task.runtime = word->runtime;
		agent->found[slot] = 0;
		if (!task.token || (word->flags & (BATON_AGENT_TASK_MEMBER | BATON_AGENT_TASK_AGENT)) !=
					   BATON_AGENT_TASK_MEMBER)
			continue;
		agent->found[slot] = task.token;
		agent->ops->ready(agent, &task);
	}
}

/*
 * Schedules until the enclave ends that. Polls on CPU `own`, which gets no tasks. Returns 0, or -1
 * with errno if the thread cannot be bound to that CPU.
 */
static inline int baton_agent_run(struct baton_agent *agent, uint32_t own)
{
	cpu_set_t set;
	uint32_t cpu;

	agent->own = own;
	CPU_ZERO(&set);
	CPU_SET(own, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		return -1;
	while (!__atomic_load_n(&agent->head->ended, __ATOMIC_RELAXED)) {
		if (__atomic_load_n(&agent->head->lost, __ATOMIC_RELAXED) != agent->lost)
			baton_agent_resync(agent);
		for (cpu = 0; cpu < agent->nr_cpus; cpu++)
			baton_agent_read(agent, cpu);
		for (cpu = 0; cpu < agent->nr_cpus; cpu++)
			if (cpu != own && baton_agent_is_online(agent, cpu) &&
			    baton_agent_is_idle(agent, cpu))
				baton_agent_serve(agent, cpu, false);
		baton_agent_flush(agent);
#ifdef __x86_64__
		/* The other thread of the core gets time, and so do a guest's other CPUs. */
		__builtin_ia32_pause();
#endif
	}
	return 0;
}

/* Ends in good order. The enclave's tasks go on without this agent. */
static inline void baton_agent_close(struct baton_agent *agent)
{
	struct baton_agent_fail end = { .kind = BATON_FAULT_KIND_NONE };

	/* fails only when the session has ended */
	ioctl(agent->fd, BATON_AGENT_IOC_FAIL, &end);
	munmap(agent->head, agent->layout.status_size);
	munmap(agent->transactions, agent->layout.shared_size);
	close(agent->fd);
	free(agent->seen);
	free(agent->found);
}

#endif
