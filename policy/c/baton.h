/* SPDX-License-Identifier: GPL-2.0-only */
/* Made from policy/abi by `cargo xtask header`: change it there. */

#ifndef BATON_H
#define BATON_H

#if defined(__KERNEL__)
#include <linux/types.h>
#elif !defined(__VMLINUX_H__)
#include <stdbool.h>
#include <stdint.h>
#endif
#ifndef UINT64_MAX
#define UINT64_MAX (~0ULL)
#endif

// Version of everything in this crate. A policy module built for another version is refused at
// registration.
#define BATON_ABI 5

// Longest name of a policy, with the terminating NUL.
#define BATON_NAME_LEN 32

// Longest option string of a policy, with the terminating NUL.
#define BATON_OPTIONS_LEN 256

// At most this many policies are registered at once.
#define BATON_MAX_POLICIES 16

// Longest name of a module, with the terminating NUL.
#define BATON_MODULE_LEN 64

// Changes of version that are remembered for each policy.
#define BATON_CHANGES_KEPT 8

// Partitions at most.
#define BATON_MAX_PARTITIONS 16

// Words of a partition's CPUs: of 4096, one bit each, the first lowest.
#define BATON_CPU_WORDS 64

// Cgroups at most that belong to policies.
#define BATON_MAX_RULES 64

// Words of a hint.
#define BATON_HINT_WORDS 6

// Fewest and most entries of a ring.
#define BATON_HINTS_MIN_ENTRIES 16

#define BATON_HINTS_MAX_ENTRIES 4096

// At most so many hints are taken from a ring at one event.
#define BATON_HINTS_AT_ONCE 16

// Grants at most.
#define BATON_MAX_GRANTS 64

// Bits of `who` in `baton_grant`: what must be so. All that are given must.
#define BATON_GRANT_USER (1 << 0)

#define BATON_GRANT_GROUP (1 << 1)

#define BATON_GRANT_CGROUP (1 << 2)

#define BATON_GRANT_ALL 7

// Answer of a pick: nothing to run.
#define BATON_PICK_NONE 0

// Answer of a pick: the task that is running goes on.
#define BATON_PICK_KEEP 1

// What an abandoned call yields in place of an answer.
#define BATON_ABORTED UINT64_MAX

// At most this many CPUs can be kicked from one call; a further kick is refused to the policy.
#define BATON_MAX_KICKS 4

// Locks that a call may hold at once (the kernel's RES_NR_HELD); one more is a fault.
#define BATON_MAX_LOCKS 31

// The kicked CPU leaves idle and asks its policy for a task; a busy one is left alone.
#define BATON_KICK_IDLE 0

// The kicked CPU's running task is preempted.
#define BATON_KICK_PREEMPT 32768

// The task was woken from sleep (SCX_ENQ_WAKEUP).
#define BATON_F_WAKEUP (1 << 0)

// The task comes back after a change of its attributes (ENQUEUE_RESTORE).
#define BATON_F_RESTORE (1 << 1)

// The task is new (WF_FORK).
#define BATON_F_FORK (1 << 2)

// Of a dispatch: `task`, which ran last on this CPU, can go on running.
#define BATON_F_PREV_RUNNABLE (1 << 3)

// The waker is about to sleep (WF_SYNC).
#define BATON_F_SYNC (1 << 4)

// Set in the answer of `select_task_rq`: run it there at once, past the policy's queues.
#define BATON_SELECT_DIRECT 4294967296

// Length of a message from a policy, with the terminating NUL.
#define BATON_MESSAGE_LEN 160

// Bits of `events` in `baton_policy`: the notifications a policy wants to be called for.
#define BATON_EV_BLOCKED (1 << 0)

#define BATON_EV_TICK (1 << 1)

#define BATON_EV_IDLE (1 << 2)

#define BATON_EV_BALANCE (1 << 3)

#define BATON_EV_ALL 15

// Added by the host: the policy has no `select_task_rq`, and tasks stay where they ran last.
#define BATON_EV_NO_SELECT (1 << 4)

// State of a policy.
//
//   registered --start--> running --stop--> registered
//                            |                  ^
//                            +----fault--> faulted --stop--+
// Moved under the control mutex, but for `running -> faulted`, which any CPU does once, by compare
// and swap.
enum baton_policy_state {
	// No policy in this place of the table.
	BATON_POLICY_STATE_ABSENT = 0,
	// The module is loaded; the policy schedules nothing.
	BATON_POLICY_STATE_REGISTERED = 1,
	// The policy schedules its tasks.
	BATON_POLICY_STATE_RUNNING = 2,
	// The policy was stopped by a fault; its tasks run under the fallback.
	BATON_POLICY_STATE_FAULTED = 3,
};

// Why the version of a policy changed.
enum baton_change_kind {
	BATON_CHANGE_KIND_NONE = 0,
	// By an upgrade.
	BATON_CHANGE_KIND_UPGRADE = 1,
	// By hand, or because a condition of the probation was broken.
	BATON_CHANGE_KIND_ROLLBACK = 2,
	// Because the new version had a fault while on probation.
	BATON_CHANGE_KIND_FAULT_ROLLBACK = 3,
};

// Why a recording has ended.
enum baton_record_end {
	// It goes on.
	BATON_RECORD_END_NONE = 0,
	// On request, or because its owner is gone.
	BATON_RECORD_END_STOPPED = 1,
	// A ring was full, and nothing was to be lost.
	BATON_RECORD_END_FULL = 2,
	// The policy was unloaded.
	BATON_RECORD_END_UNLOADED = 3,
	// Another version of the policy, or another policy, took its place.
	BATON_RECORD_END_REPLACED = 4,
	// A fault stopped the policy.
	BATON_RECORD_END_FAULT = 5,
};

// What `BATON_IOC_RECORD` does.
enum baton_record_how {
	// Records for the file that asks. Events that there is no room for are lost, and counted.
	BATON_RECORD_HOW_LOSSY = 0,
	// The same, but it ends when there is no room.
	BATON_RECORD_HOW_LOSSLESS = 1,
	// Sets the policy's flight recorder to so many blocks; 0 ends it. It belongs to no file, and
	// keeps the newest.
	BATON_RECORD_HOW_FLIGHT = 2,
	// Gives the file what the flight recorder had at the policy's last fault. That stays, and is
	// not changed.
	BATON_RECORD_HOW_FAULT = 3,
};

// Why a queue was closed.
enum baton_hints_end {
	// It is open.
	BATON_HINTS_END_NONE = 0,
	// The policy was unloaded.
	BATON_HINTS_END_UNLOADED = 1,
	// A version with other types took the policy's place, or another policy did.
	BATON_HINTS_END_REPLACED = 2,
	// A fault stopped the policy.
	BATON_HINTS_END_FAULT = 3,
	// What the queue was opened by is granted no more.
	BATON_HINTS_END_REVOKED = 4,
	// The thread that opened it is gone, or runs another program.
	BATON_HINTS_END_GONE = 5,
};

// What became of a hint that was sent by a call.
enum baton_hint_answer {
	// The policy has it.
	BATON_HINT_ANSWER_TAKEN = 0,
	// It is no hint of the policy's type.
	BATON_HINT_ANSWER_MALFORMED = 1,
	// The thread that it names is not one of the sender's process, or not one of the policy's.
	BATON_HINT_ANSWER_THREAD = 2,
	// The sender is not, or not yet, a task of the policy.
	BATON_HINT_ANSWER_NOT_MEMBER = 3,
	// The policy has stopped.
	BATON_HINT_ANSWER_STOPPED = 4,
};

// What became of a reply.
enum baton_reply_answer {
	// It is in the task's ring.
	BATON_REPLY_ANSWER_SENT = 0,
	// The task has no queue to the policy.
	BATON_REPLY_ANSWER_NO_QUEUE = 1,
	// The ring is full.
	BATON_REPLY_ANSWER_FULL = 2,
};

// Why the host did not take a policy's answer.
enum baton_refusal {
	// The token is not the task's newest, or the task is not queued any more.
	BATON_REFUSAL_STALE = 1,
	// The task belongs to another policy.
	BATON_REFUSAL_FOREIGN = 2,
	// The task may not run on that CPU (affinity, or migration disabled).
	BATON_REFUSAL_NOT_ALLOWED = 3,
	// The CPU is offline or out of range.
	BATON_REFUSAL_CPU_OFFLINE = 4,
	// "Keep" was answered where no task can be kept.
	BATON_REFUSAL_NOTHING_TO_KEEP = 5,
};

// The methods of a policy, for fault reports and counters.
enum baton_method {
	BATON_METHOD_NONE = 0,
	BATON_METHOD_CREATE,
	BATON_METHOD_DESTROY,
	BATON_METHOD_SELECT_TASK_RQ,
	BATON_METHOD_TASK_NEW,
	BATON_METHOD_TASK_WAKEUP,
	BATON_METHOD_TASK_PREEMPT,
	BATON_METHOD_TASK_YIELD,
	BATON_METHOD_TASK_RESTORED,
	BATON_METHOD_PICK_NEXT_TASK,
	BATON_METHOD_NEWLY_IDLE,
	BATON_METHOD_PICK_REFUSED,
	BATON_METHOD_BALANCE,
	BATON_METHOD_TASK_BLOCKED,
	BATON_METHOD_TASK_DEQUEUED,
	BATON_METHOD_TASK_DEPARTED,
	BATON_METHOD_TASK_DEAD,
	BATON_METHOD_TASK_AFFINITY_CHANGED,
	BATON_METHOD_TASK_PRIO_CHANGED,
	BATON_METHOD_TASK_TICK,
	BATON_METHOD_TIMER,
	BATON_METHOD_CPU_ONLINE,
	BATON_METHOD_CPU_OFFLINE,
	BATON_METHOD_ENTER_IDLE,
	BATON_METHOD_EXIT_IDLE,
	BATON_METHOD_HINT,
	BATON_METHOD_REREGISTER_PREPARE,
	BATON_METHOD_REREGISTER_INIT,
	BATON_METHOD_REREGISTER_DROP,
	BATON_METHOD_REREGISTER_CONVERT,
	BATON_METHOD_REREGISTER_TAKE,
	BATON_METHOD_REREGISTER_SAVE,
	BATON_METHOD_REREGISTER_LOAD,
};

// What a policy did wrong.
enum baton_fault_kind {
	BATON_FAULT_KIND_NONE = 0,
	// A panic: index out of range, overflow, `unwrap` on None, or one of the policy's own.
	BATON_FAULT_KIND_PANIC = 1,
	// The policy's memory limit, or the machine's memory, was exhausted.
	BATON_FAULT_KIND_OUT_OF_MEMORY = 2,
	// The call used up the stack that the host grants.
	BATON_FAULT_KIND_STACK_OVERFLOW = 3,
	// A lock was taken twice by one CPU, or two CPUs wait for each other's.
	BATON_FAULT_KIND_DEADLOCK = 4,
	// A lock was not granted in time.
	BATON_FAULT_KIND_LOCK_TIMEOUT = 5,
	// A `Schedulable` was dropped: the task would never run again.
	BATON_FAULT_KIND_LOST_TASK = 6,
	// A task was runnable for longer than the stall limit without being picked.
	BATON_FAULT_KIND_STALL = 7,
	// The policy answered with refused tokens, call after call.
	BATON_FAULT_KIND_REFUSAL_LOOP = 8,
};

// `BATON_IOC_CORE`: the core itself.
struct baton_core_info {
	// `BATON_ABI`.
	uint32_t abi;
	// 1 while the shim is attached to sched_ext.
	uint32_t attached;
	// 1 when all normal tasks of the machine are Baton's, 0 when only those of class SCHED_EXT
	// are.
	uint32_t all;
	// Number of possible CPUs.
	uint32_t nr_cpus;
	// Number of task slots, and how many are in use.
	uint32_t max_tasks;
	uint32_t tasks;
	// Tasks that got no slot since the core was loaded; they run under the fallback.
	uint64_t no_slot;
	// Id of the policy that unassigned tasks get; 0 for none.
	uint32_t default_policy;
	// A queued task that waits longer than this is a stall, ms.
	uint32_t stall_ms;
};

// One change of the version of a policy.
struct baton_change {
	// When, ns since the boot.
	uint64_t now;
	// `baton_change_kind`.
	uint32_t kind;
	// 1 when the new version began with a state of its own, as it could not take over the old
	// one's.
	uint32_t anew;
	uint32_t from_version;
	uint32_t to_version;
	// How long CPUs were held, ns: from when the first is held for the change to when the last
	// goes on. 0 when none was.
	uint64_t held;
	// How much of that was in the policy's own code, and in the core's, ns. In the rest CPUs came,
	// or went on.
	uint64_t policy;
	uint64_t core;
	// What the policy allocated for the change, bytes.
	uint64_t memory;
};

// `BATON_IOC_POLICY`: one policy. In: `index`. Out: the rest.
struct baton_policy_info {
	// Place in the table, below `BATON_MAX_POLICIES`.
	uint32_t index;
	// `baton_policy_state`.
	uint32_t state;
	// Unique since the core was loaded; 0 when absent.
	uint32_t id;
	uint32_t version;
	// Tasks that belong to it.
	uint32_t tasks;
	// Tasks whose `Schedulable` it holds.
	uint32_t queued;
	// How many policies are asked before it.
	uint32_t rank;
	// Share of each CPU's time that it is guaranteed, percent; 0 for none.
	uint32_t share;
	// 1 while it is recorded into a file.
	uint32_t recording;
	// Blocks of 64 KiB that each CPU has of its flight recorder; 0 while there is none.
	uint32_t flight;
	// 1 while what a flight recorder had at the last fault can be had.
	uint32_t recorded;
	uint32_t reserved;
	// Memory it has allocated, bytes.
	uint64_t memory;
	// `baton_refusal` answers so far.
	uint64_t refusals;
	// Faults so far.
	uint64_t faults;
	uint8_t name[BATON_NAME_LEN];
	uint8_t options[BATON_OPTIONS_LEN];
	// Names of the modules of its versions: the current one, the one that is loaded to come next,
	// and the one before.
	uint8_t modules[3][BATON_MODULE_LEN];
	// Name of its partition; empty for none.
	uint8_t partition[BATON_NAME_LEN];
	// Upgrades and rollbacks so far.
	uint64_t changes;
	// The last of them, oldest first; `kind` is 0 where there is none.
	struct baton_change history[BATON_CHANGES_KEPT];
};

// The type of a state that one version of a policy hands to the next. Two are the same when all
// fields are.
struct baton_state_type {
	// Name of the type, NUL-terminated; empty when there is no state.
	char name[BATON_NAME_LEN];
	// Version that its author gave it.
	uint32_t version;
	// Padding.
	uint32_t reserved;
	// Of everything that decides how it lies in memory, down to the last field.
	uint64_t layout;
};

// `BATON_IOC_UPGRADE`: puts the version that is loaded to come next in the place of the running
// one, or the one before.
struct baton_upgrade {
	uint8_t name[BATON_NAME_LEN];
	// For the new version; not of a rollback, which brings the old ones back.
	uint8_t options[BATON_OPTIONS_LEN];
	// 1: back to the version before.
	uint32_t rollback;
	// A fault within this time brings the version before back, ms; 0 for none.
	uint32_t probation;
	// Out: why it was refused, NUL-terminated.
	uint8_t message[BATON_MESSAGE_LEN];
	// Out: what was done.
	struct baton_change change;
	// Out: the state that the running version hands on, and the two that the other takes.
	struct baton_state_type running;
	struct baton_state_type state;
	struct baton_state_type older;
};

// `BATON_IOC_SWITCH`: gives all tasks of one running policy to another.
struct baton_switch {
	uint8_t from[BATON_NAME_LEN];
	uint8_t to[BATON_NAME_LEN];
	// Out: how long CPUs were held, ns, as in `baton_change`.
	uint64_t held;
};

// `BATON_IOC_ORDER`: the order in which policies are asked on each CPU.
struct baton_order {
	// The first of them; an empty name ends the list. The others stay behind these as they are.
	uint8_t names[BATON_MAX_POLICIES][BATON_NAME_LEN];
};

// `BATON_IOC_SHARE`: guarantees a policy a share of each CPU's time while it has tasks for it.
struct baton_share {
	uint8_t name[BATON_NAME_LEN];
	// Percent; 0 for none. All shares together are 100 at most.
	uint32_t share;
};

// `BATON_IOC_PARTITION`: CPUs that only some policies have.
struct baton_partition {
	// 0: asks for what there is at `index`, below `BATON_MAX_PARTITIONS`; an empty name comes back
	// if there is nothing. 1: makes the partition `name` what is said here, or ends it, if it is
	// to have no CPU and no policy.
	uint32_t set;
	uint32_t index;
	uint8_t name[BATON_NAME_LEN];
	uint64_t cpus[BATON_CPU_WORDS];
	// Its policies; an empty name ends the list.
	uint8_t policies[BATON_MAX_POLICIES][BATON_NAME_LEN];
	// Out: why it was refused, NUL-terminated.
	uint8_t message[BATON_MESSAGE_LEN];
	// Out: how long CPUs were held, ns, as in `baton_change`.
	uint64_t held;
};

// `BATON_IOC_RULE`: cgroups (version 2) whose tasks, now and later, belong to a policy.
struct baton_rule {
	// 0: asks for the rule at `index`, below `BATON_MAX_RULES`; `cgroup` is 0 if there is none. 1:
	// gives `cgroup` to the policy `name`, or, if that is empty, to none. 2: has all tasks looked
	// at again, as after the shim was attached.
	uint32_t set;
	uint32_t index;
	// Its id: the inode number of its directory.
	uint64_t cgroup;
	uint8_t name[BATON_NAME_LEN];
};

// `BATON_IOC_RECORD`: begins to record a running policy: from its state, where that can be saved
// (`reregister_save`), else with a new instance of it. The recording belongs to the open file;
// reading that gives the state. The thread that asks gets a real-time priority
// (`sched_set_fifo_low`), so that it can keep up with what it reads.
struct baton_record {
	uint8_t name[BATON_NAME_LEN];
	// Blocks of 64 KiB that each CPU may have: 16 to 65534. Out, of a fault: as many as it had.
	uint32_t blocks;
	// `baton_record_how`.
	uint32_t how;
	// Out: version of the policy.
	uint32_t version;
	// Out: stamps in a millisecond.
	uint32_t stamp_khz;
	// In: 1, to be recorded from a state only: a policy that saves none is refused (`EPROTOTYPE`).
	// Out: 1 where it begins with a state.
	uint32_t has_state;
	uint32_t reserved;
	// Out: length of the state, bytes, and its type. Without one they mean nothing.
	uint64_t state_length;
	struct baton_state_type state;
	// Out: the policy's options, NUL-terminated.
	uint8_t options[BATON_OPTIONS_LEN];
	// Out: why the policy could not be made anew, NUL-terminated.
	uint8_t message[BATON_MESSAGE_LEN];
};

// Where a CPU is. Ids are dense and start at 0; CPUs with the same id share the thing.
struct baton_cpu {
	// Physical core: CPUs of one core are SMT siblings.
	uint32_t core;
	// Last-level cache.
	uint32_t llc;
	// NUMA node.
	uint32_t node;
	// 1 when the CPU was online as this was read.
	uint32_t online;
};

// `BATON_IOC_RECORD_TAKE`: gives the block that was taken last back to its CPU, and takes the
// next. `BATON_IOC_RECORD_STOP`, with the same structure, ends the recording: what is left can
// then be taken.
struct baton_record_block {
	// Whose.
	uint32_t cpu;
	// In: -1 to be told of the CPU only; else, of a fault, which of the CPU's blocks, from 0. Out:
	// number of the block, which is at so many times 64 KiB in the mapping of the file; -1 when
	// none is full.
	int32_t block;
	// Out: `baton_record_end`. Not 0: no more is recorded.
	uint32_t end;
	// Out: what the policy was told of that CPU.
	struct baton_cpu topology;
};

// `BATON_IOC_RECORD_CHECKPOINT`: the policy's state between two events. Of a recording that goes
// on, it is made, and takes the place of the state that was read before; `EAGAIN` while a CPU's
// ring is too full. Of a fault, it is the second one that is kept; `ENODATA` without.
struct baton_record_checkpoint {
	// Out: what comes after it has later stamps, and is in blocks whose own stamps are not less.
	uint64_t stamp;
	// Out: where in the file it is read, and its length, bytes.
	uint64_t at;
	uint64_t length;
};

// One call into a policy, as the core remembers it.
struct baton_event {
	uint64_t now;
	// `baton_method`.
	uint32_t method;
	uint32_t pid;
};

// `BATON_IOC_FAULT`: the last fault of a policy. In: `index`. Out: the rest.
struct baton_fault {
	uint32_t index;
	// `baton_fault_kind`; `None` if there was no fault.
	uint32_t kind;
	// `baton_method`.
	uint32_t method;
	uint32_t cpu;
	// The task the call was about; 0 if none.
	uint32_t pid;
	// Source line, 0 if not known.
	uint32_t line;
	// When, ns since the boot, to the kernel's tick.
	uint64_t now;
	// Number of the fault since the core was loaded.
	uint64_t serial;
	uint8_t policy[BATON_NAME_LEN];
	uint8_t comm[16];
	// Source file, NUL-terminated.
	uint8_t file[96];
	// What the policy or the host said, NUL-terminated.
	uint8_t message[BATON_MESSAGE_LEN];
	// The last calls on that CPU, oldest first: `nr_events` of them.
	uint32_t nr_events;
	uint32_t reserved;
	struct baton_event events[10];
};

// `BATON_IOC_CPU`: counters of one CPU. In: `cpu`. Out: the rest.
struct baton_cpu_info {
	uint32_t cpu;
	uint32_t online;
	// Calls to pick, and how many gave a task of a policy.
	uint64_t dispatches;
	uint64_t picks;
	// Tasks taken over by a policy.
	uint64_t enqueues;
	// Tasks handed straight to an idle CPU.
	uint64_t directs;
	// Answers refused.
	uint64_t refusals;
	// Tasks run by the fallback.
	uint64_t fallbacks;
	// Calls of a policy's timer.
	uint64_t timers;
};

// `BATON_IOC_START`: start a registered policy.
struct baton_start {
	uint8_t name[BATON_NAME_LEN];
	uint8_t options[BATON_OPTIONS_LEN];
	// Out: why the policy could not be made, NUL-terminated.
	uint8_t message[BATON_MESSAGE_LEN];
};

// `BATON_IOC_STOP`: stop a policy; its tasks go on under the default policy or the fallback.
struct baton_stop {
	uint8_t name[BATON_NAME_LEN];
	// Out: what went wrong as the policy was unmade, NUL-terminated; empty if nothing. It is
	// stopped all the same.
	uint8_t message[BATON_MESSAGE_LEN];
};

// `BATON_IOC_ASSIGN`: give a task, or all unassigned tasks, to a policy.
struct baton_assign {
	// The thread, in the caller's pid namespace; 0 sets the policy of all tasks that have none of
	// their own.
	uint32_t pid;
	// 1: also move the thread into (or, with an empty name, out of) class SCHED_EXT.
	uint32_t set_class;
	// The policy; empty for none.
	uint8_t name[BATON_NAME_LEN];
};

// `BATON_IOC_TASK`: a task. In: `slot`. Out: the first task at that slot or after it.
struct baton_task_info {
	uint32_t slot;
	// 0 when there is no task any more.
	uint32_t pid;
	// Id of its policy, 0 for none.
	uint32_t policy;
	// Number of its state, see `hosts/core`.
	uint32_t state;
	int32_t cpu;
	int32_t nice;
	uint8_t comm[16];
	// Id of the policy that it was assigned to, 0 for none.
	uint32_t wanted;
};

// A hint, or a policy's reply.
struct baton_hint {
	// What it says. What it has in its words follows from that; those that it does not use are 0.
	uint32_t tag;
	// The thread that it names, 0 for none: its id in the sender's pid namespace, as the
	// application writes it; its slot plus one, as the policy gets it. A reply names none.
	uint32_t thread;
	uint64_t words[BATON_HINT_WORDS];
};

// A place for one hint in a ring, a cache line. See `policy/message/src/ring.rs` for the sequence.
struct baton_hints_entry {
	// Twice the number of the lap around the ring while it is the writer's, one more while it is
	// the reader's.
	uint32_t sequence;
	uint32_t tag;
	uint32_t thread;
	uint32_t reserved;
	uint64_t words[BATON_HINT_WORDS];
};

// What the mapping of a queue begins with, a cache line: then come the entries of the hints, and
// those of the replies. The host writes here, and reads nothing.
struct baton_hints_head {
	// `baton_hints_end`: not 0 when the queue is closed.
	uint32_t end;
	// Entries of each of its rings, a power of two.
	uint32_t entries;
	// Hints that were taken from the ring and refused.
	uint32_t refused;
	// Replies that there was no room for.
	uint32_t lost;
	uint32_t reserved[12];
};

// `BATON_HINTS_IOC_OPEN`: opens the calling thread's queue to a policy. One for each open file of
// the device, and for each thread.
struct baton_hints_open {
	// Name of the policy, NUL-terminated.
	uint8_t policy[BATON_NAME_LEN];
	// The types that the application was built with; a `layout` of 0 is not compared.
	struct baton_state_type hint;
	struct baton_state_type reply;
	// Entries of each ring that are wanted, 0 for the least. Out: as many as there are.
	uint32_t entries;
	// Out: bytes to be mapped.
	uint32_t size;
	// Out: why it was refused, NUL-terminated.
	uint8_t message[BATON_MESSAGE_LEN];
};

// `BATON_HINTS_IOC_SEND`: one hint, which the policy has when the call is over. What is in the
// ring goes before it.
struct baton_hints_send {
	struct baton_hint hint;
	// Out: `baton_hint_answer`.
	uint32_t answer;
	uint32_t reserved;
};

// `BATON_IOC_GRANT`, of the control device: who may open queues to a policy.
struct baton_grant {
	// 0: asks for the grant at `index`, below `BATON_MAX_GRANTS`; an empty name comes back if
	// there is none. 1: grants. 2: takes back what was granted to the same, and closes the queues
	// that were opened by it.
	uint32_t set;
	uint32_t index;
	// Name of the policy, which need not be loaded.
	uint8_t name[BATON_NAME_LEN];
	// `BATON_GRANT_*`; not 0.
	uint32_t who;
	uint32_t user;
	uint32_t group;
	// Most entries of a ring.
	uint32_t entries;
	// Id of a cgroup (version 2), the inode number of its directory: the thread must be in it, or
	// below.
	uint64_t cgroup;
	// Most queues that each user may have open by it.
	uint32_t queues;
	// 1: hints may name threads of other processes.
	uint32_t any_thread;
	// Out: queues that are open by it.
	uint32_t open;
	uint32_t reserved;
};

// What a policy is given when it is made.
struct baton_env {
	// `nr_cpus` entries; valid during the call only.
	const struct baton_cpu *cpus;
	// Number of possible CPUs; CPU numbers are below it.
	uint32_t nr_cpus;
	// Number of task slots.
	uint32_t max_tasks;
	// The options given at load, NUL-terminated UTF-8; valid during the call only.
	const char *options;
	// Where a policy that cannot be made says why: `BATON_MESSAGE_LEN` bytes, NUL-terminated;
	// valid during the call only.
	char *message;
};

// One call's surroundings. The shim makes it on its stack, the core and the policy fill in
// answers, and the shim carries them out. Not shared between CPUs. 48 bytes: with more, BPF gives
// the shim a stack of its own, which costs every call.
struct baton_ctx {
	// Now, ns, to the kernel's tick; 0 as the shim gives it.
	uint64_t now;
	// In: the task the call is about, as the shim knows it (slot plus one, and the slot's serial);
	// 0 if none. Out, of a dispatch: the task to run.
	uint64_t task;
	// CPU time that `task` has used since it was created, ns.
	uint64_t runtime;
	// Out: how long the task may run, ns; 0 leaves the host's default.
	uint64_t slice;
	// In: the CPU the call is about. Out, of a select: the CPU chosen.
	int32_t cpu;
	// In: `BATON_F_*`.
	uint16_t flags;
	// Out: kicks asked for in `kicks`.
	uint16_t nr_kicks;
	// Out: CPU number, with `BATON_KICK_PREEMPT` or not.
	uint16_t kicks[BATON_MAX_KICKS];
};

// What a policy is told of a task. A copy, made for one call.
struct baton_task {
	// Slot of the task: below the `max_tasks` of `baton_env`, and reused after the task is dead.
	uint32_t slot;
	// Thread id in the initial namespace.
	uint32_t pid;
	// The CPU whose run queue the task is on, or was on last.
	int32_t cpu;
	// Nice value, -20 to 19.
	int32_t nice;
	// CPU time used since the task was created, ns.
	uint64_t runtime;
};

// A waking or new task asks for a CPU.
struct baton_wake {
	// Where it ran last.
	int32_t prev_cpu;
	// The CPU on which the waker runs.
	int32_t waker_cpu;
	// `BATON_F_SYNC`, `BATON_F_FORK`.
	uint16_t flags;
};

// A `Schedulable` as C sees it: the task's slot plus one in the low half, its generation in the
// high half. Never 0 or 1, see `BATON_PICK_NONE` and `BATON_PICK_KEEP`.
typedef uint64_t baton_token;

// What `reregister_take` brings over.
struct baton_older {
	// The state that was converted.
	const void *state;
	// Slots from here on have never had a task.
	uint32_t nr_slots;
	uint32_t reserved;
};

// Bytes of the host's, valid during a call.
struct baton_bytes {
	uint8_t *at;
	// How many.
	uintptr_t length;
};

// A policy as the core sees it. `this` is what `create` made. All but `create` and
// `destroy` run with interrupts off and usually with a kernel run-queue lock held: they
// must not sleep, and several CPUs are in them at once. An absent function (NULL) is
// skipped; those marked "needed" must be there. In user space a policy in Rust unwinds out
// of a call that is abandoned.
//
// Functions that take a `baton_token` own it from then on. See the trait `Scheduler` of the
// crate `baton`, whose methods these are, for when each is called and what a wrong answer
// costs.
struct baton_policy {
	// `BATON_ABI` the policy was built with.
	uint32_t abi;
	// Version of the policy, for people.
	uint32_t version;
	// `BATON_EV_*`.
	uint32_t events;
	// 1 for a policy in C, whose stack use is not bounded by the host.
	uint32_t language;
	// Name, NUL-terminated: `[a-z0-9_]`.
	char name[BATON_NAME_LEN];
	// The state that `reregister_prepare` gives and `reregister_init` takes.
	struct baton_state_type state;
	// The state of another version that `reregister_convert` takes.
	struct baton_state_type older;
	// The types of the hints that it takes and of its replies; names are empty when it
	// takes none.
	struct baton_state_type hint_type;
	struct baton_state_type reply_type;
	// Needed. Process context, may sleep and allocate. Returns NULL when it cannot.
	void *(*create)(const struct baton_env *env);
	// Needed. Process context; no other call is under way or will come.
	void (*destroy)(void *this);
	// The CPU, or'ed with `BATON_SELECT_DIRECT`: then the task runs there for
	// `ctx->slice` ns, the default if 0. A new task (`BATON_F_FORK`) is not the policy's
	// yet: `task_new` gives it the task whatever this answers.
	uint64_t (*select_task_rq)(void *this,
				   struct baton_ctx *ctx,
				   const struct baton_task *task,
				   const struct baton_wake *wake);
	// Needed.
	void (*task_new)(void *this,
			 struct baton_ctx *ctx,
			 const struct baton_task *task,
			 baton_token token);
	// Needed.
	void (*task_wakeup)(void *this,
			    struct baton_ctx *ctx,
			    const struct baton_task *task,
			    baton_token token);
	// Needed.
	void (*task_preempt)(void *this,
			     struct baton_ctx *ctx,
			     const struct baton_task *task,
			     baton_token token);
	// Needed.
	void (*task_yield)(void *this,
			   struct baton_ctx *ctx,
			   const struct baton_task *task,
			   baton_token token);
	// Needed.
	void (*task_restored)(void *this,
			      struct baton_ctx *ctx,
			      const struct baton_task *task,
			      baton_token token);
	// Needed. A token, `BATON_PICK_NONE` or `BATON_PICK_KEEP`; `prev` may be NULL. The
	// slice goes into `ctx`.
	uint64_t (*pick_next_task)(void *this,
				   struct baton_ctx *ctx,
				   int32_t cpu,
				   const struct baton_task *prev);
	// A token or `BATON_PICK_NONE`.
	uint64_t (*newly_idle)(void *this, struct baton_ctx *ctx, int32_t cpu);
	// Needed.
	void (*pick_refused)(void *this,
			     struct baton_ctx *ctx,
			     baton_token token,
			     enum baton_refusal why);
	void (*balance)(void *this, struct baton_ctx *ctx, int32_t cpu);
	void (*task_blocked)(void *this, struct baton_ctx *ctx, const struct baton_task *task);
	// Needed. The token, or 0.
	baton_token (*task_dequeued)(void *this,
				     struct baton_ctx *ctx,
				     const struct baton_task *task);
	// Needed. The token, or 0.
	baton_token (*task_departed)(void *this,
				     struct baton_ctx *ctx,
				     const struct baton_task *task);
	void (*task_dead)(void *this, struct baton_ctx *ctx, const struct baton_task *task);
	void (*task_affinity_changed)(void *this,
				      struct baton_ctx *ctx,
				      const struct baton_task *task);
	void (*task_prio_changed)(void *this, struct baton_ctx *ctx, const struct baton_task *task);
	void (*task_tick)(void *this, struct baton_ctx *ctx, const struct baton_task *task);
	void (*timer)(void *this, struct baton_ctx *ctx, int32_t cpu);
	void (*cpu_online)(void *this, struct baton_ctx *ctx, int32_t cpu);
	void (*cpu_offline)(void *this, struct baton_ctx *ctx, int32_t cpu);
	void (*enter_idle)(void *this, struct baton_ctx *ctx, int32_t cpu);
	void (*exit_idle)(void *this, struct baton_ctx *ctx, int32_t cpu);
	// A hint of a task of the policy's, checked as far as the host can: 0, or 1 when it is
	// none of the type that the policy takes. There if `hint_type` is.
	uint64_t (*hint)(void *this,
			 struct baton_ctx *ctx,
			 const struct baton_task *from,
			 const struct baton_hint *hint);
	// The state of the running version, to be shared with the next. Process context; other
	// calls go on meanwhile. Returns NULL when it cannot. There if `state` is, as are the
	// next two.
	void *(*reregister_prepare)(void *this);
	// As `create`, of a state, which it owns from then on. Other calls of the version that
	// gave the state go on meanwhile.
	void *(*reregister_init)(const struct baton_env *env, void *state);
	// Gives up a state of this version's that nobody took. Process context.
	void (*reregister_drop)(void *state);
	// Makes a state of one of the type `older`, as far as it can while that one is in use.
	// Process context. NULL when it cannot. There if `older` is, as is the next.
	void *(*reregister_convert)(const struct baton_env *env, const void *older);
	// Brings over, into a policy made of a converted state, what only can be while nothing
	// moves: every CPU stands still, with interrupts off. 0, or not 0 when it cannot.
	uint64_t (*reregister_take)(void *this, const struct baton_older *older);
	// Writes the state that `reregister_prepare` would give as bytes, as many as there is
	// room for, and says how many it takes. Every CPU stands still, with interrupts off.
	// There if `state` is, as is the next, where the state can be saved.
	uint64_t (*reregister_save)(void *this, const struct baton_bytes *to);
	// As `create`, of a state that such a function has written. In user space only.
	void *(*reregister_load)(const struct baton_env *env, const struct baton_bytes *from);
};











































// Requests (ioctls); a number holds the size of its structure.
#define BATON_IOC_CORE 0xc028ba00U
#define BATON_IOC_POLICY 0xc410ba01U
#define BATON_IOC_FAULT 0xc200ba02U
#define BATON_IOC_CPU 0xc040ba03U
#define BATON_IOC_START 0xc1c0ba04U
#define BATON_IOC_STOP 0xc0c0ba05U
#define BATON_IOC_ASSIGN 0xc028ba06U
#define BATON_IOC_TASK 0xc02cba07U
#define BATON_IOC_UPGRADE 0xc290ba08U
#define BATON_IOC_SWITCH 0xc048ba09U
#define BATON_IOC_ORDER 0xc200ba0aU
#define BATON_IOC_SHARE 0xc024ba0bU
#define BATON_IOC_PARTITION 0xc4d0ba0cU
#define BATON_IOC_RULE 0xc030ba0dU
#define BATON_IOC_RECORD 0xc210ba0eU
#define BATON_IOC_RECORD_TAKE 0xc01cba0fU
#define BATON_IOC_RECORD_STOP 0xc01cba10U
#define BATON_IOC_RECORD_CHECKPOINT 0xc018ba11U
#define BATON_IOC_GRANT 0xc050ba12U
#define BATON_HINTS_IOC_OPEN 0xc128ba20U
#define BATON_HINTS_IOC_SEND 0xc040ba21U

#define BATON_METHOD_NAMES { \
	"-", \
	"create", \
	"destroy", \
	"select_task_rq", \
	"task_new", \
	"task_wakeup", \
	"task_preempt", \
	"task_yield", \
	"task_restored", \
	"pick_next_task", \
	"newly_idle", \
	"pick_refused", \
	"balance", \
	"task_blocked", \
	"task_dequeued", \
	"task_departed", \
	"task_dead", \
	"task_affinity_changed", \
	"task_prio_changed", \
	"task_tick", \
	"timer", \
	"cpu_online", \
	"cpu_offline", \
	"enter_idle", \
	"exit_idle", \
	"hint", \
	"reregister_prepare", \
	"reregister_init", \
	"reregister_drop", \
	"reregister_convert", \
	"reregister_take", \
	"reregister_save", \
	"reregister_load", \
}

#define BATON_FAULT_NAMES { \
	"none", \
	"panic", \
	"out of memory", \
	"stack overflow", \
	"deadlock", \
	"lock timeout", \
	"lost task", \
	"stall", \
	"refusal loop", \
}

#define BATON_NEEDED_METHODS(X) \
	X(create) \
	X(destroy) \
	X(task_new) \
	X(task_wakeup) \
	X(task_preempt) \
	X(task_yield) \
	X(task_restored) \
	X(pick_next_task) \
	X(pick_refused) \
	X(task_dequeued) \
	X(task_departed)

#endif  /* BATON_H */
