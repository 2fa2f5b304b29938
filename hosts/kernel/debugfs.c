// SPDX-License-Identifier: GPL-2.0-only
/*
 * Files for people without the tool, in /sys/kernel/debug/baton, for root only: the policies, the
 * changes of threads' states that were refused, and the calls that were measured for the seconds
 * that are written to `measure`. `baton status` and `baton monitor` show more.
 *
 * Context: process, under the control mutex.
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "core.h"
#include "place.h"

static struct dentry *folder;

static int policies_show(struct seq_file *file, void *unused)
{
	static const char *const states[] = { "absent", "loaded", "running", "faulted" };
	struct baton_policy_info info;
	u32 i;

	seq_puts(file, "POLICY STATE VERSION TASKS QUEUED REFUSALS FAULTS\n");
	mutex_lock(&baton_control_mutex);
	for (i = 0; i < BATON_MAX_POLICIES; i++) {
		const struct baton_place *place = &baton_places[i];

		if (!place->active)
			continue;
		memset(&info, 0, sizeof(info));
		info.index = i;
		baton_core_policy_info(&info);
		seq_printf(file, "%s %s %u %u %u %llu %llu\n", place->name,
			   info.state < ARRAY_SIZE(states) ? states[info.state] : "?",
			   place->active->ops.version, info.tasks, info.queued,
			   info.refusals, info.faults);
	}
	mutex_unlock(&baton_control_mutex);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(policies);

static int refused_show(struct seq_file *file, void *unused)
{
	struct baton_refused_change what = {};

	seq_puts(file, "POLICY HANDLER LINE TIMES FROM TO REASON\n");
	mutex_lock(&baton_control_mutex);
	while (!baton_moves_read(&what) && what.times) {
		seq_printf(file, "%s %s %u %llu %s %s %s\n", baton_places[what.policy].name,
			   what.handler, what.line, what.times, what.from, what.to, what.why);
		what.place++;
	}
	mutex_unlock(&baton_control_mutex);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(refused);

static int calls_show(struct seq_file *file, void *unused)
{
	static const char *const methods[] = BATON_METHOD_NAMES;
	struct baton_calls *calls = kmalloc(sizeof(*calls), GFP_KERNEL);
	u32 policy, method;
	u64 count;

	if (!calls)
		return -ENOMEM;
	seq_puts(file, "POLICY METHOD CALLS TOTAL P50 P99 LONGEST\n");
	mutex_lock(&baton_control_mutex);
	for (policy = 0; policy < BATON_MAX_POLICIES; policy++) {
		if (!baton_places[policy].active)
			continue;
		for (method = 0; method < ARRAY_SIZE(methods); method++) {
			calls->policy = policy;
			calls->method = method;
			if (baton_measured_calls(calls))
				continue;
			count = baton_core_count_calls(calls);
			if (count)
				seq_printf(file, "%s %s %llu %llu %llu %llu %llu\n",
					   baton_places[policy].name, methods[method], count,
					   calls->total, baton_core_percentile(calls, 50),
					   baton_core_percentile(calls, 99), calls->longest);
		}
	}
	mutex_unlock(&baton_control_mutex);
	kfree(calls);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(calls);

static int measure_get(void *unused, u64 *seconds)
{
	mutex_lock(&baton_control_mutex);
	*seconds = DIV_ROUND_UP(baton_measured_for(), MSEC_PER_SEC);
	mutex_unlock(&baton_control_mutex);
	return 0;
}

static int measure_set(void *unused, u64 seconds)
{
	int err;

	if (seconds > BATON_MEASURE_MAX_MS / MSEC_PER_SEC)
		return -ERANGE;
	mutex_lock(&baton_control_mutex);
	err = baton_measure(seconds * MSEC_PER_SEC);
	mutex_unlock(&baton_control_mutex);
	return err;
}
DEFINE_DEBUGFS_ATTRIBUTE(measure_fops, measure_get, measure_set, "%llu\n");

/* A kernel without debugfs, or one that is locked down, has no files. */
void baton_debugfs_init(void)
{
	folder = debugfs_create_dir("baton", NULL);
	debugfs_create_file("policies", 0400, folder, NULL, &policies_fops);
	debugfs_create_file("refused", 0400, folder, NULL, &refused_fops);
	debugfs_create_file("calls", 0400, folder, NULL, &calls_fops);
	debugfs_create_file_unsafe("measure", 0600, folder, NULL, &measure_fops);
}

void baton_debugfs_exit(void)
{
	debugfs_remove(folder);
}
