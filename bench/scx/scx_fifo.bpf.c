/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The decisions of the policies fifo and fifo_c, as a BPF scheduler, for `baton bench twins`. On a
 * machine with SMT these prefer whole cores, too.
 *
 * 1. A woken thread whose waker is about to sleep goes to the waker's CPU, if it may run there.
 * 2. Any other woken or new thread goes to an idle CPU, first the one where it ran last, and runs
 *    there at once. If no CPU is idle, it stays where it ran last.
 * 3. Threads of a CPU wait in a queue, first in, first out, and run for the default slice.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

s32 BPF_STRUCT_OPS(fifo_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	s32 cpu;

	if (wake_flags & SCX_WAKE_SYNC) {
		cpu = bpf_get_smp_processor_id();
		if (cpu == prev_cpu || bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			return cpu;
	}
	cpu = prev_cpu;
	if (!bpf_cpumask_test_cpu(cpu, p->cpus_ptr) || !scx_bpf_test_and_clear_cpu_idle(cpu))
		cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (cpu < 0)
		return prev_cpu;
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_DFL, 0);
	return cpu;
}

void BPF_STRUCT_OPS(fifo_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 cpu = scx_bpf_task_cpu(p);

	scx_bpf_dsq_insert(p, cpu, SCX_SLICE_DFL, enq_flags);
	/* It did not go through select_cpu: the CPU may be idle. */
	if (!(enq_flags & SCX_ENQ_CPU_SELECTED))
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

void BPF_STRUCT_OPS(fifo_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(cpu, 0);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(fifo_init)
{
	s32 cpu, err;

	bpf_for(cpu, 0, scx_bpf_nr_cpu_ids()) {
		err = scx_bpf_create_dsq(cpu, -1);
		if (err)
			return err;
	}
	return 0;
}

void BPF_STRUCT_OPS(fifo_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(fifo_ops,
	       .select_cpu	= (void *)fifo_select_cpu,
	       .enqueue		= (void *)fifo_enqueue,
	       .dispatch	= (void *)fifo_dispatch,
	       .init		= (void *)fifo_init,
	       .exit		= (void *)fifo_exit,
	       .name		= "fifo");
