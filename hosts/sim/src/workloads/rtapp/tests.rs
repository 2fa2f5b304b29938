// SPDX-License-Identifier: GPL-2.0-only
use proptest::prelude::*;

use super::*;
use crate::workloads::ideal::Ideal;

fn run(text: &str, until_us: u64) -> Result<Ideal, String> {
    let mut world = World::new();
    add(text, 4, &mut world)?;
    Ok(Ideal::run(world, 1, until_us * 1000))
}

/// A file with one task.
fn one(task: &str) -> String {
    format!("{{\"tasks\": {{\"t\": {{{task}}}}}}}")
}

/// The actions of a file's tasks, without the numbers for reports.
fn done(text: &str, until_us: u64) -> String {
    let log = run(text, until_us)
        .unwrap_or_else(|why| panic!("{text}: {why}"))
        .log;
    let ops = log
        .iter()
        .filter(|line| !line.contains(": done") && !line.contains(": response"));
    ops.map(String::as_str).collect::<Vec<_>>().join("\n")
}

#[test]
fn tasks_do_what_the_file_says() {
    let check = |task: &str, expected: &str| {
        let text = one(&task.replace('\'', "\""));
        let got = done(&text, 1_000_000)
            .replace(" t-0:", "")
            .replace('\n', "; ");
        assert_eq!(got, expected, "{task}");
    };
    // The order of keys is the order of events; repeated keys are repeated events.
    check(
        "'loop': 2, 'run': 10, 'sleep': 5",
        "0 run 10000; 10000 sleep 5000; 15000 run 10000; 25000 sleep 5000; 30000 exit",
    );
    check(
        "'loop': 1, 'run': 1, 'sleep1': 2, 'run': 3, 'runA': 4",
        "0 run 1000; 1000 sleep 2000; 3000 run 3000; 6000 run 4000; 10000 exit",
    );
    // Another policy of normal tasks, and a requested slice.
    check(
        "'loop': 1, 'policy': 'SCHED_BATCH', 'dl-runtime': 100000, 'run': 1",
        "0 run 1000; 1000 exit",
    );
    check(
        "'delay': 7, 'loop': 1, 'run': 1",
        "0 until 7000; 7000 run 1000; 8000 exit",
    );
    // Phases, their loops, and the task's.
    check(
        "'loop': 2, 'phases': \
         {'a': {'loop': 2, 'run': 1}, 'b': {'loop': 0, 'run': 9}, 'c': {'sleep': 1}}",
        "0 run 1000; 1000 run 1000; 2000 sleep 1000; 3000 run 1000; 4000 run 1000; 5000 sleep \
         1000; 6000 exit",
    );
    check(
        "'loop': 1, 'phases': [{'run': 1}, {'run': 2}]",
        "0 run 1000; 1000 run 2000; 3000 exit",
    );
    // Hints, and the threads that they name.
    check(
        "'loop': 1, 'hint': [1, 7, -1], 'reply': ''",
        "0 hint 1 None [7, 18446744073709551615, 0, 0, 0, 0]; 0 reply; 0 run 1000; 1000 exit",
    );
    check(
        "'loop': 1, 'hint': [2, 't', 1]",
        "0 hint 2 Some(0) [1, 0, 0, 0, 0, 0]; 0 run 1000; 1000 exit",
    );
    // A nice value stays; CPUs are the phase's, the task's, or all.
    check(
        "'loop': 1, 'priority': 3, 'cpus': [1], 'phases': \
         {'a': {'cpus': [2, 0], 'run': 1}, 'b': {'priority': -5, 'run': 1}, \
         'c': {'priority': -5, 'run': 1}}",
        "0 cpus [0, 2]; 0 run 1000; 1000 cpus [1]; 1000 nice -5; 1000 run 1000; 2000 run 1000; \
         3000 exit",
    );
    // Timers: from the start; after a miss, a relative one restarts and an absolute one keeps its
    // schedule.
    check(
        "'loop': 2, 'run': 10, 'timer': {'ref': 'unique', 'period': 30}",
        "0 run 10000; 10000 until 30000; 30000 run 10000; 40000 until 60000; 60000 exit",
    );
    check(
        "'loop': 1, 'phases': \
         {'a': {'run': 50, 'timer': {'ref': 'u', 'period': 20}}, 'b': {'run': 5, 'timer': {'ref': 'u', \
         'period': 20}}}",
        "0 run 50000; 50000 run 5000; 55000 until 70000; 70000 exit",
    );
    check(
        "'loop': 1, 'phases': \
         {'a': {'run': 50, 'timer': {'ref': 'u', 'period': 20, 'mode': 'absolute'}}, 'b': {'run': 5, \
         'timer': {'ref': 'u', 'period': 20}}, 'c': \
         {'run': 1, 'timer': {'ref': 'u', 'period': 20}}}",
        "0 run 50000; 50000 run 5000; 55000 run 1000; 56000 until 60000; 60000 exit",
    );
    // A `runtime` reads the clock every 32 us.
    check(
        "'loop': 1, 'runtime': 40",
        "0 run 32000; 32000 run 32000; 64000 exit",
    );
    check(
        "'loop': 1, 'mem': 1000, 'iorun': 5000000",
        "0 run 100; 100 run 400; 500 exit",
    );
    check(
        "'loop': 1, 'lock': 'm', 'run': 1, 'unlock': 'm'",
        "0 down 0; 0 run 1000; 1000 up 0; 1000 exit",
    );
    // A repetition in which no time passes costs a microsecond.
    check(
        "'loop': 2, 'yield': ''",
        "0 yield; 0 run 1000; 1000 yield; 1000 run 1000; 2000 exit",
    );
    check(
        "'loop': 1, 'signal': 'c', 'broad': 'c'",
        "0 signal 0; 0 broad 0; 0 run 1000; 1000 exit",
    );
}

#[test]
fn tasks_meet() {
    let check = |text: &str, until: u64, expected: &str| {
        assert_eq!(
            done(&text.replace('\'', "\""), until).replace('\n', "; "),
            expected,
            "{text}"
        );
    };
    check(
        "{'tasks': {'a': {'loop': 1, 'suspend': '', 'run': 5}, 'b': {'loop': 1, 'run': 10, 'resume': 'a'}}}",
        1_000,
        "0 a-0: down 1; 0 b-0: run 10000; 0 a-0: wait 0 1; 10000 b-0: down 1; 10000 b-0: broad 0; \
         10000 b-0: up 1; \
         10000 a-0: up 1; 10000 a-0: run 5000; 10000 b-0: exit; 15000 a-0: exit",
    );
    // A suspend without a value uses the task's own name, as one with an empty name does.
    check(
        "{'tasks': {'a': {'loop': 1, 'suspend', 'run': 5}, 'b': {'loop': 1, 'run': 10, 'resume': 'a'}}}",
        20,
        "0 a-0: down 1; 0 b-0: run 10000; 0 a-0: wait 0 1; 10000 b-0: down 1; 10000 b-0: broad 0; \
         10000 b-0: up 1; 10000 a-0: up 1; 10000 a-0: run 5000; 10000 b-0: exit; 15000 a-0: exit",
    );
    check(
        "{'tasks': {'a': {'loop': 1, 'lock': 'm', 'wait': {'ref': 'c', 'mutex': 'm'}, 'unlock': 'm'}, \
         'b': {'loop': 1, 'run': 1, 'sync': {'ref': 'c', 'mutex': 'm'}}}}",
        1_000,
        "0 a-0: down 0; 0 b-0: run 1000; 0 a-0: wait 1 0; 1000 b-0: down 0; 1000 b-0: signal 1; \
         1000 b-0: wait 1 0; \
         1000 a-0: up 0; 1000 a-0: exit",
    );
    // The barrier counts all tasks that name it, with their instances.
    check(
        "{'tasks': {'a': {'instance': 2, 'loop': 1, 'barrier': 'x'}, 'b': {'loop': 1, 'run': 3, 'barrier': 'x'}}}",
        2_000,
        "0 a-0: barrier 0; 0 a-1: barrier 0; 0 b-0: run 3000; 3000 b-0: barrier 0; 3000 a-0: exit; \
         3000 a-1: exit; 3000 b-0: exit",
    );
    // A fork inherits CPUs, but not the nice value.
    check(
        "{'tasks': {'a': {'loop': 1, 'priority': 5, 'fork': 'b', 'run': 1}, 'b': {'instance': 0, 'loop': 1, 'run': 2}}}",
        1_000,
        "0 a-0: fork b-fork0 Some(0); 0 b-fork0: run 2000; 0 a-0: run 1000; 1000 a-0: exit; 2000 \
         b-fork0: exit",
    );
    // All threads end at the end; one that holds a mutex ends when it has released it.
    check(
        "{'global': {'duration': 1}, 'tasks': {'a': {'lock': 'm', 'run': 600000, 'run1': 600000, 'unlock': 'm'}}}",
        3_000_000,
        "0 a-0: down 0; 0 a-0: run 600000000; 600000000 a-0: run 600000000; 1200000000 a-0: up 0; \
         1200000000 a-0: exit",
    );
    // Loops of 7 ns give slightly less.
    check(
        "{'global': {'calibration': 7}, 'tasks': {'a': {'loop': 1, 'run': 1}}}",
        1_000,
        "0 a-0: run 994; 994 a-0: exit",
    );
}

#[test]
fn what_is_reported() {
    let text = one("\"loop\": 3, \"run\": 10, \"timer\": {\"ref\": \"unique\", \"period\": 30}");
    let seen = run(&text, 1_000)
        .expect("a file")
        .groups
        .remove("t")
        .expect("a group");
    assert_eq!((seen.done, seen.responses), (3, vec![10_000; 3]));
    let text = one("\"loop\": 2, \"taskgroup\": \"/g\", \"run\": 10, \"sleep\": 5");
    let seen = run(&text, 1_000)
        .expect("a file")
        .groups
        .remove("/g")
        .expect("a group");
    assert_eq!((seen.done, seen.responses), (2, vec![15_000; 2]));
    // A fork bomb is limited to 1024 forks.
    let bomb = run(&one("\"fork\": \"t\", \"run\": 100"), 3_000).expect("a file");
    assert_eq!(bomb.groups["t"].tasks, 1025);
}

#[test]
fn wrong_files() {
    let whole = |text: &str, expected: &str| {
        let text = text.replace('\'', "\"");
        let why = run(&text, 1)
            .err()
            .unwrap_or_else(|| panic!("{text} was taken"));
        assert!(why.contains(expected), "{text}: {why}");
    };
    whole("", "no JSON: EOF");
    whole("{'tasks': {'t' {}}}", "no JSON: expected `:` at line 1");
    whole("[]", "the file: an object is needed, not an array");
    whole("{}", "there are no tasks");
    whole("{'tasks': {}}", "there are no tasks");
    whole(
        "{'task': {}}",
        "object 'task': rt-app has global, tasks and resources only",
    );
    whole(
        "{'tasks': {'t': {'run': 1}, 't': {'run': 1}}}",
        "task 't' is there twice",
    );
    whole(
        "{'tasks': {'t': 1}}",
        "task 't': an object is needed, not an integer",
    );
    whole(
        "{'tasks': {'t': {'instance': 0, 'run': 1}}}",
        "no task has an instance",
    );
    whole(
        "{'tasks': {'t': {'instance': 1000000, 'run': 1}}}",
        "1000000 tasks",
    );
    whole(
        "{'resources': 3, 'tasks': {'t': {'run': 1}}}",
        "object 'resources': an object is needed",
    );
    let global = |key: &str, expected: &str| {
        whole(
            &format!("{{'global': {{{key}}}, 'tasks': {{'t': {{'run': 1}}}}}}"),
            &format!("global, {expected}"),
        );
    };
    global("'spacing': 1", "key 'spacing': rt-app has no such key");
    global("'duration': -2", "key 'duration': -2 is not from -1");
    global(
        "'pi_enabled': true",
        "key 'pi_enabled': the simulator's mutexes",
    );
    global(
        "'lock_pages': 1",
        "key 'lock_pages': true or false is needed",
    );
    global(
        "'io_device': '/dev/sda'",
        "key 'io_device': no device is simulated but",
    );
    global(
        "'default_policy': 'SCHED_FIFO'",
        "key 'default_policy': SCHED_FIFO is a class above",
    );
    global("'calibration': 'CPUx'", "key 'calibration': it is a CPU");
    let check = |task: &str, expected: &str| whole(&one(task), expected);
    check(
        "'loop': 1",
        "task 't': a task and each of its phases must have events",
    );
    check("'phases': {'p': {'loop': 2}}", "task 't': a task and each");
    check("'phases': {}", "task 't': a task and each");
    check("'phases': 1", "task 't', key 'phases': an object is needed");
    check(
        "'phases': {'p': {'run': 1}}, 'run': 2",
        "task 't', key 'run': a task that has phases",
    );
    check(
        "'phases': {'p': {'delay': 1, 'run': 1}}",
        "task 't', phase 'p', key 'delay': this is said of tasks",
    );
    check(
        "'phases': {'p': {'rum': 1}}",
        "task 't', phase 'p', key 'rum': rt-app has no such key",
    );
    check(
        "'phases': {'p': {'loop': 0, 'run': 1}}",
        "none of the phases is ever run",
    );
    check(
        "'run': '1'",
        "task 't', key 'run': an integer is needed, not a string",
    );
    check("'run': 1.5", "not a number that is no integer");
    check("'run': -1", "-1 is not from 0");
    check("'sleep': 3000000000", "is not from 0 to 2147483647");
    check(
        "'loop': 1, 'loop': 2, 'run': 1",
        "key 'loop': it is there twice",
    );
    check(
        "'cpus': [4], 'run': 1",
        "key 'cpus': there is no CPU 4: the machine has 4",
    );
    check("'cpus': [], 'run': 1", "at least one CPU");
    check(
        "'policy': 'SCHED_RR', 'run': 1",
        "key 'policy': SCHED_RR is a class above",
    );
    check(
        "'policy': 'SCHED_IDLE', 'run': 1",
        "weighs less than any nice value",
    );
    check(
        "'policy': 'SCHED_NONE', 'run': 1",
        "'SCHED_NONE' is no scheduling policy",
    );
    check("'priority': 20, 'run': 1", "20 is not from -20 to 19");
    check(
        "'dl-period': 20, 'run': 1",
        "key 'dl-period': it is SCHED_DEADLINE's",
    );
    check(
        "'policy': 'SCHED_DEADLINE', 'dl-runtime': 20, 'run': 1",
        "SCHED_DEADLINE is a class above all policies",
    );
    check(
        "'sem_wait': 's', 'run': 1",
        "key 'sem_wait': the simulator has no such event",
    );
    check(
        "'memrun': 20, 'run': 1",
        "key 'memrun': the simulator has no such event",
    );
    check("'util_min': 20, 'run': 1", "utilization clamps");
    check(
        "'dl-reclaim': true, 'run': 1",
        "key 'dl-reclaim': it is SCHED_DEADLINE's",
    );
    check(
        "'external_workload1': {}, 'run': 1",
        "cannot run a library's code",
    );
    check("'membind_nodes': [0], 'run': 1", "memory has no place");
    check("'taskgroup': 'g', 'run': 1", "'g' does not begin with '/'");
    check(
        "'phases': {'p': {'taskgroup': '/g', 'run': 1}}",
        "cannot change its group",
    );
    check(
        "'timer': {'ref': 'x'}",
        "key 'timer': it needs ref and period",
    );
    check(
        "'timer': {'ref': 'x', 'period': 1, 'mode': 'x'}",
        "mode 'x' is neither",
    );
    check(
        "'timer': {'ref': 'x', 'period': 1, 'phase': 'x'}",
        "not 'phase'",
    );
    check("'wait': 'c'", "key 'wait': an object is needed");
    check(
        "'wait': {'ref': 'c', 'mutex': 'm'}",
        "key 'wait': the task does not have 'm', which it gives back",
    );
    check("'sync': {'ref': 'c'}", "it needs ref and mutex");
    check(
        "'unlock': 'm', 'run': 1",
        "key 'unlock': the task does not have 'm'",
    );
    check(
        "'lock': 'm', 'lock': 'm'",
        "key 'lock': the task has 'm' already",
    );
    check(
        "'loop': 1, 'lock': 'm', 'run': 1",
        "key 'lock': 'm' is never unlocked",
    );
    check(
        "'phases': {'p': {'loop': 2, 'lock': 'm'}, 'q': {'unlock': 'm'}}",
        "phase 'p', key 'loop': 'm' is not as it was",
    );
    check("'resume': ''", "key 'resume': a name is needed");
    check("'hint': 1", "key 'hint': an array is needed");
    check("'hint': []", "key 'hint': a tag is needed");
    check("'hint': [-1]", "key 'hint': -1 is not from 0");
    check(
        "'hint': [1, 1, 2, 3, 4, 5, 6, 7]",
        "key 'hint': a hint has six words at most",
    );
    check(
        "'hint': [1, 't', 't']",
        "key 'hint': a hint names one thread at most",
    );
    check(
        "'hint': [1, 'u']",
        "key 'hint': there is no task 'u' from the beginning",
    );
    check("'fork': 'u'", "key 'fork': there is no task 'u'");
    check(
        "'fork': 't', 'barrier': 'b'",
        "key 'barrier': a task that is forked cannot have one",
    );
}

#[test]
fn hints_of_a_file() {
    let text = r#"{"tasks": {"a": {"phases": {"p": {"hint0": [3, -1, "b", 7], "hint1": [4]},
        "q": {"hint0": [3, -1, "b", 7], "hint1": [4, 1]}}}, "b": {"run": 1}}}"#;
    let of = |tag, first, second, about| {
        let words = [first, second, 0, 0, 0, 0];
        (
            BatonHint {
                tag,
                words,
                ..BatonHint::default()
            },
            about,
        )
    };
    let expected = vec![
        of(3, u64::MAX, 7, true),
        of(4, 0, 0, false),
        of(4, 1, 0, false),
    ];
    assert_eq!(hints(text), Ok(expected));
    assert_eq!(hints(&one("\"run\": 1")), Ok(Vec::new()));
    assert!(hints(&one("\"hint\": []")).is_err());
}

#[test]
fn the_examples_run() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect(folder)
        .map(|entry| entry.expect("a file").path())
        .collect();
    files.sort();
    let files: Vec<_> = files
        .into_iter()
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .collect();
    assert!(files.len() >= 3);
    for path in files {
        let spec = format!("{}+pipe", path.display());
        let mut world = World::new();
        crate::workloads::build(
            &spec,
            1,
            4,
            &|path| std::fs::read(path).map_err(|why| format!("{path}: {why}")),
            &mut world,
        )
        .unwrap_or_else(|why| panic!("{why}"));
        let seen = Ideal::run(world, 1, 500_000_000);
        assert!(
            seen.groups.len() >= 2 && seen.groups.values().all(|seen| seen.done > 0),
            "{spec}: {:?}",
            seen.groups.keys()
        );
    }
}

/// Files of the same structure and keys as each of rt-app's own examples. Each is accepted with the
/// expected numbers of tasks, phases and events, or refused with the expected reason. BATON_BLESS=1
/// rewrites the expectations.
#[test]
fn files_as_rt_apps_examples_are_read_or_refused() {
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    let mut files: Vec<_> = std::fs::read_dir(format!("{tests}/rtapp"))
        .expect("a folder")
        .map(|entry| entry.expect("a file").path())
        .collect();
    files.sort();
    let mut got = String::new();
    for path in files {
        let text = std::fs::read_to_string(&path).expect("a text");
        let name = path.file_stem().expect("a name").to_string_lossy();
        let said = judged(&text).unwrap_or_else(|why| format!("refused: {why}"));
        got += &format!("{name}: {said}\n");
    }
    let path = format!("{tests}/golden/rtapp.txt");
    if std::env::var_os("BATON_BLESS").is_some() {
        std::fs::write(&path, &got).expect("a file");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        got, expected,
        "{path} differs; if that is meant: BATON_BLESS=1 cargo test -p baton-sim"
    );
}

/// The size of a file, and what each of its groups does in 300 ms.
fn judged(text: &str) -> Result<String, String> {
    let file = parse::file(&json::parse(text)?, 4)?;
    let phases: Vec<_> = file.tasks.iter().flat_map(|task| &task.phases).collect();
    let tasks = file.tasks.iter().map(|task| task.instances).sum::<u64>();
    let events = phases.iter().map(|phase| phase.events.len()).sum::<usize>();
    let seen = run(text, 300_000)?;
    let done: Vec<_> = seen
        .groups
        .iter()
        .map(|(name, seen)| format!("{name} {}", seen.done))
        .collect();
    let phases = phases.len();
    Ok(format!(
        "tasks {tasks}, phases {phases}, events {events}; done: {}",
        done.join(", ")
    ))
}

const SEED: &str = r#"{ /* all kinds */ "global": {"duration": 1, "calibration": "CPU0", "default_policy": "SCHED_OTHER"},
 "resources": {"m": {"type": "mutex"}}, "tasks": {
 "a": {"instance": 2, "delay": 3, "cpus": [0, 1], "priority": 2, "phases": {
   "p": {"loop": 3, "run": 1, "timer": {"ref": "unique", "period": 30, "mode": "absolute"}, "barrier": "b"},
   "q": {"lock": "m", "wait": {"ref": "c", "mutex": "m"}, "unlock": "m", "mem": 10, "iorun": 10, "runtime": 40}}},
 "d": {"loop": 2, "signal": "c", "broad": "c", "sync": {"ref": "c", "mutex": "m"}, "suspend": "", "resume": "a", "yield": "", "hint": [1, 2, "a"], "reply": "",
   "fork": "e", "taskgroup": "/g", "sleep": 5, },
 "e": {"instance": 0, "loop": 1, "run": 1}}}"#;

#[test]
fn the_seed_of_the_property_is_right() {
    assert_eq!(run(SEED, 1_000).err(), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any file is either read or refused, and what was read runs.
    #[test]
    fn mutated_files_never_panic(cuts in prop::collection::vec((any::<prop::sample::Index>(), 0usize..12, "[-\\[\\]{}:,\"0-9a-z*/ ]{0,8}"), 1..6)) {
        let mut text = SEED.to_string();
        for (at, long, put) in cuts {
            let at = at.index(text.len());
            text.replace_range(at..(at + long).min(text.len()), &put);
        }
        // Thousands of tasks would be valid, but slow.
        let many = text.split("instance").skip(1).any(|rest| rest.chars().take(12).filter(char::is_ascii_digit).count() > 2);
        if !many {
            let _ = run(&text, 200);
        }
    }
}
