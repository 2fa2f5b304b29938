// SPDX-License-Identifier: GPL-2.0-only
/*
 * Files for people without the tool, in /sys/kernel/debug/baton, for root only: the policies, and
 * the changes of threads' states that were refused. `baton status` shows more.
 *
 * Context: process, under the control mutex.
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>

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

/* A kernel without debugfs, or one that is locked down, has no files. */
void baton_debugfs_init(void)
{
	folder = debugfs_create_dir("baton", NULL);
	debugfs_create_file("policies", 0400, folder, NULL, &policies_fops);
	debugfs_create_file("refused", 0400, folder, NULL, &refused_fops);
}

void baton_debugfs_exit(void)
{
	debugfs_remove(folder);
}
