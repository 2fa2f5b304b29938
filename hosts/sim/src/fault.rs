// SPDX-License-Identifier: GPL-2.0-only
//! Fault reports, as the kernel host makes them: the counterpart of `hosts/kernel/fault.c`.

use baton_abi::{BatonEvent, BatonFault, BatonFaultKind, BatonMethod};
use baton_core::{CpuState, Fault, EVENTS_KEPT};

/// The message about a failure, from the policy or from the host, and where the policy failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastWords {
    pub message: String,
    pub file: String,
    pub line: u32,
}

fn fill<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let mut end = text.len().min(N - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
    bytes
}

/// The message of a fault's kind, for faults that the rules find.
fn of_kind(kind: BatonFaultKind, method: BatonMethod) -> Option<&'static str> {
    match kind {
        BatonFaultKind::LostTask if method == BatonMethod::None => {
            Some("the task is queued, and the policy has its Schedulable no more: it was forgotten")
        }
        BatonFaultKind::LostTask => {
            Some("a Schedulable was dropped: its task would never have run again")
        }
        BatonFaultKind::Stall => {
            Some("the task was queued and not picked for longer than the stall limit")
        }
        BatonFaultKind::RefusalLoop => Some("64 answers in a row were refused"),
        _ => None,
    }
}

/// Makes the report of a fault that was found on the CPU `here`. `cpu` is the CPU whose last calls
/// belong to it.
pub(crate) fn report(
    policy: (u32, &str),
    fault: &Fault,
    words: LastWords,
    (now, here): (u64, u32),
    serial: u64,
    cpu: Option<&CpuState>,
) -> BatonFault {
    let words = match of_kind(fault.kind, fault.method) {
        Some(message) => LastWords {
            message: message.into(),
            ..LastWords::default()
        },
        None => words,
    };
    let mut report = BatonFault {
        index: policy.0,
        kind: fault.kind as u32,
        method: fault.method as u32,
        cpu: here,
        pid: fault.pid,
        line: words.line,
        now,
        serial,
        // The host finds the line itself.
        ip: 0,
        policy: fill(policy.1),
        // The machine adds the task's name.
        comm: [0; 16],
        file: fill(&words.file),
        message: fill(&words.message),
        nr_events: 0,
        reserved: 0,
        events: [BatonEvent::default(); 10],
    };
    let kept = report.events.len().min(EVENTS_KEPT);
    let events = (0..kept)
        .rev()
        .filter_map(|back| cpu.map(|cpu| cpu.event(back).1))
        .filter(|event| event.method != 0);
    for event in events {
        report.events[report.nr_events as usize] = event;
        report.nr_events += 1;
    }
    report
}

/// Adds the name of the task to a report.
pub(crate) fn name_task(report: &mut BatonFault, name: &str) {
    report.comm = fill(name);
}
