/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared parts of the open-loop programs: requests that arrive as a Poisson process, whether or not
 * the earlier ones are answered; time; computing; and latencies from a request's due time.
 */
#ifndef BATON_LOAD_H
#define BATON_LOAD_H

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline uint64_t clock_ns(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

static inline uint64_t now(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static inline void sleep_until(uint64_t ns)
{
	struct timespec then = { ns / 1000000000, ns % 1000000000 };

	while (now() < ns && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, NULL) == EINTR)
		;
}

/* splitmix64 (Steele, Lea, Flood, OOPSLA '14) */
static inline uint64_t draw(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

/* A random number in [0, 1). */
static inline double draw_unit(uint64_t *state)
{
	return (draw(state) >> 11) * 0x1p-53;
}

/* The gap to the next request of a Poisson process, ns. */
static inline double draw_gap(uint64_t *state, double mean)
{
	return -log(1 - draw_unit(state)) * mean;
}

static inline void count(uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		__asm__ volatile("" : : "r"(i));
}

/*
 * How far this machine counts in a ms. It needs a quiet CPU; the fastest of several runs is used.
 */
static inline uint64_t calibrate(void)
{
	enum { SAMPLE = 200000 };
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < 9; i++) {
		uint64_t begin = now(), took;

		count(SAMPLE);
		took = now() - begin;
		if (took && took < best)
			best = took;
	}
	return SAMPLE * 1000000ULL / best;
}

/* Latencies, ns. The array grows on demand, and is sorted when percentiles are requested. */
struct latencies {
	uint64_t *at;
	size_t nr, room;
};

static inline void latencies_add(struct latencies *latencies, uint64_t ns)
{
	if (latencies->nr == latencies->room) {
		latencies->room = latencies->room ? 2 * latencies->room : 4096;
		latencies->at = realloc(latencies->at, latencies->room * sizeof(*latencies->at));
		if (!latencies->at)
			err(1, "no memory for latencies");
	}
	latencies->at[latencies->nr++] = ns;
}

static inline void latencies_join(struct latencies *to, const struct latencies *from)
{
	for (size_t i = 0; i < from->nr; i++)
		latencies_add(to, from->at[i]);
}

static inline int latencies_order(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Prints the fields of a JSON object: the count, and percentiles, ns. */
static inline void latencies_print(struct latencies *latencies)
{
	const double ranks[] = { 0.5, 0.99, 0.999 };
	const char *const names[] = { "p50", "p99", "p999" };

	qsort(latencies->at, latencies->nr, sizeof(*latencies->at), latencies_order);
	printf("\"count\":%zu", latencies->nr);
	for (int i = 0; i < 3; i++) {
		size_t rank = ceil(ranks[i] * latencies->nr);

		printf(",\"%s\":%llu", names[i],
		       latencies->nr ? (unsigned long long)latencies->at[rank - 1] : 0ULL);
	}
}

/* An option with a numeric value. */
struct option {
	const char *name;
	double *value, least, most;
};

static inline void parse_options(const struct option *options, int nr, int count, char **words)
{
	for (int i = 0; i < count; i += 2) {
		const struct option *option = options;
		char *end;

		while (option < options + nr && strcmp(option->name, words[i]))
			option++;
		if (option == options + nr || i + 1 == count) {
			fprintf(stderr, "options, each with a number:");
			for (option = options; option < options + nr; option++)
				fprintf(stderr, " %s", option->name);
			fprintf(stderr, "\n");
			errx(2, "what is '%s'?", words[i]);
		}
		*option->value = strtod(words[i + 1], &end);
		if (end == words[i + 1] || *end ||
		    !(*option->value >= option->least && *option->value <= option->most))
			errx(2, "%s is a number from %g to %g, not '%s'", option->name,
			     option->least, option->most, words[i + 1]);
	}
}

#endif
