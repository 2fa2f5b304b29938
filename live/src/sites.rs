// SPDX-License-Identifier: GPL-2.0-only
//! Where a function of the kernel gets the jump to the one that replaces it.

use crate::code;
use crate::vmlinux::{StockSymbol, Vmlinux};

/// The size in bytes of a jump, of what the function tracer owns, and of a static call.
const JUMP: u64 = 5;

/// What a function begins with that may be called indirectly.
const ENDBR: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];

/// What the function tracer owns, where the kernel's build has put it.
const NOP: &[u8] = &[0x0f, 0x1f, 0x44, 0, 0];

/// What the kernel makes a no-op when it boots, until a tracer is attached.
const TRACER: &str = "__fentry__";

/// What a kernel rewrites in its code while it runs.
pub struct Sites {
    /// The address of what functions call that can be traced.
    tracer: Option<u64>,
    /// The addresses of the calls, ascending.
    calls: Vec<u64>,
}

impl Sites {
    pub fn of(vmlinux: &Vmlinux) -> Self {
        let address = |name| Some(vmlinux.symbols()[vmlinux.global(name)?].address);
        let bounds = address("__start_static_call_sites").zip(address("__stop_static_call_sites"));
        let table = bounds.and_then(|(start, stop)| {
            Some((start, vmlinux.bytes(start, stop.checked_sub(start)?)?))
        });
        let (start, table) = table.unwrap_or((0, &[]));
        // An entry is two numbers: the distances to the call and to its key.
        let entries = (start..).step_by(8).zip(table.chunks_exact(8));
        let mut calls: Vec<u64> = entries
            .map(|(at, entry)| {
                let distance = i32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
                at.wrapping_add_signed(distance.into())
            })
            .collect();
        calls.sort_unstable();
        let tracer = vmlinux.global(TRACER);
        Self {
            tracer: tracer.map(|id| vmlinux.symbols()[id].address),
            calls,
        }
    }

    /// The distance in bytes of the jump from the function's start: behind ENDBR and what the
    /// function tracer owns. None if there is no room for it.
    pub fn jump(&self, function: &StockSymbol, vmlinux: &Vmlinux) -> Option<u32> {
        let code = vmlinux.bytes(function.address, function.size)?;
        let mut offset = 0;
        if code.starts_with(ENDBR) {
            offset += ENDBR.len();
        }
        let first = code::decode(&code[offset..], function.address + offset as u64).next();
        let calls_tracer =
            first.is_some_and(|first| first.branch.is_some() && first.branch == self.tracer);
        if code[offset..].starts_with(NOP) || calls_tracer {
            offset += NOP.len();
        }
        let from = function.address + offset as u64;
        let next = self.calls.partition_point(|&call| call + JUMP <= from);
        let is_free = self.calls.get(next).is_none_or(|&call| call >= from + JUMP);
        // So the engine can store it at once.
        let is_whole = from / 16 == (from + JUMP - 1) / 16;
        let is_inside = offset as u64 + JUMP <= function.size;
        (is_free && is_whole && is_inside).then_some(offset as u32)
    }
}
