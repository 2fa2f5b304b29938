// SPDX-License-Identifier: GPL-2.0-only
//! Reads the rings of all CPUs, with the messages of each task in their order.

use baton_abi::{BatonHint, BatonMethod};

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

    /// Hands all messages that are there now to `handle`; one about a hint comes with its hint. If
    /// an earlier message of the same task is in a ring that is read later in this call, a message
    /// stays unread until the next call. Returns true if any was read.
    pub fn read(
        &mut self,
        agent: &Agent,
        handle: impl FnMut(&Message, Option<&BatonHint>),
    ) -> bool {
        self.read_some(agent, usize::MAX, handle)
    }

    /// As [`Inbox::read`], for at most so many messages.
    pub fn read_some(
        &mut self,
        agent: &Agent,
        most: usize,
        mut handle: impl FnMut(&Message, Option<&BatonHint>),
    ) -> bool {
        let mut count = 0;
        for cpu in 0..agent.nr_cpus() {
            let mut ring = agent.ring(cpu);
            while let Some(message) = ring.message() {
                let slot = message.slot as usize;
                if message.method == BatonMethod::Hint as u16 {
                    let hint = ring.hint();
                    if !self.has_read_before(&message, &hint) {
                        break;
                    }
                    if is_about_these(agent, &message, &hint) {
                        handle(&message, Some(&hint));
                    }
                } else if message.sequence == 0 {
                    handle(&message, None);
                } else {
                    match message.sequence.wrapping_sub(self.seen[slot]) as i32 {
                        2.. => break,
                        1 => {
                            self.seen[slot] = message.sequence;
                            handle(&message, None);
                        }
                        // From before messages were lost.
                        _ => {}
                    }
                }
                ring.advance(&message);
                count += 1;
                if count == most {
                    return true;
                }
            }
        }
        count > 0
    }

    /// Have the messages been read that a hint follows?
    fn has_read_before(&self, message: &Message, hint: &BatonHint) -> bool {
        follows(message, hint, |slot| self.seen.get(slot as usize).copied())
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

/// Are the tasks in these slots still those that sent the hint, and that it names?
pub(crate) fn is_about_these(agent: &Agent, message: &Message, hint: &BatonHint) -> bool {
    let is_there = |slot: u32, pid: u32| slot >= agent.nr_slots() || agent.task(slot).pid == pid;
    is_there(message.slot, message.pid) && is_there(hint.thread.wrapping_sub(1), message.named_pid)
}

/// May a hint be handled now: have all messages been read that came before it, about its sender and
/// about the thread that it names? `seen` returns the number of the last message that was read
/// about a slot; `None`: nothing is waited for.
pub(crate) fn follows(
    message: &Message,
    hint: &BatonHint,
    seen: impl Fn(u32) -> Option<u32>,
) -> bool {
    let is_read = |slot: u32, number: u32| {
        seen(slot).is_none_or(|seen| seen.wrapping_sub(number) as i32 >= 0)
    };
    let named = hint.thread.wrapping_sub(1);
    is_read(message.slot, message.after) && is_read(named, message.after_named)
}
