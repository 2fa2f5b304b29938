// SPDX-License-Identifier: GPL-2.0-only
//! FNV-1a, for the hashes that identify types.

/// The initial hash.
pub const BEGIN: u64 = 0xcbf2_9ce4_8422_2325;

const fn byte(hash: u64, byte: u8) -> u64 {
    (hash ^ byte as u64).wrapping_mul(0x100_0000_01b3)
}

/// Adds a number to a hash.
pub const fn word(mut hash: u64, word: u64) -> u64 {
    let bytes = word.to_le_bytes();
    let mut i = 0;
    while i < bytes.len() {
        hash = byte(hash, bytes[i]);
        i += 1;
    }
    hash
}

/// Adds a text to a hash.
pub const fn text(mut hash: u64, text: &str) -> u64 {
    let bytes = text.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        hash = byte(hash, bytes[i]);
        i += 1;
    }
    word(hash, bytes.len() as u64)
}
