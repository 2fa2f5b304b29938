// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kfuncs that shim.bpf.c calls. Each passes its context to the rules (core-lib), with the frame
 * and the state of this CPU.
 *
 * Context: that of the shim's callbacks, with interrupts off. init_task (which may sleep), attach,
 * detach and the hotplug events run in process context; interrupts are turned off here for calls of
 * a policy.
 */
#include <linux/bpf.h>
#include <linux/btf.h>
#include <linux/btf_ids.h>
#include <linux/cpumask.h>
#include <linux/sched.h>

#include "core.h"
#include "shim.h"

u32 baton_attached;
u32 baton_attached_all;
u64 baton_no_slot;

/*
 * A CPU that is going offline still wakes the tasks that wait for that (stop_machine()), and then
 * goes idle. It no longer takes interrupts that it sends itself. sched_ext sends its kicks by such
 * an interrupt, which would stay pending until the CPU is back, with all other irq_work behind it.
 * So the kicks of this CPU are sent from here. A kick for a task on the fallback queue may arrive
 * before the task does. In that case the watch kicks the CPUs (Core::rescue_stranded).
 */
static __always_inline void kick_from_offline(struct baton_ctx *ctx)
{
	if (likely(!ctx->nr_kicks || cpu_online(smp_processor_id())))
		return;
	baton_khost_kick(ctx);
	ctx->nr_kicks = 0;
}

__bpf_kfunc_start_defs();

/* notrace, as these four run in every context switch. The rules that they call can be traced. */
__bpf_kfunc notrace u32 baton_select(struct baton_ctx *ctx)
{
	struct baton_frame *frame = this_cpu_ptr(&baton_frame);
	u32 verdict;

	ctx->now = baton_coarse_now();
	if (static_branch_unlikely(&baton_hints_key.key))
		baton_hints_event(ctx, frame);
	verdict = baton_core_select(ctx, frame, frame->cpu);
	kick_from_offline(ctx);
	return verdict;
}

__bpf_kfunc notrace u32 baton_enqueue(struct baton_ctx *ctx)
{
	struct baton_frame *frame = this_cpu_ptr(&baton_frame);
	u32 verdict;

	ctx->now = baton_coarse_now();
	if (static_branch_unlikely(&baton_hints_key.key))
		baton_hints_event(ctx, frame);
	verdict = baton_core_enqueue(ctx, frame, frame->cpu);
	/*
	 * The preemption is only valid at a wakeup, as __schedule() would clear the flags set here,
	 * and only on this CPU, as its run queue must be locked. If there are kicks, the rules have
	 * restored `flags` and `cpu`, whatever the policy wrote there.
	 */
	if (ctx->nr_kicks && ctx->flags & BATON_F_WAKEUP && ctx->cpu == smp_processor_id())
		baton_khost_kick_here(ctx);
	kick_from_offline(ctx);
	return verdict;
}

__bpf_kfunc notrace u32 baton_dispatch(struct baton_ctx *ctx)
{
	struct baton_frame *frame = this_cpu_ptr(&baton_frame);

	ctx->now = baton_coarse_now();
	if (static_branch_unlikely(&baton_hints_key.key))
		baton_hints_event(ctx, frame);
	return baton_core_dispatch(ctx, frame, frame->cpu);
}

/*
 * This CPU enters or leaves idle. True if a policy wants the notice; BATON_E_IDLE follows in that
 * case.
 */
__bpf_kfunc notrace bool baton_idle(bool idle)
{
	return baton_core_note_idle(this_cpu_read(baton_frame.cpu), idle);
}

/* In: runtime = the task's address, cpu = its pid, task = the parent's handle. */
__bpf_kfunc u64 baton_init_task(struct baton_ctx *ctx)
{
	u64 handle = baton_core_init_task((struct task_struct *)ctx->runtime, ctx->cpu, ctx->task);

	if (!handle)
		WRITE_ONCE(baton_no_slot, baton_no_slot + 1);
	return handle;
}

/*
 * Out: task = the token of a task to put on the fallback, or 0; runtime = the CPU to kick for it;
 * slice. True if there is such a task.
 */
__bpf_kfunc bool baton_rescue(struct baton_ctx *ctx)
{
	struct task_struct *task;
	u32 slot;

	ctx->task = baton_core_rescue();
	slot = (u32)ctx->task - 1;
	task = baton_core_task_of_slot(slot);
	if (!task)
		return false;
	ctx->runtime = baton_core_rescued_home(slot, task_cpu(task));
	ctx->slice = baton_core_fallback_slice();
	return true;
}

/*
 * In: task = the token that baton_rescue() returned; its task has been inserted. False if the
 * insertion must be cancelled.
 */
__bpf_kfunc bool baton_is_rescued(struct baton_ctx *ctx)
{
	return baton_core_is_rescued(ctx->task);
}

static u32 attach(bool all)
{
	int cpu;

	/*
	 * sched_ext allows one scheduler at a time. This check is for a foreign BPF program that
	 * calls these kfuncs.
	 */
	if (cmpxchg(&baton_attached, 0, 1))
		return 1;
	for_each_possible_cpu(cpu)
		baton_core_note_online(cpu, cpu_online(cpu));
	WRITE_ONCE(baton_attached_all, all);
	return 0;
}

__bpf_kfunc u32 baton_event(struct baton_ctx *ctx, u32 event, s32 more)
{
	struct baton_frame *frame;
	unsigned long flags;
	u32 verdict = BATON_V_NONE;
	const struct baton_cpu_state *cpu;

	switch (event) {
	case BATON_E_ATTACH:
		return attach(more);
	case BATON_E_DETACH:
		WRITE_ONCE(baton_attached, 0);
		return 0;
	case BATON_E_EXIT:
		if (static_branch_unlikely(&baton_hints_key.key))
			baton_hints_gone(ctx->task);
		baton_core_exit_task(ctx->task);
		return 0;
	case BATON_E_PICK_FAILED:
		baton_core_pick_failed(ctx->task);
		return 0;
	}
	ctx->now = baton_coarse_now();
	local_irq_save(flags);
	frame = this_cpu_ptr(&baton_frame);
	cpu = frame->cpu;
	switch (event) {
	case BATON_E_ENABLE:
		verdict = baton_core_enable(ctx, frame, cpu, more);
		break;
	case BATON_E_DISABLE:
		verdict = baton_core_disable(ctx, frame, cpu, more);
		break;
	case BATON_E_NICE:
		verdict = baton_core_nice(ctx, frame, cpu, more);
		break;
	case BATON_E_AFFINITY:
		verdict = baton_core_affinity(ctx, frame, cpu);
		break;
	case BATON_E_TICK:
		if (static_branch_unlikely(&baton_hints_key.key))
			baton_hints_event(ctx, frame);
		verdict = baton_core_tick(ctx, frame, cpu);
		break;
	case BATON_E_YIELD:
		verdict = baton_core_yield(ctx, frame, cpu);
		break;
	case BATON_E_IDLE:
		verdict = baton_core_tell_idle(ctx, frame, cpu, more);
		break;
	case BATON_E_ONLINE:
		verdict = baton_core_online(ctx, frame, cpu, more);
		break;
	}
	kick_from_offline(ctx);
	local_irq_restore(flags);
	return verdict;
}

__bpf_kfunc_end_defs();

BTF_KFUNCS_START(baton_kfuncs)
BTF_ID_FLAGS(func, baton_select)
BTF_ID_FLAGS(func, baton_enqueue)
BTF_ID_FLAGS(func, baton_dispatch)
BTF_ID_FLAGS(func, baton_idle)
BTF_ID_FLAGS(func, baton_init_task)
BTF_ID_FLAGS(func, baton_rescue)
BTF_ID_FLAGS(func, baton_is_rescued)
BTF_ID_FLAGS(func, baton_event)
BTF_KFUNCS_END(baton_kfuncs)

static const struct btf_kfunc_id_set baton_kfunc_set = {
	.owner = THIS_MODULE,
	.set = &baton_kfuncs,
};

int baton_shim_init(void)
{
	return register_btf_kfunc_id_set(BPF_PROG_TYPE_STRUCT_OPS, &baton_kfunc_set);
}
