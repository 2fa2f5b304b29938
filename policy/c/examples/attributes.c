/* SPDX-License-Identifier: GPL-2.0-only */
/* Gives this thread a slice of 3 ms under the policy `cfs_c`, and shows its attributes. */

#include <err.h>
#include <stdio.h>

#include "baton-attributes.h"

int main(void)
{
	struct baton_attributes queue;
	uint32_t own = (uint32_t)getpid(), i;
	int64_t values[BATON_MAX_ATTRIBUTES];

	if (baton_attributes_open(&queue, "cfs_c"))
		errx(1, "%s", queue.message);
	if (baton_attribute_set(&queue, own, "slice", 3000000) ||
	    baton_attributes_get(&queue, own, values))
		errx(1, "%s", queue.message);
	for (i = 0; i < queue.count; i++)
		printf("%s %lld\n", queue.table[i].name, (long long)values[i]);
	baton_attributes_close(&queue);
	return 0;
}
