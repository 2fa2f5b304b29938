// SPDX-License-Identifier: GPL-2.0-only
/*
 * Message threads wake workers by futexes, as in a web server. The program follows schbench by
 * Chris Mason, but has none of its code. A worker puts itself on the list of its message thread,
 * wakes that thread (a post), and waits. The message thread wakes all workers on its list and waits
 * for the next post. A woken worker sleeps (a network round trip), computes, and posts again.
 *
 * The program measures the duration of wakeups. A wakeup begins just before the futex call of the
 * message thread, and ends when the worker has returned from its own futex call. With -H, each
 * message thread sends the policy `locality` the hint that it and its workers belong together.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "baton-hints.h"

/* Limit of the samples of one worker; later ones are dropped. */
#define MAX_SAMPLES (1 << 20)
#define USAGE "usage: schbench [-m MESSENGERS] [-t WORKERS OF EACH] [-s SLEEP, us] [-w WORK, us] [-r RUN, ms] [-u WARM-UP, ms] [-p CPU] [-H]"

struct messenger;

struct worker {
	pthread_t thread;
	struct messenger *messenger;
	struct worker *next;		/* on the messenger's list */
	uint32_t woken;			/* futex */
	uint64_t woken_at;		/* ns; written before `woken` */
	pid_t id;
	uint32_t *waits;		/* ns */
	size_t nr_waits;
};

struct messenger {
	pthread_t thread;
	pthread_barrier_t ready;	/* waits for this thread and its workers */
	struct worker *workers;
	struct worker *waiting;		/* the list of waiting workers */
	uint32_t posted;		/* futex */
	int home;			/* the CPU in the policy's reply, or -1 */
};

static unsigned long nr_messengers = 2, nr_workers = 2, sleep_us = 100, work_us = 5000,
		     run_ms = 10000, warm_up_ms = 1000;
static bool hints;
static uint64_t measured_from, ends_at;

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* CPU time of this thread, ns. */
static uint64_t on_cpu(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void pause_for(uint64_t ns)
{
	struct timespec t = { ns / 1000000000, ns % 1000000000 };

	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR)
		;
}

/*
 * Computes until the calling thread has used this much CPU time, ns. In a guest with QEMU's
 * -icount, one thread of the host runs all CPUs in turn. A `pause` ends this CPU's turn, so that a
 * task woken on another CPU runs before this computation ends.
 */
static void compute(uint64_t ns)
{
	uint64_t end = on_cpu() + ns;

	while (on_cpu() < end)
		asm volatile("pause" ::: "memory");
}

/* Sets a futex, and wakes a thread that waits for it. */
static void post(uint32_t *futex)
{
	__atomic_store_n(futex, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, futex, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void wait_for(uint32_t *futex)
{
	while (!__atomic_load_n(futex, __ATOMIC_SEQ_CST))
		syscall(SYS_futex, futex, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

static void *work(void *argument)
{
	struct worker *me = argument;
	struct messenger *messenger = me->messenger;
	uint64_t at;

	me->id = gettid();
	pthread_barrier_wait(&messenger->ready);
	pthread_barrier_wait(&messenger->ready);
	do {
		__atomic_store_n(&me->woken, 0, __ATOMIC_SEQ_CST);
		me->next = __atomic_load_n(&messenger->waiting, __ATOMIC_SEQ_CST);
		while (!__atomic_compare_exchange_n(&messenger->waiting, &me->next, me, false,
						    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			;
		post(&messenger->posted);
		wait_for(&me->woken);
		at = now();
		if (at >= measured_from && me->nr_waits < MAX_SAMPLES)
			me->waits[me->nr_waits++] = at - me->woken_at;
		if (sleep_us)
			pause_for(sleep_us * 1000);
		compute(work_us * 1000);
	} while (at < ends_at);
	return NULL;
}

/*
 * Sends the hint that this thread and its workers belong together. The policy replies with the CPU
 * on which they wake up from now on.
 */
static void say(struct messenger *me)
{
	struct baton_hint hint = { .tag = 1, .words = { 1 } }, reply;
	/* The queue stays open for the life of the thread. */
	struct baton_hints *queue = malloc(sizeof(*queue));
	unsigned long i;

	if (!queue)
		errx(1, "no memory");
	if (baton_hints_open(queue, "locality", "Hint", 1, "Reply", 1, 16))
		errx(1, "the policy locality does not accept hints from this process: %s",
		     queue->message);
	for (i = 0; i <= nr_workers; i++) {
		hint.thread = i < nr_workers ? me->workers[i].id : gettid();
		if (baton_hints_send_now(queue, &hint) != BATON_HINT_ANSWER_TAKEN ||
		    !baton_hints_receive(queue, &reply))
			errx(1, "the policy locality did not take a hint about thread %u",
			     hint.thread);
		me->home = (int)reply.words[0];
	}
}

static void *messages(void *argument)
{
	struct messenger *me = argument;
	struct worker *worker, *next;
	unsigned long i;

	for (i = 0; i < nr_workers; i++) {
		me->workers[i].messenger = me;
		if (pthread_create(&me->workers[i].thread, NULL, work, &me->workers[i]))
			errx(1, "cannot create a worker thread");
	}
	pthread_barrier_wait(&me->ready);
	if (hints)
		say(me);
	pthread_barrier_wait(&me->ready);
	for (;;) {
		__atomic_store_n(&me->posted, 0, __ATOMIC_SEQ_CST);
		worker = __atomic_exchange_n(&me->waiting, NULL, __ATOMIC_SEQ_CST);
		if (!worker)
			wait_for(&me->posted);
		for (; worker; worker = next) {
			next = worker->next;
			worker->woken_at = now();
			post(&worker->woken);
		}
	}
	return NULL;
}

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* The smallest sample such that at least this many of 1000 samples are not larger. */
static uint32_t percentile(const uint32_t *sorted, size_t nr, unsigned int of_1000)
{
	size_t at = (nr * of_1000 + 999) / 1000;

	return sorted[at ? at - 1 : 0];
}

static void report(const struct messenger *all)
{
	const struct worker *worker;
	size_t nr = 0, i;
	uint32_t *waits;

	for (i = 0; i < nr_messengers * nr_workers; i++)
		nr += all[i / nr_workers].workers[i % nr_workers].nr_waits;
	waits = calloc(nr + 1, sizeof(*waits));
	if (!waits || !nr)
		errx(1, "nothing was measured: the run is too short");
	for (i = 0, nr = 0; i < nr_messengers * nr_workers; i++) {
		worker = &all[i / nr_workers].workers[i % nr_workers];
		memcpy(waits + nr, worker->waits, worker->nr_waits * sizeof(*waits));
		nr += worker->nr_waits;
	}
	qsort(waits, nr, sizeof(*waits), compare);
	printf("{\"wakeups\": %zu, \"p50_ns\": %u, \"p99_ns\": %u, \"max_ns\": %u, \"homes\": [",
	       nr, percentile(waits, nr, 500), percentile(waits, nr, 990), waits[nr - 1]);
	for (i = 0; i < nr_messengers; i++)
		printf("%s%d", i ? ", " : "", all[i].home);
	printf("]}\n");
	free(waits);
}

static unsigned long number(const char *text)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*end || end == text || value > 1000000)
		errx(2, "%s is not a number from 0 to 1000000; " USAGE, text);
	return value;
}

/* Binds the whole process to one CPU. */
static void pin(unsigned long cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		err(1, "cannot bind to CPU %lu", cpu);
}

int main(int argc, char **argv)
{
	struct messenger *all;
	unsigned long i, j;
	int option;

	while ((option = getopt(argc, argv, "m:t:s:w:r:u:p:H")) != -1) {
		switch (option) {
		case 'm': nr_messengers = number(optarg); break;
		case 't': nr_workers = number(optarg); break;
		case 's': sleep_us = number(optarg); break;
		case 'w': work_us = number(optarg); break;
		case 'r': run_ms = number(optarg); break;
		case 'u': warm_up_ms = number(optarg); break;
		case 'p': pin(number(optarg)); break;
		case 'H': hints = true; break;
		default: errx(2, USAGE);
		}
	}
	if (optind != argc || !nr_messengers || !nr_workers)
		errx(2, USAGE);
	all = calloc(nr_messengers, sizeof(*all));
	measured_from = now() + warm_up_ms * 1000000;
	ends_at = measured_from + run_ms * 1000000;
	for (i = 0; all && i < nr_messengers; i++) {
		all[i].home = -1;
		all[i].workers = calloc(nr_workers, sizeof(*all[i].workers));
		for (j = 0; all[i].workers && j < nr_workers; j++)
			all[i].workers[j].waits = malloc(MAX_SAMPLES * sizeof(uint32_t));
		if (!all[i].workers || !all[i].workers[nr_workers - 1].waits)
			errx(1, "no memory");
		pthread_barrier_init(&all[i].ready, NULL, nr_workers + 1);
		if (pthread_create(&all[i].thread, NULL, messages, &all[i]))
			errx(1, "cannot create a message thread");
	}
	if (!all)
		errx(1, "no memory");
	pause_for(ends_at - now());
	/* Message threads keep running, so that each worker reaches its end. */
	for (i = 0; i < nr_messengers; i++)
		for (j = 0; j < nr_workers; j++)
			pthread_join(all[i].workers[j].thread, NULL);
	report(all);
	return 0;
}
