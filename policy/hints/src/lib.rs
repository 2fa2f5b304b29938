// SPDX-License-Identifier: GPL-2.0-only
//! For applications: sends hints to the scheduling policy that runs them, and reads its replies.
//!
//! ```no_run
//! use baton_hints::{message, Queue};
//!
//! message! {
//!     /// As the policy has it.
//!     pub enum Hint, version 1 { Ping { number: u64, times: u8 } = 1 }
//! }
//! message! {
//!     /// As the policy has it.
//!     pub enum Reply, version 1 { Pong { number: u64, heard: u64 } = 1 }
//! }
//!
//! let mut queue = Queue::<Hint, Reply>::open("echo", 16).expect("it is granted, and this thread is the policy's");
//! queue.send(&Hint::Ping { number: 7, times: 1 }).expect("there is room");
//! while let Some(Reply::Pong { number, heard }) = queue.receive() {
//!     println!("{number}: {heard}");
//! }
//! ```
//!
//! A queue belongs to one thread. [`Queue::send`] and [`Queue::receive`] make no system call. The
//! policy sees the sent hints before its next decision about this thread, or about a task that this
//! thread wakes.
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

pub mod attributes;

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use baton_abi::{
    BatonHintAnswer, BatonHintsHead, BatonHintsOpen, BatonHintsSend, BATON_HINTS_IOC_OPEN,
    BATON_HINTS_IOC_SEND, BATON_MESSAGE_LEN, BATON_NAME_LEN,
};
use baton_message::ring::{self, Entry};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::ioctl;
use rustix::mm::{self, MapFlags, ProtFlags};

pub use baton_abi::{BatonHintAnswer as Answer, BatonHintsEnd as End};
pub use baton_message::{message, Field, Kind, Message, Raw, Reader, Thread, Type, Writer};

const PATH: &str = "/dev/baton-hints";

/// Why a queue could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// Baton is not loaded, or the device cannot be opened.
    Device(io::Error),
    /// The kernel refused the queue, with the reason, or the name of the policy is invalid.
    Refused(Errno, String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(why) if why.kind() == io::ErrorKind::PermissionDenied => {
                write!(
                    f,
                    "{PATH} cannot be opened: no grant permits that (baton hints grant)"
                )
            }
            Self::Device(why) => write!(
                f,
                "{PATH} cannot be opened: {why}; is a policy loaded (baton load)?"
            ),
            Self::Refused(errno, why) if why.is_empty() => write!(f, "there is no queue: {errno}"),
            Self::Refused(_, why) => write!(f, "there is no queue: {why}"),
        }
    }
}

impl std::error::Error for OpenError {}

/// Why a hint was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// The ring is full: the policy has not read earlier hints yet.
    Full,
    /// The queue is closed.
    Closed(End),
    /// By [`Queue::send_now`] only: the hint was refused.
    Refused(BatonHintAnswer),
    /// By [`Queue::send_now`] only: the call failed.
    Failed(Errno),
}

impl fmt::Display for NotSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("the ring is full"),
            Self::Closed(why) => write!(f, "the queue is closed: {}", words(*why)),
            Self::Refused(why) => write!(f, "the hint was refused: {why:?}"),
            Self::Failed(errno) => write!(f, "the hint was not sent: {errno}"),
        }
    }
}

impl std::error::Error for NotSent {}

/// Why a queue is closed, in words for users.
pub fn words(end: End) -> &'static str {
    match end {
        End::None => "it is open",
        End::Unloaded => "the policy was unloaded",
        End::Replaced => "the policy was replaced by one with other types",
        End::Fault => "the policy was stopped by a fault",
        End::Revoked => "what was granted was taken back",
        End::Gone => "the thread that opened it is gone",
    }
}

/// The name of a policy, in the form of the requests.
fn name(policy: &str) -> Result<[u8; BATON_NAME_LEN], OpenError> {
    let mut name = [0; BATON_NAME_LEN];
    if policy.len() >= BATON_NAME_LEN {
        let why = format!(
            "a policy's name has at most {} letters: check it (baton status)",
            BATON_NAME_LEN - 1
        );
        return Err(OpenError::Refused(Errno::NAMETOOLONG, why));
    }
    name[..policy.len()].copy_from_slice(policy.as_bytes());
    Ok(name)
}

/// A thread's queue to a policy, with hints of type `H` and replies of type `R`. Only the thread
/// that opened it may use it.
pub struct Queue<H, R> {
    file: File,
    map: *mut u8,
    size: usize,
    entries: usize,
    next_hint: u64,
    next_reply: u64,
    says: PhantomData<(H, R)>,
}

impl<H: Message, R: Message> Queue<H, R> {
    /// Opens this thread's queue. `entries`, a power of two from 16 on, is the capacity for hints,
    /// and for replies.
    pub fn open(policy: &str, entries: u32) -> Result<Self, OpenError> {
        let name = name(policy)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(PATH)
            .map_err(OpenError::Device)?;
        let mut open = BatonHintsOpen {
            policy: name,
            hint: H::TYPE,
            reply: R::TYPE,
            entries,
            size: 0,
            message: [0; BATON_MESSAGE_LEN],
        };
        // SAFETY: Sized-request. The number is that of this structure, for which every bit pattern
        // is valid.
        let opened = unsafe {
            ioctl::ioctl(
                &file,
                ioctl::Updater::<BATON_HINTS_IOC_OPEN, _>::new(&mut open),
            )
        };
        if let Err(errno) = opened {
            let length = open.message.iter().position(|byte| *byte == 0).unwrap_or(0);
            return Err(OpenError::Refused(
                errno,
                String::from_utf8_lossy(&open.message[..length]).into_owned(),
            ));
        }
        let (size, access) = (open.size as usize, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: Hints-mapping. A new mapping, at an address that nothing else uses.
        let map = unsafe { mm::mmap(ptr::null_mut(), size, access, MapFlags::SHARED, &file, 0) };
        let map = map
            .map_err(|errno| OpenError::Refused(errno, String::new()))?
            .cast();
        let entries = open.entries as usize;
        Ok(Self {
            file,
            map,
            size,
            entries,
            next_hint: 0,
            next_reply: 0,
            says: PhantomData,
        })
    }

    fn word(&self, offset: usize) -> u32 {
        // SAFETY: Hints-mapping. The head is mapped as long as this lives; the host writes there.
        unsafe { &*self.map.add(offset).cast::<AtomicU32>() }.load(Relaxed)
    }

    fn ring(&self, number: usize) -> &[Entry] {
        let at = size_of::<BatonHintsHead>() + number * self.entries * size_of::<Entry>();
        // SAFETY: Hints-mapping. The entries of two rings follow the head. An entry consists of
        // atomics, which the host writes, too.
        unsafe { std::slice::from_raw_parts(self.map.add(at).cast::<Entry>(), self.entries) }
    }

    /// Why the queue is closed; `None` while it is open.
    pub fn end(&self) -> Option<End> {
        match self.word(std::mem::offset_of!(BatonHintsHead, end)) {
            0 => None,
            1 => Some(End::Unloaded),
            2 => Some(End::Replaced),
            3 => Some(End::Fault),
            4 => Some(End::Revoked),
            _ => Some(End::Gone),
        }
    }

    /// Number of hints that were refused: they were not of the policy's type, or named a thread
    /// that they may not name.
    pub fn refused(&self) -> u32 {
        self.word(std::mem::offset_of!(BatonHintsHead, refused))
    }

    /// Number of replies that there was no room for.
    pub fn lost(&self) -> u32 {
        self.word(std::mem::offset_of!(BatonHintsHead, lost))
    }

    /// Sends a hint to the policy, without a system call. It stays in the ring while this thread is
    /// not a task of the policy.
    pub fn send(&mut self, hint: &H) -> Result<(), NotSent> {
        self.end().map_or(Ok(()), |end| Err(NotSent::Closed(end)))?;
        let mut next = self.next_hint;
        let sent = ring::put(self.ring(0), &mut next, &hint.encode());
        self.next_hint = next;
        sent.map_err(|ring::Full| NotSent::Full)
    }

    /// Sends a hint to the policy at once, by a system call, after those that were sent before. The
    /// policy has received it when this returns.
    pub fn send_now(&self, hint: &H) -> Result<(), NotSent> {
        let mut send = BatonHintsSend {
            hint: hint.encode(),
            ..BatonHintsSend::default()
        };
        // SAFETY: Sized-request. As above.
        let sent = unsafe {
            ioctl::ioctl(
                &self.file,
                ioctl::Updater::<BATON_HINTS_IOC_SEND, _>::new(&mut send),
            )
        };
        match (sent, self.end()) {
            (Err(Errno::SHUTDOWN), end) => return Err(NotSent::Closed(end.unwrap_or(End::Gone))),
            (Err(errno), _) => return Err(NotSent::Failed(errno)),
            (Ok(()), _) => {}
        }
        match send.answer {
            0 => Ok(()),
            1 => Err(NotSent::Refused(BatonHintAnswer::Malformed)),
            2 => Err(NotSent::Refused(BatonHintAnswer::Thread)),
            3 => Err(NotSent::Refused(BatonHintAnswer::NotMember)),
            _ => Err(NotSent::Refused(BatonHintAnswer::Stopped)),
        }
    }

    /// The next reply, without a system call; `None` if there is none yet.
    #[inline]
    pub fn receive(&mut self) -> Option<R> {
        let mut next = self.next_reply;
        let reply = ring::take(self.ring(1), &mut next);
        self.next_reply = next;
        reply.and_then(|reply| R::decode(&reply))
    }

    /// The next reply; sleeps until there is one. `None` when the time is over or the queue is
    /// closed.
    pub fn wait(&mut self, time: Duration) -> io::Result<Option<R>> {
        // `None` is beyond the range of the clock.
        let until = Instant::now().checked_add(time);
        loop {
            if let Some(reply) = self.receive() {
                return Ok(Some(reply));
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if self.end().is_some() || left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            let left = left
                .map(Timespec::try_from)
                .transpose()
                .map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], left.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// For tests: the mapped memory, to write to it as a hostile application would.
    #[doc(hidden)]
    pub fn memory(&self) -> &[AtomicU32] {
        // SAFETY: Hints-mapping. All of it, as atomics.
        unsafe { std::slice::from_raw_parts(self.map.cast::<AtomicU32>(), self.size / 4) }
    }
}

/// The file is readable when there are replies or the queue is closed, for `poll()` with other
/// files.
impl<H, R> AsFd for Queue<H, R> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl<H, R> Drop for Queue<H, R> {
    fn drop(&mut self) {
        // SAFETY: Hints-mapping. No borrow of it is left.
        let _ = unsafe { mm::munmap(self.map.cast(), self.size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_to_do() {
        let check = |error: OpenError, expected: &str| assert_eq!(error.to_string(), expected);
        let device = |kind: io::ErrorKind| OpenError::Device(kind.into());
        check(
            device(io::ErrorKind::PermissionDenied),
            "/dev/baton-hints cannot be opened: no grant permits that (baton hints grant)",
        );
        check(
            device(io::ErrorKind::NotFound),
            "/dev/baton-hints cannot be opened: entity not found; is a policy loaded (baton load)?",
        );
        check(
            name(&"a".repeat(BATON_NAME_LEN)).unwrap_err(),
            "there is no queue: a policy's name has at most 31 letters: check it (baton status)",
        );
        assert_eq!(name(&"a".repeat(31)).unwrap()[30..], *b"a\0");
    }
}
