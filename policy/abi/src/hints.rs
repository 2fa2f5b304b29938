// SPDX-License-Identifier: GPL-2.0-only
//! Hints of applications to policies, and the replies. The device is `/dev/baton-hints`. Grants are
//! made at the control device.

use crate::{BatonStateType, BATON_MESSAGE_LEN, BATON_NAME_LEN};

/// Number of words of a hint.
pub const BATON_HINT_WORDS: usize = 6;

/// A hint, or a policy's reply.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatonHint {
    /// Kind of the hint. It determines the meaning of the words; unused words are 0.
    pub tag: u32,
    /// The thread that the hint names, 0 for none. The application writes its id in the sender's
    /// pid namespace; the policy receives its slot plus one. A reply names no thread.
    pub thread: u32,
    pub words: [u64; BATON_HINT_WORDS],
}

/// An entry for one hint in a ring, one cache line. See `policy/message/src/ring.rs` for the
/// sequence.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonHintsEntry {
    /// Twice the number of the lap around the ring while the writer owns the entry, one more while
    /// the reader owns it.
    pub sequence: u32,
    pub tag: u32,
    pub thread: u32,
    pub reserved: u32,
    pub words: [u64; BATON_HINT_WORDS],
}

/// The head of the mapping of a queue, one cache line. The entries of the hints follow, then those
/// of the replies. The host writes the head but never reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonHintsHead {
    /// `BatonHintsEnd`: not 0 when the queue is closed.
    pub end: u32,
    /// Number of entries of each ring, a power of two.
    pub entries: u32,
    /// Number of hints that were taken from the ring and refused.
    pub refused: u32,
    /// Number of replies lost for lack of room.
    pub lost: u32,
    pub reserved: [u32; 12],
}

/// Minimum and maximum number of entries of a ring.
pub const BATON_HINTS_MIN_ENTRIES: u32 = 16;
pub const BATON_HINTS_MAX_ENTRIES: u32 = 4096;
/// Maximum number of hints taken from a ring at one event.
pub const BATON_HINTS_AT_ONCE: u32 = 16;

/// Why a queue was closed.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatonHintsEnd {
    /// The queue is open.
    None = 0,
    /// The policy was unloaded.
    Unloaded = 1,
    /// The policy was replaced by a version with other types, or by another policy.
    Replaced = 2,
    /// A fault stopped the policy.
    Fault = 3,
    /// The grant by which the queue was opened was revoked.
    Revoked = 4,
    /// The thread that opened the queue is gone, or runs another program.
    Gone = 5,
}

/// The result of a hint that was sent by a system call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatonHintAnswer {
    /// The policy has received it.
    Taken = 0,
    /// It is not a hint of the policy's type.
    Malformed = 1,
    /// The thread that it names does not belong to the sender's process, or not to the policy.
    Thread = 2,
    /// The sender is not, or not yet, a task of the policy.
    NotMember = 3,
    /// The policy has stopped.
    Stopped = 4,
}

/// The result of a reply.
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

/// Maximum number of attributes that a policy gives its threads.
pub const BATON_MAX_ATTRIBUTES: usize = 5;

/// Tags of the hints about attributes of threads, and of the replies to them
/// (`policy/message/src/attributes.rs`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatonAttributeTag {
    /// What is the attribute with this number?
    Describe = 1,
    /// The attributes of a thread.
    Get = 2,
    /// Sets some attributes of a thread.
    Set = 3,
}

/// The result of a hint about attributes of a thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatonAttributeAnswer {
    /// They are set.
    Set = 0,
    /// The policy has not yet placed the thread for the first time.
    NotYet = 1,
    /// A value is out of the range of its attribute.
    Range = 2,
    /// The policy refuses the values, with a reason.
    Refused = 3,
}

/// What the number of an attribute means.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatonAttributeUnit {
    None = 0,
    /// Nanoseconds.
    Time = 1,
}

/// `BATON_HINTS_IOC_OPEN`: opens the calling thread's queue to a policy. Each open file of the
/// device, and each thread, can have one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonHintsOpen {
    /// Name of the policy, NUL-terminated.
    pub policy: [u8; BATON_NAME_LEN],
    /// The types that the application was built with; a `layout` of 0 is not compared.
    pub hint: BatonStateType,
    pub reply: BatonStateType,
    /// Requested number of entries of each ring, 0 for the minimum. Out: the actual number.
    pub entries: u32,
    /// Out: size of the mapping, bytes.
    pub size: u32,
    /// Out: why it was refused, NUL-terminated.
    pub message: [u8; BATON_MESSAGE_LEN],
}

/// `BATON_HINTS_IOC_SEND`: sends one hint, which the policy has received when the call returns.
/// Hints in the ring are delivered first.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonHintsSend {
    pub hint: BatonHint,
    /// Out: `BatonHintAnswer`.
    pub answer: u32,
    pub reserved: u32,
}

/// Maximum number of grants.
pub const BATON_MAX_GRANTS: usize = 64;

/// Bits of `who` in [`BatonGrant`]: the conditions that a thread must meet. All given conditions
/// must hold.
pub const BATON_GRANT_USER: u32 = 1 << 0;
pub const BATON_GRANT_GROUP: u32 = 1 << 1;
pub const BATON_GRANT_CGROUP: u32 = 1 << 2;
pub const BATON_GRANT_ALL: u32 = 7;

/// What `BATON_IOC_GRANT` does.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatonGrantAct {
    /// Reads the grant at `index`, below `BATON_MAX_GRANTS`; the name is empty if there is none.
    Read = 0,
    /// Grants.
    Grant = 1,
    /// Revokes the grant with the same conditions, and closes the queues that were opened by it.
    Revoke = 2,
}

/// `BATON_IOC_GRANT`, of the control device: the threads that may open queues to a policy.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonGrant {
    /// [`BatonGrantAct`].
    pub set: u32,
    pub index: u32,
    /// Name of the policy, which need not be loaded.
    pub name: [u8; BATON_NAME_LEN],
    /// `BATON_GRANT_*`; not 0.
    pub who: u32,
    pub user: u32,
    pub group: u32,
    /// Maximum number of entries of a ring.
    pub entries: u32,
    /// Id of a cgroup (version 2), the inode number of its directory. The thread must be in it or
    /// below it.
    pub cgroup: u64,
    /// Maximum number of queues that each user may have open by this grant.
    pub queues: u32,
    /// 1: hints may name threads of other processes.
    pub any_thread: u32,
    /// Out: number of queues that are open by this grant.
    pub open: u32,
    pub reserved: u32,
}
