// SPDX-License-Identifier: GPL-2.0-only
//! A schedule that is given and not drawn: one task performs the steps of a behaviour of
//! `policy/conformance` on two CPUs. It holds the checker's kernel against the calls that the real
//! one makes.

use crate::kernel::Turn;
use crate::machine::Place;
use crate::world::World;
use baton_conformance::Step;

/// The task that performs the steps.
const SUBJECT: u32 = 1;

impl World {
    /// Performs the steps, until the policy fails.
    pub fn perform(&self, steps: &[Step]) {
        self.serve_all();
        for &step in steps {
            self.on_cpu_of(SUBJECT);
            match step {
                Step::Sleep => self.sleep(SUBJECT),
                Step::Yield => self.schedule(Turn::Yields),
                Step::Nice(nice) => self.set_nice(SUBJECT, nice),
                Step::Bind(cpu) => self.set_affinity(SUBJECT, 1 << cpu),
                Step::Unbind => self.set_affinity(SUBJECT, (1 << self.cpus.len()) - 1),
                Step::Thread => self.thread(),
            }
            self.serve_all();
            if self.over.get() {
                return;
            }
        }
    }

    /// A sleep that ends by an interrupt on the CPU of the sleep.
    fn sleep(&self, pid: u32) {
        self.schedule(Turn::Blocks);
        self.serve_all();
        self.here.set(Some(self.task(pid).rq.get()));
        self.wake(pid, 0);
        self.serve_all();
    }

    /// The subject creates a thread and waits. The thread sleeps, wakes the subject and exits.
    fn thread(&self) {
        let thread = self.tasks.borrow().len() as u32 + 1;
        self.fork(self.task(SUBJECT).handle);
        self.schedule(Turn::Blocks);
        self.serve_all();
        self.on_cpu_of(thread);
        self.sleep(thread);
        self.on_cpu_of(thread);
        self.wake(SUBJECT, 0);
        self.schedule(Turn::Dies);
    }

    /// Continues on the CPU that runs a task.
    fn on_cpu_of(&self, pid: u32) {
        let task = self.task(pid);
        self.here.set(Some(task.rq.get()));
        if !self.over.get() && !matches!(task.place.get(), Place::OnCpu(_)) {
            self.schedule(Turn::Expires);
        }
    }

    /// Lets all CPUs handle what is pending.
    fn serve_all(&self) {
        for _ in 0..4 {
            for cpu in 0..self.cpus.len() {
                self.here.set(Some(cpu));
                self.serve();
            }
        }
    }
}
