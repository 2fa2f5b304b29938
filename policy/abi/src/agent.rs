// SPDX-License-Identifier: GPL-2.0-only
//! Enclaves and agents: the memory and the requests that `hosts/agent/kernel` shares with the
//! process of an agent. An enclave is a policy whose answers come from such a process.
//!
//! The status mapping is written by the kernel alone, and an agent maps it read-only. It has the
//! head, a [`BatonAgentCpu`] for each CPU, a [`BatonAgentTask`] for each slot, the mask of CPUs of
//! each slot's task (a bit for each CPU, in whole words), and a ring of [`BatonMessage`] for each
//! CPU, at the offsets that [`BatonAgentAttach`] returns. The shared
//! mapping is written by both. It has a [`BatonTransaction`] for each CPU, and the standby ring.
//! The kernel trusts nothing in it.

use crate::{
    BatonCpu, BatonHint, BatonStateType, BATON_MESSAGE_LEN, BATON_NAME_LEN, BATON_OPTIONS_LEN,
};

/// Offset of the shared mapping in the file of an enclave, bytes. The status mapping is at 0.
pub const BATON_AGENT_SHARED: u64 = 0x100_0000_0000;

/// The head of the status mapping, one cache line.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonAgentHead {
    /// Messages lost since the agent attached, as a ring was full. When this changes, the agent
    /// must read the tasks' words again.
    pub lost: u64,
    /// Tasks whose token the enclave has, without the agents.
    pub queued: u32,
    /// 1 when the enclave no longer asks this agent.
    pub ended: u32,
    /// Position in the standby ring of the next entry that a CPU takes.
    pub standby_taken: u32,
    pub reserved: [u32; 11],
}

/// A CPU as the enclave sees it, one cache line.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonAgentCpu {
    /// Messages written to this CPU's ring. The entry of message `n` is `n` modulo the number of
    /// entries.
    pub posted: u32,
    /// 1 from a pick that found no task until the next one that finds one.
    pub wants: u32,
    /// Slot plus one of the enclave's task that was picked here last; 0 if the last pick found
    /// none.
    pub running: u32,
    /// 1 while the CPU is online, and the enclave is asked on it.
    pub online: u32,
    /// Slot plus one of the CPU's own agent; 0 if it has none.
    pub agent: u32,
    pub reserved: u32,
    /// Tasks picked here, without the agent.
    pub picks: u64,
    /// Transactions of this CPU that did not name a queued task.
    pub stale: u64,
    pub unused: [u64; 3],
}

/// The task is in the enclave.
pub const BATON_AGENT_TASK_MEMBER: u32 = 1 << 0;
/// The task is an agent of a CPU.
pub const BATON_AGENT_TASK_AGENT: u32 = 1 << 1;

/// The task waits on its CPU while that CPU's agent decides whether it goes on.
pub const BATON_AGENT_TASK_HELD: u32 = 1 << 2;

/// The status word of a task, by slot; one cache line.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonAgentTask {
    /// The task's token while the enclave may place it; 0 while it sleeps or runs.
    pub token: u64,
    /// CPU time at the last message, ns.
    pub runtime: u64,
    /// Number of the last message about a task in this slot, also of one that was lost.
    pub sequence: u32,
    /// `BATON_AGENT_TASK_*`.
    pub flags: u32,
    pub pid: u32,
    pub cpu: i32,
    pub nice: i32,
    pub reserved: [u32; 7],
}

/// A message: a call of the enclave's policy, one cache line. The entry after a message about a
/// hint has the hint ([`BatonHint`], whose `thread` is a slot plus one), and counts as a message.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonMessage {
    /// Time, ns, in the resolution of the kernel's tick.
    pub now: u64,
    /// The task's token, for a method that hands one over, or that refuses one.
    pub token: u64,
    /// The task's CPU time, ns.
    pub runtime: u64,
    /// [`crate::BatonMethod`].
    pub method: u16,
    /// `BATON_F_*` of the task's `select_task_rq`; for `pick_refused`, the [`crate::BatonRefusal`].
    pub flags: u16,
    /// Number of this message among those of its task; 0 if it is about a CPU.
    pub sequence: u32,
    /// The task; of a pick, the task that ran and can go on. `u32::MAX` if there is none.
    pub slot: u32,
    pub pid: u32,
    pub nice: i32,
    /// The task's CPU; of a woken task, the one on which it ran; of a message about a CPU, that
    /// CPU.
    pub cpu: i32,
    /// The waker's CPU.
    pub waker: i32,
    /// Of a hint: the numbers of the last messages so far about the task that sent it, and about
    /// the task that it names. It is read after those.
    pub after: u32,
    pub after_named: u32,
    /// Of a hint: the task that it names; 0 if none.
    pub named_pid: u32,
}

const _: () = assert!(
    size_of::<BatonAgentHead>() == 64
        && size_of::<BatonAgentCpu>() == 64
        && size_of::<BatonAgentTask>() == 64
        && size_of::<BatonMessage>() == 64
        && size_of::<BatonTransaction>() == 64
        && size_of::<BatonStandby>() == 64
);

/// State of a transaction.
///
/// ```text
///   empty --agent--> ready --kernel--> claimed --kernel--> done --agent--> ready
///                      |                                              or
///                      +--agent--> empty
/// ```
/// The kernel reads the other fields while it is claimed, and the agent writes them before it is
/// ready. Both leave "ready" by compare and swap.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatonTransactionState {
    Empty = 0,
    Ready = 1,
    Claimed = 2,
    Done = 3,
}

/// The outcome of a transaction.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatonCommit {
    /// The CPU runs the task next.
    Complete = 0,
    /// The token is not the task's newest, or the task is no longer queued.
    Stale = 1,
    /// There is no such task in the enclave.
    NotFound = 2,
    /// The task may not run on that CPU. `pick_refused` follows.
    NotAllowed = 3,
    /// The CPU is offline, or does not belong to the enclave. `pick_refused` follows.
    CpuOffline = 4,
    /// No task runs there that could go on.
    NothingToKeep = 5,
    /// A transaction of that CPU is still waiting.
    Busy = 6,
    /// In a request that is all or nothing: that CPU does not run its own agent.
    NoAgent = 7,
    /// In a request that is all or nothing: this one would have been accepted.
    NotAlone = 8,
}

/// What a CPU is to run next, one cache line.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonTransaction {
    /// [`BatonTransactionState`].
    pub state: u32,
    /// [`BatonCommit`], when it is done.
    pub outcome: u32,
    /// The task's token; [`crate::BATON_PICK_KEEP`] if the task that runs goes on;
    /// [`crate::BATON_PICK_NONE`] if the CPU is to run nothing, and its agent is not to be asked.
    pub token: u64,
    /// How long it may run, ns; 0 for the default.
    pub slice: u64,
    /// Number of this CPU's messages that the agent has read.
    pub read: u32,
    pub reserved: [u32; 9],
}

/// The head of the standby ring, one cache line. The tokens follow. Idle CPUs take from it what no
/// transaction gives them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonStandby {
    /// Entries written by the agent, which are never more than the ring's size ahead of
    /// `standby_taken`.
    pub offered: u32,
    pub reserved: [u32; 15],
}

/// Entries of the standby ring.
pub const BATON_AGENT_STANDBY: u32 = 256;
/// Minimum, default and maximum number of messages that a CPU's ring holds.
pub const BATON_AGENT_MIN_ENTRIES: u32 = 64;
pub const BATON_AGENT_ENTRIES: u32 = 1024;
pub const BATON_AGENT_MAX_ENTRIES: u32 = 65536;
/// Minimum, default and maximum of an enclave's limit, ms.
pub const BATON_ENCLAVE_MIN_LIMIT_MS: u32 = 20;
pub const BATON_ENCLAVE_LIMIT_MS: u32 = 1000;
pub const BATON_ENCLAVE_MAX_LIMIT_MS: u32 = 60000;
/// In a kick: the CPU's own agent runs next, as if there were a message for it. With
/// `BATON_KICK_PREEMPT` it runs at once, and is asked whether the task that it interrupts goes on.
pub const BATON_AGENT_KICK_AGENT: u16 = 0x4000;
/// In [`BatonAgentCommits`]: either every CPU gets its transaction, or none does. Each of the CPUs
/// must run its own agent at that time, and takes its transaction when that gives way. So no task
/// of the group runs beside one that ran on the group's CPUs before. A CPU whose token is
/// [`crate::BATON_PICK_NONE`] runs nothing.
pub const BATON_AGENT_TOGETHER: u32 = 1 << 0;
/// Most CPUs that one request reaches.
pub const BATON_AGENT_CPUS_AT_ONCE: usize = 64;

/// What `BATON_ENCLAVE_IOC_SET` does.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatonEnclaveAct {
    /// Reads the enclave at `index`; the name is empty if there is none.
    Read = 0,
    Create = 1,
    /// Ends its agent and removes it.
    Destroy = 2,
    /// Ends its agent, if it has one. The enclave waits for another.
    Dismiss = 3,
}

/// `BATON_ENCLAVE_IOC_SET`, of the device `/dev/baton-enclaves` (root only).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonEnclave {
    /// [`BatonEnclaveAct`].
    pub act: u32,
    pub index: u32,
    pub name: [u8; BATON_NAME_LEN],
    /// Messages that each CPU's ring holds, a power of two; 0 for the default.
    pub entries: u32,
    /// A task may be queued for this long while a CPU waits and the agent answers nothing, ms; 0
    /// for the default.
    pub limit: u32,
    /// Out: process id of the agent, in the initial namespace; 0 if there is none.
    pub agent: u32,
    /// Out: tasks queued.
    pub queued: u32,
    /// Out: agents attached so far.
    pub attached: u64,
    /// Out: messages posted and lost, tasks picked and stale transactions of the present agent.
    pub posted: u64,
    pub lost: u64,
    pub picks: u64,
    pub stale: u64,
    /// Out: why it was refused, NUL-terminated.
    pub message: [u8; BATON_MESSAGE_LEN],
}

/// `BATON_AGENT_IOC_ATTACH`, of an enclave's device: the process becomes the enclave's agent, and
/// the enclave begins to schedule its tasks. Each is announced by `task_new`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonAgentAttach {
    /// [`crate::BATON_ABI`].
    pub abi: u32,
    /// `BATON_EV_*` that the agent wants messages about.
    pub events: u32,
    /// Out: number of CPUs, slots, and entries of a ring.
    pub nr_cpus: u32,
    pub nr_slots: u32,
    pub entries: u32,
    pub reserved: u32,
    /// Out: offsets in the status mapping, and its size, bytes.
    pub cpus: u64,
    pub tasks: u64,
    pub masks: u64,
    pub rings: u64,
    pub status_size: u64,
    /// Out: offset of the standby ring in the shared mapping, and the size of that mapping.
    pub standby: u64,
    pub shared_size: u64,
    /// Text that the status of the policy shows as its options, NUL-terminated.
    pub options: [u8; BATON_OPTIONS_LEN],
    /// Types of the hints that the agent takes and of its replies, as in [`crate::BatonPolicy`];
    /// the name of the first is empty if it takes none.
    pub hint_type: BatonStateType,
    pub reply_type: BatonStateType,
    /// Out: why it was refused, NUL-terminated.
    pub message: [u8; BATON_MESSAGE_LEN],
}

/// `BATON_AGENT_IOC_TOPOLOGY`: reads the place of a CPU in the machine.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonAgentTopology {
    pub cpu: u32,
    pub reserved: u32,
    /// Out.
    pub place: BatonCpu,
}

/// `BATON_AGENT_IOC_KICK`: CPUs look at their transactions now. A CPU number with
/// [`crate::BATON_KICK_PREEMPT`] preempts; without, a busy CPU is left alone. With
/// [`BATON_AGENT_KICK_AGENT`], a message for the CPU's agent is announced.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonAgentKick {
    pub count: u32,
    pub reserved: u32,
    pub cpus: [u16; BATON_AGENT_CPUS_AT_ONCE],
}

/// A transaction of [`BatonAgentCommits`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonAgentCommit {
    pub token: u64,
    /// How long the task may run, ns; 0 for the default.
    pub slice: u64,
    /// CPU number, with [`crate::BATON_KICK_PREEMPT`] if the task that runs is to be preempted.
    pub cpu: u16,
    pub reserved: u16,
    /// Out: [`BatonCommit`]. [`BatonCommit::Complete`] if the CPU will look at the transaction. Its
    /// answer is then in the transaction.
    pub outcome: u32,
}

/// `BATON_AGENT_IOC_COMMIT`: writes transactions, and makes their CPUs look at them. One call
/// reaches up to [`BATON_AGENT_CPUS_AT_ONCE`] CPUs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonAgentCommits {
    pub count: u32,
    /// `BATON_AGENT_TOGETHER`.
    pub flags: u32,
    /// Address of an array of [`BatonAgentCommit`].
    pub commits: u64,
    /// Out: how many were accepted.
    pub accepted: u32,
    pub reserved: u32,
}

/// `BATON_AGENT_IOC_SERVE`: the calling thread becomes the agent of the CPU to which it is bound,
/// and then runs in the enclave whenever there are messages for that CPU. `ENXIO` if the CPU is
/// offline, `EAGAIN` if it is about to be, `EXDEV` if the thread is not bound to it, and `EBUSY` if
/// it has an agent.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonAgentServe {
    pub cpu: u32,
    pub reserved: u32,
}

/// `BATON_AGENT_IOC_FAIL`: the agent ends, and the policy stops with this report.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonAgentFail {
    /// [`crate::BatonFaultKind`].
    pub kind: u32,
    /// [`crate::BatonMethod`] in which it failed.
    pub method: u32,
    /// The task of the call; 0 if none.
    pub pid: u32,
    /// Source line, 0 if not known, and file, NUL-terminated.
    pub line: u32,
    pub file: [u8; 96],
    /// NUL-terminated.
    pub message: [u8; BATON_MESSAGE_LEN],
}

/// `BATON_AGENT_IOC_REPLY`: a reply to the task in a slot.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonAgentReply {
    pub slot: u32,
    /// Out: [`crate::BatonReplyAnswer`].
    pub answer: u32,
    /// The reply; it names no thread.
    pub reply: BatonHint,
}
