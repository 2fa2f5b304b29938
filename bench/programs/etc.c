// SPDX-License-Identifier: GPL-2.0-only
/*
 * An open loop to a memcached at 127.0.0.1, like Facebook's ETC pool (Atikoglu et al., SIGMETRICS
 * '12). The sizes of keys and values and the gaps between requests have that paper's distributions.
 * The requested key is uniform, as in Enoki's measurement of memcached (EuroSys '24, section 5.6).
 *
 * One thread simulates all clients. It has a real-time priority (0: none), so that the latencies
 * show the server's waits and not its own. A request that finds all connections taken waits, and
 * its latency counts from its due time. The program prints one line of JSON: the number of requests
 * answered in the time, and percentiles of the latencies of GET, ns.
 */
#include "load.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define MARGIN 100000000	/* until the first request may be due, ns */
#define MAX_KEY 250		/* bytes, memcached's limit */
#define MAX_VALUE 8000
#define PATIENCE 100		/* tries to reach the server, 50 ms apart */

static double connections = 64, records = 3000, updates = 3, gap = 100000, duration = 1e9,
	      port = 11211, seed = 1, priority = 1;

static const struct option options[] = {
	{ "--connections", &connections, 1, 1000 }, { "--records", &records, 1, 1e7 },
	{ "--updates", &updates, 0, 100 },	    { "--gap", &gap, 1, 1e12 },
	{ "--duration", &duration, 1e6, 1e12 },	    { "--port", &port, 1, 65535 },
	{ "--seed", &seed, 0, 1e15 },		    { "--priority", &priority, 0, 99 },
};

struct connection {
	int fd;
	/*
	 * A request is in flight; its latency counts from `due`. A request that fills the server
	 * has the due time 0 and is not counted.
	 */
	int is_taken, is_get;
	uint64_t due;
	/*
	 * The part of an answer's line received so far, and the number of bytes of a value still to
	 * be skipped.
	 */
	char line[512];
	size_t length, skip;
	int has_value;
};

static struct connection *all;
static uint64_t answered, begin, end;
static struct latencies gets;
static char value[MAX_VALUE];

/* Quantile functions of the generalized extreme value and generalized Pareto distributions. */
static double extreme(double u, double location, double scale, double shape)
{
	return location + scale * (pow(-log(u), -shape) - 1) / shape;
}

static double pareto(double u, double scale, double shape)
{
	return scale * (pow(1 - u, -shape) - 1) / shape;
}

static unsigned int clamp(double value, unsigned int least, unsigned int most)
{
	return value < least ? least : value > most ? most : (unsigned int)value;
}

/*
 * Writes the key of a record, and returns the length of its value. Both are fixed for each record.
 */
static unsigned int record(uint64_t number, char key[MAX_KEY + 1])
{
	uint64_t random = number ^ 0x5bd1e995;
	double u = draw_unit(&random);
	unsigned int length =
		clamp(extreme(u > 0 ? u : 1e-9, 30.7984, 8.20449, 0.078688), 10, MAX_KEY);

	snprintf(key, MAX_KEY + 1, "%0*llu", (int)length, (unsigned long long)number);
	return clamp(pareto(draw_unit(&random), 214.476, 0.348238), 1, MAX_VALUE);
}

static void send_all(struct connection *to, const char *text, size_t length)
{
	while (length) {
		ssize_t sent = send(to->fd, text, length, MSG_NOSIGNAL);

		if (sent < 0)
			err(1, "sending to memcached");
		text += sent;
		length -= sent;
	}
}

static void ask(struct connection *to, uint64_t number, int is_get, uint64_t due)
{
	char key[MAX_KEY + 1], text[MAX_KEY + MAX_VALUE + 64];
	unsigned int size = record(number, key);
	int length;

	if (is_get)
		length = sprintf(text, "get %s\r\n", key);
	else
		length = sprintf(text, "set %s 0 0 %u\r\n%.*s\r\n", key, size, (int)size, value);
	to->is_taken = 1;
	to->is_get = is_get;
	to->due = due;
	send_all(to, text, length);
}

static void finished(struct connection *by, int is_get)
{
	uint64_t at = now();

	if (!by->is_taken || by->is_get != is_get)
		errx(1, "memcached answers what was not asked");
	if (is_get && !by->has_value)
		errx(1, "memcached has lost a record: give it more memory (-m)");
	if (by->due && at < end) {
		answered++;
		if (is_get)
			latencies_add(&gets, at - by->due);
	}
	by->has_value = 0;
	by->is_taken = 0;
}

static void line(struct connection *by)
{
	unsigned int size;

	if (sscanf(by->line, "VALUE %*s %*u %u", &size) == 1) {
		by->has_value = 1;
		by->skip = size + 2;
	} else if (!strcmp(by->line, "END\r")) {
		finished(by, 1);
	} else if (!strcmp(by->line, "STORED\r")) {
		finished(by, 0);
	} else {
		errx(1, "memcached says: %s", by->line);
	}
}

static void hear(struct connection *by)
{
	static char text[1 << 16];
	ssize_t length = recv(by->fd, text, sizeof(text), MSG_DONTWAIT);

	if (length < 0 && errno == EAGAIN)
		return;
	if (length <= 0)
		err(1, "memcached has gone");
	for (ssize_t i = 0; i < length; i++) {
		if (by->skip) {
			size_t rest = length - i, some = by->skip < rest ? by->skip : rest;

			by->skip -= some;
			i += some - 1;
		} else if (text[i] == '\n') {
			by->line[by->length] = 0;
			by->length = 0;
			line(by);
		} else if (by->length < sizeof(by->line) - 1) {
			by->line[by->length++] = text[i];
		} else {
			errx(1, "memcached's answer is too long");
		}
	}
}

/* Waits for an answer, or until that time; 0 for no limit. */
static void wait_for_answers(int epoll, uint64_t until)
{
	struct epoll_event events[64];
	uint64_t at = now(), rest = until > at ? until - at : 0;
	struct timespec timeout = { rest / 1000000000, rest % 1000000000 };
	int nr = epoll_pwait2(epoll, events, 64, until ? &timeout : NULL, NULL);

	if (nr < 0 && errno != EINTR)
		err(1, "waiting for memcached");
	for (int i = 0; i < nr; i++)
		hear(events[i].data.ptr);
}

static int reach(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_port = htons(port),
				  .sin_addr = { htonl(INADDR_LOOPBACK) } };
	const int one = 1;

	for (int i = 0; i < PATIENCE; i++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		if (fd < 0)
			err(1, "a socket cannot be made");
		if (!connect(fd, (struct sockaddr *)&at, sizeof(at))) {
			setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
			return fd;
		}
		close(fd);
		usleep(50000);
	}
	err(1, "memcached cannot be reached at port %g", port);
}

/* The first free connection from index `from` on, cyclically; NULL if there is none. */
static struct connection *free_one(unsigned int from)
{
	for (unsigned int i = 0; i < connections; i++) {
		struct connection *connection = &all[(from + i) % (unsigned int)connections];

		if (!connection->is_taken)
			return connection;
	}
	return NULL;
}

static void fill(int epoll)
{
	for (uint64_t i = 0; i < records; i++) {
		struct connection *to;

		while (!(to = free_one(i)))
			wait_for_answers(epoll, 0);
		ask(to, i, 0, 0);
	}
	for (unsigned int i = 0; i < connections; i++)
		while (all[i].is_taken)
			wait_for_answers(epoll, 0);
}

static void ask_all(int epoll)
{
	uint64_t random = seed, turn = 0;
	double due = 0;

	begin = now() + MARGIN;
	end = begin + duration;
	for (;;) {
		struct connection *to;

		/* The gap has mean 1 before it is scaled. */
		due += pareto(draw_unit(&random), 1 - 0.154971, 0.154971) * gap;
		if (begin + (uint64_t)due >= end)
			break;
		while (now() < begin + (uint64_t)due)
			wait_for_answers(epoll, begin + (uint64_t)due);
		while (!(to = free_one(turn)) && now() < end)
			wait_for_answers(epoll, end);
		if (!to)
			break;
		turn++;
		ask(to, draw(&random) % (uint64_t)records, draw_unit(&random) * 100 >= updates,
		    begin + (uint64_t)due);
	}
	while (now() < end)
		wait_for_answers(epoll, end);
}

int main(int argc, char **argv)
{
	int epoll = epoll_create1(0);

	parse_options(options, sizeof(options) / sizeof(*options), argc - 1, argv + 1);
	memset(value, 'v', sizeof(value));
	all = calloc(connections, sizeof(*all));
	if (epoll < 0 || !all)
		err(1, "no memory for connections");
	for (unsigned int i = 0; i < connections; i++) {
		struct epoll_event event = { .events = EPOLLIN, .data.ptr = &all[i] };

		all[i].fd = reach();
		if (epoll_ctl(epoll, EPOLL_CTL_ADD, all[i].fd, &event))
			err(1, "a connection cannot be watched");
	}
	fill(epoll);
	/* The default timer slack of 50 us would delay requests by that. */
	prctl(PR_SET_TIMERSLACK, 1);
	if (priority &&
	    sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){ .sched_priority = priority }))
		err(1, "no real-time priority (root has it)");
	ask_all(epoll);
	printf("{\"answered\":%llu,\"gets\":{", (unsigned long long)answered);
	latencies_print(&gets);
	printf("}}\n");
	return 0;
}
