/* SPDX-License-Identifier: GPL-2.0-only */
/* The limits of a call, for guard.S and C. */
#ifndef BATON_GUARD_H
#define BATON_GUARD_H

#include <linux/const.h>

#define BATON_STACK_GRANT 4096	/* bytes of stack granted to a call */
#define BATON_FRAME_TURNS 72	/* offset of `turns` in struct baton_frame (core.h) */
#define BATON_BLOCK_OF_TURN_BITS 12
#define BATON_BLOCK_OF_TURN (1 << BATON_BLOCK_OF_TURN_BITS)	/* bytes that count as a turn */
#define BATON_TURNS 1024	/* turns of loops until a call is looked at (turns.c) */
#define BATON_MAX_LOOKS (1 << 14)	/* so a call is granted 2^24 turns */
#define BATON_NO_LIMIT _AC(~0, UL)	/* `limit` of a CPU that is not in a call */

#endif
