// SPDX-License-Identifier: GPL-2.0-only
/*
 * Idle states for a guest, which has none. Leaving a state takes as long as on the processor whose
 * table is given. The kernel chooses the state of a CPU (drivers/cpuidle/governors).
 *
 * A state is the halt of any guest, after which the CPU spins for the exit latency with interrupts
 * off. A processor spends that time before the first instruction of the interrupt; here the
 * interrupt is handled first. A task that the interrupt wakes nevertheless starts at the same time,
 * because it runs only when this CPU leaves the idle loop.
 */
#include <linux/cpu.h>
#include <linux/cpuidle.h>
#include <linux/module.h>
#include <linux/sched/idle.h>
#include <linux/smp.h>
#include <asm/tsc.h>

static char *name[CPUIDLE_STATE_MAX];
static unsigned int exit_us[CPUIDLE_STATE_MAX], residency_us[CPUIDLE_STATE_MAX];
static unsigned int nr_names, nr_exits, nr_residencies;

module_param_array(name, charp, &nr_names, 0444);
MODULE_PARM_DESC(name, "what the states are called, the shallowest first");
module_param_array(exit_us, uint, &nr_exits, 0444);
MODULE_PARM_DESC(exit_us, "how long it takes to leave each");
module_param_array(residency_us, uint, &nr_residencies, 0444);
MODULE_PARM_DESC(residency_us, "how long a sleep has to be for each to be worth it");

/*
 * The driver has no owner: each of its CPUs would hold the module, which could not be removed then.
 */
static struct cpuidle_driver driver = { .name = "baton_idle" };
/* Exit latencies in cycles of the time stamp counter. */
static u64 exit_cycles[CPUIDLE_STATE_MAX];

static __cpuidle void spin(u64 cycles)
{
	u64 begin = rdtsc_ordered();
	unsigned int i;

	while (rdtsc_ordered() - begin < cycles) {
		/*
		 * Where CPUs take turns, a pause ends the turn of this one. A pause in each turn of
		 * the loop would be slow.
		 */
		for (i = 0; i < 250; i++)
			barrier();
		cpu_relax();
	}
}

static __cpuidle int enter(struct cpuidle_device *dev, struct cpuidle_driver *drv, int index)
{
	if (!current_clr_polling_and_test()) {
		arch_cpu_idle();
		spin(exit_cycles[index]);
	}
	return index;
}

static int __init baton_idle_init(void)
{
	unsigned int i;

	if (!nr_names || nr_exits != nr_names || nr_residencies != nr_names) {
		pr_err("baton_idle: name, exit_us and residency_us have to be as many\n");
		return -EINVAL;
	}
	if (!tsc_khz) {
		pr_err("baton_idle: there is no time stamp counter to measure time with\n");
		return -ENODEV;
	}
	for (i = 0; i < nr_names; i++) {
		struct cpuidle_state *state = &driver.states[i];

		strscpy(state->name, name[i]);
		strscpy(state->desc, name[i]);
		state->exit_latency = exit_us[i];
		state->target_residency = residency_us[i];
		state->enter = enter;
		exit_cycles[i] = (u64)exit_us[i] * tsc_khz / 1000;
	}
	driver.state_count = nr_names;
	return cpuidle_register(&driver, NULL);
}

static void __exit baton_idle_exit(void)
{
	cpuidle_unregister(&driver);
	/*
	 * No CPU enters a state any more. A CPU that is in one leaves the halt with the first
	 * interrupt, and takes the second after it has left the state.
	 */
	kick_all_cpus_sync();
	kick_all_cpus_sync();
}

module_init(baton_idle_init);
module_exit(baton_idle_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Idle states of a real processor, for guests of benches");
