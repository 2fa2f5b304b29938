// SPDX-License-Identifier: GPL-2.0-only
/* baton.ko: the core. Allocates the tables and initialises the parts of the core. */
#include <linux/cpumask.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/vmalloc.h>

#include "core.h"
#include "interrupt.h"

#define MIN_TASKS 256
#define MAX_TASKS (1 << 20)

static uint max_tasks = 32768;
module_param(max_tasks, uint, 0444);
MODULE_PARM_DESC(max_tasks, "task slots (256 to 1048576); tasks beyond run under the fallback");

static void *slots, *cpus;

static int __init baton_init(void)
{
	int err;

	max_tasks = clamp(max_tasks, MIN_TASKS, MAX_TASKS);
	/* vmalloc returns whole pages, which satisfies the alignment that the rules need */
	slots = vzalloc(array_size(max_tasks, baton_core_slot_size()));
	cpus = vzalloc(array_size(nr_cpu_ids, baton_core_cpu_size()));
	if (!slots || !cpus) {
		err = -ENOMEM;
		goto free;
	}
	baton_core_init(slots, max_tasks, cpus, nr_cpu_ids);
	baton_host_init();
	err = baton_traps_init();
	if (err)
		goto free;
	err = baton_nmi_init();
	if (err)
		goto no_traps;
	err = baton_interrupts_init();
	if (err)
		goto no_nmi;
	err = baton_flight_init();
	if (err)
		goto no_interrupts;
	err = baton_hints_init(max_tasks);
	if (err)
		goto no_flight;
	err = baton_control_init();
	if (err)
		goto no_hints;
	err = baton_shim_init();
	if (err)
		goto no_control;
	baton_fallback_timers_init();
	baton_watch_init();
	baton_debugfs_init();
	return 0;
no_control:
	baton_control_exit();
	baton_measure_exit();
no_hints:
	baton_hints_exit();
no_flight:
	baton_flight_exit();
no_interrupts:
	baton_interrupts_exit();
no_nmi:
	baton_nmi_exit();
no_traps:
	baton_traps_exit();
free:
	vfree(slots);
	vfree(cpus);
	return err;
}

/* No policy module and no shim is loaded, as both hold references. */
static void __exit baton_exit(void)
{
	baton_debugfs_exit();
	baton_control_exit();
	baton_hints_exit();
	baton_watch_exit();
	baton_fallback_timers_exit();
	baton_host_exit();
	baton_fault_exit();
	baton_moves_exit();
	baton_measure_exit();
	baton_upgrade_exit();
	baton_flight_exit();
	baton_cgroup_exit();
	baton_interrupts_exit();
	baton_memory_exit();
	baton_nmi_exit();
	baton_traps_exit();
	vfree(slots);
	vfree(cpus);
}

module_init(baton_init);
module_exit(baton_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Baton: a workbench for CPU schedulers");
