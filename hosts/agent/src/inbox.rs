// SPDX-License-Identifier: GPL-2.0-only
//! Reads the rings of all CPUs, with the messages of each task in their order.

use crate::agent::{Agent, Message};

/// What a reader of all rings knows of the tasks' messages.
#[derive(Default)]
pub struct Inbox {
    /// By slot: the number of the last message.
    seen: Vec<u32>,
}

impl Inbox {
    /// For an agent that has read nothing yet.
    pub fn new(agent: &Agent) -> Self {
        Self {
            seen: vec![0; agent.nr_slots() as usize],
        }
    }

    /// Hands all messages to `handle`. A message of a task whose earlier one is in a ring that is
    /// read later waits for the next call: true if any was read.
    pub fn read(&mut self, agent: &Agent, handle: impl FnMut(&Message)) -> bool {
        self.read_some(agent, usize::MAX, handle)
    }

    /// As [`Inbox::read`], for at most so many messages.
    pub fn read_some(
        &mut self,
        agent: &Agent,
        most: usize,
        mut handle: impl FnMut(&Message),
    ) -> bool {
        let mut count = 0;
        for cpu in 0..agent.nr_cpus() {
            while let Some(message) = agent.peek(cpu) {
                let slot = message.slot as usize;
                if message.sequence == 0 {
                    handle(&message);
                } else {
                    match message.sequence.wrapping_sub(self.seen[slot]) as i32 {
                        2.. => break,
                        1 => {
                            self.seen[slot] = message.sequence;
                            handle(&message);
                        }
                        // From before messages were lost.
                        _ => {}
                    }
                }
                agent.advance(cpu);
                count += 1;
                if count == most {
                    return true;
                }
            }
        }
        count > 0
    }

    /// Messages were lost: forgets those that are unread, and takes up the number of each slot's
    /// last message. `look` then reads the slot's status word, which is not older.
    pub fn resync(&mut self, agent: &Agent, mut look: impl FnMut(u32)) {
        for cpu in 0..agent.nr_cpus() {
            agent.skip(cpu);
        }
        for (slot, seen) in (0..).zip(&mut self.seen) {
            *seen = agent.sequence(slot);
            look(slot);
        }
    }
}
