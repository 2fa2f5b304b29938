// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that do again what those of a recording did.

use std::sync::Arc;

use super::history::{Act, Past};
use crate::world::{Cx, Group, Item, Object, Op, Program, Spawn, World};

/// What a task does. Wakeups are items: they come with their time, and one that is early is not lost.
#[derive(Clone, Copy)]
enum Step {
    Run(u64),
    Wake(Object),
    /// Until it is woken.
    Wait(Object),
    Sleep(u64),
    Fork(usize),
    Nice(i32),
    Exit,
    /// Sleeps for good.
    Rest,
}

struct Script {
    name: Arc<str>,
    nice: Option<i32>,
    steps: Vec<Step>,
}

/// A task: its script, and how far it is.
struct Actor {
    all: Arc<[Script]>,
    group: Group,
    me: usize,
    at: usize,
    /// When it was to wake, ns.
    woken: Option<u64>,
    /// What comes before the next step, the last first.
    first: Vec<Op>,
}

impl Program for Actor {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        self.woken = cx.item.map_or(self.woken, |item| Some(item.due));
        if let Some(op) = self.first.pop() {
            return op;
        }
        let Some(&step) = self.all[self.me].steps.get(self.at) else { return Op::Exit };
        self.at += 1;
        match step {
            Step::Run(ns) => Op::Run(ns),
            Step::Wake(to) => Op::Put { to, item: Item { due: cx.now, service: 0, tag: 0 } },
            Step::Wait(on) => self.has_done(cx.now, Op::Take(on)),
            Step::Sleep(ns) => {
                let op = self.has_done(cx.now, Op::Sleep(ns));
                self.woken = Some(cx.now.saturating_add(ns));
                op
            }
            Step::Fork(child) => Op::Fork(Box::new(spawn(&self.all, child, self.group))),
            Step::Nice(nice) => Op::Nice(nice),
            Step::Exit => self.has_done(cx.now, Op::Exit),
            Step::Rest => self.has_done(cx.now, Op::Suspend),
        }
    }
}

impl Actor {
    /// An operation is what it did since it was woken; then comes `op`.
    fn has_done(&mut self, now: u64, op: Op) -> Op {
        self.first.push(op);
        match self.woken.take() {
            Some(woken) => {
                self.first.push(Op::Done(1));
                Op::Response(now.saturating_sub(woken))
            }
            None => Op::Done(1),
        }
    }
}

fn spawn(all: &Arc<[Script]>, me: usize, group: Group) -> Spawn {
    let actor = Actor { all: all.clone(), group, me, at: 0, woken: None, first: Vec::new() };
    Spawn { nice: all[me].nice, ..Spawn::new(all[me].name.clone(), actor).group(group) }
}

/// Tasks of higher classes are left out: whom they woke is woken by a timer then, and their children come by themselves.
pub(super) fn add(tasks: &[Past<'_>], group: &str, world: &mut World) -> Result<(), String> {
    let kept = |at: &usize| !tasks[*at].higher;
    if !tasks.iter().any(|task| !task.higher) {
        return Err("there is no task of the normal class in it".into());
    }
    let mut queues: Vec<Option<Object>> = vec![None; tasks.len()];
    for (at, task) in tasks.iter().enumerate().filter(|(_, task)| !task.higher) {
        if task.acts.iter().any(|act| matches!(act, Act::Sleep(_, Some(waker)) if kept(waker))) {
            queues[at] = Some(world.queue());
        }
    }
    let step = |me: usize, act: &Act| {
        Some(match *act {
            Act::Run(ns) => Step::Run(ns),
            Act::Wake(other) => Step::Wake(queues[other]?),
            Act::Sleep(ns, waker) => match (waker.filter(kept), queues[me]) {
                (Some(_), Some(queue)) => Step::Wait(queue),
                _ => Step::Sleep(ns),
            },
            Act::Fork(child) => Step::Fork(Some(child).filter(kept)?),
            Act::Nice(nice) => Step::Nice(nice),
            Act::Exit => Step::Exit,
            Act::Rest => Step::Rest,
        })
    };
    let scripts = tasks.iter().enumerate().map(|(me, task)| {
        let mut steps: Vec<Step> = Vec::new();
        for step in task.acts.iter().filter_map(|act| step(me, act)) {
            match (steps.last_mut(), step) {
                // What was between is left out.
                (Some(Step::Run(before)), Step::Run(ns)) => *before += ns,
                _ => steps.push(step),
            }
        }
        Script { name: task.comm.into(), nice: task.nice, steps }
    });
    let scripts: Arc<[Script]> = scripts.collect();
    let group = world.group(group);
    for (me, task) in tasks.iter().enumerate().filter(|(_, task)| !task.higher) {
        if task.parent.filter(kept).is_none() {
            world.task(Spawn { at: task.begins, ..spawn(&scripts, me, group) });
        }
    }
    Ok(())
}
