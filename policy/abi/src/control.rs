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
/// Moved under the control mutex, but for `running -> faulted`, which any CPU does once, by compare
/// and swap.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatonPolicyState {
    /// No policy in this place of the table.
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
    /// 1 when all normal tasks of the machine are Baton's, 0 when only those of class SCHED_EXT
    /// are.
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
    /// How many policies are asked before it.
    pub rank: u32,
    /// Share of each CPU's time that it is guaranteed, percent; 0 for none.
    pub share: u32,
    /// 1 while it is recorded into a file.
    pub recording: u32,
    /// Blocks of 64 KiB that each CPU has of its flight recorder; 0 while there is none.
    pub flight: u32,
    /// 1 while what a flight recorder had at the last fault can be had.
    pub recorded: u32,
    pub reserved: u32,
    /// Memory it has allocated, bytes.
    pub memory: u64,
    /// `BatonRefusal` answers so far.
    pub refusals: u64,
    /// Faults so far.
    pub faults: u64,
    pub name: [u8; BATON_NAME_LEN],
    pub options: [u8; BATON_OPTIONS_LEN],
    /// Names of the modules of its versions: the current one, the one that is loaded to come next,
    /// and the one before.
    pub modules: [[u8; BATON_MODULE_LEN]; 3],
    /// Name of its partition; empty for none.
    pub partition: [u8; BATON_NAME_LEN],
    /// Upgrades and rollbacks so far.
    pub changes: u64,
    /// The last of them, oldest first; `kind` is 0 where there is none.
    pub history: [BatonChange; BATON_CHANGES_KEPT],
}

/// Longest name of a module, with the terminating NUL.
pub const BATON_MODULE_LEN: usize = 64;
/// Changes of version that are remembered for each policy.
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
    /// When, ns since the boot.
    pub now: u64,
    /// `BatonChangeKind`.
    pub kind: u32,
    /// 1 when the new version began with a state of its own, as it could not take over the old
    /// one's.
    pub anew: u32,
    pub from_version: u32,
    pub to_version: u32,
    /// How long CPUs were held, ns: from when the first is held for the change to when the last
    /// goes on. 0 when none was.
    pub held: u64,
    /// How much of that was in the policy's own code, and in the core's, ns. In the rest CPUs came,
    /// or went on.
    pub policy: u64,
    pub core: u64,
    /// What the policy allocated for the change, bytes.
    pub memory: u64,
}

/// `BATON_IOC_UPGRADE`: puts the version that is loaded to come next in the place of the running
/// one, or the one before.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonUpgrade {
    pub name: [u8; BATON_NAME_LEN],
    /// For the new version; not of a rollback, which brings the old ones back.
    pub options: [u8; BATON_OPTIONS_LEN],
    /// 1: back to the version before.
    pub rollback: u32,
    /// A fault within this time brings the version before back, ms; 0 for none.
    pub probation: u32,
    /// Out: why it was refused, NUL-terminated.
    pub message: [u8; BATON_MESSAGE_LEN],
    /// Out: what was done.
    pub change: BatonChange,
    /// Out: the state that the running version hands on, and the two that the other takes.
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
    /// The first of them; an empty name ends the list. The others stay behind these as they are.
    pub names: [[u8; BATON_NAME_LEN]; BATON_MAX_POLICIES],
}

/// `BATON_IOC_SHARE`: guarantees a policy a share of each CPU's time while it has tasks for it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonShare {
    pub name: [u8; BATON_NAME_LEN],
    /// Percent; 0 for none. All shares together are 100 at most.
    pub share: u32,
}

/// Partitions at most.
pub const BATON_MAX_PARTITIONS: usize = 16;
/// Words of a partition's CPUs: of 4096, one bit each, the first lowest.
pub const BATON_CPU_WORDS: usize = 64;

/// `BATON_IOC_PARTITION`: CPUs that only some policies have.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonPartition {
    /// 0: asks for what there is at `index`, below `BATON_MAX_PARTITIONS`; an empty name comes back
    /// if there is nothing. 1: makes the partition `name` what is said here, or ends it, if it is
    /// to have no CPU and no policy.
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

/// Cgroups at most that belong to policies.
pub const BATON_MAX_RULES: usize = 64;

/// `BATON_IOC_RULE`: cgroups (version 2) whose tasks, now and later, belong to a policy.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonRule {
    /// 0: asks for the rule at `index`, below `BATON_MAX_RULES`; `cgroup` is 0 if there is none. 1:
    /// gives `cgroup` to the policy `name`, or, if that is empty, to none. 2: has all tasks looked
    /// at again, as after the shim was attached.
    pub set: u32,
    pub index: u32,
    /// Its id: the inode number of its directory.
    pub cgroup: u64,
    pub name: [u8; BATON_NAME_LEN],
}

/// Why a recording has ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatonRecordEnd {
    /// It goes on.
    None = 0,
    /// On request, or because its owner is gone.
    Stopped = 1,
    /// A ring was full, and nothing was to be lost.
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
    /// Records for the file that asks. Events that there is no room for are lost, and counted.
    Lossy = 0,
    /// The same, but it ends when there is no room.
    Lossless = 1,
    /// Sets the policy's flight recorder to so many blocks; 0 ends it. It belongs to no file, and
    /// keeps the newest.
    Flight = 2,
    /// Gives the file what the flight recorder had at the policy's last fault. That stays, and is
    /// not changed.
    Fault = 3,
}

/// `BATON_IOC_RECORD`: begins to record a running policy: from its state, where that can be saved
/// (`reregister_save`), else with a new instance of it. The recording belongs to the open file;
/// reading that gives the state. The thread that asks gets a real-time priority
/// (`sched_set_fifo_low`), so that it can keep up with what it reads.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonRecord {
    pub name: [u8; BATON_NAME_LEN],
    /// Blocks of 64 KiB that each CPU may have: 16 to 65534. Out, of a fault: as many as it had.
    pub blocks: u32,
    /// `BatonRecordHow`.
    pub how: u32,
    /// Out: version of the policy.
    pub version: u32,
    /// Out: stamps in a millisecond.
    pub stamp_khz: u32,
    /// In: 1, to be recorded from a state only: a policy that saves none is refused (`EPROTOTYPE`).
    /// Out: 1 where it begins with a state.
    pub has_state: u32,
    pub reserved: u32,
    /// Out: length of the state, bytes, and its type. Without one they mean nothing.
    pub state_length: u64,
    pub state: BatonStateType,
    /// Out: the policy's options, NUL-terminated.
    pub options: [u8; BATON_OPTIONS_LEN],
    /// Out: why the policy could not be made anew, NUL-terminated.
    pub message: [u8; BATON_MESSAGE_LEN],
}

/// `BATON_IOC_RECORD_TAKE`: gives the block that was taken last back to its CPU, and takes the
/// next. `BATON_IOC_RECORD_STOP`, with the same structure, ends the recording: what is left can
/// then be taken.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonRecordBlock {
    /// Whose.
    pub cpu: u32,
    /// In: -1 to be told of the CPU only; else, of a fault, which of the CPU's blocks, from 0. Out:
    /// number of the block, which is at so many times 64 KiB in the mapping of the file; -1 when
    /// none is full.
    pub block: i32,
    /// Out: `BatonRecordEnd`. Not 0: no more is recorded.
    pub end: u32,
    /// Out: what the policy was told of that CPU.
    pub topology: BatonCpu,
}

/// `BATON_IOC_RECORD_CHECKPOINT`: the policy's state between two events. Of a recording that goes
/// on, it is made, and takes the place of the state that was read before; `EAGAIN` while a CPU's
/// ring is too full. Of a fault, it is the second one that is kept; `ENODATA` without.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonRecordCheckpoint {
    /// Out: what comes after it has later stamps, and is in blocks whose own stamps are not less.
    pub stamp: u64,
    /// Out: where in the file it is read, and its length, bytes.
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
    /// When, ns since the boot, to the kernel's tick.
    pub now: u64,
    /// Number of the fault since the core was loaded.
    pub serial: u64,
    pub policy: [u8; BATON_NAME_LEN],
    pub comm: [u8; 16],
    /// Source file, NUL-terminated.
    pub file: [u8; 96],
    /// What the policy or the host said, NUL-terminated.
    pub message: [u8; BATON_MESSAGE_LEN],
    /// The last calls on that CPU, oldest first: `nr_events` of them.
    pub nr_events: u32,
    pub reserved: u32,
    pub events: [BatonEvent; 10],
}

/// One call into a policy, as the core remembers it.
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
    /// Calls to pick, and how many gave a task of a policy.
    pub dispatches: u64,
    pub picks: u64,
    /// Tasks taken over by a policy.
    pub enqueues: u64,
    /// Tasks handed straight to an idle CPU.
    pub directs: u64,
    /// Answers refused.
    pub refusals: u64,
    /// Tasks run by the fallback.
    pub fallbacks: u64,
    /// Calls of a policy's timer.
    pub timers: u64,
}

/// `BATON_IOC_START`: start a registered policy.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonStart {
    pub name: [u8; BATON_NAME_LEN],
    pub options: [u8; BATON_OPTIONS_LEN],
    /// Out: why the policy could not be made, NUL-terminated.
    pub message: [u8; BATON_MESSAGE_LEN],
}

/// `BATON_IOC_STOP`: stop a policy; its tasks go on under the default policy or the fallback.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonStop {
    pub name: [u8; BATON_NAME_LEN],
    /// Out: what went wrong as the policy was unmade, NUL-terminated; empty if nothing. It is
    /// stopped all the same.
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
}

/// `BATON_IOC_TASK`: a task. In: `slot`. Out: the first task at that slot or after it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonTaskInfo {
    pub slot: u32,
    /// 0 when there is no task any more.
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
