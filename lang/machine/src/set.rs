// SPDX-License-Identifier: GPL-2.0-only
//! Sets of cores.

use baton::Cpu;

/// The most CPUs that the kernel can have here (CONFIG_NR_CPUS is at most 8192 on x86; a machine
/// with more than this has no policy in Baton's language).
pub const MOST_CPUS: usize = 4096;

const WORDS: usize = MOST_CPUS / 64;

/// A set of cores, on the stack.
#[derive(Clone)]
pub struct CoreSet {
    words: [u64; WORDS],
}

impl CoreSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self { words: [0; WORDS] }
    }

    /// Adds a core.
    pub fn insert(&mut self, core: Cpu) {
        if let Some(word) = self.words.get_mut(core.index() / 64) {
            *word |= 1 << (core.index() % 64);
        }
    }

    /// Removes a core.
    pub fn remove(&mut self, core: Cpu) {
        if let Some(word) = self.words.get_mut(core.index() / 64) {
            *word &= !(1 << (core.index() % 64));
        }
    }

    /// Is the core in the set?
    pub fn contains(&self, core: Cpu) -> bool {
        let word = self.words.get(core.index() / 64);
        word.is_some_and(|word| word >> (core.index() % 64) & 1 != 0)
    }
}

impl Default for CoreSet {
    fn default() -> Self {
        Self::new()
    }
}

impl FromIterator<Cpu> for CoreSet {
    fn from_iter<I: IntoIterator<Item = Cpu>>(cores: I) -> Self {
        let mut set = Self::new();
        for core in cores {
            set.insert(core);
        }
        set
    }
}
