// SPDX-License-Identifier: GPL-2.0-only
//! Cores from a server that moves threads between sets of CPUs: the side of the process.
//!
//! ```text
//! message := what:u32 first:u32 second:u32      little endian
//! ```

use super::{ring, sleep, Seat};
use crate::pool::StartError;
use rustix::fd::{BorrowedFd, OwnedFd};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::sync::Arc;
use std::time::Duration;

/// From a process: thread `first` is activation `second`, and waits for a core.
pub const JOIN: u32 = 1;
/// From a process: requests `second` cores at level `first`.
pub const REQUEST: u32 = 2;
/// From a process: an activation gives its core back, and waits for another.
pub const PARK: u32 = 3;
/// From the server: activation `first` has a core.
pub const GRANTED: u32 = 4;
/// From the server: activation `first` must park.
pub const RECLAIM: u32 = 5;

pub type Message = [u32; 3];

pub fn send(mut stream: &UnixStream, message: Message) -> io::Result<()> {
    let mut bytes = [0; 12];
    for (place, word) in bytes.chunks_exact_mut(4).zip(message) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    stream.write_all(&bytes)
}

pub fn receive(mut stream: &UnixStream) -> io::Result<Message> {
    let mut bytes = [0; 12];
    stream.read_exact(&mut bytes)?;
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    Ok([word(0), word(4), word(8)])
}

/// The last message of each activation: [`PARK`], [`GRANTED`] or [`RECLAIM`].
type Words = Arc<[AtomicU8]>;

/// The process's connection, read by a thread of its own.
pub struct Line {
    stream: UnixStream,
    words: Words,
    level: u8,
}

impl Line {
    pub fn open(path: &Path, level: u8, bells: &[OwnedFd]) -> Result<Self, StartError> {
        let failed = |why: io::Error| StartError::Arbiter(format!("{}: {why}", path.display()));
        let stream = UnixStream::connect(path).map_err(failed)?;
        let words: Words = bells.iter().map(|_| AtomicU8::new(PARK as u8)).collect();
        let bells: Vec<_> = bells
            .iter()
            .map(OwnedFd::try_clone)
            .collect::<io::Result<_>>()
            .map_err(failed)?;
        let (reader, heard) = (stream.try_clone().map_err(failed)?, Arc::clone(&words));
        std::thread::Builder::new()
            .name("arbiter".into())
            .spawn(move || {
                while let Ok([what, index, _]) = receive(&reader) {
                    if let Some((word, bell)) =
                        heard.get(index as usize).zip(bells.get(index as usize))
                    {
                        word.store(what as u8, SeqCst);
                        ring(bell);
                    }
                }
                // The server is gone: all activations run.
                heard
                    .iter()
                    .for_each(|word| word.store(GRANTED as u8, SeqCst));
                bells.iter().for_each(ring);
            })
            .map_err(failed)?;
        Ok(Self {
            stream,
            words,
            level,
        })
    }

    /// Creates the seat of the calling thread.
    pub fn seat(&self, index: usize) -> OfLine<'_> {
        let id = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        // The reader notices if the server is gone.
        let _ = send(&self.stream, [JOIN, id, index as u32]);
        OfLine {
            line: self,
            index,
            is_new: true,
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// An activation's seat.
pub struct OfLine<'a> {
    line: &'a Line,
    index: usize,
    is_new: bool,
}

impl OfLine<'_> {
    fn word(&self) -> &AtomicU8 {
        &self.line.words[self.index]
    }
}

impl Seat for OfLine<'_> {
    fn wait(&mut self, bell: &OwnedFd, stop: &dyn Fn() -> bool) -> bool {
        if !std::mem::take(&mut self.is_new) {
            self.word().store(PARK as u8, SeqCst);
            if send(&self.line.stream, [PARK, self.index as u32, 0]).is_err() {
                // The server is gone: all activations run.
                self.word().store(GRANTED as u8, SeqCst);
            }
        }
        loop {
            if stop() {
                return false;
            }
            // It may also have to give the core back already; it then returns as with a core.
            if self.word().load(SeqCst) != PARK as u8 {
                return true;
            }
            sleep(bell, [None, None], None);
        }
    }

    fn must_leave(&mut self) -> bool {
        self.word().load(SeqCst) == RECLAIM as u8
    }

    fn idle(&mut self, bell: &OwnedFd, files: Option<BorrowedFd<'_>>, time: Duration) {
        sleep(bell, [files, None], Some(time));
    }

    fn request(&mut self, cores: u32) {
        let _ = send(
            &self.line.stream,
            [REQUEST, u32::from(self.line.level), cores],
        );
    }
}
