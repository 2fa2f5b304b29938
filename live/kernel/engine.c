// SPDX-License-Identifier: GPL-2.0-only
/*
 * A changed scheduler as a module. Loading it changes nothing. Its parameters, below
 * /sys/module/baton_live/parameters:
 *
 *   enabled	Y when the changed scheduler runs; writing switches. While it runs, the module
 *		cannot be removed.
 *   report	what the last switch found and how long it took, a line for each fact
 *
 * Writing `enabled` fails with EBUSY if a task stays inside code that must not be left, and with
 * EILSEQ if something else has changed the kernel's code at one of our places. Then nothing has
 * changed.
 */
#include <linux/module.h>
#include <linux/moduleparam.h>

#include "engine.h"

static bool ready, enabled;
static struct baton_live_report last;

static int set_enabled(const char *value, const struct kernel_param *parameter)
{
	bool wanted;
	int err = kstrtobool(value, &wanted);

	if (err)
		return err;
	/* Before the module's start nothing is planned yet. */
	if (!ready)
		return -EINVAL;
	if (wanted == enabled)
		return 0;
	err = baton_live_switch(wanted, &last);
	if (err)
		return err;
	enabled = wanted;
	/* Once it is off, no task is in the module's code and nothing leads there. */
	if (enabled)
		__module_get(THIS_MODULE);
	else
		module_put(THIS_MODULE);
	return 0;
}

static int get_enabled(char *text, const struct kernel_param *parameter)
{
	return sysfs_emit(text, "%c\n", enabled ? 'Y' : 'N');
}

static const struct kernel_param_ops enabled_ops = {
	.set = set_enabled,
	.get = get_enabled,
};

/* The parameters' lock, which the kernel holds for both, guards all that is here. */
module_param_cb(enabled, &enabled_ops, NULL, 0644);

static int get_report(char *text, const struct kernel_param *parameter)
{
	int length = sysfs_emit(text,
				"functions %td\nsites %u\nattempts %u\ncpus %u\ntasks %u\n"
				"total_ns %llu\ncheck_ns %llu\nstores_ns %llu\n",
				baton_live_functions_end - baton_live_functions, baton_live_sites(),
				last.attempts, last.cpus, last.tasks, last.total, last.check,
				last.stores);

	if (last.pid || last.ip)
		length += sysfs_emit_at(text, length, "busy %d %pS %s\n", last.pid, (void *)last.ip,
					last.comm);
	return length;
}

static const struct kernel_param_ops report_ops = {
	.get = get_report,
};
module_param_cb(report, &report_ops, NULL, 0444);

static int __init start(void)
{
	int err = baton_live_ranges();

	if (err)
		return err;
	err = baton_live_plan();
	if (err)
		baton_live_forget_ranges();
	ready = !err;
	return err;
}

static void __exit stop(void)
{
	baton_live_forget();
	baton_live_forget_ranges();
}

module_init(start);
module_exit(stop);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A changed scheduler in the place of the kernel's own");
MODULE_INFO(livepatch, "Y");
MODULE_INFO(baton_build_id, BATON_BUILD_ID);
