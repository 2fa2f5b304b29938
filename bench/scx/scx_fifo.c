/* SPDX-License-Identifier: GPL-2.0-only */
/* Loads and attaches scx_fifo.bpf.c until it is ended by a signal, or ejected. */
#include <signal.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <scx/common.h>

#include "scx_fifo.bpf.skel.h"

static volatile sig_atomic_t is_over;

static void end(int signal)
{
	is_over = signal;
}

int main(void)
{
	struct scx_fifo *skel;
	struct bpf_link *link;

	signal(SIGINT, end);
	signal(SIGTERM, end);
	skel = SCX_OPS_OPEN(fifo_ops, scx_fifo);
	SCX_OPS_LOAD(skel, fifo_ops, scx_fifo, uei);
	link = SCX_OPS_ATTACH(skel, fifo_ops, scx_fifo);
	while (!is_over && !UEI_EXITED(skel, uei))
		sleep(1);
	bpf_link__destroy(link);
	UEI_REPORT(skel, uei);
	scx_fifo__destroy(skel);
	return 0;
}
