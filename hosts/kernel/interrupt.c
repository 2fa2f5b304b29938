// SPDX-License-Identifier: GPL-2.0-only
/*
 * Interrupt work runs in an interrupt that the CPU sends itself (irq_work). A CPU that is going
 * offline is an exception. After CPUHP_AP_SMPCFD_DYING (kernel/cpu.c) it still wakes tasks and goes
 * idle, but no longer takes such interrupts, and work would stay pending until the CPU is back. In
 * that case another CPU runs the work.
 */
#include <linux/cpuhotplug.h>
#include <linux/cpumask.h>
#include <linux/export.h>
#include <linux/irqflags.h>

#include "interrupt.h"

/* Queues the work on this CPU, for a CPU that is going offline. Hard interrupt. */
void baton_interrupt_here(void *info)
{
	struct baton_interrupt *interrupt = info;

	irq_work_queue(&interrupt->work);
	/*
	 * A full barrier. The work runs after this interrupt. So if a caller of baton_interrupt()
	 * still finds is_elsewhere set, the work sees everything that the caller did before.
	 */
	xchg(&interrupt->is_elsewhere, false);
}
EXPORT_SYMBOL_GPL(baton_interrupt_here);

/*
 * Schedules the work. It runs once, however often this is called before it begins. Any context
 * except NMI.
 */
void baton_interrupt(struct baton_interrupt *interrupt)
{
	guard(preempt)();
	if (likely(cpu_online(smp_processor_id())))
		irq_work_queue(&interrupt->work);
	else if (!xchg(&interrupt->is_elsewhere, true))
		/*
		 * This cannot fail. CPUs go offline one at a time, so another CPU stays online at
		 * least until this one is dead.
		 */
		smp_call_function_single_async(cpumask_any(cpu_online_mask), &interrupt->elsewhere);
}
EXPORT_SYMBOL_GPL(baton_interrupt);

/*
 * Waits until the work is done. The caller makes sure that it is not scheduled any more. Process
 * context.
 */
void baton_interrupt_sync(struct baton_interrupt *interrupt)
{
	while (READ_ONCE(interrupt->is_elsewhere))
		cpu_relax();
	irq_work_sync(&interrupt->work);
}
EXPORT_SYMBOL_GPL(baton_interrupt_sync);

/*
 * Runs irq_work that the kernel queued on this CPU while it went offline, and that is still
 * pending. As long as any is pending, irq_work_queue() raises no new interrupt on this CPU, so
 * Baton's work would not run. Called on the CPU that comes online, in its hotplug thread.
 */
static int come_back(unsigned int cpu)
{
	local_irq_disable();
	irq_work_run();
	local_irq_enable();
	return 0;
}

/* The dynamic hotplug state. */
static int come_back_state;

/* Process context. */
int baton_interrupts_init(void)
{
	come_back_state = cpuhp_setup_state_nocalls(CPUHP_AP_ONLINE_DYN, "sched/baton:online",
						    come_back, NULL);
	return min(come_back_state, 0);
}

/* Process context. */
void baton_interrupts_exit(void)
{
	cpuhp_remove_state_nocalls(come_back_state);
}
