// SPDX-License-Identifier: GPL-2.0-only
/*
 * Is a task inside code that must not be left: when the change is put in, a function that it
 * replaces; when it is taken out, the change.
 */
#include <linux/module.h>
#include <linux/sched/task_stack.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <asm/unwind.h>

#include "engine.h"

struct extent {
	unsigned long from, to;
};

/* The replaced functions, by address; none overlaps another. */
static struct extent *old;
static unsigned int nr_old;

static int compare(const void *a, const void *b)
{
	const struct extent *x = a, *y = b;

	return x->from < y->from ? -1 : x->from > y->from;
}

int baton_live_ranges(void)
{
	unsigned int count = baton_live_functions_end - baton_live_functions;

	old = kvcalloc(count, sizeof(*old), GFP_KERNEL);
	if (!old)
		return -ENOMEM;
	for (nr_old = 0; nr_old < count; nr_old++) {
		const struct baton_live_function *function = &baton_live_functions[nr_old];

		old[nr_old] = (struct extent){ function->old, function->old + function->size };
	}
	sort(old, nr_old, sizeof(*old), compare, NULL);
	return 0;
}

void baton_live_forget_ranges(void)
{
	kvfree(old);
	old = NULL;
	nr_old = 0;
}

static bool is_replaced(unsigned long ip)
{
	unsigned int from = 0, to = nr_old;

	while (from < to) {
		unsigned int middle = from + (to - from) / 2;

		if (ip < old[middle].from)
			to = middle;
		else if (ip >= old[middle].to)
			from = middle + 1;
		else
			return true;
	}
	return false;
}

/* A stack that cannot be followed to its end counts as one with such code, whose ip is then 0. */
bool baton_live_task_is_clear(struct task_struct *task, bool install, unsigned long *ip)
{
	struct unwind_state state;

	unwind_start(&state, task, NULL, NULL);
	for (; !unwind_done(&state); unwind_next_frame(&state)) {
		*ip = unwind_get_return_address(&state);
		if (!*ip)
			break;
		if (install ? is_replaced(*ip) : within_module(*ip, THIS_MODULE))
			return false;
	}
	*ip = 0;
	return !unwind_error(&state);
}
