// SPDX-License-Identifier: GPL-2.0-only
//! A policy has a fault in an interrupt, while the interrupted BPF program holds a resilient lock.
//! The end of the policy's call must not release that lock. The kernel has one table of held locks
//! for each CPU, which contains the locks of the program and those of the policy.

use crate::tool::{baton, bind, check, policy, status, unload_everything};
use libbpf_rs::{ObjectBuilder, ProgramInput};
use rustix::io::Errno;
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread::{scope, sleep},
    time::Duration,
};

/// The compiled program, tests/booted/held.bpf.c.
const OBJECT: &str = "/usr/lib/baton/held.bpf.o";

/// A thread sleeps, and the timer that wakes it interrupts the program, which holds its lock nearly
/// all the time. The policy fails in one of these wakeups. This is repeated five times, because the
/// fault can come while the program does not hold the lock.
pub fn stays_locked() -> Result<(), String> {
    for _ in 0..5 {
        baton(&[
            "load",
            "faulty",
            "--all",
            "--options",
            "fault=index,after=200",
        ])?;
        beside_a_sleeper(held_until_a_fault)?;
        unload_everything()?;
    }
    Ok(())
}

/// Does the work in a thread on CPU 0. Another thread on that CPU sleeps and wakes up all the time.
fn beside_a_sleeper(work: fn() -> Result<(), String>) -> Result<(), String> {
    let is_done = AtomicBool::new(false);
    scope(|scope| {
        scope.spawn(|| -> Result<(), String> {
            bind(&[0])?;
            while !is_done.load(Relaxed) {
                sleep(Duration::from_millis(1));
            }
            Ok(())
        });
        let result = scope.spawn(move || bind(&[0]).and_then(|()| work())).join();
        is_done.store(true, Relaxed);
        result.map_err(|_| "the thread that holds the lock panicked")?
    })
}

/// Runs the program until the policy has failed.
fn held_until_a_fault() -> Result<(), String> {
    const RUNS: usize = 20;
    const CALLS: usize = 50;
    let failed = |e: libbpf_rs::Error| format!("{OBJECT}: {e}");
    let object = ObjectBuilder::default()
        .open_file(OBJECT)
        .map_err(failed)?
        .load()
        .map_err(failed)?;
    let program = object
        .progs_mut()
        .next()
        .ok_or_else(|| format!("{OBJECT} is empty"))?;
    for _ in 0..CALLS {
        for _ in 0..RUNS {
            let ran = program.test_run(ProgramInput::default()).map_err(failed)?;
            let expected = Errno::DEADLK.raw_os_error().wrapping_neg();
            let said = ran.return_value.cast_signed();
            check(said == expected, || {
                format!("the held lock, once more: {said}, not {expected}")
            })?;
        }
        let status = status()?;
        if policy(&status, "faulty")?["state"] == "faulted" {
            return Ok(());
        }
    }
    Err(format!("no fault in {} runs of the program", RUNS * CALLS))
}
