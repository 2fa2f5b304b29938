// SPDX-License-Identifier: GPL-2.0-only
/*
 * `fifo_c_unchecked`: fifo_c without the checks of changes of states, to measure what they cost.
 *
 * 1. As fifo_c.
 */
#define BATON_UNCHECKED
#include "rules.h"
