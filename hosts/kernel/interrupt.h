/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Interrupt work: actions that must not run where they are requested, as a run-queue lock may be
 * held there.
 */
#ifndef BATON_INTERRUPT_H
#define BATON_INTERRUPT_H

#include <linux/irq_work.h>
#include <linux/smp.h>

struct baton_interrupt {
	struct irq_work work;
	call_single_data_t elsewhere;	/* makes another CPU start the work */
	bool is_elsewhere;		/* `elsewhere` is in flight */
};

#define BATON_INTERRUPT_INIT(name, func) { .work = IRQ_WORK_INIT(func), .elsewhere = CSD_INIT(baton_interrupt_here, &(name)) }

/* interrupt.c */
void baton_interrupt_here(void *interrupt);
void baton_interrupt(struct baton_interrupt *interrupt);
void baton_interrupt_sync(struct baton_interrupt *interrupt);
int baton_interrupts_init(void);
void baton_interrupts_exit(void);

#endif
