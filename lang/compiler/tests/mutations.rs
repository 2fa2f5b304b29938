// SPDX-License-Identifier: GPL-2.0-only
//! Policies of the tree with one change. Wrong ones do not compile, or fail at the goal that the
//! change breaks, with a counterexample. Others still hold: heuristics are free.

use std::fs;
use std::path::Path;

use baton_lang::obligations::goals;
use baton_lang::prover::{decide, decide_within, explained, Verdict};

const ULE: &str = "ule-cwc/ule_cwc";
const CFS: &str = "cfs-cwc-flat/cfs_cwc_flat";
const DOMAINS: &str = "cfs-cwc/cfs_cwc";
const EDF: &str = "edf/edf";

fn policy(name: &str) -> String {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(tree.join("policies").join(format!("{name}.baton"))).unwrap()
}

fn changed(name: &str, from: &str, to: &str) -> String {
    let text = policy(name);
    assert!(text.contains(from), "{name} has no `{from}`");
    text.replace(from, to)
}

/// The names of the goals that do not hold, or the first message of the compiler.
fn fails_at(text: &str) -> Result<Vec<&'static str>, String> {
    let policy = baton_lang::compile(text).map_err(|mistakes| mistakes[0].message.clone())?;
    let mut failed = Vec::new();
    for goal in goals(&policy) {
        match decide(&goal).expect("z3 runs") {
            Verdict::Holds => {}
            Verdict::Fails(_) => failed.push(goal.name),
            Verdict::Open { .. } => panic!("the goal {} stays open", goal.name),
        }
    }
    // One mistake may break a goal for several queues and handlers.
    failed.dedup();
    Ok(failed)
}

#[test]
fn policies_of_the_tree_hold() {
    for name in [ULE, CFS, DOMAINS, "lottery/lottery", EDF] {
        assert_eq!(fails_at(&policy(name)), Ok(vec![]), "{name}");
    }
}

/// A hint can change an attribute between two reads of it, so that neither condition holds.
#[test]
fn a_hint_comes_between_two_reads() {
    let edf = policy(EDF);
    let twice = edf.replace(
        "if (t.has_deadline) t => dst.urgent;
                else t => dst.ready;",
        "if (t.within > 0ms) t => dst.urgent;
                else if (t.within <= 0ms) t => dst.ready;",
    );
    assert_ne!(twice, edf);
    assert_eq!(fails_at(&twice), Ok(vec!["steal"]));
    // One that no hint changes is the same at both.
    let kept = twice.replace("t.within > 0ms) t =>", "t.due > 0ms) t =>");
    let kept = kept.replace("t.within <= 0ms) t =>", "t.due <= 0ms) t =>");
    assert_eq!(fails_at(&kept), Ok(vec![]));
}

/// A product of parameters with which the solver does not get far: Fermat's last theorem.
#[test]
fn what_is_not_decided_is_asked_of_a_small_machine() {
    let cube = |of: &str| format!("({of} / 1ns) * ({of} / 1ns) * ({of} / 1ns)");
    let text = changed(
        ULE,
        "{ src.cload - dst.cload >= 2 }",
        &format!(
            "{{ turns * turns * turns + {} != {} }}",
            cube("burst"),
            cube("timeslice")
        ),
    );
    let goals = goals(&baton_lang::compile(&text).unwrap());
    let filter = goals.iter().find(|goal| goal.name == "filter").unwrap();
    let verdict = decide_within(filter, 1).unwrap();
    let holds_if_small = Verdict::Open {
        holds_if_small: true,
    };
    assert_eq!(verdict, holds_if_small);
    let message = explained(filter, &verdict).unwrap();
    assert!(message.help.unwrap().contains("up to 8 threads"));
}

/// The two policies that the paper says do not conserve work fail where it says.
#[test]
fn the_papers_models_fail() {
    let placements = ["placement of new", "placement of unblock"];
    for (name, first) in [("ule/ule", "until"), ("cfs-ipanema/cfs_ipanema", "steal")] {
        let failed = fails_at(&policy(name)).unwrap();
        assert_eq!(failed, [first, placements[0], placements[1]], "{name}");
    }
}

/// Changes that break one obligation each: the policy, what is replaced by what, and the goals.
#[rustfmt::skip]
const WRONG: &[(&str, &str, &str, &[&str])] = &[
    // Filters.
    (ULE, "{ src.cload - dst.cload >= 2 }", "{ src.cload - dst.cload > 2 }", &["filter"]),
    (ULE, "{ src.cload - dst.cload >= 2 }", "{ src.cload > 2 * (dst.cload + 1) }", &["filter"]),
    (ULE, "{ src.cload - dst.cload >= 2 }", "{ src.cload >= dst.cload * 2 && dst.cload > 0 }", &["filter"]),
    (ULE, "{ src.cload - dst.cload >= 2 }", "{ src.cload - dst.cload >= turns }", &["filter"]),
    (ULE, "{ src.cload - dst.cload >= 2 }", "{ random(2) == 0 }", &["filter"]),
    (CFS, "{ count(src) > 1 && src.cload > dst.cload }", "{ count(src) > 2 && src.cload > dst.cload }", &["filter"]),
    (CFS, "{ count(src) > 1 && src.cload > dst.cload }", "{ dst.cload > src.cload }", &["filter"]),
    (CFS, "{ count(src) > 1 && src.cload > dst.cload }", "{ count(src) > 1 && src.cload * 4 > (dst.cload + 2) * 5 }", &["filter"]),
    // What moves.
    (ULE, "if (src.cload - dst.cload >= 2) {", "if (src.cload - dst.cload >= 3) {", &["steal"]),
    (ULE, "if (src.cload - dst.cload >= 2) {", "if (src.cload - dst.cload >= 1) {", &["keep one"]),
    (ULE, "if (src.cload - dst.cload >= 2) {", "if (src.cload >= 1) {", &["keep one"]),
    (ULE, "if (src.cload - dst.cload >= 2) {", "if (src.cload - dst.cload >= 2 && t.prio == REGULAR) {", &["steal"]),
    (ULE, "if (src.cload - dst.cload >= 2) {", "if (count(dst) > 0 && src.cload > 2) {", &["steal"]),
    (ULE, "if (src.cload - dst.cload >= 2) {", "if (now() > 1s) {", &["steal", "keep one"]),
    (CFS, "if (count(src) > 1 && src.cload > dst.cload) t", "if (src.cload > dst.cload) t", &["keep one"]),
    (CFS, "if (count(src) > 1 && src.cload > dst.cload) t", "if (count(src) > 1 && t.nice < 0) t", &["steal"]),
    (CFS, "if (count(src) > 1 && src.cload > dst.cload) t", "if (count(src) > 3) t", &["steal"]),
    // When to stop.
    (ULE, "{ count(dst) != 0 }", "{ true }", &["until"]),
    (ULE, "{ count(dst) != 0 }", "{ count(dst) >= 0 }", &["until"]),
    (CFS, "{ count(dst) > 0 }", "{ count(dst) < 4 }", &["until"]),
    (CFS, "{ count(dst) > 0 }", "{ random(10) == 0 }", &["until"]),
    // Where threads are placed: one domain only, the highest load, or none looked at.
    (ULE, "return first(system_cores() order lowest cload);", "return last;", &["placement of new", "placement of unblock"]),
    (ULE, "return first(system_cores() order lowest cload);", "return first(llc(last) order lowest cload);", &["placement of new", "placement of unblock"]),
    (ULE, "return first(system_cores() order lowest cload);", "return first(system_cores() order highest cload);", &["placement of new", "placement of unblock"]),
    (ULE, "if (c.cload == 0) return c;", "if (c.cload <= 1) return c;", &["placement of new", "placement of unblock"]),
    (CFS, "c = choose_woken(t.core, waker(), is_sync());", "c = waker();", &["placement of unblock"]),
    // The core of a waker that does not sleep, or that has other threads; a core of no waker.
    (CFS, "if (sleeps && count(caller) == 1)", "if (count(caller) == 1)", &["placement of unblock"]),
    (CFS, "if (sleeps && count(caller) == 1)", "if (sleeps && count(caller) <= 2)", &["placement of unblock"]),
    (CFS, "if (sleeps && count(caller) == 1)", "if (sleeps)", &["placement of unblock"]),
    (CFS, "(t.core, waker(), is_sync())", "(t.core, t.core, is_sync())", &["placement of unblock"]),
    (CFS, "return first(system_cores() order lowest cload);", "return first(system_cores());", &["placement of new", "placement of unblock"]),
    (DOMAINS, "return first(system_cores() order lowest cload);", "return last;", &["placement of new", "placement of unblock"]),
    // For which cores threads are stolen, and from which domains.
    (ULE, "foreach (idle in idle_cores()) steal_for(idle);", "steal_for(c);", &["balancing"]),
    (ULE, "foreach (idle in idle_cores()) steal_for(idle);", "foreach (idle in idle_cores()) { steal_for(idle); if (now() > 1s) return; }", &["balancing"]),
    (DOMAINS, "if (count(c) > 0) break;", "break;", &["newly idle"]),
    (DOMAINS, "if (count(c) > 0) break;", "if (c.cload < 2) break;", &["newly idle"]),
    (DOMAINS, "steal_for(c, d);", "if (random(2) == 0) steal_for(c, d);", &["newly idle"]),
    (DOMAINS, "if (count(idle) > 0) break;", "if (count(c) > 0) break;", &["balancing"]),
    (DOMAINS, "steal_for(idle, d);", "steal_for(c, d);", &["balancing"]),
    (DOMAINS, "foreach (idle in idle_cores()) {", "foreach (idle in llc(c)) {", &["balancing"]),
    (ULE, "steal_for(idle);", "{ steal_for(idle); if (count(idle) > 0) break; }", &["balancing"]),
    (ULE, "foreach (idle in idle_cores()) steal_for(idle);", "foreach (x in system_cores()) { if (count(x) > 0) break; steal_for(x); }", &["balancing"]),
    (ULE, "foreach (idle in idle_cores()) steal_for(idle);", "foreach (o in system_cores()) { if (count(o) > 1) return; } foreach (idle in idle_cores()) steal_for(idle);", &["balancing"]),
    (ULE, "    on balancing(core c) {\n        foreach (idle in idle_cores()) steal_for(idle);\n    }\n", "", &["balancing"]),
    (DOMAINS, "steal_for(c, d);", "domain small = d; foreach (e in domains(c)) { small = e; break; } if (random(2) == 0) small = d; steal_for(c, small);", &["newly idle"]),
    (ULE, "        steal_for(c);", "        foreach (o in system_cores()) { if (count(o) > 1) return; }\n        steal_for(c);", &["newly idle"]),
    // Whose turn it is: a queue that waits for more than its rank, or without end.
    (ULE, "taken >= turns && count(timeshare) > 0", "taken >= turns && count(timeshare) > 3", &["turn"]),
    (ULE, "taken >= turns && count(timeshare) > 0", "taken >= turns + 1 && count(timeshare) > 0", &["turn"]),
    (ULE, "            taken = 0;\n", "", &["turn"]),
    (ULE, "} else taken++;", "}", &["turn"]),
    (ULE, "t = first(timeshare);", "foreach (o in timeshare) t = o;", &["turn"]),
    (ULE, "on yield(thread t) {", "on yield(thread t) {\n        taken -= 1;", &["rank"]),
    (EDF, "if (overdue < 1 && valid(t) &&", "if (valid(t) &&", &["turn"]),
    (EDF, "now() - served > patience", "now() - served > patience * 2", &["turn"]),
    (ULE, "!valid(t) || taken >= turns", "taken >= turns", &["turn"]),
    (ULE, "else t => realtime;\n    }\n\n    on yield", "else { t => realtime; if (count(realtime) == 0) taken = 0; }\n    }\n\n    on yield", &["rank"]),
    (ULE, "if (src.cload - dst.cload >= 2) {", "taken = 0;\n            if (src.cload - dst.cload >= 2) {", &["rank"]),
    // Two names of one thread; a loop whose third turn differs from the first.
    (ULE, "    on newly_idle", "    on tick(thread t) { thread a = first(timeshare); thread b = first(timeshare); if (valid(a) && valid(b)) { a.woken = 0ms; b.woken = 1ms; if (a.woken == 1ms) taken -= 1; } }\n    on newly_idle", &["rank"]),
    (ULE, "        int taken;\n    }", "        int taken; int x; int y;\n    }\n    on tick(thread t) { x = taken; y = taken; foreach (o in timeshare) { taken = x; x = y; y--; } }", &["rank"]),
    (EDF, "t.due = now() + max(t.within, 0ms);", "t.due = now() + t.within;", &["entry"]),
    (EDF, "if (t.has_deadline) t => urgent;", "if (t.has_deadline) { t => urgent; t.due = 0ms; }", &["entry"]),
    (EDF, "t => current for slice;", "foreach (o in urgent) o.due = 0ms;\n        t => current for slice;", &["entry"]),
    (EDF, "if (now() >= t.due) t.has_deadline = false;", "", &["entry"]),
    (EDF, "if (count(ready) == 0) served = now();", "served = now();", &["rank"]),
];

#[test]
fn wrong_policies_fail_at_the_goal_that_they_break() {
    assert!(WRONG.len() >= 24);
    for (name, from, to, goals) in WRONG {
        let failed = fails_at(&changed(name, from, to));
        assert_eq!(failed, Ok(goals.to_vec()), "{name}: {from} -> {to}");
    }
}

/// Changes with which a thread would be lost, or moved twice.
#[rustfmt::skip]
const UNSAFE: &[(&str, &str, &str, &str)] = &[
    (ULE, "if (t.prio == REGULAR) t => timeshare;\n        else t => realtime;", "if (t.prio == REGULAR) t => timeshare;", "the thread is lost on a path through `preempt`"),
    (ULE, "    on yield(thread t) {\n        t => timeshare;", "    on yield(thread t) {", "the thread is lost on `yield`"),
    (ULE, "t => current for timeslice;", "if (valid(t)) t => current for timeslice;", "a thread to run is not chosen on a path through `schedule`"),
    (CFS, "t => ready;", "t => ready; t => ready;", "the thread is moved twice on a path through here"),
    (CFS, "t => c.ready;\n    }\n\n    on unblock", "t => ready;\n    }\n\n    on unblock", "the core that is chosen here is not used"),
    (CFS, "c.min_vruntime + min(", "min_vruntime + self.cload * 1ns + other.min_vruntime + min(", "there is no `other` here"),
];

#[test]
fn policies_that_would_lose_a_thread_do_not_compile() {
    for (name, from, to, message) in UNSAFE {
        let found = fails_at(&changed(name, from, to));
        assert_eq!(found, Err((*message).into()), "{name}: {from} -> {to}");
    }
}

/// Changes that do no harm.
#[rustfmt::skip]
const HARMLESS: &[(&str, &str, &str)] = &[
    // Nearer domains first, or all cores at once; each largest domain is the machine.
    (DOMAINS, "if (count(c) > 0) break;", "if (c.cload >= 1) break;"),
    (DOMAINS, "if (count(c) > 0) break;", ""),
    (DOMAINS, "foreach (d in domains(idle)) {", "foreach (d in domains(c)) {"),
    (DOMAINS, "foreach (idle in idle_cores()) {", "foreach (idle in system_cores()) {"),
    // Which core is selected does not matter.
    (ULE, "first(stealable order highest cload)", "first(stealable order lowest cload)"),
    (ULE, "first(stealable order highest cload)", "first(stealable)"),
    (ULE, "first(stealable order highest cload)", "first(stealable order highest count)"),
    (CFS, "first(stealable order highest cload)", "first(stealable order lowest count)"),
    // Filters that accept more, and say the same in other words.
    (ULE, "{ src.cload - dst.cload >= 2 }", "{ src.cload - dst.cload > 1 }"),
    (ULE, "{ src.cload - dst.cload >= 2 }", "{ src.cload >= 2 }"),
    (ULE, "{ src.cload - dst.cload >= 2 }", "{ true }"),
    (ULE, "{ src.cload - dst.cload >= 2 }", "{ src.cload > dst.cload }"),
    (ULE, "{ src.cload - dst.cload >= 2 }", "{ if (dst.cload == 0) return count(src) > 1; return src.cload > 4; }"),
    (CFS, "{ count(src) > 1 && src.cload > dst.cload }", "{ count(src) > 1 }"),
    (CFS, "{ count(src) > 1 && src.cload > dst.cload }", "{ src.cload - 1 > dst.cload }"),
    // More moves, but never the last thread.
    (ULE, "if (src.cload - dst.cload >= 2) {", "if (src.cload >= 2) {"),
    (ULE, "if (src.cload - dst.cload >= 2) {", "if (count(src) > 1 && count(dst) == 0) {"),
    (CFS, "if (count(src) > 1 && src.cload > dst.cload) t", "if (count(src) > 1) t"),
    (CFS, "if (count(src) > 1 && src.cload > dst.cload) t", "if (count(src) > 1 && (count(dst) == 0 || t.nice > 0)) t"),
    // Stops later, or by the load.
    (ULE, "{ count(dst) != 0 }", "{ count(dst) > 1 }"),
    (ULE, "{ count(dst) != 0 }", "{ dst.cload > 0 }"),
    (ULE, "{ count(dst) != 0 }", "{ false }"),
    (CFS, "{ count(dst) > 0 }", "{ dst.cload >= 1 && count(dst) >= 1 }"),
    // Other placements that look at all cores.
    (ULE, "foreach (c in llc(last))", "foreach (c in node(last))"),
    (ULE, "return first(system_cores() order lowest cload);", "return first(system_cores() order lowest count);"),
    (ULE, "if (c.cload == 0) return c;", "if (count(c) == 0) return c;"),
    (CFS, "foreach (c in llc(last)) {\n            if (c.cload == 0) return c;\n        }\n", ""),
    // A waker that sleeps makes room.
    (CFS, "if (sleeps && count(caller) == 1)", "if (sleeps && caller.cload <= 1)"),
    // Other turns, within the ranks.
    (ULE, "taken >= turns && count(timeshare) > 0", "taken >= min(turns, 4) && count(timeshare) > 0"),
    (ULE, "READY queue realtime rank taken;", "READY queue realtime rank 2 * taken, 1ms;"),
    (EDF, "now() - served > patience", "now() - served > patience / 2"),
    (EDF, "count(ready) == 0", "count(ready) < 1"),
    // Other slices, credits and orders.
    (CFS, "order lowest vruntime", "order highest vruntime"),
    (CFS, "param time slice = 3ms", "param time slice = 6ms"),
    (ULE, "param int turns = 8", "param int turns = 2"),
];

#[test]
fn harmless_changes_still_hold() {
    assert!(HARMLESS.len() >= 24);
    for (name, from, to) in HARMLESS {
        let failed = fails_at(&changed(name, from, to));
        assert_eq!(failed, Ok(vec![]), "{name}: {from} -> {to}");
    }
}

/// A goal that fails says for which values.
#[test]
fn a_counterexample_is_in_the_policys_terms() {
    let text = changed(
        ULE,
        "{ src.cload - dst.cload >= 2 }",
        "{ src.cload - dst.cload > 2 }",
    );
    let policy = baton_lang::compile(&text).unwrap();
    let goal = &goals(&policy)[0];
    let Verdict::Fails(values) = decide(goal).unwrap() else {
        panic!("the goal holds");
    };
    let of = |what: &str| {
        values
            .iter()
            .find(|(name, _)| name == what)
            .unwrap()
            .1
            .as_str()
    };
    assert_eq!((of("src.cload"), of("dst.cload")), ("2", "0"));
}
