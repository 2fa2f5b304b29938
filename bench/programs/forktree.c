// SPDX-License-Identifier: GPL-2.0-only
/*
 * A tree of processes as that of a kernel build: the program keeps so many jobs running. A job is a
 * process that starts two others, which it waits for: one computes, and writes its output into a
 * pipe, the other reads it, computes as well, and writes a file, as the compiler and the assembler
 * do. Each is a program of its own (execve).
 *
 * Prints how long all jobs took: {"ns": N}.
 */
#include "load.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Bytes from one to the other, in pieces of a pipe's page. */
enum { OUTPUT = 64 << 10, PIECE = 4 << 10 };

static double jobs = 4, total = 64, work = 1000000;

static const struct option options[] = {
	{ "jobs", &jobs, 1, 1024 },
	{ "total", &total, 1, 1e6 },
	{ "work", &work, 1, 1e9 },
};

/* Starts this program in one of its roles. */
static pid_t start(const char *role, int in, int out)
{
	char words[32];
	pid_t child = fork();

	if (child < 0)
		err(1, "fork");
	if (child)
		return child;
	if ((in >= 0 && dup2(in, 0) < 0) || (out >= 0 && dup2(out, 1) < 0))
		err(1, "dup2");
	snprintf(words, sizeof(words), "%.0f", work);
	execl("/proc/self/exe", role, "work", words, (char *)NULL);
	err(1, "execl");
}

static void wait_for(pid_t child)
{
	int status;

	if (waitpid(child, &status, 0) < 0)
		err(1, "waitpid");
	if (status)
		errx(1, "a process of the tree has failed");
}

static void compile(void)
{
	static char piece[PIECE];

	for (int done = 0; done < OUTPUT; done += PIECE) {
		count(work * PIECE / OUTPUT);
		if (write(1, piece, PIECE) != PIECE)
			err(1, "write");
	}
}

static void assemble(void)
{
	char piece[PIECE], name[] = "/tmp/forktree.XXXXXX";
	ssize_t length;
	int file;

	file = mkstemp(name);
	if (file < 0)
		err(1, "%s", name);
	while ((length = read(0, piece, PIECE)) > 0) {
		count(work / 4 * length / OUTPUT);
		if (write(file, piece, length) != length)
			err(1, "%s", name);
	}
	if (length < 0)
		err(1, "read");
	unlink(name);
}

static void job(void)
{
	pid_t compiler, assembler;
	int ends[2];

	if (pipe2(ends, O_CLOEXEC))
		err(1, "pipe2");
	compiler = start("compile", -1, ends[1]);
	assembler = start("assemble", ends[0], -1);
	close(ends[0]);
	close(ends[1]);
	wait_for(compiler);
	wait_for(assembler);
}

static void make(void)
{
	int running = 0, left = total, status;
	uint64_t begin = now();

	while (left || running) {
		if (left && running < jobs) {
			start("job", -1, -1);
			running++;
			left--;
			continue;
		}
		if (wait(&status) < 0)
			err(1, "wait");
		if (status)
			errx(1, "a job has failed");
		running--;
	}
	printf("{\"ns\":%llu}\n", (unsigned long long)(now() - begin));
}

int main(int argc, char **argv)
{
	parse_options(options, 3, argc - 1, argv + 1);
	if (!strcmp(argv[0], "job"))
		job();
	else if (!strcmp(argv[0], "compile"))
		compile();
	else if (!strcmp(argv[0], "assemble"))
		assemble();
	else
		make();
	return 0;
}
