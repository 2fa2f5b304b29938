// SPDX-License-Identifier: GPL-2.0-only
//! Tests as scripts. Each line is an event, `=>`, and the expected result: the calls that policies
//! get, then the verdict, then the state of the task.
//!
//! ```text
//! start P | stop P | unregister P | fault P | default P | assign N P   a policy is a letter; `-` for none
//! new N [of M] | enable N | disable N | dead N | exit N                a task is a number
//! select N @C | wake N @C | put N @C | restore N @C                    C: a CPU; `put`: neither woken nor restored
//! pick @C | pick @C after N | pick @C keeping N                        N blocked there, or can go on
//! yield N | tick N @C | nice N V | affinity N | mask N BITS
//! idle C | busy C | claim C | online C | offline C | timer P @C | time T
//! rescue | stall LIMIT | counts
//! answer P METHOD ACTION                                               what P does in its next call of METHOD
//! ```
//! Without an action a policy is first come, first served. Actions: `none`, `keep`, `abort`, `token
//! N` (N's newest), `old N` (the one before), `garbage`, `drop N`, `cpu C`, `run C`, `run C for
//! NS`, `slice NS`, and `meanwhile EVENT & EVENT`: events on other CPUs during that call of the
//! policy.

use crate::host::{self, Call, TestCore};
use baton_abi::{
    BatonCtx, BatonFaultKind, BatonMethod, BATON_FAULT_NAMES, BATON_F_FORK, BATON_F_PREV_RUNNABLE,
    BATON_F_RESTORE, BATON_F_WAKEUP, BATON_METHOD_NAMES, BATON_PICK_KEEP, BATON_PICK_NONE,
    BATON_SELECT_DIRECT,
};
use baton_core::{Fault, PolicyEntry, Slot, Verdict, DEFAULT_SLICE, EVENTS_KEPT, TURN_WAS_EMPTY};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex},
};

const SLOTS: usize = 4;
const CPUS: i32 = 2;

/// Runs a script and compares the results. Runs it again with policies that overwrite fields of the
/// context that are not theirs, which must change nothing.
#[track_caller]
pub fn check(script: &str) {
    compare(script, false);
    compare(script, true);
}

#[track_caller]
fn compare(script: &str, scribbles: bool) {
    let world = Arc::new(World::new(scribbles));
    let lines = script
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    for (number, line) in lines.enumerate() {
        let (event, expected) = line.split_once("=>").unwrap_or((line, ""));
        world.run(event.trim());
        let found = std::mem::take(&mut *world.log.lock().unwrap()).join("; ");
        assert!(
            expected.trim() == found,
            "event {number}, `{}`, with scribbles: {scribbles}\nexpected: {}\nfound:    \
             {found}\nin:\n{script}",
            event.trim(),
            expected.trim()
        );
    }
}

struct World {
    core: &'static TestCore,
    policies: Mutex<BTreeMap<char, &'static PolicyEntry>>,
    /// Handles, by thread id. Kept after the task is gone.
    tasks: Mutex<HashMap<u32, u64>>,
    /// All tokens that were made, by thread id.
    tokens: Mutex<HashMap<u32, Vec<u64>>>,
    answers: Mutex<HashMap<(char, String), VecDeque<String>>>,
    log: Mutex<Vec<String>>,
    now: Mutex<u64>,
    /// Policies overwrite fields of the context that are not theirs.
    scribbles: bool,
}

fn for_slice(ctx: &BatonCtx) -> String {
    if ctx.slice == DEFAULT_SLICE {
        return String::new();
    }
    format!(" for {}", ctx.slice)
}

/// What a policy in C may do to its context. Its kicks are its own, and so is its slice in an
/// answer that has one.
fn scribble(ctx: &mut BatonCtx, method: BatonMethod) {
    let garbage = u64::from_ne_bytes([0xb5; 8]);
    let has_slice = matches!(
        method,
        BatonMethod::SelectTaskRq | BatonMethod::PickNextTask | BatonMethod::NewlyIdle
    );
    let slice = if has_slice { ctx.slice } else { garbage };
    *ctx = BatonCtx {
        now: garbage,
        task: garbage,
        runtime: garbage,
        slice,
        cpu: -77,
        flags: !0,
        nr_kicks: !0,
        kicks: [!0; 4],
    };
}

impl World {
    fn new(scribbles: bool) -> Self {
        Self {
            scribbles,
            core: host::new_core(SLOTS, CPUS, true),
            policies: Mutex::default(),
            tasks: Mutex::default(),
            tokens: Mutex::default(),
            answers: Mutex::default(),
            log: Mutex::default(),
            now: Mutex::new(1),
        }
    }

    fn say(&self, what: impl Into<String>) {
        let what = what.into();
        if !what.is_empty() {
            self.log.lock().unwrap().push(what);
        }
    }

    fn policy(&self, name: &str) -> Option<&'static PolicyEntry> {
        self.policies
            .lock()
            .unwrap()
            .get(&name.chars().next().unwrap())
            .copied()
    }

    fn handle(&self, pid: &str) -> u64 {
        self.tasks.lock().unwrap()[&pid.parse().unwrap()]
    }

    fn slot(&self, pid: &str) -> &'static Slot {
        self.core
            .by_handle(self.handle(pid))
            .unwrap_or_else(|| panic!("task {pid} is gone"))
    }

    /// Answers a call as a policy.
    fn call(self: &Arc<Self>, name: char, queue: &Mutex<Vec<u64>>, call: &mut Call<'_>) -> u64 {
        use BatonMethod as M;
        let method = BATON_METHOD_NAMES[call.method as usize];
        let refused = || {
            format!(
                "{name}.{method} {} {}",
                host::slot_of(self.core, call.what).pid(),
                call.token
            )
        };
        self.say(match (call.method, call.task) {
            (M::PickRefused, _) if (call.what as u32) as usize <= SLOTS => refused(),
            (M::PickRefused, _) => format!("{name}.{method} garbage {}", call.token),
            (M::PickNextTask, Some(prev)) => {
                format!("{name}.{method} @{} keeping {}", call.what, prev.pid)
            }
            (_, Some(task)) => format!("{name}.{method} {}", task.pid),
            (_, None) => format!("{name}.{method} @{}", call.what),
        });
        let minted = [
            M::TaskNew,
            M::TaskWakeup,
            M::TaskPreempt,
            M::TaskYield,
            M::TaskRestored,
        ]
        .contains(&call.method);
        if let Some(task) = call.task.filter(|_| minted) {
            self.tokens
                .lock()
                .unwrap()
                .entry(task.pid)
                .or_default()
                .push(call.token);
        }
        let answer = self
            .answers
            .lock()
            .unwrap()
            .get_mut(&(name, method.into()))
            .and_then(VecDeque::pop_front);
        let Some(answer) = answer else {
            return host::fifo(call, queue);
        };
        let (action, rest) = answer.split_once(' ').unwrap_or((&answer, ""));
        let token = |back: usize| {
            let tokens = self.tokens.lock().unwrap();
            let tokens = &tokens[&rest.parse().unwrap()];
            tokens[tokens.len() - back]
        };
        match action {
            "none" => BATON_PICK_NONE,
            "keep" => BATON_PICK_KEEP,
            "abort" => call.abort(BatonFaultKind::Panic),
            "token" => token(1),
            "old" => token(2),
            "garbage" => 0x1234_5678_0000_4321,
            "drop" => call.drop_token(token(1)),
            "cpu" => rest.parse::<u64>().unwrap(),
            "run" => {
                let (cpu, slice) = rest.split_once(" for ").unwrap_or((rest, "0"));
                call.ctx.slice = slice.parse().unwrap();
                cpu.parse::<u64>().unwrap() | BATON_SELECT_DIRECT
            }
            "slice" => {
                call.ctx.slice = rest.parse().unwrap();
                host::fifo(call, queue)
            }
            "meanwhile" => {
                rest.split(" & ").for_each(|event| self.run(event));
                host::fifo(call, queue)
            }
            _ => panic!("no such action: {answer}"),
        }
    }

    fn start(self: &Arc<Self>, name: char) {
        let entry = *self
            .policies
            .lock()
            .unwrap()
            .entry(name)
            .or_insert_with(|| host::register(self.core));
        let (world, queue) = (self.clone(), Mutex::new(Vec::new()));
        let policy = move |call: &mut Call<'_>| {
            let answer = world.call(name, &queue, call);
            if world.scribbles {
                scribble(call.ctx, call.method);
            }
            answer
        };
        host::start(self.core, entry, Arc::new(policy));
    }

    fn verdict(&self, verdict: Verdict, ctx: &BatonCtx) -> String {
        let for_slice = for_slice(ctx);
        match verdict {
            Verdict::Run => format!(
                "run {}{for_slice}",
                host::slot_of(self.core, ctx.task).pid()
            ),
            Verdict::Keep => format!("keep{for_slice}"),
            other => format!("{other:?}").to_lowercase(),
        }
    }

    /// Runs one event and returns its result.
    fn run(self: &Arc<Self>, event: &str) {
        let words: Vec<&str> = event.split(' ').collect();
        let word = |at: usize| words.get(at).copied().unwrap_or_default();
        let cpu = words
            .iter()
            .find_map(|word| word.strip_prefix('@'))
            .map_or(0, |cpu| cpu.parse().unwrap());
        let here = self.core.cpu(cpu).unwrap();
        let now = *self.now.lock().unwrap();
        let mut ctx = BatonCtx {
            now,
            cpu,
            ..BatonCtx::default()
        };
        let core = self.core;
        match word(0) {
            "start" => self.start(word(1).chars().next().unwrap()),
            "stop" => drop(core.stop(self.policy(word(1)).unwrap())),
            "unregister" => core.unregister(
                self.policies
                    .lock()
                    .unwrap()
                    .remove(&word(1).chars().next().unwrap())
                    .unwrap(),
            ),
            "fault" => {
                let fault = Fault {
                    kind: BatonFaultKind::Deadlock,
                    method: BatonMethod::None,
                    pid: 0,
                    now,
                };
                core.fault(self.policy(word(1)).unwrap(), &fault, None);
            }
            "default" => core.set_default(self.policy(word(1))),
            "assign" => core.assign(self.slot(word(1)), self.policy(word(2))),
            "new" => {
                let parent = if word(2) == "of" {
                    self.handle(word(3))
                } else {
                    0
                };
                let pid = word(1).parse().unwrap();
                match host::new_task(core, pid, parent) {
                    Some(handle) => drop(self.tasks.lock().unwrap().insert(pid, handle)),
                    None => self.say("full"),
                }
            }
            "answer" => {
                let method = BATON_METHOD_NAMES
                    .iter()
                    .find(|name| **name == word(2))
                    .expect("a method");
                let key = (word(1).chars().next().unwrap(), method.to_string());
                self.answers
                    .lock()
                    .unwrap()
                    .entry(key)
                    .or_default()
                    .push_back(words[3..].join(" "));
            }
            "enable" => core.enable_task(self.handle(word(1)), 0),
            "exit" => core.exit_task(self.handle(word(1))),
            "yield" => drop(core.yield_task(self.handle(word(1)))),
            "mask" => host::set_mask(
                core,
                self.slot(word(1)),
                u64::from_str_radix(word(2), 2).unwrap(),
            ),
            "idle" | "busy" => {
                ctx.cpu = word(1).parse().unwrap();
                core.set_idle(
                    ctx.cpu,
                    core.cpu(ctx.cpu).unwrap(),
                    &mut ctx,
                    word(0) == "idle",
                );
            }
            "online" | "offline" => {
                ctx.cpu = word(1).parse().unwrap();
                core.set_online(0, here, &mut ctx, word(0) == "online");
            }
            "claim" => {
                let claimed = core.claim_idle(word(1).parse().unwrap());
                self.say(if claimed { "yes" } else { "no" });
            }
            "timer" => core.timer(
                cpu,
                here,
                &mut ctx,
                self.policy(word(1)).unwrap().index() as usize,
            ),
            "time" => *self.now.lock().unwrap() = word(1).parse().unwrap(),
            "rescue" => {
                let found: Vec<String> = host::rescue_all(core)
                    .iter()
                    .map(|slot| slot.pid().to_string())
                    .collect();
                self.say(format!("rescued {}", found.join(" ")).trim_end());
            }
            "stall" => {
                let stalled = core.find_stall(now, word(1).parse().unwrap());
                self.say(stalled.map_or("-".into(), |slot| slot.pid().to_string()));
                stalled.inspect(|slot| core.judge_stall(cpu, here, &mut ctx, slot));
            }
            "counts" => self.say(format!(
                "{} tasks, {} fallback",
                core.tasks(),
                core.fallback_tasks()
            )),
            "pick" => {
                ctx.task = words.get(3).map_or(0, |pid| self.handle(pid));
                ctx.flags = if word(2) == "keeping" {
                    BATON_F_PREV_RUNNABLE
                } else {
                    0
                };
                ctx.flags |= if word(2) == "empty" {
                    TURN_WAS_EMPTY
                } else {
                    0
                };
                let verdict = core.dispatch(cpu, here, &mut ctx);
                self.say(self.verdict(verdict, &ctx));
            }
            _ => {
                ctx.task = self.handle(word(1));
                let slot = core.by_handle(ctx.task);
                match word(0) {
                    "disable" | "dead" => core.disable_task(cpu, here, &mut ctx, word(0) == "dead"),
                    "nice" => core.set_nice(cpu, here, &mut ctx, word(2).parse().unwrap()),
                    "affinity" => core.set_affinity(cpu, here, &mut ctx),
                    "select" | "fork" => {
                        ctx.flags = if word(0) == "fork" { BATON_F_FORK } else { 0 };
                        let verdict = core.select(cpu, here, &mut ctx);
                        self.say(match verdict {
                            Verdict::Run => format!("run @{}{}", ctx.cpu, for_slice(&ctx)),
                            _ => format!("none @{}", ctx.cpu),
                        });
                    }
                    "tick" => {
                        let verdict = core.tick(cpu, here, &mut ctx);
                        self.say(self.verdict(verdict, &ctx));
                    }
                    how => {
                        ctx.flags = match how {
                            "wake" => BATON_F_WAKEUP,
                            "restore" => BATON_F_RESTORE,
                            "put" => 0,
                            _ => panic!("no such event: {event}"),
                        };
                        let before = (ctx.cpu, ctx.flags);
                        let verdict = core.enqueue(cpu, here, &mut ctx);
                        self.say(self.verdict(verdict, &ctx));
                        // A host carries the kicks out by the CPU and the flags of the enqueue.
                        assert!(
                            ctx.nr_kicks == 0 || (ctx.cpu, ctx.flags) == before,
                            "{event}: {ctx:?}"
                        );
                        let is_fallback = verdict == Verdict::Fallback;
                        assert!(
                            !is_fallback || ctx.slice == core.fallback_slice(),
                            "{event}: {ctx:?}"
                        );
                    }
                }
                self.say(slot.map_or(String::new(), |slot| {
                    format!("[{:?}]", slot.state()).to_lowercase()
                }));
            }
        }
        let now = *self.now.lock().unwrap();
        for back in 0..EVENTS_KEPT {
            let last = here.event(back).1;
            assert!(
                last.now <= now,
                "{event}: the call {back} before is noted at {}",
                last.now
            );
        }
        for (place, fault) in core.host().reports.lock().unwrap().drain(..) {
            assert!(fault.now <= now, "{event}: {fault:?} at {now}");
            let name = self
                .policies
                .lock()
                .unwrap()
                .iter()
                .find(|(_, entry)| entry.index() == place)
                .map(|(name, _)| *name);
            let (kind, method) = (
                BATON_FAULT_NAMES[fault.kind as usize],
                BATON_METHOD_NAMES[fault.method as usize],
            );
            self.say(format!(
                "report: {} {kind} in {method}, {}",
                name.unwrap(),
                fault.pid
            ));
        }
    }
}
