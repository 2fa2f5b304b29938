// SPDX-License-Identifier: GPL-2.0-only
//! The control device `/dev/baton` (root only). Each request is one ioctl with one fixed-size
//! structure; the kernel checks every field before use.

use crate::{
    BatonCpu, BatonStateType, BATON_MAX_POLICIES, BATON_MESSAGE_LEN, BATON_NAME_LEN,
    BATON_OPTIONS_LEN,
};

/// State of a policy.
///
/// ```text
///   registered --start--> running --stop--> registered
///                            |                  ^
///                            +----fault--> faulted --stop--+
/// ```
/// Transitions are made under the control mutex, except `running -> faulted`, which any CPU makes
/// once, by compare and swap.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatonPolicyState {
    /// There is no policy at this place of the table.
    Absent = 0,
    /// The module is loaded; the policy schedules nothing.
    Registered = 1,
    /// The policy schedules its tasks.
    Running = 2,
    /// The policy was stopped by a fault; its tasks run under the fallback.
    Faulted = 3,
}

/// `BATON_IOC_CORE`: the core itself.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonCoreInfo {
    /// [`crate::BATON_ABI`].
    pub abi: u32,
    /// 1 while the shim is attached to sched_ext.
    pub attached: u32,
    /// 1 when Baton schedules all normal tasks of the machine, 0 when it schedules those of class
    /// SCHED_EXT only.
    pub all: u32,
    /// Number of possible CPUs.
    pub nr_cpus: u32,
    /// Number of task slots, and how many are in use.
    pub max_tasks: u32,
    pub tasks: u32,
    /// Tasks that got no slot since the core was loaded; they run under the fallback.
    pub no_slot: u64,
    /// Id of the policy that unassigned tasks get; 0 for none.
    pub default_policy: u32,
    /// A queued task that waits longer than this is a stall, ms.
    pub stall_ms: u32,
}

/// `BATON_IOC_POLICY`: one policy. In: `index`. Out: the rest.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonPolicyInfo {
    /// Place in the table, below `BATON_MAX_POLICIES`.
    pub index: u32,
    /// `BatonPolicyState`.
    pub state: u32,
    /// Unique since the core was loaded; 0 when absent.
    pub id: u32,
    pub version: u32,
    /// Tasks that belong to it.
    pub tasks: u32,
    /// Tasks whose `Schedulable` it holds.
    pub queued: u32,
    /// Number of policies that are asked before this one.
    pub rank: u32,
    /// Guaranteed share of each CPU's time, percent; 0 for none.
    pub share: u32,
    /// 1 while it is recorded into a file.
    pub recording: u32,
    /// Blocks of 64 KiB per CPU of its flight recorder; 0 while there is none.
    pub flight: u32,
    /// 1 while the flight recording of the last fault is available.
    pub recorded: u32,
    /// [`crate::BatonLanguage`] of the running version.
    pub language: u32,
    /// Memory it has allocated, bytes.
    pub memory: u64,
    /// `BatonRefusal` answers so far.
    pub refusals: u64,
    /// Faults so far.
    pub faults: u64,
    pub name: [u8; BATON_NAME_LEN],
    pub options: [u8; BATON_OPTIONS_LEN],
    /// Names of the modules of its versions: the current one, the next one that is loaded, and the
    /// previous one.
    pub modules: [[u8; BATON_MODULE_LEN]; 3],
    /// Name of its partition; empty for none.
    pub partition: [u8; BATON_NAME_LEN],
    /// Upgrades and rollbacks so far.
    pub changes: u64,
    /// The last changes, oldest first; `kind` is 0 in an unused entry.
    pub history: [BatonChange; BATON_CHANGES_KEPT],
}

/// Longest name of a module, with the terminating NUL.
pub const BATON_MODULE_LEN: usize = 64;
/// Number of version changes kept for each policy.
pub const BATON_CHANGES_KEPT: usize = 8;

/// Why the version of a policy changed.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatonChangeKind {
    None = 0,
    /// By an upgrade.
    Upgrade = 1,
    /// By hand, or because a condition of the probation was broken.
    Rollback = 2,
    /// Because the new version had a fault while on probation.
    FaultRollback = 3,
}

/// One change of the version of a policy.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonChange {
    /// Time, ns since boot.
    pub now: u64,
    /// `BatonChangeKind`.
    pub kind: u32,
    /// 1 when the new version began with a new state because it could not take over the old one.
    pub anew: u32,
    pub from_version: u32,
    pub to_version: u32,
    /// How long CPUs were held, ns: from holding the first CPU for the change to releasing the
    /// last. 0 when none was held.
    pub held: u64,
    /// The parts of that time spent in the policy's code and in the core's, ns. In the rest, CPUs
    /// were stopping or continuing.
    pub policy: u64,
    pub core: u64,
    /// Memory that the policy allocated for the change, bytes.
    pub memory: u64,
}

/// `BATON_IOC_UPGRADE`: replaces the running version by the next one that is loaded, or by the
/// previous one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonUpgrade {
    pub name: [u8; BATON_NAME_LEN],
    /// Options of the new version. Not used by a rollback, which restores the old options.
    pub options: [u8; BATON_OPTIONS_LEN],
    /// 1: roll back to the previous version.
    pub rollback: u32,
    /// Probation, ms: a fault within this time rolls back to the previous version. 0 for none.
    pub probation: u32,
    /// Out: why it was refused, NUL-terminated.
    pub message: [u8; BATON_MESSAGE_LEN],
    /// Out: the change that was made.
    pub change: BatonChange,
    /// Out: the type of the state that the running version passes on, and the two types that the
    /// other version takes.
    pub running: BatonStateType,
    pub state: BatonStateType,
    pub older: BatonStateType,
}

/// `BATON_IOC_SWITCH`: gives all tasks of one running policy to another.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonSwitch {
    pub from: [u8; BATON_NAME_LEN],
    pub to: [u8; BATON_NAME_LEN],
    /// Out: how long CPUs were held, ns, as in [`BatonChange`].
    pub held: u64,
}

/// `BATON_IOC_ORDER`: the order in which policies are asked on each CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonOrder {
    /// The first policies of the order; an empty name ends the list. The others follow in their
    /// present order.
    pub names: [[u8; BATON_NAME_LEN]; BATON_MAX_POLICIES],
}

/// `BATON_IOC_SHARE`: guarantees a policy a share of each CPU's time while it has tasks for that
/// CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonShare {
    pub name: [u8; BATON_NAME_LEN],
    /// Percent; 0 for none. All shares together are 100 at most.
    pub share: u32,
}

/// Maximum number of partitions.
pub const BATON_MAX_PARTITIONS: usize = 16;
/// Words in the CPU mask of a partition: one bit for each of 4096 CPUs, lowest bit first.
pub const BATON_CPU_WORDS: usize = 64;

/// `BATON_IOC_PARTITION`: CPUs that only some policies use.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonPartition {
    /// 0: reads the partition at `index`, below `BATON_MAX_PARTITIONS`; the name is empty if there
    /// is none. 1: sets the CPUs and policies of the partition `name`, or removes it if both are
    /// empty.
    pub set: u32,
    pub index: u32,
    pub name: [u8; BATON_NAME_LEN],
    pub cpus: [u64; BATON_CPU_WORDS],
    /// Its policies; an empty name ends the list.
    pub policies: [[u8; BATON_NAME_LEN]; BATON_MAX_POLICIES],
    /// Out: why it was refused, NUL-terminated.
    pub message: [u8; BATON_MESSAGE_LEN],
    /// Out: how long CPUs were held, ns, as in [`BatonChange`].
    pub held: u64,
}

/// Maximum number of cgroups that belong to policies.
pub const BATON_MAX_RULES: usize = 64;

/// What `BATON_IOC_RULE` does.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatonRuleAct {
    /// Reads the rule at `index`, below `BATON_MAX_RULES`; `cgroup` is 0 if there is none.
    Read = 0,
    /// Assigns `cgroup` to the policy `name`, or to none if the name is empty.
    Assign = 1,
    /// Checks all tasks again, as after the shim was attached.
    Apply = 2,
}

/// `BATON_IOC_RULE`: cgroups (version 2) whose present and future tasks belong to a policy.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonRule {
    /// [`BatonRuleAct`].
    pub set: u32,
    pub index: u32,
    /// Id of the cgroup: the inode number of its directory.
    pub cgroup: u64,
    pub name: [u8; BATON_NAME_LEN],
}

/// Why a recording has ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatonRecordEnd {
    /// The recording goes on.
    None = 0,
    /// On request, or because its owner is gone.
    Stopped = 1,
    /// A ring was full, and the recording was lossless.
    Full = 2,
    /// The policy was unloaded.
    Unloaded = 3,
    /// Another version of the policy, or another policy, took its place.
    Replaced = 4,
    /// A fault stopped the policy.
    Fault = 5,
}

/// What `BATON_IOC_RECORD` does.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatonRecordHow {
    /// Records for the requesting file. Events that do not fit are lost and counted.
    Lossy = 0,
    /// Like `Lossy`, but the recording ends when there is no room.
    Lossless = 1,
    /// Sets the policy's flight recorder to this number of blocks; 0 ends it. It belongs to no file
    /// and keeps the newest blocks.
    Flight = 2,
    /// Gives the file the flight recording of the policy's last fault, which is kept unchanged.
    Fault = 3,
}

/// `BATON_IOC_RECORD`: begins to record a running policy, from its state if that can be saved
/// (`reregister_save`), otherwise with a new instance of it. The recording belongs to the open
/// file; reading the file returns the state. The requesting thread gets a real-time priority
/// (`sched_set_fifo_low`) to keep up with the recording.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonRecord {
    pub name: [u8; BATON_NAME_LEN],
    /// Blocks of 64 KiB per CPU: 16 to 65534. Out, for a fault: the number that each CPU had.
    pub blocks: u32,
    /// `BatonRecordHow`.
    pub how: u32,
    /// Out: version of the policy.
    pub version: u32,
    /// Out: stamps per millisecond.
    pub stamp_khz: u32,
    /// In: 1 to record from a state only; a policy that saves none is refused (`EPROTOTYPE`). Out:
    /// 1 if the recording begins with a state.
    pub has_state: u32,
    pub reserved: u32,
    /// Out: length of the state, bytes, and its type. Without a state they have no meaning.
    pub state_length: u64,
    pub state: BatonStateType,
    /// Out: the policy's options, NUL-terminated.
    pub options: [u8; BATON_OPTIONS_LEN],
    /// Out: why a new instance of the policy could not be created, NUL-terminated.
    pub message: [u8; BATON_MESSAGE_LEN],
}

/// `BATON_IOC_RECORD_TAKE`: returns the block that was taken last to its CPU, and takes the next
/// one. `BATON_IOC_RECORD_STOP` has the same structure and ends the recording; the remaining blocks
/// can then be taken.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonRecordBlock {
    /// The CPU.
    pub cpu: u32,
    /// In: -1 to query the CPU only; otherwise, for a fault, the index of one of the CPU's blocks,
    /// from 0. Out: number of the block, which is at that multiple of 64 KiB in the mapping of the
    /// file; -1 when none is full.
    pub block: i32,
    /// Out: `BatonRecordEnd`. Not 0 when the recording has ended.
    pub end: u32,
    /// Out: the topology of that CPU as given to the policy.
    pub topology: BatonCpu,
}

/// `BATON_IOC_RECORD_CHECKPOINT`: the policy's state between two events. In a running recording,
/// this makes a new checkpoint, which replaces the state that was read before; `EAGAIN` while a
/// CPU's ring is too full. For a fault, it is the second state that was kept; `ENODATA` if there is
/// none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonRecordCheckpoint {
    /// Out: stamp of the checkpoint. Later events have higher stamps, in blocks whose own stamps
    /// are not lower.
    pub stamp: u64,
    /// Out: offset in the file for reading it, and its length, bytes.
    pub at: u64,
    pub length: u64,
}

/// `BATON_IOC_FAULT`: the last fault of a policy. In: `index`. Out: the rest.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonFault {
    pub index: u32,
    /// `BatonFaultKind`; `None` if there was no fault.
    pub kind: u32,
    /// `BatonMethod`.
    pub method: u32,
    pub cpu: u32,
    /// The task the call was about; 0 if none.
    pub pid: u32,
    /// Source line, 0 if not known.
    pub line: u32,
    /// Time, ns since boot, in the resolution of the kernel's tick.
    pub now: u64,
    /// Number of the fault since the core was loaded.
    pub serial: u64,
    /// Address of the instruction in the policy's module that met an exception of the processor; 0
    /// if none did.
    pub ip: u64,
    pub policy: [u8; BATON_NAME_LEN],
    pub comm: [u8; 16],
    /// Source file, NUL-terminated.
    pub file: [u8; 96],
    /// Message of the policy or the host, NUL-terminated.
    pub message: [u8; BATON_MESSAGE_LEN],
    /// The last calls on that CPU, oldest first: `nr_events` of them.
    pub nr_events: u32,
    pub reserved: u32,
    pub events: [BatonEvent; 10],
}

/// One call into a policy, as stored by the core.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonEvent {
    pub now: u64,
    /// `BatonMethod`.
    pub method: u32,
    pub pid: u32,
}

/// `BATON_IOC_CPU`: counters of one CPU. In: `cpu`. Out: the rest.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonCpuInfo {
    pub cpu: u32,
    pub online: u32,
    /// Number of picks, and how many of them returned a task of a policy.
    pub dispatches: u64,
    pub picks: u64,
    /// Tasks taken over by a policy.
    pub enqueues: u64,
    /// Tasks placed directly on an idle CPU.
    pub directs: u64,
    /// Answers refused.
    pub refusals: u64,
    /// Tasks run by the fallback.
    pub fallbacks: u64,
    /// Calls of a policy's timer.
    pub timers: u64,
}

/// The limits of the turns in [`BatonStart`].
pub const BATON_TURNS_MIN: u32 = 1 << 16;
/// See [`BATON_TURNS_MIN`].
pub const BATON_TURNS_MAX: u32 = 1 << 30;

/// `BATON_IOC_START`: start a registered policy.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonStart {
    pub name: [u8; BATON_NAME_LEN],
    /// Turns of loops that a call is granted, [`BATON_TURNS_MIN`] to [`BATON_TURNS_MAX`]; 0 for as
    /// many as at its last start, or 2^24.
    pub turns: u32,
    pub reserved: u32,
    pub options: [u8; BATON_OPTIONS_LEN],
    /// Out: why the policy could not be created, NUL-terminated.
    pub message: [u8; BATON_MESSAGE_LEN],
}

/// `BATON_IOC_STOP`: stop a policy; its tasks go on under the default policy or the fallback.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonStop {
    pub name: [u8; BATON_NAME_LEN],
    /// Out: the error while destroying the policy, NUL-terminated; empty if there was none. The
    /// policy is stopped in any case.
    pub message: [u8; BATON_MESSAGE_LEN],
}

/// `BATON_IOC_ASSIGN`: give a task, or all unassigned tasks, to a policy.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonAssign {
    /// The thread, in the caller's pid namespace; 0 sets the policy of all tasks that have none of
    /// their own.
    pub pid: u32,
    /// 1: also move the thread into (or, with an empty name, out of) class SCHED_EXT.
    pub set_class: u32,
    /// The policy; empty for none.
    pub name: [u8; BATON_NAME_LEN],
    /// Out: why the policy refuses, NUL-terminated; empty if it does not.
    pub message: [u8; BATON_MESSAGE_LEN],
}

/// `BATON_IOC_TASK`: a task. In: `slot`. Out: the first task at that slot or after it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonTaskInfo {
    pub slot: u32,
    /// 0 when there is no further task.
    pub pid: u32,
    /// Id of its policy, 0 for none.
    pub policy: u32,
    /// Number of its state, see `hosts/core`.
    pub state: u32,
    pub cpu: i32,
    pub nice: i32,
    pub comm: [u8; 16],
    /// Id of the policy that it was assigned to, 0 for none.
    pub wanted: u32,
}

/// Number of places at which refused changes are counted.
pub const BATON_REFUSED_PLACES: u32 = 256;

/// `BATON_IOC_REFUSED_CHANGE`: a place in a policy in C at which changes of threads' states were
/// refused (`policy/c/events.h`). In: `place`. Out: the first at that place of the table or after
/// it. All names are NUL-terminated.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonRefusedChange {
    pub place: u32,
    /// Index of the policy.
    pub policy: u32,
    /// Line of the policy's source; 0 if none is known.
    pub line: u32,
    /// The first thread.
    pub pid: u32,
    /// How often; 0 when there is no further place.
    pub times: u64,
    /// The policy's handler, and the states.
    pub handler: [u8; 24],
    pub from: [u8; 16],
    pub to: [u8; 16],
    pub why: [u8; 80],
}

/// Longest time for which a request can have calls measured, ms.
pub const BATON_MEASURE_MAX_MS: u32 = 3_600_000;

/// `BATON_IOC_MEASURE`: has the calls of all policies measured for a time from now, or for longer if
/// an earlier request says so. What was measured is kept as long as the measurement goes on. Calls
/// in process context, such as `create`, are not measured.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonMeasure {
    /// The time, 0 to [`BATON_MEASURE_MAX_MS`]; 0 ends the measurement, and so every other user's.
    pub ms: u32,
}

/// Number of classes of durations: for each power of two of ns up to 2^33, four of equal width.
pub const BATON_CALL_CLASSES: usize = 132;

/// `BATON_IOC_CALLS`: the measured calls of a method of a policy on all CPUs, since the measurement
/// began or the policy was loaded. In: `policy`, `method`. Out: the rest; all 0 if no measurement
/// is under way.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonCalls {
    /// Index of the policy, below `BATON_MAX_POLICIES`.
    pub policy: u32,
    /// `BatonMethod`.
    pub method: u32,
    /// The sum of all durations, ns.
    pub total: u64,
    /// The longest duration, ns.
    pub longest: u64,
    /// The number of calls in each class of durations (`baton_core::histogram`, 2 bits); longer
    /// ones are in the last.
    pub classes: [u64; BATON_CALL_CLASSES],
}
