// SPDX-License-Identifier: GPL-2.0-only
use proptest::prelude::*;

use super::*;
use crate::workloads::ideal::Ideal;

fn run(text: &str) -> Result<Ideal, String> {
    let mut world = World::new();
    add(text.as_bytes(), "perf", &mut world)?;
    Ok(Ideal::run(world, 1, 10_000_000_000))
}

/// The actions of a recording's tasks, one line per task, without the numbers for reports.
fn done(text: &str) -> String {
    let log = run(text).unwrap_or_else(|why| panic!("{text}: {why}")).log;
    let ops = log
        .iter()
        .filter(|line| !line.contains(": done") && !line.contains(": response"));
    ops.map(String::as_str).collect::<Vec<_>>().join("\n")
}

/// Two CPUs. On the first, cc1 computes for 100 us, wakes as, computes 50 us more and sleeps until
/// an interrupt of the idle CPU wakes it. On the second are a task of the RT class, and as, which
/// is preempted by it and then sleeps until the end.
const PERF: &str = include_str!("perf.txt");

#[test]
fn tasks_do_what_they_did() {
    // The first event that is read is at 12.0001: as sleeps until then, and is woken by cc1. Its 40
    // us and 70 us are one computation.
    assert_eq!(
        done(PERF),
        "0 cc1: put 0 0\n0 cc1: run 50000\n0 as: take 0\n0 as: run 120000\n50000 cc1: sleep \
         200000\n120000 as: suspend\n\
         250000 cc1: run 60000\n310000 cc1: exit"
    );
    // The same events as printed by trace-cmd with the plugins of libtraceevent, with full names
    // and flags.
    let plugins = "\
cpus=2
             cc1-7     [000] d..2.    12.000100: sched_wakeup:         as:8 [125] CPU:001
             cc1-7     (      7) [000] d..2.    12.000150: sched_switch:         cc1:7 [110] S ==> \
             swapper/0:0 [120]
          <idle>-0     [001] d..2.    12.000160: sched_switch:         swapper/1:0 [120] R ==> \
          as:8 [125]
              as-8     [001] d..3.    12.000200: sched_wakeup:         migration/1:5 [0] success=1 \
              CPU:001
              as-8     [001]    12.000210: sched_switch:         as:8 [125] R ==> migration/1:5 [0]
     migration/1-5     [001] d..2.    12.000220: sched_switch:         migration/1:5 [0] S ==> \
     as:8 [125]
              as-8     [001] d..2.    12.000290: sched_switch:         as:8 [125] D|W ==> \
              swapper/1:0 [120]
          <idle>-0     [000] dNh2.    12.000350: sched_wakeup:         cc1:7 [110] CPU:000
          <idle>-0     [000] d..2.    12.000360: sched_switch:         swapper/0:0 [120] R ==> \
          cc1:7 [110]
             cc1-7     [000] .....    12.000400: sched_process_exit:   comm=cc1 pid=7 prio=110
             cc1-7     [000] d..2.    12.000420: sched_switch:         cc1:7 [110] Z ==> \
             swapper/0:0 [120]
";
    assert_eq!(done(plugins), done(PERF));
    let nices = |text: &str| {
        let mut world = World::new();
        add(text.as_bytes(), "perf", &mut world).expect("a recording");
        world
            .tasks
            .iter()
            .map(|task| (task.name.to_string(), task.nice, task.at))
            .collect::<Vec<_>>()
    };
    let expected = [
        ("cc1".to_string(), Some(-10), 0),
        ("as".to_string(), Some(5), 0),
    ];
    assert_eq!(
        (nices(PERF), nices(plugins)),
        (expected.to_vec(), expected.to_vec())
    );
}

/// Expands the short form of a CPU's lines: `0.000100 [0] sh 7 EVENT FIELDS`.
fn lines(short: &str) -> String {
    let line = |line: &str| {
        let mut words = line.trim().splitn(5, ' ');
        let [time, cpu, comm, pid, event] = [(); 5].map(|()| words.next().expect("five words"));
        let event = event
            .replace("switch ", "sched_switch: ")
            .replace("waking ", "sched_waking: ")
            .replace("wake ", "sched_wakeup: ")
            .replace("new ", "sched_wakeup_new: ")
            .replace("fork ", "sched_process_fork: ")
            .replace("exit ", "sched_process_exit: ");
        format!("{comm}-{pid} {cpu} .... {time}: {event}\n")
    };
    short
        .lines()
        .filter(|text| !text.trim().is_empty())
        .map(line)
        .collect()
}

#[test]
fn what_is_kept_and_what_is_not() {
    let check = |short: &str, expected: &str| {
        assert_eq!(done(&lines(short)).replace('\n', "; "), expected, "{short}");
    };
    // Forks and exits. The child has the name that it took, and its parent's nice value.
    check(
        "0.000000 [0] sh 7 switch init:1 [120] S ==> sh:7 [121]
         0.000010 [0] sh 7 fork comm=sh pid=7 child_comm=sh child_pid=9
         0.000011 [0] sh 7 new sh:9 [121] CPU:001
         0.000020 [0] sh 7 switch sh:7 [121] S ==> ls:9 [121]
         0.000050 [0] ls 9 exit comm=ls pid=9 prio=121
         0.000055 [0] ls 9 wake sh:7 [121] CPU:000
         0.000060 [0] ls 9 switch ls:9 [121] X ==> sh:7 [121]
         0.000065 [0] sh 7 switch sh:7 [121] Z ==> swapper/0:0 [120]",
        "0 sh: run 10000; 0 init: suspend; 10000 sh: fork ls Some(1); 10000 ls: run 35000; 10000 \
         sh: run 10000; \
         20000 sh: take 0; 45000 ls: put 0 0; 45000 sh: run 5000; 45000 ls: run 5000; 50000 ls: \
         exit; 50000 sh: exit",
    );
    // A wakeup in an interrupt, or one whose waker was not recorded, becomes a time.
    check(
        "0.000000 [0] a 1 switch a:1 [120] S ==> b:2 [120]
         0.000010 [0] b 2 switch b:2 [120] D ==> c:3 [120]
         0.000015 [0] c 3 switch c:3 [120] R ==> b:2 [120]
         0.000020 [0] b 2 switch b:2 [120] S ==> c:3 [120]",
        "0 b: run 10000; 0 c: run 5000; 0 a: suspend; 5000 c: exit; 10000 b: sleep 5000; 15000 b: \
         run 5000; 20000 b: suspend",
    );
    let interrupt = lines(
        "0.000000 [0] a 1 switch a:1 [120] S ==> b:2 [120]
         0.000010 [0] b 2 wake a:1 [120] CPU:000
         0.000030 [0] b 2 switch b:2 [120] S ==> a:1 [120]",
    );
    assert_eq!(
        done(&interrupt),
        "0 b: run 10000\n0 a: take 0\n10000 b: put 0 0\n10000 a: exit\n10000 b: run 20000\n30000 \
         b: suspend"
    );
    let interrupt = interrupt.replace(".... 0.000010", "d.h. 0.000010");
    assert_eq!(
        done(&interrupt),
        "0 b: run 30000\n0 a: sleep 10000\n10000 a: exit\n30000 b: suspend"
    );
    // sched_waking names the waker where the wakeup itself happens in an interrupt.
    check(
        "0.000000 [0] a 1 switch a:1 [120] S ==> b:2 [120]
         0.000010 [0] b 2 waking a:1 [120] CPU:001
         0.000012 [1] c 3 wake a:1 [120] CPU:001
         0.000020 [1] c 3 switch c:3 [120] R ==> a:1 [120]
         0.000030 [1] a 1 switch a:1 [120] S ==> c:3 [120]",
        "0 c: run 20000; 0 b: run 10000; 0 a: take 0; 10000 b: put 0 0; 10000 a: run 10000; 10000 \
         b: run 20000; 20000 c: exit; \
         20000 a: suspend; 30000 b: exit",
    );
    // A task that is awake is not woken again; a change of the nice value is kept.
    check(
        "0.000000 [0] a 1 switch a:1 [120] R ==> b:2 [120]
         0.000010 [0] b 2 wake a:1 [120] CPU:000
         0.000030 [0] b 2 switch b:2 [139] S ==> a:1 [120]
         0.000031 [0] a 1 switch a:1 [120] S ==> swapper/0:0 [120]",
        "0 a: run 1000; 0 b: run 30000; 1000 a: suspend; 30000 b: nice 19; 30000 b: suspend",
    );
    // A task that was ever RT is left out: its child starts on its own, and the task that it woke
    // is woken by a timer.
    check(
        "0.000000 [0] rt 1 switch a:2 [120] S ==> rt:1 [49]
         0.000010 [0] rt 1 wake a:2 [120] CPU:001
         0.000020 [0] rt 1 fork comm=rt pid=1 child_comm=rt child_pid=3
         0.000021 [0] rt 1 new rt:3 [120] CPU:000
         0.000030 [0] rt 1 switch rt:1 [49] S ==> child:3 [120]
         0.000035 [0] child 3 switch child:3 [120] S ==> a:2 [120]",
        "0 a: sleep 10000; 10000 a: exit; 20000 child: run 5000; 25000 child: suspend",
    );
    // perf stops recording one CPU before the other. A task that then appears on another CPU has
    // left the first one unrecorded.
    check(
        "0.000000 [0] a 1 switch x:9 [120] S ==> a:1 [120]
         0.000010 [1] b 2 switch b:2 [120] S ==> a:1 [120]
         0.000030 [1] a 1 switch a:1 [120] S ==> b:2 [120]",
        "0 b: run 10000; 0 a: run 30000; 0 x: suspend; 10000 b: sleep 20000; 30000 b: exit; 30000 \
         a: suspend",
    );
    // perf also starts one CPU after the other. The child came to the second CPU unrecorded, and is
    // on it at that CPU's first event.
    check(
        "0.000000 [0] a 1 fork comm=a pid=1 child_comm=a child_pid=2
         0.000001 [0] a 1 new a:2 [120] CPU:001
         0.000010 [0] a 1 switch a:1 [120] S ==> swapper/0:0 [120]
         0.000020 [1] b 2 switch b:2 [120] S ==> swapper/1:0 [120]",
        "0 a: fork b Some(0); 0 a: run 10000; 0 b: suspend; 10000 a: suspend",
    );
    // On a CPU without a switch, the current task is the one that its lines name. Names may contain
    // blanks, colons and brackets.
    check(
        "0.000000 [1] web 5 wake [x y]:z:6 [120] CPU:001
         0.000010 [0] s 0 switch swapper/0:0 [120] R ==> [x y]:z:6 [120]
         0.000030 [0] a 6 switch [x y]:z:6 [120] I ==> swapper/0:0 [120]",
        "0 web: put 0 0; 0 web: run 30000; 0 [x y]:z: take 0; 0 [x y]:z: run 20000; 20000 [x y]:z: \
         suspend; 30000 web: exit",
    );
}

#[test]
fn operations_and_responses() {
    let seen = run(PERF)
        .expect("a recording")
        .groups
        .remove("perf")
        .expect("its group");
    // as is woken at 0 and sleeps at 120 us. cc1 is due at 250 us and ends at 310 us; its first
    // operation began before the recording.
    assert_eq!((seen.done, seen.tasks, seen.ran), (4, 2, 230_000));
    assert_eq!(seen.responses, [120_000, 60_000]);
    // A recording always gives the same run.
    let [one, two] = [PERF, PERF].map(|text| run(text).expect("a recording").hash());
    assert_eq!(one, two);
}

#[test]
fn recordings_are_parts_of_a_mix() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/src/workloads/recorded/perf.txt"
    );
    let mut world = World::new();
    crate::workloads::build(
        &format!("perf:{file}+hogs:n=1+perf:{file}"),
        1,
        2,
        &|path| std::fs::read(path).map_err(|why| format!("{path}: {why}")),
        &mut world,
    )
    .expect("a mix");
    assert_eq!(
        world.group_names().collect::<Vec<_>>(),
        ["perf", "hogs", "perf-2"]
    );
    let groups = Ideal::run(world, 1, 100_000_000).groups;
    assert_eq!(
        (groups["perf"].clone(), groups["perf-2"].done),
        (groups["perf-2"].clone(), 4)
    );
}

#[test]
fn wrong_recordings() {
    let check = |text: &[u8], expected: &str| {
        let why = add(text, "perf", &mut World::new()).expect_err(expected);
        assert!(why.contains(expected), "{why}");
    };
    check(b"PERFILE2\0\0", "`perf script -i FILE`");
    check(b"\x17\x08\x44tracing6", "`trace-cmd report FILE`");
    check(
        b"",
        "no sched_switch in it: record with `perf sched record`",
    );
    check(b"\xff\xfe\0", "no sched_switch in it");
    let with = |line: &str| format!("{PERF}{line}\n");
    let check = |line: &str, expected: &str| check(with(line).as_bytes(), expected);
    check(
        "CPU:1 [LOST 7 EVENTS]",
        "line 14 says that events were lost (CPU:1 [LOST 7 EVENTS])",
    );
    check("CPU:1 [7 EVENTS DROPPED]", "events were lost");
    check("Processed 70 events and lost 3 chunks!", "events were lost");
    check("LOST 12 events!", "events were lost");
    check(
        "perf 9 [001] 13.0: PERF_RECORD_LOST lost 12",
        "events were lost",
    );
    check(
        "sched_switch: a:1 [120] S ==> b:2 [120]",
        "line 14: before the event there is no task, [CPU] and time",
    );
    check(
        "a 1 [000] 13: sched:sched_switch: a:1 [120] S ==> b:2 [120]",
        "line 14: before the event",
    );
    check(
        "a 1 [000] 99999999999.0: sched:sched_switch: a:1 [120] S ==> b:2 [120]",
        "line 14: before the event",
    );
    check(
        "a 1 [000] 13.0: sched:sched_switch: a:1 [120] S",
        "line 14: sched_switch has other fields",
    );
    check(
        "a 1 [000] 13.0: sched:sched_switch: a:1 [120] Q ==> b:2 [120]",
        "line 14: sched_switch has other fields",
    );
    check(
        "a 1 [000] 13.0: sched_wakeup: comm=a pid=x prio=120",
        "line 14: sched_wakeup has other fields",
    );
    check(
        "a 1 [000] 13.0: sched_wakeup: a:1 [200] CPU:000",
        "line 14: sched_wakeup has other fields",
    );
    check(
        "a 1 [000] 13.0: sched_wakeup: swapper/0:0 [120] CPU:000",
        "line 14: sched_wakeup has other fields",
    );
    check(
        "a 1 [000] 13.0: sched_process_fork: comm=a pid=1",
        "line 14: sched_process_fork has other fields",
    );
    check(
        "a 1 [000] 13.0: sched_process_exit: pid=1",
        "line 14: sched_process_exit has other fields",
    );
    check(
        "a 1 [000] 11.0: sched_wakeup: a:1 [120] CPU:000",
        "line 14: time goes back, to 11.0",
    );
    check(
        "a 1 [000] 13.0: sched_switch: a:1 [120] S ==> b:2 [120]",
        "line 14: CPU 0 leaves a 1, and had 0: events are missing",
    );
    check(
        "s 0 [000] 13.0: sched_switch: s:0 [120] R ==> b:2 [120]\ns 0 [001] 13.1: sched_switch: \
         s:0 [120] R ==> b:2 [120]\n\
         b 2 [000] 13.2: sched_switch: b:2 [120] S ==> s:0 [120]",
        "line 15: b 2 comes to CPU 1 while CPU 0 has it: events are missing",
    );
    check(
        "s 0 [000] 13.0: sched_switch: s:0 [120] R ==> b:2 [120]\nb 2 [000] 13.1: \
         sched_process_fork: comm=b pid=2 child_comm=b child_pid=8",
        "line 15: b 8 is forked, and has not ended before",
    );
    let rt = "a 1 [000] 1.0: sched_switch: a:1 [9] S ==> s:0 [120]";
    let why = add(rt.as_bytes(), "perf", &mut World::new()).expect_err(rt);
    assert!(why.contains("no task of the normal class"), "{why}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any text is either read or refused, and what was read runs to its end.
    #[test]
    fn mutated_recordings_never_panic(cuts in prop::collection::vec((any::<prop::sample::Index>(), 0usize..12, "[-\\[\\]:=>/ \n0-9a-zRSDXZé]{0,8}"), 1..6)) {
        let mut text: Vec<char> = PERF.chars().collect();
        for (at, long, put) in cuts {
            let at = at.index(text.len());
            let end = (at + long).min(text.len());
            text.splice(at..end, put.chars());
        }
        let _ = run(&text.into_iter().collect::<String>());
    }

    /// The same for lines that are each valid, in any order. Few are consistent, and those that are
    /// run.
    #[test]
    fn any_events_never_panic(events in prop::collection::vec((0u8..6, 0u32..3, 0u32..6, 0u32..6, 0u64..50), 1..40)) {
        let (mut text, mut now, mut on) = (String::new(), 0, [0; 3]);
        for (kind, cpu, one, two, later) in events {
            now += later;
            let had = on[cpu as usize];
            if kind < 3 {
                on[cpu as usize] = one;
            }
            let state = ["R", "S", "X"][kind as usize % 3];
            text += &format!("t-{had} [{cpu:03}] .... 0.{now:06}: ");
            text += &match kind {
                0..=2 => format!("sched_switch: t:{had} [120] {state} ==> t:{one} \
                    [{}]\n", 119 + two),
                3 => format!("sched_wakeup: t:{two} [120] CPU:000\n"),
                4 => format!("sched_process_fork: comm=t pid={had} child_comm=t child_pid={two}\n"),
                _ => format!("sched_process_exit: comm=t pid={had} prio=120\n"),
            };
        }
        let _ = run(&text);
    }
}
