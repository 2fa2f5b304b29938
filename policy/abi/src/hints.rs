// SPDX-License-Identifier: GPL-2.0-only
//! Hints: what applications say to policies, and what these reply. The device is
//! `/dev/baton-hints`; what is granted to whom is said at the control device.

use crate::{BatonStateType, BATON_MESSAGE_LEN, BATON_NAME_LEN};

/// Words of a hint.
pub const BATON_HINT_WORDS: usize = 6;

/// A hint, or a policy's reply.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatonHint {
    /// What it says. What it has in its words follows from that; those that it does not use are 0.
    pub tag: u32,
    /// The thread that it names, 0 for none: its id in the sender's pid namespace, as the
    /// application writes it; its slot plus one, as the policy gets it. A reply names none.
    pub thread: u32,
    pub words: [u64; BATON_HINT_WORDS],
}

/// A place for one hint in a ring, a cache line. See `policy/message/src/ring.rs` for the sequence.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonHintsEntry {
    /// Twice the number of the lap around the ring while it is the writer's, one more while it is
    /// the reader's.
    pub sequence: u32,
    pub tag: u32,
    pub thread: u32,
    pub reserved: u32,
    pub words: [u64; BATON_HINT_WORDS],
}

/// What the mapping of a queue begins with, a cache line: then come the entries of the hints, and
/// those of the replies. The host writes here, and reads nothing.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonHintsHead {
    /// `BatonHintsEnd`: not 0 when the queue is closed.
    pub end: u32,
    /// Entries of each of its rings, a power of two.
    pub entries: u32,
    /// Hints that were taken from the ring and refused.
    pub refused: u32,
    /// Replies that there was no room for.
    pub lost: u32,
    pub reserved: [u32; 12],
}

/// Fewest and most entries of a ring.
pub const BATON_HINTS_MIN_ENTRIES: u32 = 16;
pub const BATON_HINTS_MAX_ENTRIES: u32 = 4096;
/// At most so many hints are taken from a ring at one event.
pub const BATON_HINTS_AT_ONCE: u32 = 16;

/// Why a queue was closed.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatonHintsEnd {
    /// It is open.
    None = 0,
    /// The policy was unloaded.
    Unloaded = 1,
    /// A version with other types took the policy's place, or another policy did.
    Replaced = 2,
    /// A fault stopped the policy.
    Fault = 3,
    /// What the queue was opened by is granted no more.
    Revoked = 4,
    /// The thread that opened it is gone, or runs another program.
    Gone = 5,
}

/// What became of a hint that was sent by a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatonHintAnswer {
    /// The policy has it.
    Taken = 0,
    /// It is no hint of the policy's type.
    Malformed = 1,
    /// The thread that it names is not one of the sender's process, or not one of the policy's.
    Thread = 2,
    /// The sender is not, or not yet, a task of the policy.
    NotMember = 3,
    /// The policy has stopped.
    Stopped = 4,
}

/// What became of a reply.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatonReplyAnswer {
    /// It is in the task's ring.
    Sent = 0,
    /// The task has no queue to the policy.
    NoQueue = 1,
    /// The ring is full.
    Full = 2,
}

/// `BATON_HINTS_IOC_OPEN`: opens the calling thread's queue to a policy. One for each open file of
/// the device, and for each thread.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonHintsOpen {
    /// Name of the policy, NUL-terminated.
    pub policy: [u8; BATON_NAME_LEN],
    /// The types that the application was built with; a `layout` of 0 is not compared.
    pub hint: BatonStateType,
    pub reply: BatonStateType,
    /// Entries of each ring that are wanted, 0 for the least. Out: as many as there are.
    pub entries: u32,
    /// Out: bytes to be mapped.
    pub size: u32,
    /// Out: why it was refused, NUL-terminated.
    pub message: [u8; BATON_MESSAGE_LEN],
}

/// `BATON_HINTS_IOC_SEND`: one hint, which the policy has when the call is over. What is in the
/// ring goes before it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonHintsSend {
    pub hint: BatonHint,
    /// Out: `BatonHintAnswer`.
    pub answer: u32,
    pub reserved: u32,
}

/// Grants at most.
pub const BATON_MAX_GRANTS: usize = 64;

/// Bits of `who` in [`BatonGrant`]: what must be so. All that are given must.
pub const BATON_GRANT_USER: u32 = 1 << 0;
pub const BATON_GRANT_GROUP: u32 = 1 << 1;
pub const BATON_GRANT_CGROUP: u32 = 1 << 2;
pub const BATON_GRANT_ALL: u32 = 7;

/// `BATON_IOC_GRANT`, of the control device: who may open queues to a policy.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonGrant {
    /// 0: asks for the grant at `index`, below `BATON_MAX_GRANTS`; an empty name comes back if
    /// there is none. 1: grants. 2: takes back what was granted to the same, and closes the queues
    /// that were opened by it.
    pub set: u32,
    pub index: u32,
    /// Name of the policy, which need not be loaded.
    pub name: [u8; BATON_NAME_LEN],
    /// `BATON_GRANT_*`; not 0.
    pub who: u32,
    pub user: u32,
    pub group: u32,
    /// Most entries of a ring.
    pub entries: u32,
    /// Id of a cgroup (version 2), the inode number of its directory: the thread must be in it, or
    /// below.
    pub cgroup: u64,
    /// Most queues that each user may have open by it.
    pub queues: u32,
    /// 1: hints may name threads of other processes.
    pub any_thread: u32,
    /// Out: queues that are open by it.
    pub open: u32,
    pub reserved: u32,
}
