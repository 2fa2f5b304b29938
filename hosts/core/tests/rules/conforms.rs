// SPDX-License-Identifier: GPL-2.0-only
//! The model of the kernel in these tests makes the calls that every host must make
//! (`policy/conformance`).

use crate::host::{self, Call};
use crate::kernel::{Kernel, Race, Turn};
use baton_abi::BatonMethod as M;
use baton_conformance::{Step, BEGIN, BEHAVIOURS};
use std::sync::{Arc, Mutex};

/// The task that performs the steps; the kernel's other task is the thread that it creates.
const SUBJECT: usize = 0;

/// The letter of a call in the table, if the call is noted there.
fn letter(method: M) -> Option<char> {
    Some(match method {
        M::SelectTaskRq => 's',
        M::TaskWakeup => 'w',
        M::TaskNew => 'n',
        M::TaskYield => 'y',
        M::TaskRestored => 'r',
        M::TaskBlocked => 'b',
        M::TaskDequeued => 'd',
        M::TaskDeparted => 'l',
        M::TaskAffinityChanged => 'a',
        M::TaskPrioChanged => 'i',
        _ => return None,
    })
}

/// Performs the steps, and returns the calls about the subject.
fn calls(steps: &[Step]) -> String {
    let core = host::new_core(8, crate::kernel::CPUS, true);
    let entry = host::register(core);
    let (queue, notes) = (
        Arc::new(Mutex::new(Vec::new())),
        Arc::new(Mutex::new(String::new())),
    );
    let log = notes.clone();
    let policy = move |call: &mut Call<'_>| {
        let is_subject = call.task.is_some_and(|task| task.slot == SUBJECT as u32);
        log.lock()
            .unwrap()
            .extend(letter(call.method).filter(|_| is_subject));
        host::fifo(call, &queue)
    };
    host::start(core, entry, Arc::new(policy));
    core.set_default(Some(entry));
    let mut kernel = Kernel::new(core);
    kernel.fork(None);
    run(&mut kernel, SUBJECT);
    perform(&mut kernel, &[Step::Bind(0), Step::Nice(BEGIN)]);
    notes.lock().unwrap().clear();
    perform(&mut kernel, steps);
    let calls = notes.lock().unwrap().clone();
    calls
}

fn perform(kernel: &mut Kernel, steps: &[Step]) {
    for &step in steps {
        let cpu = kernel.tasks[SUBJECT].rq;
        match step {
            Step::Sleep => sleep(kernel, SUBJECT),
            Step::Yield => {
                kernel.core.yield_task(kernel.tasks[SUBJECT].handle);
                kernel.schedule(cpu, Turn::Expires, Race::None);
            }
            Step::Nice(nice) => kernel.set_nice(SUBJECT, cpu, nice),
            Step::Bind(to) => kernel.set_affinity(SUBJECT, cpu, 1 << to),
            Step::Unbind => kernel.set_affinity(SUBJECT, cpu, 0b11),
            Step::Thread => {
                kernel.fork(Some(SUBJECT));
                let thread = kernel.tasks.len() - 1;
                kernel.schedule(cpu, Turn::Blocks, Race::None);
                run(kernel, thread);
                sleep(kernel, thread);
                run(kernel, thread);
                let here = kernel.tasks[thread].rq;
                kernel.wake(SUBJECT, here);
                kernel.schedule(here, Turn::Dies, Race::None);
            }
        }
        run(kernel, SUBJECT);
    }
}

/// The task sleeps, and an interrupt on its CPU wakes it.
fn sleep(kernel: &mut Kernel, at: usize) {
    let cpu = kernel.tasks[at].rq;
    kernel.schedule(cpu, Turn::Blocks, Race::None);
    kernel.wake(at, cpu);
    run(kernel, at);
}

/// Lets the CPU of a task run it.
fn run(kernel: &mut Kernel, at: usize) {
    let cpu = kernel.tasks[at].rq;
    if kernel.current(cpu) != Some(at) {
        kernel.schedule(cpu, Turn::Expires, Race::None);
    }
    assert_eq!(kernel.current(cpu), Some(at), "CPU {cpu} runs another task");
}

#[test]
fn a_task_comes_with_the_calls_that_it_should() {
    for behaviour in BEHAVIOURS {
        let calls = calls(behaviour.steps);
        assert!(
            behaviour.fits(&calls),
            "{}: expected \"{}\", got \"{calls}\"",
            behaviour.name,
            behaviour.calls
        );
    }
}
