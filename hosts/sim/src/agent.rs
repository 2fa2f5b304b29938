// SPDX-License-Identifier: GPL-2.0-only
//! An enclave of the simulated machine, and its agent. The kernel half is that of a real kernel
//! (`baton_enclave`), and the agent's half that of a real agent (`baton_agent`).

use std::sync::Arc;

use baton_abi::{BatonFaultKind, BatonHint, BatonMethod, BatonReplyAnswer};
use baton_agent::{Failure, Polling};
use baton_core::{CpuState, Fault};
use baton_enclave::{Enclave, Kernel};

use crate::fault::{self, LastWords};
use crate::host::with;

/// An agent of a run.
pub(crate) struct Side {
    pub polling: Box<dyn Polling>,
    pub enclave: Arc<Enclave>,
    /// The CPU on which it polls.
    pub cpu: u32,
    /// Until when it has work, ns.
    pub busy_until: u64,
    /// When it looks next, ns; `u64::MAX` if it has no reason to. The number of that look.
    pub next: u64,
    pub turn: u32,
}

/// The simulated kernel, as the kernel half sees it.
pub(crate) struct Simulated;

impl Kernel for Simulated {
    fn cpu(&self) -> u32 {
        with(|_, host| host.here.get())
    }

    fn may_run(&self, slot: u32, cpu: i32) -> bool {
        with(|_, host| host.task_may_run(slot, cpu))
    }

    fn copy_mask(&self, slot: u32, mask: &mut [u64]) {
        mask.fill(0);
        with(|_, host| {
            let set = host.facts[slot as usize].mask.get();
            for cpu in (0..host.active.len()).filter(|cpu| host.mask_has(set, *cpu as u32)) {
                mask[cpu / 64] |= 1 << (cpu % 64);
            }
        });
    }

    fn kick(&self, cpu: u32, preempt: bool) {
        with(|_, host| host.agent_kicks.borrow_mut().push((cpu, preempt)));
    }

    fn fail(&self, failure: &Failure) {
        if failure.kind != BatonFaultKind::None {
            let words = LastWords {
                message: failure.message.clone(),
                file: failure.file.clone(),
                line: failure.line,
            };
            give_up(failure.kind, failure.method, failure.pid, words);
        }
    }

    fn reply(&self, slot: u32, reply: &BatonHint) -> BatonReplyAnswer {
        with(|_, host| host.reply(slot, reply))
    }

    fn now(&self) -> u64 {
        with(|_, host| host.clock.get().wrapping_add(host.now.get()))
    }
}

/// The agent's policy has failed.
pub(crate) fn give_up(kind: BatonFaultKind, method: BatonMethod, pid: u32, words: LastWords) {
    with(|core, host| {
        let names = host.names.borrow();
        let (index, name) = names.last().expect("an enclave is the last policy");
        let fault = Fault {
            kind,
            method,
            pid,
            now: host.now.get(),
        };
        let mut reports = host.reports.borrow_mut();
        let serial = reports.len() as u64 + 1;
        let at = (host.now.get(), host.here.get());
        let cpu: Option<&CpuState> = core.cpu(at.1 as i32);
        reports.push(fault::report(
            (*index, name),
            &fault,
            words,
            at,
            serial,
            cpu,
        ));
    });
}
