/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Numbers of the control device's requests; the structures are in baton.h. cli/src/device.rs has
 * the same numbers.
 */
#ifndef BATON_IOCTL_H
#define BATON_IOCTL_H

#include <linux/ioctl.h>

#define BATON_IOC_TYPE 0xBA
#define BATON_IOC_CORE _IOWR(BATON_IOC_TYPE, 0, struct baton_core_info)
#define BATON_IOC_POLICY _IOWR(BATON_IOC_TYPE, 1, struct baton_policy_info)
#define BATON_IOC_FAULT _IOWR(BATON_IOC_TYPE, 2, struct baton_fault)
#define BATON_IOC_CPU _IOWR(BATON_IOC_TYPE, 3, struct baton_cpu_info)
#define BATON_IOC_START _IOWR(BATON_IOC_TYPE, 4, struct baton_start)
#define BATON_IOC_STOP _IOWR(BATON_IOC_TYPE, 5, struct baton_stop)
#define BATON_IOC_ASSIGN _IOWR(BATON_IOC_TYPE, 6, struct baton_assign)
#define BATON_IOC_TASK _IOWR(BATON_IOC_TYPE, 7, struct baton_task_info)
#define BATON_IOC_UPGRADE _IOWR(BATON_IOC_TYPE, 8, struct baton_upgrade)
#define BATON_IOC_SWITCH _IOWR(BATON_IOC_TYPE, 9, struct baton_switch)
#define BATON_IOC_ORDER _IOWR(BATON_IOC_TYPE, 10, struct baton_order)
#define BATON_IOC_SHARE _IOWR(BATON_IOC_TYPE, 11, struct baton_share)
#define BATON_IOC_PARTITION _IOWR(BATON_IOC_TYPE, 12, struct baton_partition)
#define BATON_IOC_RULE _IOWR(BATON_IOC_TYPE, 13, struct baton_rule)
#define BATON_IOC_RECORD _IOWR(BATON_IOC_TYPE, 14, struct baton_record)
#define BATON_IOC_RECORD_TAKE _IOWR(BATON_IOC_TYPE, 15, struct baton_record_block)
#define BATON_IOC_RECORD_STOP _IOWR(BATON_IOC_TYPE, 16, struct baton_record_block)
#define BATON_IOC_RECORD_CHECKPOINT _IOWR(BATON_IOC_TYPE, 17, struct baton_record_checkpoint)
#define BATON_IOC_GRANT _IOWR(BATON_IOC_TYPE, 18, struct baton_grant)

/* Those of /dev/baton-hints; policy/hints has the same numbers. */
#define BATON_HINTS_IOC_OPEN _IOWR(BATON_IOC_TYPE, 32, struct baton_hints_open)
#define BATON_HINTS_IOC_SEND _IOWR(BATON_IOC_TYPE, 33, struct baton_hints_send)

#endif
