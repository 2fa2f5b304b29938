// SPDX-License-Identifier: GPL-2.0-only
// libraries: -lrocksdb
/*
 * Short and long requests to one RocksDB in memory: Enoki (EuroSys '24, section 5.4), after ghOSt
 * and Shinjuku.
 *
 * Requests arrive as a Poisson process in one queue. A free worker takes the next request and
 * sleeps until it is due. A GET reads one key, a range query reads RANGE keys in order. A worker
 * that is done early computes until the nominal time of such a request has passed, in CPU time of
 * its thread. The program prints one line of JSON:
 *
 *   answered   requests
 *   computed   nominal CPU time of those requests; for requests in progress at the end, the CPU
 *              time that they had, ns
 *   gets       number of GETs, and percentiles of their latency from their due time, ns
 *
 * Times on the command line are in ns.
 */
#include "load.h"

#include <endian.h>
#include <pthread.h>
#include <rocksdb/c.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define PIECE 1000000		/* of computing between two checks for the end, ns */
#define RANGE 1000		/* keys of a range query */
#define VALUE 64		/* bytes */
#define MARGIN 100000000	/* until the first request may be due, ns */

static double workers = 50, keys = 20000, gap = 100000, shorts = 4000, longs = 10000000,
	      longs_percent = 0.5;
static double duration = 1e9, nice_value, seed = 1;

static const struct option options[] = {
	{ "--workers", &workers, 1, 1000 },	{ "--keys", &keys, RANGE, 1e7 },
	{ "--gap", &gap, 1, 1e12 },		{ "--short", &shorts, 1, 1e9 },
	{ "--long", &longs, 1, 1e11 },		{ "--longs", &longs_percent, 0, 100 },
	{ "--duration", &duration, 1e6, 1e12 }, { "--nice", &nice_value, -20, 19 },
	{ "--seed", &seed, 0, 1e15 },
};

static rocksdb_t *db;
static rocksdb_readoptions_t *reading;
static uint64_t begin, end, per_ms;

/* The next request. Protected by its lock. */
static struct {
	pthread_mutex_t lock;
	uint64_t random;
	double due;
} requests = { .lock = PTHREAD_MUTEX_INITIALIZER };

struct worker {
	pthread_t thread;
	uint64_t random, answered, computed;
	struct latencies gets;
};

struct request {
	uint64_t due;
	int is_long;
};

static void check(char *why, const char *what)
{
	if (why)
		errx(1, "%s: %s", what, why);
}

static void fill(void)
{
	rocksdb_options_t *how = rocksdb_options_create();
	rocksdb_writeoptions_t *writing = rocksdb_writeoptions_create();
	char *why = NULL, value[VALUE];

	rocksdb_options_set_create_if_missing(how, 1);
	rocksdb_options_set_env(how, rocksdb_create_mem_env());
	/* All data stays where it is written, and no background work runs. */
	rocksdb_options_set_write_buffer_size(how, 1UL << 30);
	rocksdb_options_set_disable_auto_compactions(how, 1);
	rocksdb_options_set_stats_dump_period_sec(how, 0);
	rocksdb_options_set_stats_persist_period_sec(how, 0);
	rocksdb_writeoptions_disable_WAL(writing, 1);
	db = rocksdb_open(how, "/requests", &why);
	check(why, "opening the database");
	memset(value, 'v', sizeof(value));
	for (uint64_t i = 0; i < keys; i++) {
		uint64_t key = htobe64(i);

		rocksdb_put(db, writing, (char *)&key, sizeof(key), value, sizeof(value), &why);
		check(why, "writing");
	}
	reading = rocksdb_readoptions_create();
}

static void get(uint64_t *random)
{
	uint64_t number = draw(random) % (uint64_t)keys, key = htobe64(number);
	rocksdb_pinnableslice_t *value;
	char *why = NULL;

	value = rocksdb_get_pinned(db, reading, (char *)&key, sizeof(key), &why);
	check(why, "reading");
	if (!value)
		errx(1, "the key %llu is not there", (unsigned long long)number);
	rocksdb_pinnableslice_destroy(value);
}

static void range(uint64_t *random)
{
	rocksdb_iterator_t *at = rocksdb_create_iterator(db, reading);
	uint64_t first = htobe64(draw(random) % (uint64_t)(keys - RANGE + 1));
	char *why = NULL;
	int seen = 0;

	for (rocksdb_iter_seek(at, (char *)&first, sizeof(first));
	     seen < RANGE && rocksdb_iter_valid(at); rocksdb_iter_next(at)) {
		size_t length;

		rocksdb_iter_value(at, &length);
		seen += length == VALUE;
	}
	rocksdb_iter_get_error(at, &why);
	check(why, "reading a range");
	if (seen != RANGE)
		errx(1, "a range has %d keys instead of %d", seen, RANGE);
	rocksdb_iter_destroy(at);
}

static struct request next_request(void)
{
	struct request request;

	pthread_mutex_lock(&requests.lock);
	requests.due += draw_gap(&requests.random, gap);
	request.due = begin + requests.due;
	request.is_long = draw_unit(&requests.random) * 100 < longs_percent;
	pthread_mutex_unlock(&requests.lock);
	return request;
}

/* Works until the request has had its CPU time, or the run is over. Returns the CPU time it had. */
static uint64_t answer(struct worker *worker, const struct request *request)
{
	uint64_t whole = request->is_long ? longs : shorts,
		 since = clock_ns(CLOCK_THREAD_CPUTIME_ID), had;

	if (request->is_long)
		range(&worker->random);
	else
		get(&worker->random);
	had = clock_ns(CLOCK_THREAD_CPUTIME_ID) - since;
	while (had < whole && now() < end) {
		uint64_t piece = whole - had < PIECE ? whole - had : PIECE;

		count(per_ms * piece / 1000000);
		had += piece;
	}
	return had;
}

static void *work(void *data)
{
	struct worker *worker = data;

	/* The default timer slack of 50 us would make sleepers late by that. */
	prctl(PR_SET_TIMERSLACK, 1);
	/* For this thread only. */
	if (nice_value && setpriority(PRIO_PROCESS, 0, nice_value))
		err(1, "a worker cannot have the nice value %g", nice_value);
	for (;;) {
		struct request request = next_request();

		if (request.due >= end)
			return NULL;
		sleep_until(request.due);
		worker->computed += answer(worker, &request);
		if (now() >= end)
			return NULL;
		worker->answered++;
		if (!request.is_long)
			latencies_add(&worker->gets, now() - request.due);
	}
}

int main(int argc, char **argv)
{
	struct worker *all;
	struct latencies gets = {};
	uint64_t answered = 0, computed = 0;

	parse_options(options, sizeof(options) / sizeof(*options), argc - 1, argv + 1);
	per_ms = calibrate();
	fill();
	all = calloc(workers, sizeof(*all));
	if (!all)
		err(1, "no memory for workers");
	requests.random = seed;
	begin = now() + MARGIN;
	end = begin + duration;
	for (int i = 0; i < workers; i++) {
		all[i].random = seed + i + 1;
		if (pthread_create(&all[i].thread, NULL, work, &all[i]))
			errx(1, "a worker cannot be started");
	}
	for (int i = 0; i < workers; i++) {
		pthread_join(all[i].thread, NULL);
		answered += all[i].answered;
		computed += all[i].computed;
		latencies_join(&gets, &all[i].gets);
	}
	printf("{\"answered\":%llu,\"computed\":%llu,\"gets\":{", (unsigned long long)answered,
	       (unsigned long long)computed);
	latencies_print(&gets);
	printf("}}\n");
	/* The database ends with the process. */
	return 0;
}
