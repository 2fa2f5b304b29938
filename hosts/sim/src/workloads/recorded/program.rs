// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that repeat what the tasks of a recording did.

use std::sync::Arc;

use super::history::{Act, Past};
use crate::world::{Cx, Group, Item, Object, Op, Program, Spawn, World};

/// A step of a task. Wakeups are items that carry their time, so that an early one is not lost.
#[derive(Clone, Copy)]
enum Step {
    Run(u64),
    Yield,
    Wake(Object),
    /// Sleeps until it is woken.
    Wait(Object),
    Sleep(u64),
    Fork(usize),
    Nice(i32),
    Exit,
    /// Sleeps until the end.
    Rest,
}

struct Script {
    name: Arc<str>,
    nice: Option<i32>,
    steps: Vec<Step>,
}

/// A task: its script, and its position in it.
struct Actor {
    all: Arc<[Script]>,
    group: Group,
    me: usize,
    at: usize,
    /// The time at which it was due to wake, ns.
    woken: Option<u64>,
    /// Operations before the next step, in reverse order.
    first: Vec<Op>,
}

impl Program for Actor {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        self.woken = cx.item.map_or(self.woken, |item| Some(item.due));
        if let Some(op) = self.first.pop() {
            return op;
        }
        let Some(&step) = self.all[self.me].steps.get(self.at) else {
            return Op::Exit;
        };
        self.at += 1;
        match step {
            Step::Run(ns) => Op::Run(ns),
            Step::Yield => Op::Yield,
            Step::Wake(to) => Op::Put {
                to,
                item: Item {
                    due: cx.now,
                    service: 0,
                    tag: 0,
                },
            },
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
    /// Ends an operation, which is everything since the last wakeup, and then does `op`.
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
    let actor = Actor {
        all: all.clone(),
        group,
        me,
        at: 0,
        woken: None,
        first: Vec::new(),
    };
    Spawn {
        nice: all[me].nice,
        ..Spawn::new(all[me].name.clone(), actor).group(group)
    }
}

/// A task, and its actions.
pub(crate) struct Role<'a> {
    pub(crate) name: &'a str,
    pub(crate) nice: Option<i32>,
    pub(crate) acts: &'a [Act],
    /// Leaves the task out. The tasks that it woke are woken by a timer instead, and its children
    /// start on their own.
    pub(crate) left_out: bool,
}

/// The tasks that play these roles, in the order of the roles. Some of them are forked by others
/// ([`Act::Fork`]).
pub(crate) fn spawns(roles: &[Role<'_>], group: Group, world: &mut World) -> Vec<Spawn> {
    let kept = |at: &usize| !roles[*at].left_out;
    let is_woken = |role: &Role<'_>| {
        role.acts
            .iter()
            .any(|act| matches!(act, Act::Sleep(_, Some(by)) if kept(by)))
    };
    let queues: Vec<Option<Object>> = roles
        .iter()
        .map(|role| (!role.left_out && is_woken(role)).then(|| world.queue()))
        .collect();
    let step = |me: usize, act: &Act| {
        Some(match *act {
            Act::Run(ns) => Step::Run(ns),
            Act::Yield => Step::Yield,
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
    let scripts = roles.iter().enumerate().map(|(me, role)| {
        let mut steps: Vec<Step> = Vec::new();
        for step in role.acts.iter().filter_map(|act| step(me, act)) {
            match (steps.last_mut(), step) {
                // The steps between the two were left out.
                (Some(Step::Run(before)), Step::Run(ns)) => *before += ns,
                _ => steps.push(step),
            }
        }
        Script {
            name: role.name.into(),
            nice: role.nice,
            steps,
        }
    });
    let scripts: Arc<[Script]> = scripts.collect();
    (0..roles.len())
        .map(|me| spawn(&scripts, me, group))
        .collect()
}

/// Adds the tasks. Those of higher classes are left out, and their children start on their own.
pub(super) fn add(tasks: &[Past<'_>], group: &str, world: &mut World) -> Result<(), String> {
    if !tasks.iter().any(|task| !task.higher) {
        return Err("there is no task of the normal class in it".into());
    }
    let role = |task| {
        let Past {
            comm,
            nice,
            acts,
            higher,
            ..
        }: &Past<'_> = task;
        Role {
            name: comm,
            nice: *nice,
            acts,
            left_out: *higher,
        }
    };
    let roles: Vec<Role<'_>> = tasks.iter().map(role).collect();
    let group = world.group(group);
    for (task, spawn) in tasks.iter().zip(spawns(&roles, group, world)) {
        if !task.higher && task.parent.is_none_or(|parent| tasks[parent].higher) {
            world.task(Spawn {
                at: task.begins,
                ..spawn
            });
        }
    }
    Ok(())
}
