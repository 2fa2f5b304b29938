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
#define BATON_ABI 7

// Longest name of a policy, with the terminating NUL.
#define BATON_NAME_LEN 32

// Longest option string of a policy, with the terminating NUL.
#define BATON_OPTIONS_LEN 256

// Maximum number of policies registered at once.
#define BATON_MAX_POLICIES 16

// Offset of the shared mapping in the file of an enclave, bytes. The status mapping is at 0.
#define BATON_AGENT_SHARED 1099511627776

// The task is in the enclave.
#define BATON_AGENT_TASK_MEMBER (1 << 0)

// The task is an agent of a CPU.
#define BATON_AGENT_TASK_AGENT (1 << 1)

// The task waits on its CPU while that CPU's agent decides whether it goes on.
#define BATON_AGENT_TASK_HELD (1 << 2)

// Entries of the standby ring.
#define BATON_AGENT_STANDBY 256

// Minimum, default and maximum number of messages that a CPU's ring holds.
#define BATON_AGENT_MIN_ENTRIES 64

#define BATON_AGENT_ENTRIES 1024

#define BATON_AGENT_MAX_ENTRIES 65536

// Minimum, default and maximum of an enclave's limit, ms.
#define BATON_ENCLAVE_MIN_LIMIT_MS 20

#define BATON_ENCLAVE_LIMIT_MS 1000

#define BATON_ENCLAVE_MAX_LIMIT_MS 60000

// In a kick: the CPU's own agent runs next, as if there were a message for it. With
// `BATON_KICK_PREEMPT` it runs at once, and is asked whether the task that it interrupts goes on.
#define BATON_AGENT_KICK_AGENT 16384

// In `baton_agent_commits`: either every CPU gets its transaction, or none does. Each of the CPUs
// must run its own agent at that time, and takes its transaction when that gives way. So no task
// of the group runs beside one that ran on the group's CPUs before. A CPU whose token is
// `BATON_PICK_NONE` runs nothing.
#define BATON_AGENT_TOGETHER (1 << 0)

// Most CPUs that one request reaches.
#define BATON_AGENT_CPUS_AT_ONCE 64

// Longest name of a module, with the terminating NUL.
#define BATON_MODULE_LEN 64

// Number of version changes kept for each policy.
#define BATON_CHANGES_KEPT 8

// Maximum number of partitions.
#define BATON_MAX_PARTITIONS 16

// Words in the CPU mask of a partition: one bit for each of 4096 CPUs, lowest bit first.
#define BATON_CPU_WORDS 64

// Maximum number of cgroups that belong to policies.
#define BATON_MAX_RULES 64

// The limits of the turns in `baton_start`.
#define BATON_TURNS_MIN (1 << 16)

// See `BATON_TURNS_MIN`.
#define BATON_TURNS_MAX (1 << 30)

// Number of places at which refused changes are counted.
#define BATON_REFUSED_PLACES 256

// Longest time for which a request can have calls measured, ms.
#define BATON_MEASURE_MAX_MS 3600000

// Number of classes of durations: for each power of two of ns up to 2^33, four of equal width.
#define BATON_CALL_CLASSES 132

// Number of words of a hint.
#define BATON_HINT_WORDS 6

// Minimum and maximum number of entries of a ring.
#define BATON_HINTS_MIN_ENTRIES 16

#define BATON_HINTS_MAX_ENTRIES 4096

// Maximum number of hints taken from a ring at one event.
#define BATON_HINTS_AT_ONCE 16

// Maximum number of attributes that a policy gives its threads.
#define BATON_MAX_ATTRIBUTES 5

// Maximum number of grants.
#define BATON_MAX_GRANTS 64

// Bits of `who` in `baton_grant`: the conditions that a thread must meet. All given conditions
// must hold.
#define BATON_GRANT_USER (1 << 0)

#define BATON_GRANT_GROUP (1 << 1)

#define BATON_GRANT_CGROUP (1 << 2)

#define BATON_GRANT_ALL 7

// Answer of a pick: nothing to run.
#define BATON_PICK_NONE 0

// Answer of a pick: the task that is running goes on.
#define BATON_PICK_KEEP 1

// Result of an abandoned call, in place of an answer.
#define BATON_ABORTED UINT64_MAX

// Maximum number of CPUs kicked from one call; a further kick is refused.
#define BATON_MAX_KICKS 4

// Maximum number of locks that a call may hold at once (the kernel's RES_NR_HELD); one more is a
// fault.
#define BATON_MAX_LOCKS 31

// An idle CPU leaves idle and asks its policy for a task; a busy CPU is not disturbed.
#define BATON_KICK_IDLE 0

// The kicked CPU's running task is preempted.
#define BATON_KICK_PREEMPT 32768

// The task was woken from sleep (SCX_ENQ_WAKEUP).
#define BATON_F_WAKEUP (1 << 0)

// The task comes back after a change of its attributes (ENQUEUE_RESTORE).
#define BATON_F_RESTORE (1 << 1)

// The task is new (WF_FORK).
#define BATON_F_FORK (1 << 2)

// For a dispatch: `task`, which ran last on this CPU, can continue to run.
#define BATON_F_PREV_RUNNABLE (1 << 3)

// The waker will sleep at once (WF_SYNC).
#define BATON_F_SYNC (1 << 4)

// Flag in the answer of `select_task_rq`: run the task there at once, bypassing the policy's
// queues.
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

// State of a transaction.
//
//   empty --agent--> ready --kernel--> claimed --kernel--> done --agent--> ready
//                      |                                              or
//                      +--agent--> empty
// The kernel reads the other fields while it is claimed, and the agent writes them before it is
// ready. Both leave "ready" by compare and swap.
enum baton_transaction_state {
	BATON_TRANSACTION_STATE_EMPTY = 0,
	BATON_TRANSACTION_STATE_READY = 1,
	BATON_TRANSACTION_STATE_CLAIMED = 2,
	BATON_TRANSACTION_STATE_DONE = 3,
};

// The outcome of a transaction.
enum baton_commit {
	// The CPU runs the task next.
	BATON_COMMIT_COMPLETE = 0,
	// The token is not the task's newest, or the task is no longer queued.
	BATON_COMMIT_STALE = 1,
	// There is no such task in the enclave.
	BATON_COMMIT_NOT_FOUND = 2,
	// The task may not run on that CPU. `pick_refused` follows.
	BATON_COMMIT_NOT_ALLOWED = 3,
	// The CPU is offline, or does not belong to the enclave. `pick_refused` follows.
	BATON_COMMIT_CPU_OFFLINE = 4,
	// No task runs there that could go on.
	BATON_COMMIT_NOTHING_TO_KEEP = 5,
	// A transaction of that CPU is still waiting.
	BATON_COMMIT_BUSY = 6,
	// In a request that is all or nothing: that CPU does not run its own agent.
	BATON_COMMIT_NO_AGENT = 7,
	// In a request that is all or nothing: this one would have been accepted.
	BATON_COMMIT_NOT_ALONE = 8,
};

// What `BATON_ENCLAVE_IOC_SET` does.
enum baton_enclave_act {
	// Reads the enclave at `index`; the name is empty if there is none.
	BATON_ENCLAVE_ACT_READ = 0,
	BATON_ENCLAVE_ACT_CREATE = 1,
	// Ends its agent and removes it.
	BATON_ENCLAVE_ACT_DESTROY = 2,
	// Ends its agent, if it has one. The enclave waits for another.
	BATON_ENCLAVE_ACT_DISMISS = 3,
};

// State of a policy.
//
//   registered --start--> running --stop--> registered
//                            |                  ^
//                            +----fault--> faulted --stop--+
// Transitions are made under the control mutex, except `running -> faulted`, which any CPU makes
// once, by compare and swap.
enum baton_policy_state {
	// There is no policy at this place of the table.
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

// What `BATON_IOC_RULE` does.
enum baton_rule_act {
	// Reads the rule at `index`, below `BATON_MAX_RULES`; `cgroup` is 0 if there is none.
	BATON_RULE_ACT_READ = 0,
	// Assigns `cgroup` to the policy `name`, or to none if the name is empty.
	BATON_RULE_ACT_ASSIGN = 1,
	// Checks all tasks again, as after the shim was attached.
	BATON_RULE_ACT_APPLY = 2,
};

// Why a recording has ended.
enum baton_record_end {
	// The recording goes on.
	BATON_RECORD_END_NONE = 0,
	// On request, or because its owner is gone.
	BATON_RECORD_END_STOPPED = 1,
	// A ring was full, and the recording was lossless.
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
	// Records for the requesting file. Events that do not fit are lost and counted.
	BATON_RECORD_HOW_LOSSY = 0,
	// Like `Lossy`, but the recording ends when there is no room.
	BATON_RECORD_HOW_LOSSLESS = 1,
	// Sets the policy's flight recorder to this number of blocks; 0 ends it. It belongs to no file
	// and keeps the newest blocks.
	BATON_RECORD_HOW_FLIGHT = 2,
	// Gives the file the flight recording of the policy's last fault, which is kept unchanged.
	BATON_RECORD_HOW_FAULT = 3,
};

// Why a queue was closed.
enum baton_hints_end {
	// The queue is open.
	BATON_HINTS_END_NONE = 0,
	// The policy was unloaded.
	BATON_HINTS_END_UNLOADED = 1,
	// The policy was replaced by a version with other types, or by another policy.
	BATON_HINTS_END_REPLACED = 2,
	// A fault stopped the policy.
	BATON_HINTS_END_FAULT = 3,
	// The grant by which the queue was opened was revoked.
	BATON_HINTS_END_REVOKED = 4,
	// The thread that opened the queue is gone, or runs another program.
	BATON_HINTS_END_GONE = 5,
};

// The result of a hint that was sent by a system call.
enum baton_hint_answer {
	// The policy has received it.
	BATON_HINT_ANSWER_TAKEN = 0,
	// It is not a hint of the policy's type.
	BATON_HINT_ANSWER_MALFORMED = 1,
	// The thread that it names does not belong to the sender's process, or not to the policy.
	BATON_HINT_ANSWER_THREAD = 2,
	// The sender is not, or not yet, a task of the policy.
	BATON_HINT_ANSWER_NOT_MEMBER = 3,
	// The policy has stopped.
	BATON_HINT_ANSWER_STOPPED = 4,
};

// The result of a reply.
enum baton_reply_answer {
	// It is in the task's ring.
	BATON_REPLY_ANSWER_SENT = 0,
	// The task has no queue to the policy.
	BATON_REPLY_ANSWER_NO_QUEUE = 1,
	// The ring is full.
	BATON_REPLY_ANSWER_FULL = 2,
};

// Tags of the hints about attributes of threads, and of the replies to them
// (`policy/message/src/attributes.rs`).
enum baton_attribute_tag {
	// What is the attribute with this number?
	BATON_ATTRIBUTE_TAG_DESCRIBE = 1,
	// The attributes of a thread.
	BATON_ATTRIBUTE_TAG_GET = 2,
	// Sets some attributes of a thread.
	BATON_ATTRIBUTE_TAG_SET = 3,
};

// The result of a hint about attributes of a thread.
enum baton_attribute_answer {
	// They are set.
	BATON_ATTRIBUTE_ANSWER_SET = 0,
	// The policy has not yet placed the thread for the first time.
	BATON_ATTRIBUTE_ANSWER_NOT_YET = 1,
	// A value is out of the range of its attribute.
	BATON_ATTRIBUTE_ANSWER_RANGE = 2,
	// The policy refuses the values, with a reason.
	BATON_ATTRIBUTE_ANSWER_REFUSED = 3,
};

// What the number of an attribute means.
enum baton_attribute_unit {
	BATON_ATTRIBUTE_UNIT_NONE = 0,
	// Nanoseconds.
	BATON_ATTRIBUTE_UNIT_TIME = 1,
};

// What `BATON_IOC_GRANT` does.
enum baton_grant_act {
	// Reads the grant at `index`, below `BATON_MAX_GRANTS`; the name is empty if there is none.
	BATON_GRANT_ACT_READ = 0,
	// Grants.
	BATON_GRANT_ACT_GRANT = 1,
	// Revokes the grant with the same conditions, and closes the queues that were opened by it.
	BATON_GRANT_ACT_REVOKE = 2,
};

// Why the host refused a policy's answer.
enum baton_refusal {
	// The token is not the task's newest, or the task is no longer queued.
	BATON_REFUSAL_STALE = 1,
	// The task belongs to another policy.
	BATON_REFUSAL_FOREIGN = 2,
	// The task may not run on that CPU (affinity, or migration disabled).
	BATON_REFUSAL_NOT_ALLOWED = 3,
	// The CPU is offline or out of range.
	BATON_REFUSAL_CPU_OFFLINE = 4,
	// The answer was "keep", but no task can be kept.
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
	BATON_METHOD_MAY_HAVE,
};

// What a policy is written in.
enum baton_language {
	// Rust, or Baton's language.
	BATON_LANGUAGE_RUST = 0,
	// C, as the functions of `baton_policy`.
	BATON_LANGUAGE_C = 1,
	// C, as handlers of events (`policy/c/events.h`).
	BATON_LANGUAGE_EVENTS = 2,
};

// The kinds of faults.
enum baton_fault_kind {
	BATON_FAULT_KIND_NONE = 0,
	// A panic: index out of range, overflow, `unwrap` on None, or one of the policy's own.
	BATON_FAULT_KIND_PANIC = 1,
	// The policy's memory limit, or the machine's memory, was exhausted.
	BATON_FAULT_KIND_OUT_OF_MEMORY = 2,
	// The call exhausted the stack that the host grants.
	BATON_FAULT_KIND_STACK_OVERFLOW = 3,
	// A lock was taken twice by one CPU, or two CPUs wait for each other's locks.
	BATON_FAULT_KIND_DEADLOCK = 4,
	// A lock was not granted in time.
	BATON_FAULT_KIND_LOCK_TIMEOUT = 5,
	// A `Schedulable` was dropped: the task would never run again.
	BATON_FAULT_KIND_LOST_TASK = 6,
	// A task was runnable for longer than the stall limit without being picked.
	BATON_FAULT_KIND_STALL = 7,
	// The policy answered with refused tokens again and again.
	BATON_FAULT_KIND_REFUSAL_LOOP = 8,
	// The process that answers for the policy, the agent of an enclave, ended or was silent.
	BATON_FAULT_KIND_AGENT_GONE = 9,
	// An agent of a CPU left messages unread because other tasks kept it from that CPU.
	BATON_FAULT_KIND_AGENT_STARVED = 10,
	// The loops of the call turned more often than the policy is granted, or for too long.
	BATON_FAULT_KIND_ENDLESS_LOOP = 11,
};

// The head of the status mapping, one cache line.
struct baton_agent_head {
	// Messages lost since the agent attached, as a ring was full. When this changes, the agent
	// must read the tasks' words again.
	uint64_t lost;
	// Tasks whose token the enclave has, without the agents.
	uint32_t queued;
	// 1 when the enclave no longer asks this agent.
	uint32_t ended;
	// Position in the standby ring of the next entry that a CPU takes.
	uint32_t standby_taken;
	uint32_t reserved[11];
};

// A CPU as the enclave sees it, one cache line.
struct baton_agent_cpu {
	// Messages written to this CPU's ring. The entry of message `n` is `n` modulo the number of
	// entries.
	uint32_t posted;
	// 1 from a pick that found no task until the next one that finds one.
	uint32_t wants;
	// Slot plus one of the enclave's task that was picked here last; 0 if the last pick found
	// none.
	uint32_t running;
	// 1 while the CPU is online, and the enclave is asked on it.
	uint32_t online;
	// Slot plus one of the CPU's own agent; 0 if it has none.
	uint32_t agent;
	uint32_t reserved;
	// Tasks picked here, without the agent.
	uint64_t picks;
	// Transactions of this CPU that did not name a queued task.
	uint64_t stale;
	uint64_t unused[3];
};

// The status word of a task, by slot; one cache line.
struct baton_agent_task {
	// The task's token while the enclave may place it; 0 while it sleeps or runs.
	uint64_t token;
	// CPU time at the last message, ns.
	uint64_t runtime;
	// Number of the last message about a task in this slot, also of one that was lost.
	uint32_t sequence;
	// `BATON_AGENT_TASK_*`.
	uint32_t flags;
	uint32_t pid;
	int32_t cpu;
	int32_t nice;
	uint32_t reserved[7];
};

// A message: a call of the enclave's policy, one cache line. The entry after a message about a
// hint has the hint (`baton_hint`, whose `thread` is a slot plus one), and counts as a message.
struct baton_message {
	// Time, ns, in the resolution of the kernel's tick.
	uint64_t now;
	// The task's token, for a method that hands one over, or that refuses one.
	uint64_t token;
	// The task's CPU time, ns.
	uint64_t runtime;
	// `baton_method`.
	uint16_t method;
	// `BATON_F_*` of the task's `select_task_rq`; for `pick_refused`, the `baton_refusal`.
	uint16_t flags;
	// Number of this message among those of its task; 0 if it is about a CPU.
	uint32_t sequence;
	// The task; of a pick, the task that ran and can go on. `u32::MAX` if there is none.
	uint32_t slot;
	uint32_t pid;
	int32_t nice;
	// The task's CPU; of a woken task, the one on which it ran; of a message about a CPU, that
	// CPU.
	int32_t cpu;
	// The waker's CPU.
	int32_t waker;
	// Of a hint: the numbers of the last messages so far about the task that sent it, and about
	// the task that it names. It is read after those.
	uint32_t after;
	uint32_t after_named;
	// Of a hint: the task that it names; 0 if none.
	uint32_t named_pid;
};

// What a CPU is to run next, one cache line.
struct baton_transaction {
	// `baton_transaction_state`.
	uint32_t state;
	// `baton_commit`, when it is done.
	uint32_t outcome;
	// The task's token; `BATON_PICK_KEEP` if the task that runs goes on;
	// `BATON_PICK_NONE` if the CPU is to run nothing, and its agent is not to be asked.
	uint64_t token;
	// How long it may run, ns; 0 for the default.
	uint64_t slice;
	// Number of this CPU's messages that the agent has read.
	uint32_t read;
	uint32_t reserved[9];
};

// The head of the standby ring, one cache line. The tokens follow. Idle CPUs take from it what no
// transaction gives them.
struct baton_standby {
	// Entries written by the agent, which are never more than the ring's size ahead of
	// `standby_taken`.
	uint32_t offered;
	uint32_t reserved[15];
};

// `BATON_ENCLAVE_IOC_SET`, of the device `/dev/baton-enclaves` (root only).
struct baton_enclave {
	// `baton_enclave_act`.
	uint32_t act;
	uint32_t index;
	uint8_t name[BATON_NAME_LEN];
	// Messages that each CPU's ring holds, a power of two; 0 for the default.
	uint32_t entries;
	// A task may be queued for this long while a CPU waits and the agent answers nothing, ms; 0
	// for the default.
	uint32_t limit;
	// Out: process id of the agent, in the initial namespace; 0 if there is none.
	uint32_t agent;
	// Out: tasks queued.
	uint32_t queued;
	// Out: agents attached so far.
	uint64_t attached;
	// Out: messages posted and lost, tasks picked and stale transactions of the present agent.
	uint64_t posted;
	uint64_t lost;
	uint64_t picks;
	uint64_t stale;
	// Out: why it was refused, NUL-terminated.
	uint8_t message[BATON_MESSAGE_LEN];
};

// The type of a state that one version of a policy passes to the next. Two types are the same if
// all fields are equal.
struct baton_state_type {
	// Name of the type, NUL-terminated; empty when there is no state.
	char name[BATON_NAME_LEN];
	// Version given to the type by its author.
	uint32_t version;
	// Padding.
	uint32_t reserved;
	// Hash of everything that determines the memory layout, down to the last field.
	uint64_t layout;
};

// `BATON_AGENT_IOC_ATTACH`, of an enclave's device: the process becomes the enclave's agent, and
// the enclave begins to schedule its tasks. Each is announced by `task_new`.
struct baton_agent_attach {
	// `BATON_ABI`.
	uint32_t abi;
	// `BATON_EV_*` that the agent wants messages about.
	uint32_t events;
	// Out: number of CPUs, slots, and entries of a ring.
	uint32_t nr_cpus;
	uint32_t nr_slots;
	uint32_t entries;
	uint32_t reserved;
	// Out: offsets in the status mapping, and its size, bytes.
	uint64_t cpus;
	uint64_t tasks;
	uint64_t masks;
	uint64_t rings;
	uint64_t status_size;
	// Out: offset of the standby ring in the shared mapping, and the size of that mapping.
	uint64_t standby;
	uint64_t shared_size;
	// Text that the status of the policy shows as its options, NUL-terminated.
	uint8_t options[BATON_OPTIONS_LEN];
	// Types of the hints that the agent takes and of its replies, as in `baton_policy`;
	// the name of the first is empty if it takes none.
	struct baton_state_type hint_type;
	struct baton_state_type reply_type;
	// Out: why it was refused, NUL-terminated.
	uint8_t message[BATON_MESSAGE_LEN];
};

// The place of a CPU. Ids are dense and start at 0. CPUs with the same id share that unit.
struct baton_cpu {
	// Physical core: CPUs of one core are SMT siblings.
	uint32_t core;
	// Last-level cache.
	uint32_t llc;
	// NUMA node.
	uint32_t node;
	// 1 if the CPU was online when this was read.
	uint32_t online;
	// Cluster: CPUs that share a cache nearer than the last-level one (on x86 the second-level
	// cache). Whole cores, under one last-level cache.
	uint32_t cluster;
};

// `BATON_AGENT_IOC_TOPOLOGY`: reads the place of a CPU in the machine.
struct baton_agent_topology {
	uint32_t cpu;
	uint32_t reserved;
	// Out.
	struct baton_cpu place;
};

// `BATON_AGENT_IOC_KICK`: CPUs look at their transactions now. A CPU number with
// `BATON_KICK_PREEMPT` preempts; without, a busy CPU is left alone. With
// `BATON_AGENT_KICK_AGENT`, a message for the CPU's agent is announced.
struct baton_agent_kick {
	uint32_t count;
	uint32_t reserved;
	uint16_t cpus[BATON_AGENT_CPUS_AT_ONCE];
};

// A transaction of `baton_agent_commits`.
struct baton_agent_commit {
	uint64_t token;
	// How long the task may run, ns; 0 for the default.
	uint64_t slice;
	// CPU number, with `BATON_KICK_PREEMPT` if the task that runs is to be preempted.
	uint16_t cpu;
	uint16_t reserved;
	// Out: `baton_commit`. `BatonCommit::Complete` if the CPU will look at the transaction. Its
	// answer is then in the transaction.
	uint32_t outcome;
};

// `BATON_AGENT_IOC_COMMIT`: writes transactions, and makes their CPUs look at them. One call
// reaches up to `BATON_AGENT_CPUS_AT_ONCE` CPUs.
struct baton_agent_commits {
	uint32_t count;
	// `BATON_AGENT_TOGETHER`.
	uint32_t flags;
	// Address of an array of `baton_agent_commit`.
	uint64_t commits;
	// Out: how many were accepted.
	uint32_t accepted;
	uint32_t reserved;
};

// `BATON_AGENT_IOC_SERVE`: the calling thread becomes the agent of the CPU to which it is bound,
// and then runs in the enclave whenever there are messages for that CPU. `ENXIO` if the CPU is
// offline, `EAGAIN` if it is about to be, `EXDEV` if the thread is not bound to it, and `EBUSY` if
// it has an agent.
struct baton_agent_serve {
	uint32_t cpu;
	uint32_t reserved;
};

// `BATON_AGENT_IOC_FAIL`: the agent ends, and the policy stops with this report.
struct baton_agent_fail {
	// `baton_fault_kind`.
	uint32_t kind;
	// `baton_method` in which it failed.
	uint32_t method;
	// The task of the call; 0 if none.
	uint32_t pid;
	// Source line, 0 if not known, and file, NUL-terminated.
	uint32_t line;
	uint8_t file[96];
	// NUL-terminated.
	uint8_t message[BATON_MESSAGE_LEN];
};

// A hint, or a policy's reply.
struct baton_hint {
	// Kind of the hint. It determines the meaning of the words; unused words are 0.
	uint32_t tag;
	// The thread that the hint names, 0 for none. The application writes its id in the sender's
	// pid namespace; the policy receives its slot plus one. A reply names no thread.
	uint32_t thread;
	uint64_t words[BATON_HINT_WORDS];
};

// `BATON_AGENT_IOC_REPLY`: a reply to the task in a slot.
struct baton_agent_reply {
	uint32_t slot;
	// Out: `baton_reply_answer`.
	uint32_t answer;
	// The reply; it names no thread.
	struct baton_hint reply;
};

// `BATON_IOC_CORE`: the core itself.
struct baton_core_info {
	// `BATON_ABI`.
	uint32_t abi;
	// 1 while the shim is attached to sched_ext.
	uint32_t attached;
	// 1 when Baton schedules all normal tasks of the machine, 0 when it schedules those of class
	// SCHED_EXT only.
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
	// Time, ns since boot.
	uint64_t now;
	// `baton_change_kind`.
	uint32_t kind;
	// 1 when the new version began with a new state because it could not take over the old one.
	uint32_t anew;
	uint32_t from_version;
	uint32_t to_version;
	// How long CPUs were held, ns: from holding the first CPU for the change to releasing the
	// last. 0 when none was held.
	uint64_t held;
	// The parts of that time spent in the policy's code and in the core's, ns. In the rest, CPUs
	// were stopping or continuing.
	uint64_t policy;
	uint64_t core;
	// Memory that the policy allocated for the change, bytes.
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
	// Number of policies that are asked before this one.
	uint32_t rank;
	// Guaranteed share of each CPU's time, percent; 0 for none.
	uint32_t share;
	// 1 while it is recorded into a file.
	uint32_t recording;
	// Blocks of 64 KiB per CPU of its flight recorder; 0 while there is none.
	uint32_t flight;
	// 1 while the flight recording of the last fault is available.
	uint32_t recorded;
	// `baton_language` of the running version.
	uint32_t language;
	// Memory it has allocated, bytes.
	uint64_t memory;
	// `baton_refusal` answers so far.
	uint64_t refusals;
	// Faults so far.
	uint64_t faults;
	uint8_t name[BATON_NAME_LEN];
	uint8_t options[BATON_OPTIONS_LEN];
	// Names of the modules of its versions: the current one, the next one that is loaded, and the
	// previous one.
	uint8_t modules[3][BATON_MODULE_LEN];
	// Name of its partition; empty for none.
	uint8_t partition[BATON_NAME_LEN];
	// Upgrades and rollbacks so far.
	uint64_t changes;
	// The last changes, oldest first; `kind` is 0 in an unused entry.
	struct baton_change history[BATON_CHANGES_KEPT];
};

// `BATON_IOC_UPGRADE`: replaces the running version by the next one that is loaded, or by the
// previous one.
struct baton_upgrade {
	uint8_t name[BATON_NAME_LEN];
	// Options of the new version. Not used by a rollback, which restores the old options.
	uint8_t options[BATON_OPTIONS_LEN];
	// 1: roll back to the previous version.
	uint32_t rollback;
	// Probation, ms: a fault within this time rolls back to the previous version. 0 for none.
	uint32_t probation;
	// Out: why it was refused, NUL-terminated.
	uint8_t message[BATON_MESSAGE_LEN];
	// Out: the change that was made.
	struct baton_change change;
	// Out: the type of the state that the running version passes on, and the two types that the
	// other version takes.
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
	// The first policies of the order; an empty name ends the list. The others follow in their
	// present order.
	uint8_t names[BATON_MAX_POLICIES][BATON_NAME_LEN];
};

// `BATON_IOC_SHARE`: guarantees a policy a share of each CPU's time while it has tasks for that
// CPU.
struct baton_share {
	uint8_t name[BATON_NAME_LEN];
	// Percent; 0 for none. All shares together are 100 at most.
	uint32_t share;
};

// `BATON_IOC_PARTITION`: CPUs that only some policies use.
struct baton_partition {
	// 0: reads the partition at `index`, below `BATON_MAX_PARTITIONS`; the name is empty if there
	// is none. 1: sets the CPUs and policies of the partition `name`, or removes it if both are
	// empty.
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

// `BATON_IOC_RULE`: cgroups (version 2) whose present and future tasks belong to a policy.
struct baton_rule {
	// `baton_rule_act`.
	uint32_t set;
	uint32_t index;
	// Id of the cgroup: the inode number of its directory.
	uint64_t cgroup;
	uint8_t name[BATON_NAME_LEN];
};

// `BATON_IOC_RECORD`: begins to record a running policy, from its state if that can be saved
// (`reregister_save`), otherwise with a new instance of it. The recording belongs to the open
// file; reading the file returns the state. The requesting thread gets a real-time priority
// (`sched_set_fifo_low`) to keep up with the recording.
struct baton_record {
	uint8_t name[BATON_NAME_LEN];
	// Blocks of 64 KiB per CPU: 16 to 65534. Out, for a fault: the number that each CPU had.
	uint32_t blocks;
	// `baton_record_how`.
	uint32_t how;
	// Out: version of the policy.
	uint32_t version;
	// Out: stamps per millisecond.
	uint32_t stamp_khz;
	// In: 1 to record from a state only; a policy that saves none is refused (`EPROTOTYPE`). Out:
	// 1 if the recording begins with a state.
	uint32_t has_state;
	uint32_t reserved;
	// Out: length of the state, bytes, and its type. Without a state they have no meaning.
	uint64_t state_length;
	struct baton_state_type state;
	// Out: the policy's options, NUL-terminated.
	uint8_t options[BATON_OPTIONS_LEN];
	// Out: why a new instance of the policy could not be created, NUL-terminated.
	uint8_t message[BATON_MESSAGE_LEN];
};

// `BATON_IOC_RECORD_TAKE`: returns the block that was taken last to its CPU, and takes the next
// one. `BATON_IOC_RECORD_STOP` has the same structure and ends the recording; the remaining blocks
// can then be taken.
struct baton_record_block {
	// The CPU.
	uint32_t cpu;
	// In: -1 to query the CPU only; otherwise, for a fault, the index of one of the CPU's blocks,
	// from 0. Out: number of the block, which is at that multiple of 64 KiB in the mapping of the
	// file; -1 when none is full.
	int32_t block;
	// Out: `baton_record_end`. Not 0 when the recording has ended.
	uint32_t end;
	// Out: the topology of that CPU as given to the policy.
	struct baton_cpu topology;
};

// `BATON_IOC_RECORD_CHECKPOINT`: the policy's state between two events. In a running recording,
// this makes a new checkpoint, which replaces the state that was read before; `EAGAIN` while a
// CPU's ring is too full. For a fault, it is the second state that was kept; `ENODATA` if there is
// none.
struct baton_record_checkpoint {
	// Out: stamp of the checkpoint. Later events have higher stamps, in blocks whose own stamps
	// are not lower.
	uint64_t stamp;
	// Out: offset in the file for reading it, and its length, bytes.
	uint64_t at;
	uint64_t length;
};

// One call into a policy, as stored by the core.
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
	// Time, ns since boot, in the resolution of the kernel's tick.
	uint64_t now;
	// Number of the fault since the core was loaded.
	uint64_t serial;
	// Address of the instruction in the policy's module that met an exception of the processor; 0
	// if none did.
	uint64_t ip;
	uint8_t policy[BATON_NAME_LEN];
	uint8_t comm[16];
	// Source file, NUL-terminated.
	uint8_t file[96];
	// Message of the policy or the host, NUL-terminated.
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
	// Number of picks, and how many of them returned a task of a policy.
	uint64_t dispatches;
	uint64_t picks;
	// Tasks taken over by a policy.
	uint64_t enqueues;
	// Tasks placed directly on an idle CPU.
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
	// Turns of loops that a call is granted, `BATON_TURNS_MIN` to `BATON_TURNS_MAX`; 0 for as
	// many as at its last start, or 2^24.
	uint32_t turns;
	uint32_t reserved;
	uint8_t options[BATON_OPTIONS_LEN];
	// Out: why the policy could not be created, NUL-terminated.
	uint8_t message[BATON_MESSAGE_LEN];
};

// `BATON_IOC_STOP`: stop a policy; its tasks go on under the default policy or the fallback.
struct baton_stop {
	uint8_t name[BATON_NAME_LEN];
	// Out: the error while destroying the policy, NUL-terminated; empty if there was none. The
	// policy is stopped in any case.
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
	// Out: why the policy refuses, NUL-terminated; empty if it does not.
	uint8_t message[BATON_MESSAGE_LEN];
};

// `BATON_IOC_TASK`: a task. In: `slot`. Out: the first task at that slot or after it.
struct baton_task_info {
	uint32_t slot;
	// 0 when there is no further task.
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

// `BATON_IOC_REFUSED_CHANGE`: a place in a policy in C at which changes of threads' states were
// refused (`policy/c/events.h`). In: `place`. Out: the first at that place of the table or after
// it. All names are NUL-terminated.
struct baton_refused_change {
	uint32_t place;
	// Index of the policy.
	uint32_t policy;
	// Line of the policy's source; 0 if none is known.
	uint32_t line;
	// The first thread.
	uint32_t pid;
	// How often; 0 when there is no further place.
	uint64_t times;
	// The policy's handler, and the states.
	uint8_t handler[24];
	uint8_t from[16];
	uint8_t to[16];
	uint8_t why[80];
};

// `BATON_IOC_MEASURE`: has the calls of all policies measured for a time from now, or for longer if
// an earlier request says so. What was measured is kept as long as the measurement goes on. Calls
// in process context, such as `create`, are not measured.
struct baton_measure {
	// The time, 0 to `BATON_MEASURE_MAX_MS`; 0 ends the measurement, and so every other user's.
	uint32_t ms;
};

// `BATON_IOC_CALLS`: the measured calls of a method of a policy on all CPUs, since the measurement
// began or the policy was loaded. In: `policy`, `method`. Out: the rest; all 0 if no measurement
// is under way.
struct baton_calls {
	// Index of the policy, below `BATON_MAX_POLICIES`.
	uint32_t policy;
	// `baton_method`.
	uint32_t method;
	// The sum of all durations, ns.
	uint64_t total;
	// The longest duration, ns.
	uint64_t longest;
	// The number of calls in each class of durations (`baton_core::histogram`, 2 bits); longer
	// ones are in the last.
	uint64_t classes[BATON_CALL_CLASSES];
};

// An entry for one hint in a ring, one cache line. See `policy/message/src/ring.rs` for the
// sequence.
struct baton_hints_entry {
	// Twice the number of the lap around the ring while the writer owns the entry, one more while
	// the reader owns it.
	uint32_t sequence;
	uint32_t tag;
	uint32_t thread;
	uint32_t reserved;
	uint64_t words[BATON_HINT_WORDS];
};

// The head of the mapping of a queue, one cache line. The entries of the hints follow, then those
// of the replies. The host writes the head but never reads it.
struct baton_hints_head {
	// `baton_hints_end`: not 0 when the queue is closed.
	uint32_t end;
	// Number of entries of each ring, a power of two.
	uint32_t entries;
	// Number of hints that were taken from the ring and refused.
	uint32_t refused;
	// Number of replies lost for lack of room.
	uint32_t lost;
	uint32_t reserved[12];
};

// `BATON_HINTS_IOC_OPEN`: opens the calling thread's queue to a policy. Each open file of the
// device, and each thread, can have one.
struct baton_hints_open {
	// Name of the policy, NUL-terminated.
	uint8_t policy[BATON_NAME_LEN];
	// The types that the application was built with; a `layout` of 0 is not compared.
	struct baton_state_type hint;
	struct baton_state_type reply;
	// Requested number of entries of each ring, 0 for the minimum. Out: the actual number.
	uint32_t entries;
	// Out: size of the mapping, bytes.
	uint32_t size;
	// Out: why it was refused, NUL-terminated.
	uint8_t message[BATON_MESSAGE_LEN];
};

// `BATON_HINTS_IOC_SEND`: sends one hint, which the policy has received when the call returns.
// Hints in the ring are delivered first.
struct baton_hints_send {
	struct baton_hint hint;
	// Out: `baton_hint_answer`.
	uint32_t answer;
	uint32_t reserved;
};

// `BATON_IOC_GRANT`, of the control device: the threads that may open queues to a policy.
struct baton_grant {
	// `baton_grant_act`.
	uint32_t set;
	uint32_t index;
	// Name of the policy, which need not be loaded.
	uint8_t name[BATON_NAME_LEN];
	// `BATON_GRANT_*`; not 0.
	uint32_t who;
	uint32_t user;
	uint32_t group;
	// Maximum number of entries of a ring.
	uint32_t entries;
	// Id of a cgroup (version 2), the inode number of its directory. The thread must be in it or
	// below it.
	uint64_t cgroup;
	// Maximum number of queues that each user may have open by this grant.
	uint32_t queues;
	// 1: hints may name threads of other processes.
	uint32_t any_thread;
	// Out: number of queues that are open by this grant.
	uint32_t open;
	uint32_t reserved;
};

// The environment in which a policy is created.
struct baton_env {
	// `nr_cpus` entries; valid during the call only.
	const struct baton_cpu *cpus;
	// Number of possible CPUs; CPU numbers are below it.
	uint32_t nr_cpus;
	// Number of task slots.
	uint32_t max_tasks;
	// The options given at load, NUL-terminated UTF-8; valid during the call only.
	const char *options;
	// Buffer for the reason why a policy cannot be created: `BATON_MESSAGE_LEN` bytes,
	// NUL-terminated; valid during the call only.
	char *message;
};

// The context of one call. The shim creates it on its stack, the core and the policy fill in
// answers, and the shim carries them out. Not shared between CPUs. Its size is 48 bytes: with
// more, BPF gives the shim a private stack, which slows every call down.
struct baton_ctx {
	// Current time, ns, in the resolution of the kernel's tick; the shim passes 0.
	uint64_t now;
	// In: the task of the call, as the shim knows it (slot plus one, and the slot's serial); 0 if
	// none. Out, for a dispatch: the task to run.
	uint64_t task;
	// CPU time that `task` has used since it was created, ns.
	uint64_t runtime;
	// Out: how long the task may run, ns; 0 leaves the host's default.
	uint64_t slice;
	// In: the CPU of the call. Out, for a select: the CPU chosen.
	int32_t cpu;
	// In: `BATON_F_*`.
	uint16_t flags;
	// Out: number of kicks requested in `kicks`.
	uint16_t nr_kicks;
	// Out: CPU numbers, each with or without `BATON_KICK_PREEMPT`.
	uint16_t kicks[BATON_MAX_KICKS];
};

// The data of a task that a policy receives. A copy, made for one call.
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

// A woken or new task needs a CPU.
struct baton_wake {
	// The CPU on which the task ran last.
	int32_t prev_cpu;
	// The CPU on which the waker runs.
	int32_t waker_cpu;
	// `BATON_F_SYNC`, `BATON_F_FORK`.
	uint16_t flags;
};

// A `Schedulable` as C sees it: the task's slot plus one in the low half, its generation in the
// high half. Never 0 or 1, see `BATON_PICK_NONE` and `BATON_PICK_KEEP`.
typedef uint64_t baton_token;

// The argument of `reregister_take`.
struct baton_older {
	// The state that was converted.
	const void *state;
	// Slots from here on have never had a task.
	uint32_t nr_slots;
	uint32_t reserved;
};

// A buffer of the host, valid during a call.
struct baton_bytes {
	uint8_t *at;
	// Length in bytes.
	uintptr_t length;
};

// A question to a policy: may it be given this task?
struct baton_asked {
	// The thread; 0 for all tasks that have no policy of their own.
	uint32_t pid;
	// Its nice value.
	int32_t nice;
	// Its name, NUL-terminated.
	uint8_t comm[16];
	// Where the policy writes why not: `BATON_MESSAGE_LEN` bytes, all 0 before.
	char *message;
};

// A policy as the core sees it. `this` is the pointer that `create` returned. Functions
// marked "process context" may sleep. All others run with interrupts off, usually with a
// kernel run-queue lock held, and must not sleep. Several CPUs call them at once. An
// absent function (NULL) is skipped; those marked "needed" must be present. In user space,
// a policy in Rust unwinds out of an abandoned call.
//
// A function that takes a `baton_token` owns it from then on. The functions are the methods
// of the trait `Scheduler` of the crate `baton`, which documents when each is called and
// the effect of a wrong answer.
struct baton_policy {
	// `BATON_ABI` the policy was built with.
	uint32_t abi;
	// Version of the policy, for people.
	uint32_t version;
	// `BATON_EV_*`.
	uint32_t events;
	// `baton_language`.
	uint32_t language;
	// Name, NUL-terminated: `[a-z0-9_]`.
	char name[BATON_NAME_LEN];
	// Type of the state that `reregister_prepare` returns and `reregister_init` takes.
	struct baton_state_type state;
	// Type of the state of another version that `reregister_convert` takes.
	struct baton_state_type older;
	// Types of the hints that the policy takes and of its replies; the names are empty
	// when it takes none.
	struct baton_state_type hint_type;
	struct baton_state_type reply_type;
	// Needed. Process context, may sleep and allocate. Returns NULL on failure.
	void *(*create)(const struct baton_env *env);
	// Needed. Process context; no other call is in progress or will follow.
	void (*destroy)(void *this);
	// Returns the CPU. If it is or'ed with `BATON_SELECT_DIRECT`, the task runs there
	// for `ctx->slice` ns, the default if 0. A new task (`BATON_F_FORK`) does not belong
	// to the policy yet: `task_new` follows for every answer.
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
	// Needed. Returns a token, `BATON_PICK_NONE` or `BATON_PICK_KEEP`. `prev` may be
	// NULL. The slice is set in `ctx`.
	uint64_t (*pick_next_task)(void *this,
				   struct baton_ctx *ctx,
				   int32_t cpu,
				   const struct baton_task *prev);
	// Returns a token or `BATON_PICK_NONE`.
	uint64_t (*newly_idle)(void *this, struct baton_ctx *ctx, int32_t cpu);
	// Needed.
	void (*pick_refused)(void *this,
			     struct baton_ctx *ctx,
			     baton_token token,
			     enum baton_refusal why);
	void (*balance)(void *this, struct baton_ctx *ctx, int32_t cpu);
	void (*task_blocked)(void *this, struct baton_ctx *ctx, const struct baton_task *task);
	// Needed. Returns the token, or 0.
	baton_token (*task_dequeued)(void *this,
				     struct baton_ctx *ctx,
				     const struct baton_task *task);
	// Needed. Returns the token, or 0.
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
	// Delivers a hint from a task of the policy, checked as far as the host can. Returns
	// 0, or 1 when it is not a hint of the policy's type. Present if `hint_type` is.
	uint64_t (*hint)(void *this,
			 struct baton_ctx *ctx,
			 const struct baton_task *from,
			 const struct baton_hint *hint);
	// Returns the state of the running version, to be shared with the next, or NULL on
	// failure. Process context; other calls continue meanwhile. Present if `state` is, as
	// are the next two.
	void *(*reregister_prepare)(void *this);
	// Like `create`, but from a state, of which it takes ownership. Other calls of the
	// version that passed the state on continue meanwhile.
	void *(*reregister_init)(const struct baton_env *env, void *state);
	// Releases a state of this version that was not taken over. Process context.
	void (*reregister_drop)(void *state);
	// Creates a state from one of the type `older`, as far as possible while that one is
	// in use. Process context. Returns NULL on failure. Present if `older` is, as is the
	// next.
	void *(*reregister_convert)(const struct baton_env *env, const void *older);
	// Completes a policy created from a converted state: takes over the parts that change
	// while other calls run. Every CPU is stopped, with interrupts off. Returns 0, or
	// another value on failure.
	uint64_t (*reregister_take)(void *this, const struct baton_older *older);
	// Writes the state that `reregister_prepare` would return as bytes, as far as there is
	// room, and returns its full length. Every CPU is stopped, with interrupts off.
	// Present if `state` is and can be saved, as is the next.
	uint64_t (*reregister_save)(void *this, const struct baton_bytes *to);
	// Like `create`, but from a state that such a function wrote. User space only.
	void *(*reregister_load)(const struct baton_env *env, const struct baton_bytes *from);
	// May the policy be given this task, or all tasks that have none? Asked before the
	// administrator does so. Returns 0, or 1 after it has written why not. Process
	// context; other calls continue meanwhile, and no lock may be taken.
	uint64_t (*may_have)(void *this, const struct baton_asked *asked);
};





































































// Requests (ioctls); a number holds the size of its structure.
#define BATON_IOC_CORE 0xc028ba00U
#define BATON_IOC_POLICY 0xc410ba01U
#define BATON_IOC_FAULT 0xc208ba02U
#define BATON_IOC_CPU 0xc040ba03U
#define BATON_IOC_START 0xc1c8ba04U
#define BATON_IOC_STOP 0xc0c0ba05U
#define BATON_IOC_ASSIGN 0xc0c8ba06U
#define BATON_IOC_TASK 0xc02cba07U
#define BATON_IOC_UPGRADE 0xc290ba08U
#define BATON_IOC_SWITCH 0xc048ba09U
#define BATON_IOC_ORDER 0xc200ba0aU
#define BATON_IOC_SHARE 0xc024ba0bU
#define BATON_IOC_PARTITION 0xc4d0ba0cU
#define BATON_IOC_RULE 0xc030ba0dU
#define BATON_IOC_RECORD 0xc210ba0eU
#define BATON_IOC_RECORD_TAKE 0xc020ba0fU
#define BATON_IOC_RECORD_STOP 0xc020ba10U
#define BATON_IOC_RECORD_CHECKPOINT 0xc018ba11U
#define BATON_IOC_GRANT 0xc050ba12U
#define BATON_IOC_REFUSED_CHANGE 0xc0a0ba13U
#define BATON_IOC_MEASURE 0xc004ba14U
#define BATON_IOC_CALLS 0xc438ba15U
#define BATON_ENCLAVE_IOC_SET 0xc100ba18U
#define BATON_HINTS_IOC_OPEN 0xc128ba20U
#define BATON_HINTS_IOC_SEND 0xc040ba21U
#define BATON_AGENT_IOC_ATTACH 0xc250ba30U
#define BATON_AGENT_IOC_TOPOLOGY 0xc01cba31U
#define BATON_AGENT_IOC_KICK 0xc088ba32U
#define BATON_AGENT_IOC_SERVE 0xc008ba33U
#define BATON_AGENT_IOC_WAIT 0xc000ba34U
#define BATON_AGENT_IOC_FAIL 0xc110ba35U
#define BATON_AGENT_IOC_COMMIT 0xc018ba36U
#define BATON_AGENT_IOC_LEAVE 0xc000ba37U
#define BATON_AGENT_IOC_REPLY 0xc040ba38U

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
	"may_have", \
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
	"agent gone", \
	"agent starved", \
	"endless loop", \
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

// For each method that takes the context of a call: gives() if it answers, else does(),
// with its number, its name, and its arguments from the words a and b.
#define BATON_CALLS(gives, does, a, b) \
	gives(SELECT_TASK_RQ, select_task_rq, (const struct baton_task *)(a), (const struct baton_wake *)(b)) \
	does(TASK_NEW, task_new, (const struct baton_task *)(a), (baton_token)(b)) \
	does(TASK_WAKEUP, task_wakeup, (const struct baton_task *)(a), (baton_token)(b)) \
	does(TASK_PREEMPT, task_preempt, (const struct baton_task *)(a), (baton_token)(b)) \
	does(TASK_YIELD, task_yield, (const struct baton_task *)(a), (baton_token)(b)) \
	does(TASK_RESTORED, task_restored, (const struct baton_task *)(a), (baton_token)(b)) \
	gives(PICK_NEXT_TASK, pick_next_task, (int32_t)(a), (const struct baton_task *)(b)) \
	gives(NEWLY_IDLE, newly_idle, (int32_t)(a)) \
	does(PICK_REFUSED, pick_refused, (baton_token)(a), (enum baton_refusal)(b)) \
	does(BALANCE, balance, (int32_t)(a)) \
	does(TASK_BLOCKED, task_blocked, (const struct baton_task *)(a)) \
	gives(TASK_DEQUEUED, task_dequeued, (const struct baton_task *)(a)) \
	gives(TASK_DEPARTED, task_departed, (const struct baton_task *)(a)) \
	does(TASK_DEAD, task_dead, (const struct baton_task *)(a)) \
	does(TASK_AFFINITY_CHANGED, task_affinity_changed, (const struct baton_task *)(a)) \
	does(TASK_PRIO_CHANGED, task_prio_changed, (const struct baton_task *)(a)) \
	does(TASK_TICK, task_tick, (const struct baton_task *)(a)) \
	does(TIMER, timer, (int32_t)(a)) \
	does(CPU_ONLINE, cpu_online, (int32_t)(a)) \
	does(CPU_OFFLINE, cpu_offline, (int32_t)(a)) \
	does(ENTER_IDLE, enter_idle, (int32_t)(a)) \
	does(EXIT_IDLE, exit_idle, (int32_t)(a)) \
	gives(HINT, hint, (const struct baton_task *)(a), (const struct baton_hint *)(b))

#endif  /* BATON_H */
