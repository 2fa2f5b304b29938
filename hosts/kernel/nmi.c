// SPDX-License-Identifier: GPL-2.0-only
/*
 * The second net under endless loops, for those without polls (turns.c): in assembler that a policy
 * in C contains. An NMI looks at the call that it interrupts. The third one in a call ends it as an
 * exception of the processor would (traps.c), if 50 ms have gone by. It does so only in the
 * policy's own code, as the host's may hold locks. Time alone would blame a policy for a virtual
 * CPU that did not run.
 *
 * The NMIs come from a counter of cycles on each CPU, where the machine has one that is free, and
 * from outside, as those of a hypervisor. The kernel also sees those of the latter that end
 * nothing.
 */
#include <linux/cpuhotplug.h>
#include <linux/perf_event.h>
#include <linux/sched/clock.h>
#include <asm/nmi.h>
#include <asm/tsc.h>

#include "core.h"

#define PERIOD_MS 50
#define LAST_NMI 3

/* When the current call was first seen, ns (local_clock). */
static DEFINE_PER_CPU(u64, seen_at);
/* NULL where there is none. Written as the CPU goes on- and offline. */
static DEFINE_PER_CPU(struct perf_event *, cycles);
static int hotplug;

/* NMI. Was the interrupted call ended? */
static bool look(struct pt_regs *regs)
{
	struct baton_frame *frame = this_cpu_ptr(&baton_frame);
	u64 now = local_clock();

	if (!baton_traps_in_policy(regs))
		return false;
	if (!frame->seen)
		this_cpu_write(seen_at, now);
	if (frame->seen < LAST_NMI)
		frame->seen++;
	if (frame->seen < LAST_NMI || now - this_cpu_read(seen_at) < baton_turns_limit_ns())
		return false;
	return baton_traps_end(regs);
}

static int on_nmi(unsigned int type, struct pt_regs *regs)
{
	return look(regs) ? NMI_HANDLED : NMI_DONE;
}

/* The counter's NMI, or an interrupt. */
static void on_cycles(struct perf_event *event, struct perf_sample_data *data, struct pt_regs *regs)
{
	look(regs);
}

static int begin_counting(unsigned int cpu)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_HARDWARE,
		.config = PERF_COUNT_HW_CPU_CYCLES,
		.size = sizeof(attr),
		.sample_period = (u64)tsc_khz * PERIOD_MS,
		.pinned = 1,
		.exclude_user = 1,
	};
	struct perf_event *event = perf_event_create_kernel_counter(&attr, cpu, NULL, on_cycles, NULL);

	per_cpu(cycles, cpu) = IS_ERR(event) ? NULL : event;
	return 0;
}

static int end_counting(unsigned int cpu)
{
	if (per_cpu(cycles, cpu))
		perf_event_release_kernel(per_cpu(cycles, cpu));
	per_cpu(cycles, cpu) = NULL;
	return 0;
}

/* Process context. */
int baton_nmi_init(void)
{
	int err = register_nmi_handler(NMI_UNKNOWN, on_nmi, 0, "baton");

	if (err)
		return err;
	hotplug = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "baton/nmi:online", begin_counting, end_counting);
	if (hotplug < 0)
		unregister_nmi_handler(NMI_UNKNOWN, "baton");
	return min(hotplug, 0);
}

/* Process context; no policy is registered. */
void baton_nmi_exit(void)
{
	cpuhp_remove_state(hotplug);
	unregister_nmi_handler(NMI_UNKNOWN, "baton");
}
