// SPDX-License-Identifier: GPL-2.0-only
//! States as bytes. A saved state is a checkpoint, from which a recording is replayed.
//!
//! ```text
//! state := word*                    fields in the order of `baton::state!`
//! word  := varint                   LEB128, of any number but 0
//!        | 0:u8 varint              so many zeros, and one
//! ```

use crate::Env;

/// Writes a state. Bytes that do not fit are only counted.
pub struct Save<'a> {
    out: &'a mut [u8],
    length: usize,
    zeros: u64,
}

impl<'a> Save<'a> {
    /// Writes into these bytes.
    pub fn new(out: &'a mut [u8]) -> Self {
        Self {
            out,
            length: 0,
            zeros: 0,
        }
    }

    fn byte(&mut self, byte: u8) {
        if let Some(place) = self.out.get_mut(self.length) {
            *place = byte;
        }
        self.length += 1;
    }

    fn varint(&mut self, mut word: u64) {
        while word >= 0x80 {
            self.byte(word as u8 | 0x80);
            word >>= 7;
        }
        self.byte(word as u8);
    }

    fn flush(&mut self) {
        if self.zeros != 0 {
            let more = core::mem::take(&mut self.zeros) - 1;
            self.byte(0);
            self.varint(more);
        }
    }

    /// Writes a number.
    pub fn word(&mut self, word: u64) {
        if word == 0 {
            self.zeros += 1;
            return;
        }
        self.flush();
        self.varint(word);
    }

    /// Ends the state and returns its length in bytes, which exceeds that of the buffer when it did
    /// not fit.
    pub fn finish(mut self) -> usize {
        self.flush();
        self.length
    }
}

/// Reads a state.
pub struct Load<'a> {
    bytes: &'a [u8],
    zeros: u64,
    env: &'a Env<'a>,
}

/// The bytes do not hold a state of this type, or come from a different machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unlike;

impl<'a> Load<'a> {
    /// Reads these bytes, for a policy that is created in this environment.
    pub fn new(bytes: &'a [u8], env: &'a Env<'a>) -> Self {
        Self {
            bytes,
            zeros: 0,
            env,
        }
    }

    /// The environment of the policy.
    pub fn env(&self) -> &'a Env<'a> {
        self.env
    }

    fn varint(&mut self) -> Result<u64, Unlike> {
        let mut word = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.bytes.split_first().ok_or(Unlike)?;
            self.bytes = rest;
            word |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(word);
            }
        }
        Err(Unlike)
    }

    /// Reads a number.
    pub fn word(&mut self) -> Result<u64, Unlike> {
        if self.zeros != 0 {
            self.zeros -= 1;
            return Ok(0);
        }
        if self.bytes.first() == Some(&0) {
            self.bytes = &self.bytes[1..];
            self.zeros = self.varint()?;
            return Ok(0);
        }
        self.varint()
    }

    /// Reads a number of elements.
    pub fn count(&mut self) -> Result<u64, Unlike> {
        // More than the tasks and CPUs of any machine. The limit keeps damaged bytes from taking
        // all memory.
        self.word()
            .ok()
            .filter(|&count| count <= 1 << 24)
            .ok_or(Unlike)
    }

    /// Has everything been read?
    pub fn is_done(&self) -> bool {
        self.bytes.is_empty() && self.zeros == 0
    }
}
