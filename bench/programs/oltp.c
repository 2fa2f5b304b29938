// SPDX-License-Identifier: GPL-2.0-only
// libraries: -lsqlite3
/*
 * Database clients with the transactions of sysbench's oltp_read_write: ten selects of a row, one
 * of a range, an update, a delete, and an insert of the deleted row. The database is SQLite, in a
 * file in /tmp, and each client is a thread with a connection of its own. In WAL mode readers do
 * not block the writer. The selects are a separate transaction, so that they run without the
 * writer's lock. Writers queue on a mutex: SQLite's own lock retries after a sleep, and the run
 * would measure those sleeps.
 *
 * Prints how long all transactions took: {"ns": N}.
 */
#include "load.h"

#include <pthread.h>
#include <sqlite3.h>
#include <unistd.h>

/* In a new directory: other users can write to /tmp. */
static char directory[] = "/tmp/oltp.XXXXXX";
static char file[sizeof(directory) + sizeof("/db-wal")];

/* Rows of the table; rows of a select of a range; selects of one row in a transaction. */
enum { ROWS = 2000, RANGE = 100, POINTS = 10 };
/* How long a client waits for SQLite's own locks, ms. */
enum { PATIENCE = 600000 };

static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

static double clients = 4, transactions = 50;

static void check(sqlite3 *db, int result, const char *what)
{
	if (result != SQLITE_OK && result != SQLITE_DONE && result != SQLITE_ROW)
		errx(1, "%s: %s", what, sqlite3_errmsg(db));
}

static void run(sqlite3 *db, const char *sql)
{
	check(db, sqlite3_exec(db, sql, NULL, NULL, NULL), sql);
}

static sqlite3 *connect(void)
{
	sqlite3 *db;

	if (sqlite3_open(file, &db) != SQLITE_OK)
		errx(1, "%s: %s", file, sqlite3_errmsg(db));
	sqlite3_busy_timeout(db, PATIENCE);
	run(db, "PRAGMA journal_mode=WAL");
	run(db, "PRAGMA synchronous=OFF");
	return db;
}

/* Binds the values, and runs the statement to its last row. */
static void step(sqlite3 *db, sqlite3_stmt *statement, int first, int second)
{
	int result;

	sqlite3_bind_int(statement, 1, first);
	if (sqlite3_bind_parameter_count(statement) > 1)
		sqlite3_bind_int(statement, 2, second);
	do {
		result = sqlite3_step(statement);
		check(db, result, sqlite3_sql(statement));
	} while (result == SQLITE_ROW);
	sqlite3_reset(statement);
}

static sqlite3_stmt *prepare(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *statement;

	check(db, sqlite3_prepare_v2(db, sql, -1, &statement, NULL), sql);
	return statement;
}

static void *client(void *number)
{
	sqlite3 *db = connect();
	sqlite3_stmt *point = prepare(db, "SELECT c FROM t WHERE id = ?1");
	sqlite3_stmt *range = prepare(db, "SELECT sum(k) FROM t WHERE id BETWEEN ?1 AND ?2");
	sqlite3_stmt *update = prepare(db, "UPDATE t SET k = k + 1 WHERE id = ?1");
	sqlite3_stmt *delete = prepare(db, "DELETE FROM t WHERE id = ?1");
	sqlite3_stmt *insert = prepare(db, "INSERT INTO t VALUES (?1, ?2, 'a row that is new')");
	uint64_t random = (uintptr_t)number;

	for (int i = 0; i < transactions; i++) {
		int id = 1 + draw(&random) % (ROWS - RANGE);

		run(db, "BEGIN");
		for (int read = 0; read < POINTS; read++)
			step(db, point, 1 + draw(&random) % ROWS, 0);
		step(db, range, id, id + RANGE - 1);
		run(db, "COMMIT");
		pthread_mutex_lock(&writing);
		run(db, "BEGIN IMMEDIATE");
		step(db, update, 1 + draw(&random) % ROWS, 0);
		step(db, delete, id, 0);
		step(db, insert, id, i);
		run(db, "COMMIT");
		pthread_mutex_unlock(&writing);
	}
	sqlite3_finalize(point);
	sqlite3_finalize(range);
	sqlite3_finalize(update);
	sqlite3_finalize(delete);
	sqlite3_finalize(insert);
	check(db, sqlite3_close(db), "close");
	return NULL;
}

static void fill(void)
{
	sqlite3 *db = connect();
	sqlite3_stmt *insert;

	run(db, "CREATE TABLE t (id INTEGER PRIMARY KEY, k INTEGER, c TEXT)");
	run(db, "BEGIN");
	insert = prepare(db, "INSERT INTO t VALUES (?1, ?2, 'a row of the table')");
	for (int id = 1; id <= ROWS; id++)
		step(db, insert, id, id);
	run(db, "COMMIT");
	sqlite3_finalize(insert);
	check(db, sqlite3_close(db), "close");
}

/* SQLite removed the WAL's files when the last connection was closed. */
static void remove_files(void)
{
	unlink(file);
	rmdir(directory);
}

int main(int argc, char **argv)
{
	const struct option options[] = {
		{ "clients", &clients, 1, 256 },
		{ "transactions", &transactions, 1, 1e6 },
	};
	pthread_t threads[256];
	uint64_t begin;

	parse_options(options, 2, argc - 1, argv + 1);
	if (!mkdtemp(directory))
		err(1, "%s", directory);
	snprintf(file, sizeof(file), "%s/db", directory);
	fill();
	begin = now();
	for (int i = 0; i < clients; i++)
		if (pthread_create(&threads[i], NULL, client, (void *)(uintptr_t)(i + 1)))
			err(1, "pthread_create");
	for (int i = 0; i < clients; i++)
		pthread_join(threads[i], NULL);
	printf("{\"ns\":%llu}\n", (unsigned long long)(now() - begin));
	remove_files();
	return 0;
}
