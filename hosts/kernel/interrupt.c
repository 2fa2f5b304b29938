// SPDX-License-Identifier: GPL-2.0-only
/*
 * Work for an interrupt is done in one that a CPU sends itself (irq_work), but for a CPU that is
 * going offline: it wakes tasks and goes idle when it takes no interrupt of its own any more (after
 * CPUHP_AP_SMPCFD_DYING, kernel/cpu.c), and work would wait there until it is back. Another does it
 * then.
 */
#include <linux/cpuhotplug.h>
#include <linux/cpumask.h>
#include <linux/irqflags.h>

#include "interrupt.h"

/* Hard interrupt. */
void baton_interrupt_here(void *info)
{
	struct baton_interrupt *interrupt = info;

	irq_work_queue(&interrupt->work);
	/*
	 * Ordered: who finds it set has what was done before seen by the work, which comes after
	 * this interrupt.
	 */
	xchg(&interrupt->is_elsewhere, false);
}

/*
 * Has the work done soon; once, however often this is called before it begins. Any context but that
 * of an NMI.
 */
void baton_interrupt(struct baton_interrupt *interrupt)
{
	guard(preempt)();
	if (likely(cpu_online(smp_processor_id())))
		irq_work_queue(&interrupt->work);
	else if (!xchg(&interrupt->is_elsewhere, true))
		/*
		 * It cannot fail: another CPU is online until this one is off, as they go one at a
		 * time.
		 */
		smp_call_function_single_async(cpumask_any(cpu_online_mask), &interrupt->elsewhere);
}

/* Waits until it is done, where nobody asks for it any more. Process context. */
void baton_interrupt_sync(struct baton_interrupt *interrupt)
{
	while (READ_ONCE(interrupt->is_elsewhere))
		cpu_relax();
	irq_work_sync(&interrupt->work);
}

/*
 * A CPU that went offline may have left work of the kernel's own. While any is left it has no such
 * interrupt sent: nothing here would be done by it. On the CPU that comes back, in its hotplug
 * thread.
 */
static int come_back(unsigned int cpu)
{
	local_irq_disable();
	irq_work_run();
	local_irq_enable();
	return 0;
}

/* Its number among the steps of hotplug. */
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
