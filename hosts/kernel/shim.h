/* SPDX-License-Identifier: GPL-2.0-only */
/* Interface between shim.bpf.c and shim_calls.c. */
#ifndef BATON_SHIM_H
#define BATON_SHIM_H

/* Values of baton_core's Verdict. */
#define BATON_V_NONE 0
#define BATON_V_RUN 1
#define BATON_V_KEEP 2
#define BATON_V_FALLBACK 3
#define BATON_V_EXPIRE 4
#define BATON_V_RESCUE 5
#define BATON_V_TURN 6
#define BATON_V_LOCAL 7
#define BATON_V_NOTHING 8

/*
 * In the flags of a dispatch: the fallback had its turn and no task for this CPU (baton_core's
 * TURN_WAS_EMPTY).
 */
#define BATON_TURN_WAS_EMPTY 0x8000

/* Less frequent events, for the kfunc baton_event(). Each comment describes the argument `more`. */
#define BATON_E_ATTACH 1	/* 1 if all normal tasks are Baton's */
#define BATON_E_DETACH 2
#define BATON_E_ENABLE 3	/* nice */
#define BATON_E_DISABLE 4	/* 1 if the task is dead */
#define BATON_E_EXIT 5
#define BATON_E_NICE 6		/* nice */
#define BATON_E_AFFINITY 7
#define BATON_E_TICK 8
#define BATON_E_YIELD 9
#define BATON_E_ONLINE 10	/* 1 when coming online */
#define BATON_E_IDLE 11		/* 1 when going idle */
#define BATON_E_PICK_FAILED 12	/* for the task that baton_dispatch() last returned; no `more` */

#endif
