/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A scheduler in C, in a process: one queue for all CPUs. See docs/agents.md.
 *
 *	cc -O2 -Ipolicy/c -o fifo_agent policy/c/examples/fifo_agent.c
 *	baton enclave create mine --cpus 1-3
 *	./fifo_agent mine
 */

#define _GNU_SOURCE
#include <err.h>
#include <sys/queue.h>

#include "baton-agent.h"

/* By slot. */
struct waiting {
	TAILQ_ENTRY(waiting) entry;
	uint64_t token;	/* 0: it is not queued */
};

static TAILQ_HEAD(, waiting) queue = TAILQ_HEAD_INITIALIZER(queue);
static struct waiting *tasks;

static void remove_task(struct waiting *task)
{
	if (task->token)
		TAILQ_REMOVE(&queue, task, entry);
	task->token = 0;
}

static void ready(struct baton_agent *agent, const struct baton_message *task)
{
	struct waiting *waiting = &tasks[task->slot];

	remove_task(waiting);
	waiting->token = task->token;
	TAILQ_INSERT_TAIL(&queue, waiting, entry);
}

static void gone(struct baton_agent *agent, const struct baton_message *task)
{
	remove_task(&tasks[task->slot]);
}

static bool pick(struct baton_agent *agent, uint32_t cpu, struct baton_choice *choice)
{
	struct waiting *task;

	TAILQ_FOREACH(task, &queue, entry) {
		if (baton_agent_may_run(agent, task - tasks, cpu)) {
			choice->token = task->token;
			remove_task(task);
			return true;
		}
	}
	return false;
}

static void reset(struct baton_agent *agent)
{
	while (!TAILQ_EMPTY(&queue))
		remove_task(TAILQ_FIRST(&queue));
}

static const struct baton_agent_ops fifo = {
	.ready = ready,
	.pick = pick,
	.gone = gone,
	.reset = reset,
};

int main(int argc, char **argv)
{
	struct baton_agent agent;

	if (argc != 2)
		errx(1, "usage: fifo_agent ENCLAVE");
	if (baton_agent_attach(&agent, argv[1], &fifo, 0))
		errx(1, "%s", agent.message);
	tasks = calloc(agent.nr_slots, sizeof(*tasks));
	if (!tasks)
		errx(1, "there is no memory for the queue");
	if (baton_agent_run(&agent, 0))
		err(1, "the agent cannot be bound to CPU 0");
	baton_agent_close(&agent);
	return 0;
}
