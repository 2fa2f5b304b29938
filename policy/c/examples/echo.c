// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sends a hint to the policy `echo` and prints its reply. Run as root, or as a user with a grant:
 * `baton load echo && baton run -p echo -- ./echo`, built by `cc -Ipolicy/c
 * policy/c/examples/echo.c -o echo`.
 */

#include <err.h>
#include <stdio.h>

#include "baton-hints.h"

int main(void)
{
	/* The tag, and the words. */
	struct baton_hint hint = { .tag = 1, .words = { 7, 1 } }, reply;
	struct baton_hints queue;

	if (baton_hints_open(&queue, "echo", "Hint", 1, "Reply", 1, 16))
		errx(1, "%s", queue.message);
	if (baton_hints_send(&queue, &hint))
		err(1, "the hint was not sent");
	if (baton_hints_wait(&queue, &reply, 1000) == 1)
		printf("%llu\n", (unsigned long long)reply.words[0]);
	baton_hints_close(&queue);
	return 0;
}
