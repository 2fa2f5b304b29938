// SPDX-License-Identifier: GPL-2.0-only
//! Tests that a detail shows what happened, and that its text is read back as it was written.

use super::mark::{read, step, Mark, Token};
use super::*;
use crate::trace::{Event, Left, Sink};
use crate::world::TaskRef;
use proptest::prelude::*;

const CPUS_HERE: usize = 4;

fn switch(cpu: u32, prev: Option<(u32, Left)>, next: Option<u32>) -> Event {
    let prev = prev.map(|(task, left)| (TaskRef(task), left));
    Event::Switch {
        cpu,
        prev,
        next: next.map(TaskRef),
        migrated: false,
    }
}

fn wake(task: u32, waker: u32) -> Event {
    Event::Wake {
        task: TaskRef(task),
        cpu: 0,
        waker,
    }
}

/// Passes the events to a collector, each with its waker. Tasks 1 to 3 are named a to c.
fn collect(
    part: std::ops::Range<u64>,
    limit: usize,
    events: &[(u64, Event, Option<u32>)],
    end: u64,
) -> Option<Detail> {
    let mut collector = Collector::new(CPUS_HERE, part, limit);
    for (task, name) in (1..).zip(["a", "b", "c"]) {
        collector.task(TaskRef(task), "some", name);
    }
    for (now, event, waker) in events {
        collector.woken_by(waker.map(TaskRef));
        collector.event(*now, event);
    }
    collector.finish(end)
}

/// A task wakes another, which waits and then runs on another CPU; the first is preempted.
fn story() -> Vec<(u64, Event, Option<u32>)> {
    let moved = Event::Switch {
        cpu: 1,
        prev: None,
        next: Some(TaskRef(2)),
        migrated: true,
    };
    vec![
        (100, wake(1, 3), None),
        (110, switch(0, None, Some(1)), None),
        (150, wake(2, 0), Some(1)),
        (170, moved, None),
        (200, switch(0, Some((1, Left::Preempted)), Some(3)), None),
        (
            230,
            Event::Higher {
                cpu: 3,
                begins: true,
            },
            None,
        ),
        (
            240,
            Event::Online {
                cpu: 2,
                online: false,
            },
            None,
        ),
        (300, switch(1, Some((2, Left::Blocked)), Some(1)), None),
        (350, switch(1, Some((1, Left::Dead)), None), None),
    ]
}

#[test]
fn spans_and_waits() {
    let detail = collect(0..u64::MAX, LIMIT, &story(), 400).unwrap();
    assert_eq!(
        detail.events,
        "+2sW0.3+aR0.0+14W1.0.0+kM1.1+uP0R0.2+uH3+aF2+1oB1R1.0+1eX1"
    );
    assert_eq!((detail.from_ns, detail.to_ns, detail.cpus), (0, 400, 4));
    assert_eq!(detail.groups, ["some"]);
    let names: Vec<_> = detail
        .tasks
        .iter()
        .map(|task| (task.0, task.1, &*task.2))
        .collect();
    assert_eq!(names, [(1, 0, "a"), (2, 0, "b"), (3, 0, "c")]);
    let span = |cpu, task, from, to, left| Span {
        cpu,
        task,
        from,
        to,
        moved: false,
        left,
    };
    let (gone, dead) = (Some(Left::Blocked), Some(Left::Dead));
    let decoded = detail.decode().unwrap();
    let expected = [
        span(0, 0, 110, 200, Some(Left::Preempted)),
        Span {
            moved: true,
            ..span(1, 1, 170, 300, gone)
        },
        span(1, 0, 300, 350, dead),
        span(0, 2, 200, 400, None),
    ];
    assert_eq!(decoded.spans, expected);
    let woken = |cpu, task| Some(Waker { cpu, task });
    let expected = [
        Wait {
            task: 0,
            from: 100,
            to: 110,
            woken: woken(3, None),
            ran_on: Some(0),
        },
        Wait {
            task: 1,
            from: 150,
            to: 170,
            woken: woken(0, Some(0)),
            ran_on: Some(1),
        },
        Wait {
            task: 0,
            from: 200,
            to: 300,
            woken: None,
            ran_on: Some(1),
        },
    ];
    assert_eq!(decoded.waits, expected);
}

/// A detail that begins in the middle of a run shows which tasks ran and waited then.
#[test]
fn a_part_of_a_run() {
    let detail = collect(210..320, LIMIT, &story(), 400).unwrap();
    assert_eq!(detail.events, "R0.0R1.1W2+kH3+aF2+1oB1R1.2");
    let decoded = detail.decode().unwrap();
    let spans: Vec<_> = decoded
        .spans
        .iter()
        .map(|span| (span.cpu, span.task, span.from, span.to))
        .collect();
    assert_eq!(
        spans,
        [(1, 1, 210, 300), (0, 0, 210, 320), (1, 2, 300, 320)]
    );
    assert_eq!(
        decoded.waits,
        [Wait {
            task: 2,
            from: 210,
            to: 300,
            woken: None,
            ran_on: Some(1)
        }]
    );
    let later = collect(260..u64::MAX, LIMIT, &story(), 400).unwrap();
    assert_eq!(later.events, "R0.0R1.1F2H3W2+14B1R1.2+1eX1");
    assert_eq!(collect(400..500, LIMIT, &story(), 400), None);
    let quiet = collect(380..500, LIMIT, &story(), 400).unwrap();
    assert_eq!((&*quiet.events, quiet.to_ns), ("R0.0F2H3", 400));
}

#[test]
fn a_detail_is_bounded() {
    // Each task has a name of 100 letters, is woken, runs and exits.
    let many = |limit, tasks: u32| {
        let mut collector = Collector::new(CPUS_HERE, 0..u64::MAX, limit);
        for task in 0..tasks {
            let now = u64::from(task) * 1000;
            collector.task(TaskRef(task), "group", &"x".repeat(100));
            collector.event(now, &wake(task, 0));
            collector.event(now + 10, &switch(1, None, Some(task)));
            collector.event(now + 20, &switch(1, Some((task, Left::Dead)), None));
        }
        collector.finish(u64::from(tasks) * 1000).unwrap()
    };
    for (limit, tasks, at_least) in [
        (LIMIT, 3000, 3000),
        (LIMIT, 60_000, 3500),
        (10_000, 3000, 100),
    ] {
        let detail = many(limit, tasks);
        let size = serde_json::to_string(&detail).unwrap().len();
        assert!(size <= limit + 300, "{size} bytes");
        let spans = detail.decode().unwrap().spans;
        assert!(spans.len() >= at_least, "{} spans", spans.len());
        // All of them, until the detail ends.
        let whole = many(usize::MAX, tasks).decode().unwrap().spans;
        let there = whole.iter().filter(|span| span.to < detail.to_ns);
        assert_eq!(
            there.count(),
            spans.iter().filter(|span| span.to < detail.to_ns).count()
        );
        assert!(detail.tasks.iter().all(|task| task.2.len() == NAME));
    }
    let many = many(LIMIT, 4000);
    assert!(many.tasks.len() <= TASKS && many.to_ns < 4_000_000);
    assert_eq!(
        collect(210..u64::MAX, 30, &story(), 400),
        None,
        "there is no room for what ran then"
    );
}

#[test]
fn wrong_details_are_refused() {
    let check = |events: &str, part: &str| {
        let tasks = vec![TaskName(1, 0, "a".into()), TaskName(2, 0, "b".into())];
        let detail = Detail {
            from_ns: 10,
            to_ns: 20,
            cpus: 2,
            groups: vec!["g".into()],
            tasks,
            events: events.into(),
        };
        let why = detail.decode().unwrap_err();
        assert!(why.contains(part), "{events}: {why}");
    };
    check("+b", "later than 20");
    check("+3w5e11264sgsf", "later than 20");
    check("+3w5e11264sgsg", "'+3w5e11264sgsg' is no event");
    check("+", "'+' is no event");
    check("R", "'R' is no event");
    check("R0.", "'R0.' is no event");
    check("R0.0.0", "no event");
    check("W0.0.0.0", "no event");
    check("r0.0", "'r0.0' is no event");
    check("W+1", "'W' is no event");
    check("é0", "'é0' is no event");
    check("R2.0", "there can be no Run");
    check("R0.2", "there can be no Run");
    check("R0.0R1.0", "there can be no Run");
    check("R0.0R0.1", "there can be no Run");
    check("B0", "there can be no Leave");
    check("W0W0", "there can be no Wake");
    check("W0.2", "there can be no Wake");
    check("W0.1.2", "there can be no Wake");
    check("H2", "there can be no Higher");
    let task = TaskName(1, 1, "a".into());
    let orphan = Detail {
        tasks: vec![task],
        groups: vec!["g".into()],
        ..Detail::default()
    };
    assert!(orphan.decode().unwrap_err().contains("is of group 1"));
    assert!(Detail {
        cpus: u32::MAX,
        ..Detail::default()
    }
    .decode()
    .unwrap_err()
    .contains("at most"));
    assert!(Detail {
        from_ns: 1,
        ..Detail::default()
    }
    .decode()
    .is_err());
}

fn any_mark() -> impl Strategy<Value = Mark> {
    let left = prop::sample::select(vec![
        Left::Blocked,
        Left::Preempted,
        Left::Yielded,
        Left::Dead,
    ]);
    prop_oneof![
        (any::<u32>(), any::<Option<(u32, Option<u32>)>>())
            .prop_map(|(task, waker)| Mark::Wake { task, waker }),
        (any::<u32>(), any::<u32>(), any::<bool>()).prop_map(|(cpu, task, moved)| Mark::Run {
            cpu,
            task,
            moved
        }),
        (any::<u32>(), left).prop_map(|(cpu, left)| Mark::Leave { cpu, left }),
        (any::<u32>(), any::<bool>()).prop_map(|(cpu, begins)| Mark::Higher { cpu, begins }),
        (any::<u32>(), any::<bool>()).prop_map(|(cpu, online)| Mark::Online { cpu, online }),
    ]
}

/// Events of a consistent machine: a CPU runs only tasks that were waiting.
fn any_events() -> impl Strategy<Value = Vec<(u64, Event, Option<u32>)>> {
    prop::collection::vec(
        (
            0_u64..50,
            0_u32..6,
            0_u8..8,
            1_u32..5,
            0_u32..CPUS_HERE as u32,
        ),
        0..120,
    )
    .prop_map(|steps| {
        let mut now = 0;
        let event = |(passed, other, what, task, cpu): (u64, u32, u8, u32, u32)| {
            now += passed;
            let lefts = [Left::Blocked, Left::Preempted, Left::Yielded];
            let event = match what {
                0..3 => wake(task, cpu),
                3 => switch(cpu, Some((task, lefts[other as usize % 3])), None),
                4 => Event::Higher {
                    cpu,
                    begins: other > 2,
                },
                5 => Event::Online {
                    cpu,
                    online: other > 2,
                },
                _ => switch(
                    cpu,
                    Some((task, lefts[other as usize % 3])),
                    Some(other + 1),
                ),
            };
            (now, event, (other > 2).then_some(other))
        };
        steps.into_iter().map(event).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn events_are_read_as_they_were_written(events in prop::collection::vec((any::<u64>(), any_mark()), 0..40)) {
        let (mut text, mut expected) = (String::new(), Vec::new());
        for (passed, mark) in events {
            step(&mut text, passed);
            mark.write(&mut text);
            expected.extend((passed > 0).then_some(Token::Step(passed)).into_iter().chain([Token::Mark(mark)]));
        }
        prop_assert_eq!(read(&text).collect::<Result<Vec<_>, _>>().unwrap(), expected);
    }

    /// Compares CPU time and waiting time with sums over the events.
    #[test]
    fn what_is_collected_is_what_happened(events in any_events(), from in 0_u64..500, length in 1_u64..4000) {
        let end = events.last().map_or(1, |(now, ..)| now + 1);
        let to = end.min(from + length);
        let (mut cpus, mut waiting) = ([None; CPUS_HERE], std::collections::BTreeSet::new());
        let (mut ran, mut waited, mut before) = (0, 0, 0);
        for (now, event) in events.iter().map(|(now, event, _)| (*now, Some(event))).chain([(end, None)]) {
            let within = now.clamp(from, to.max(from)) - before.clamp(from, to.max(from));
            ran += within * cpus.iter().flatten().count() as u64;
            waited += within * waiting.len() as u64;
            before = now;
            match event {
                Some(Event::Wake { task, .. }) if !cpus.contains(&Some(*task)) => drop(waiting.insert(*task)),
                Some(Event::Switch { cpu, prev, next, .. }) => {
                    let old = cpus[*cpu as usize].take();
                    let stays = prev.is_some_and(|(_, left)| left != Left::Blocked);
                    waiting.extend(old.filter(|_| stays));
                    if let Some(next) = next {
                        cpus.iter_mut().filter(|task| **task == Some(*next)).for_each(|task| *task = None);
                        waiting.remove(next);
                        cpus[*cpu as usize] = Some(*next);
                    }
                }
                _ => {}
            }
        }
        let decoded = collect(from..to.max(from), LIMIT, &events, end).map(|detail| detail.decode().unwrap());
        let decoded = decoded.unwrap_or_default();
        prop_assert_eq!(decoded.spans.iter().map(|span| span.to - span.from).sum::<u64>(), ran);
        prop_assert_eq!(decoded.waits.iter().map(|wait| wait.to - wait.from).sum::<u64>(), waited);
    }

    #[test]
    fn any_text_is_read_or_refused(events in "[0-9a-c.+WRMBPYXHLFNé]{0,40}", tasks in 0_usize..4) {
        let tasks = vec![TaskName::default(); tasks];
        let detail = Detail { to_ns: 500, cpus: 3, groups: vec![String::new()], tasks, events, ..Detail::default() };
        let _ = detail.decode();
    }
}
