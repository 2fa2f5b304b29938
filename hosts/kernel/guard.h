/* SPDX-License-Identifier: GPL-2.0-only */
/* The stack of a call, for guard.S and C. */
#ifndef BATON_GUARD_H
#define BATON_GUARD_H

#include <linux/const.h>

#define BATON_STACK_GRANT 4096	/* bytes of stack granted to a call */
#define BATON_NO_LIMIT _AC(~0, UL)	/* `limit` of a CPU that is not in a call */

#endif
