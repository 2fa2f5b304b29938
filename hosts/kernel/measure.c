// SPDX-License-Identifier: GPL-2.0-only
/*
 * Measurements: how often each method of each policy is called, and how long the calls take. They
 * cost nothing while they are off. They end by themselves, so that a tool that is killed leaves
 * nothing behind.
 *
 * Context: process context under the control mutex unless noted.
 */
#include <linux/sched/clock.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

#include "core.h"
#include "place.h"

/* The meters of a policy, one for each possible CPU. */
struct meters {
	DECLARE_FLEX_ARRAY(struct baton_meter *, of);
};

/* Written under the control mutex; calls of a policy, in which interrupts are off, read them. */
static struct meters __rcu *policies[BATON_MAX_POLICIES];
static bool is_on;		/* guarded by the control mutex */
static unsigned long end;	/* jiffies; guarded by the control mutex */

/* In a call of the policy. NULL if its calls are not measured. */
const struct baton_meter *baton_meter_here(u32 policy);
const struct baton_meter *baton_meter_here(u32 policy)
{
	const struct meters *meters =
		policy < BATON_MAX_POLICIES ? rcu_dereference_sched(policies[policy]) : NULL;

	return meters ? meters->of[smp_processor_id()] : NULL;
}

/* In a call of a policy. */
u64 baton_meter_now(void);
u64 baton_meter_now(void)
{
	return local_clock();
}

static struct meters *meters_of(u32 policy)
{
	return rcu_dereference_protected(policies[policy],
					 lockdep_is_held(&baton_control_mutex));
}

static void free_meters(struct meters *meters)
{
	int cpu;

	if (!meters)
		return;
	for_each_possible_cpu(cpu)
		vfree(meters->of[cpu]);
	kvfree(meters);
}

/* Has a policy that is loaded measured, if others are. Without memory it is not. */
void baton_measure_add(const struct baton_place *place)
{
	u32 policy = baton_place_index(place);
	struct meters *meters;
	int cpu;

	if (!is_on || meters_of(policy))
		return;
	meters = kvzalloc(array_size(nr_cpu_ids, sizeof(*meters->of)), GFP_KERNEL);
	if (!meters)
		return;
	for_each_possible_cpu(cpu) {
		meters->of[cpu] = vzalloc_node(baton_core_meter_size(), cpu_to_node(cpu));
		if (!meters->of[cpu]) {
			free_meters(meters);
			return;
		}
	}
	rcu_assign_pointer(policies[policy], meters);
	baton_core_set_measured(policy, true);
}

/* Forgets what was measured of a policy that is being unloaded. No call of it is in progress. */
void baton_measure_remove(const struct baton_place *place)
{
	u32 policy = baton_place_index(place);

	baton_core_set_measured(policy, false);
	free_meters(meters_of(policy));
	RCU_INIT_POINTER(policies[policy], NULL);
}

static void end_all(void)
{
	struct meters *old[BATON_MAX_POLICIES];
	u32 i;

	is_on = false;
	for (i = 0; i < BATON_MAX_POLICIES; i++) {
		baton_core_set_measured(i, false);
		old[i] = meters_of(i);
		RCU_INIT_POINTER(policies[i], NULL);
	}
	/* Calls run with interrupts off, which is a read-side section. */
	synchronize_rcu();
	for (i = 0; i < BATON_MAX_POLICIES; i++)
		free_meters(old[i]);
}

static void end_if_due(struct work_struct *work)
{
	mutex_lock(&baton_control_mutex);
	/* A request may have moved the end while this waited. */
	if (is_on && time_after_eq(jiffies, end))
		end_all();
	mutex_unlock(&baton_control_mutex);
}
static DECLARE_DELAYED_WORK(end_work, end_if_due);

/* BATON_IOC_MEASURE. */
int baton_measure(u32 ms)
{
	unsigned long until = jiffies + msecs_to_jiffies(ms);
	u32 i;

	if (ms > BATON_MEASURE_MAX_MS)
		return -ERANGE;
	if (!ms) {
		if (is_on)
			end_all();
		return 0;
	}
	if (is_on && !time_after(until, end))
		return 0;
	end = until;
	is_on = true;
	for (i = 0; i < BATON_MAX_POLICIES; i++)
		if (baton_places[i].active)
			baton_measure_add(&baton_places[i]);
	mod_delayed_work(system_percpu_wq, &end_work, msecs_to_jiffies(ms));
	return 0;
}

/* How long the measurement goes on, ms; 0 if there is none. */
u32 baton_measured_for(void)
{
	return is_on && time_before(jiffies, end) ? jiffies_to_msecs(end - jiffies) : 0;
}

/* BATON_IOC_CALLS. */
int baton_measured_calls(struct baton_calls *calls)
{
	u32 policy = calls->policy, method = calls->method;
	const struct meters *meters;
	int cpu;

	memset(calls, 0, sizeof(*calls));
	calls->policy = policy;
	calls->method = method;
	if (policy >= BATON_MAX_POLICIES || !baton_core_add_calls(NULL, calls))
		return -EINVAL;
	meters = meters_of(policy);
	if (!meters)
		return 0;
	for_each_possible_cpu(cpu)
		baton_core_add_calls(meters->of[cpu], calls);
	return 0;
}

/* No policy is registered, and no request can come. */
void baton_measure_exit(void)
{
	cancel_delayed_work_sync(&end_work);
	mutex_lock(&baton_control_mutex);
	if (is_on)
		end_all();
	mutex_unlock(&baton_control_mutex);
}
