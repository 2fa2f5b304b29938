// SPDX-License-Identifier: GPL-2.0-only
//! What the kernel half of an enclave asks the kernel (`hosts/kernel/register.h`, `linux/smp.h`).

use std::cell::Cell;
use std::slice;

use baton_abi::{BatonAgentCommit, BatonHint, BatonReplyAnswer};
use baton_agent::Failure;

use crate::Enclave;

/// A model of the kernel. Its answers are those for the CPU that it simulates just now.
pub trait Kernel {
    /// The CPU on which the code runs.
    fn cpu(&self) -> u32;

    /// May the task in this slot run on that CPU now?
    fn may_run(&self, slot: u32, cpu: i32) -> bool;

    /// Writes the affinity of the task in this slot: a bit for each CPU.
    fn copy_mask(&self, slot: u32, mask: &mut [u64]);

    /// Makes a CPU dispatch: one that is idle, or, with `preempt`, also one that runs a task.
    fn kick(&self, cpu: u32, preempt: bool);

    /// The agent has given up, or has ended in good order (kind `None`).
    fn fail(&self, failure: &Failure);

    /// Replies to the hints of the task in this slot.
    fn reply(&self, slot: u32, reply: &BatonHint) -> BatonReplyAnswer;

    /// The time, ns.
    fn now(&self) -> u64;

    /// The agent is about to make these commits.
    fn commits(&self, _enclave: &Enclave, _commits: &[BatonAgentCommit]) {}

    /// Another CPU may go on here. Comes before each access that another CPU can see.
    fn point(&self) {}
}

thread_local! {
    static KERNEL: Cell<Option<&'static dyn Kernel>> = const { Cell::new(None) };
}

/// Sets the kernel of this thread's enclaves.
pub fn install(kernel: &'static dyn Kernel) {
    KERNEL.set(Some(kernel));
}

pub(crate) fn kernel() -> &'static dyn Kernel {
    KERNEL.get().expect("a kernel is installed")
}

#[no_mangle]
extern "C" fn baton_model_point() {
    if let Some(kernel) = KERNEL.get() {
        kernel.point();
    }
}

#[no_mangle]
extern "C" fn baton_model_cpu() -> u32 {
    kernel().cpu()
}

#[no_mangle]
extern "C" fn baton_host_may_run(slot: u32, cpu: i32) -> bool {
    kernel().may_run(slot, cpu)
}

#[no_mangle]
extern "C" fn baton_kick_cpu(cpu: u32, preempt: bool) {
    kernel().kick(cpu, preempt);
}

/// Only the tokens of agents of CPUs are kept for long, and a model has none.
#[no_mangle]
extern "C" fn baton_keep_in_custody(_slot: u32) {}

#[no_mangle]
extern "C" fn baton_copy_mask(slot: u32, mask: *mut u64, words: u32) {
    // SAFETY: Host-call. The kernel half passes a mask of so many words.
    let mask = unsafe { slice::from_raw_parts_mut(mask, words as usize) };
    kernel().copy_mask(slot, mask);
}
