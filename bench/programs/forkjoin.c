// SPDX-License-Identifier: GPL-2.0-only
// libraries: -fopenmp
/*
 * A parallel program like those of the NAS suite: OpenMP threads compute, and meet at a barrier
 * after each phase. In each phase one thread, in turn, has 1.5 times the work of the others.
 * Waiting threads sleep. If there are more threads than CPUs, a spinning thread would only take the
 * CPU that another one needs.
 *
 * Prints the total time of all phases: {"ns": N}.
 */
#include "load.h"

#include <omp.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	double threads = 4, phases = 200, work = 50000;
	const struct option options[] = {
		{ "threads", &threads, 1, 1024 },
		{ "phases", &phases, 1, 1e6 },
		{ "work", &work, 1, 1e9 },
	};
	uint64_t begin;

	/* The OpenMP runtime reads this before main(), so set it and run the program again. */
	if (!getenv("OMP_WAIT_POLICY")) {
		setenv("OMP_WAIT_POLICY", "passive", 1);
		execv("/proc/self/exe", argv);
		err(1, "cannot run this program again");
	}
	parse_options(options, 3, argc - 1, argv + 1);
	omp_set_dynamic(0);
	omp_set_num_threads(threads);
	begin = now();
#pragma omp parallel
	for (int phase = 0; phase < (int)phases; phase++) {
		int own = omp_get_thread_num();

		count(phase % omp_get_num_threads() == own ? 1.5 * work : work);
#pragma omp barrier
	}
	printf("{\"ns\":%llu}\n", (unsigned long long)(now() - begin));
	return 0;
}
