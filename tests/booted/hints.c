// SPDX-License-Identifier: GPL-2.0-only
/*
 * A client of `echo` in C, with policy/c/baton-hints.h. It prints the errors that it finds.
 * hints.rs runs it.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "baton-hints.h"

static int failed;

static void check(bool holds, const char *what)
{
	if (!holds) {
		printf("it does not hold that %s (%s)\n", what, strerror(errno));
		failed = 1;
	}
}
/* A string of 32 letters. */
#define LONG "abcdefghijklmnopqrstuvwxyzabcdef"
#define NOBODY 65534
#define CHECK(condition) check(condition, #condition)

/*
 * Rounds without a system call, between two calls that the test looks for. At the tick the policy
 * reads the ring.
 */
static int without_calls(void)
{
	struct baton_hint hint = { .tag = 1, .words = { 0, 1 } }, reply;
	struct baton_hints queue;
	int i;

	if (baton_hints_open(&queue, "echo", "Hint", 1, "Reply", 1, 16))
		return 1;
	getppid();
	for (i = 0; i < 100; i++) {
		if (baton_hints_send(&queue, &hint))
			return 1;
		while (!baton_hints_receive(&queue, &reply))
			;
	}
	getppid();
	return 0;
}

int main(int argc, char **argv)
{
	struct baton_hint hint = { .tag = 1, .words = { 0, 1 } }, reply;
	struct baton_hints queue;
	int i, full = 0, replies = 0;
	pid_t child;

	if (argc > 1 && !strcmp(argv[1], "without-calls"))
		return without_calls();
	CHECK(baton_hints_open(&queue, "echo", "Hint", 2, "Reply", 1, 16) == -1 &&
	      strstr(queue.message, "hints are of another"));
	CHECK(baton_hints_open(&queue, "echo", "Hint", 1, "Reply", 2, 16) == -1 &&
	      strstr(queue.message, "replies are of another"));
	CHECK(baton_hints_open(&queue, LONG, "Hint", 1, "Reply", 1, 16) == -1 &&
	      errno == ENAMETOOLONG);
	CHECK(strstr(queue.message, "at most 31 letters"));
	CHECK(seteuid(NOBODY) == 0);
	CHECK(baton_hints_open(&queue, "echo", "Hint", 1, "Reply", 1, 16) == -1 && errno == EACCES);
	CHECK(strstr(queue.message, "no grant permits that (baton hints grant)"));
	CHECK(seteuid(0) == 0);
	if (baton_hints_open(&queue, "echo", "Hint", 1, "Reply", 1, 16)) {
		printf("no queue: %s (%s)\n", queue.message, strerror(errno));
		return 1;
	}
	/* Through many laps of the ring. */
	for (i = 0; i < 1000; i++) {
		hint.words[0] = i;
		CHECK(baton_hints_send(&queue, &hint) == 0);
		CHECK(baton_hints_wait(&queue, &reply, 5000) == 1 && reply.tag == 1 &&
		      reply.words[0] == (uint64_t)i);
	}
	CHECK(baton_hints_receive(&queue, &reply) == 0);
	/* Faster than the policy reads; a tick may come in between. */
	for (i = 0; i < 10000 && !full; i++)
		full = baton_hints_send(&queue, &hint) == -1 && errno == EAGAIN;
	CHECK(full);
	CHECK(baton_hints_send_now(&queue, &hint) == BATON_HINT_ANSWER_TAKEN);
	while (baton_hints_receive(&queue, &reply))
		replies++;
	CHECK(replies == 16 && queue.head->lost > 0);
	hint.tag = 77;
	CHECK(baton_hints_send_now(&queue, &hint) == BATON_HINT_ANSWER_MALFORMED);
	hint = (struct baton_hint){ .tag = 2, .thread = getpid(), .words = { 1 } };
	CHECK(baton_hints_send_now(&queue, &hint) == BATON_HINT_ANSWER_TAKEN);
	CHECK(baton_hints_receive(&queue, &reply) == 1 && reply.tag == 2);
	CHECK(baton_hints_end(&queue) == BATON_HINTS_END_NONE);
	/*
	 * A child that inherits the file does not keep the queue open: this thread can open
	 * another.
	 */
	child = fork();
	if (!child) {
		pause();
		_exit(0);
	}
	baton_hints_close(&queue);
	CHECK(baton_hints_open(&queue, "echo", "Hint", 1, "Reply", 1, 16) == 0);
	CHECK(baton_hints_send_now(&queue, &hint) == BATON_HINT_ANSWER_TAKEN);
	baton_hints_close(&queue);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return failed;
}
