// SPDX-License-Identifier: GPL-2.0-only
//! The identity of a message type, computed while a policy or an application is compiled.

use crate::{fnv, Field, Type};
use baton_abi::{BATON_HINT_WORDS, BATON_NAME_LEN};
use core::ffi::c_char;

/// For [`message!`](crate::message): a type of messages, built variant by variant. An invalid type
/// is a compile-time error.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    name: &'static str,
    version: u32,
    hash: u64,
    /// Counts for the variant that was begun last.
    words: usize,
    threads: usize,
    /// Maximum number of threads of a variant.
    most_threads: usize,
}

impl Kind {
    /// Creates a type without variants.
    pub const fn new(name: &'static str, version: u32) -> Self {
        let hash = fnv::word(fnv::text(fnv::BEGIN, name), version as u64);
        Self {
            name,
            version,
            hash,
            words: 0,
            threads: 0,
            most_threads: 0,
        }
    }

    /// Adds a variant.
    #[must_use]
    pub const fn variant(self, name: &str, tag: u32) -> Self {
        Self {
            hash: fnv::word(fnv::text(self.hash, name), tag as u64),
            words: 0,
            threads: 0,
            ..self
        }
    }

    /// Adds a field to the last variant.
    #[must_use]
    pub const fn field<F: Field>(self, name: &str) -> Self {
        let (words, threads) = (self.words + 1 - F::THREADS, self.threads + F::THREADS);
        assert!(
            words <= BATON_HINT_WORDS,
            "a message has at most six fields, and a Thread"
        );
        assert!(threads <= 1, "a message names at most one thread");
        let hash = fnv::text(fnv::text(self.hash, name), F::NAME);
        let most_threads = if threads > self.most_threads {
            threads
        } else {
            self.most_threads
        };
        Self {
            hash,
            words,
            threads,
            most_threads,
            ..self
        }
    }

    /// How many threads a message can name.
    pub const fn most_threads(self) -> usize {
        self.most_threads
    }

    /// The type that the host compares.
    pub const fn finish(self) -> Type {
        let bytes = self.name.as_bytes();
        assert!(
            bytes.len() < BATON_NAME_LEN,
            "a type of messages has a name of at most 31 characters"
        );
        let mut name = [0; BATON_NAME_LEN];
        let mut i = 0;
        while i < bytes.len() {
            name[i] = bytes[i] as c_char;
            i += 1;
        }
        Type {
            name,
            version: self.version,
            reserved: 0,
            layout: self.hash,
        }
    }
}
