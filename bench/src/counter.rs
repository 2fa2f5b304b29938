// SPDX-License-Identifier: GPL-2.0-only
//! The instructions of each CPU of a guest, from the plugin of QEMU in `bench/counter`.

use std::arch::asm;

use baton_control::error::{Error, Result};

/// The answer where there is no plugin.
const NO_ANSWER: u64 = u64::MAX;

/// What the plugin answers: see `bench/counter/counter.c`.
enum Request {
    Read = 1,
    Span = 2,
    SpanTimes = 3,
    SpanTotal = 4,
}

fn ask(request: Request, first: u64, second: u64) -> Result<u64> {
    let mut answer = NO_ANSWER;
    // SAFETY: Counter-mark. The instruction is `nopl 0x6e6f7442(%rax,%rax,1)`, which reads and
    // changes nothing. The plugin, if there is one, changes rax alone.
    unsafe {
        asm!(
            ".byte 0x0f, 0x1f, 0x84, 0x00, 0x42, 0x74, 0x6f, 0x6e",
            inout("rax") answer,
            in("rdi") request as u64,
            in("rsi") first,
            in("rdx") second,
            options(nomem, nostack, preserves_flags),
        );
    }
    if answer == NO_ANSWER {
        return Err(Error::user(
            "this machine has no counter of the instructions of each CPU",
            "omit --here and --counted: the guest has one",
        ));
    }
    Ok(answer)
}

/// The instructions that these CPUs have executed.
pub fn executed(cpus: impl IntoIterator<Item = u32>) -> Result<u64> {
    cpus.into_iter()
        .map(|cpu| ask(Request::Read, cpu.into(), 0))
        .sum()
}

/// From here on, counts the instructions between two addresses of the kernel.
pub fn watch(from: u64, to: u64) -> Result<()> {
    ask(Request::Span, from, to).map(drop)
}

/// How many instructions a CPU executed on average from one of the addresses to the other. `None`
/// if no CPU came from one to the other.
pub fn watched() -> Result<Option<f64>> {
    let times = ask(Request::SpanTimes, 0, 0)?;
    let total = ask(Request::SpanTotal, 0, 0)?;
    Ok((times != 0).then(|| total as f64 / times as f64))
}
