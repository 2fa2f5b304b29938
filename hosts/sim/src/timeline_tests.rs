// SPDX-License-Identifier: GPL-2.0-only
//! Tests that a timeline shows what happened, and that its text is read back as it was written.

use super::*;
use crate::trace::Left;
use proptest::prelude::*;

fn switch(cpu: u32, next: Option<u32>) -> Event {
    Event::Switch {
        cpu,
        prev: None,
        next: next.map(TaskRef),
        migrated: false,
    }
}

fn collect(cpus: usize, duration: u64, events: &[(u64, Event)], end: u64) -> (Timeline, Times) {
    let mut collector = Collector::new(cpus, duration);
    events
        .iter()
        .for_each(|(now, event)| collector.event(*now, event));
    collector.finish(end)
}

#[test]
fn each_state_is_shown_where_it_was() {
    let load = |waiting, idle| Event::Load { waiting, idle };
    let events = [
        (0, load(0, 2)),
        (400, switch(0, Some(1))),
        (400, load(0, 1)),
        (800, load(3, 1)),
        (
            1200,
            Event::Switch {
                cpu: 0,
                prev: Some((TaskRef(1), Left::Blocked)),
                next: None,
                migrated: false,
            },
        ),
        (1200, load(0, 2)),
        (
            1200,
            Event::Higher {
                cpu: 0,
                begins: true,
            },
        ),
        (
            1600,
            Event::Higher {
                cpu: 0,
                begins: false,
            },
        ),
        (
            1600,
            Event::Online {
                cpu: 1,
                online: false,
            },
        ),
    ];
    let (timeline, times) = collect(2, 2000, &events, 2000);
    assert_eq!((timeline.columns, timeline.column_ns), (2000, 1));
    let cells: Vec<&str> = timeline.rows.iter().map(|row| &*row.cells).collect();
    assert_eq!(
        cells,
        [
            "0000*400,0f00*800,00f0*400,0000*400",
            "0000*800,f000*400,0000*400,000f*400"
        ]
    );
    let expected = Times {
        idle_while_waiting: 400,
        busy: 800,
        higher: 400,
        offline: 400,
        idle: 2400,
        wasted: 400,
    };
    assert_eq!(times, expected);
    assert_eq!(
        (
            timeline.waiting[799],
            timeline.waiting[800],
            timeline.waiting[1300]
        ),
        (0, 3, 0)
    );
}

#[test]
fn a_run_that_is_longer_or_shorter_than_meant() {
    let check = |end, columns, column_ns, busy: &str| {
        let (timeline, times) = collect(1, 4000, &[(0, switch(0, Some(0)))], end);
        assert_eq!(
            (
                timeline.columns,
                timeline.column_ns,
                &*timeline.rows[0].cells
            ),
            (columns, column_ns, busy),
            "{end}"
        );
        assert_eq!(times.busy, end);
    };
    check(0, 0, 2, "");
    check(1, 1, 2, "0f00");
    check(4000, 2000, 2, "0f00*2000");
    check(4001, 1001, 4, "0f00*1001");
    check(4004, 1001, 4, "0f00*1001");
    check(4005, 1002, 4, "0f00*1002");
    check(100_000, 1563, 64, "0f00*1563");
}

#[test]
fn large_machines_have_rows_of_several_cpus() {
    let check = |cpus: usize, rows, last: (u32, u32)| {
        let (timeline, times) =
            collect(cpus, 1_000_000, &[(500_000, switch(0, Some(0)))], 1_000_000);
        let end = timeline.rows.last().unwrap();
        assert_eq!((timeline.rows.len(), (end.first, end.cpus)), (rows, last));
        assert_eq!(
            (times.busy, times.idle),
            (500_000, cpus as u64 * 1_000_000 - 500_000)
        );
        assert_eq!(timeline.cells().unwrap().len(), rows);
    };
    check(1, 1, (0, 1));
    check(256, 256, (255, 1));
    check(257, 129, (256, 1));
    check(4096, 256, (4080, 16));
}

#[test]
fn wrong_cells_are_refused() {
    let check = |cells: &str, part: &str| {
        let why = decode(cells, 3).unwrap_err();
        assert!(why.contains(part), "{cells}: {why}");
    };
    check("", "0 cells for 3");
    check("0f00", "1 cells for 3");
    check("0f00*4", "longer than 3");
    check("0f00*99999999999999999999999", "no run");
    check("0f00*0,0f00*3", "no run");
    check("0f01*3", "no run");
    check("0f0*3", "no run");
    check("0g00*3", "no run");
    check("0f00*3,", "no run");
    let timeline = Timeline {
        columns: 1,
        waiting: vec![],
        ..Timeline::default()
    };
    assert!(timeline.cells().unwrap_err().contains("counts of waiting"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn cells_are_read_as_they_were_written(cells in prop::collection::vec(prop::array::uniform5(0_u64..40), 0..50)) {
        let cells: Vec<_> = cells.into_iter().map(|times| parts(times, 15)).collect();
        prop_assert_eq!(decode(&encode(&cells), cells.len()).unwrap(), cells);
    }

    #[test]
    fn no_time_is_lost(
        cpus in 1_usize..6, duration in 1_u64..20_000,
        steps in prop::collection::vec((0_u64..300, 0_u32..6, 0_u8..7, 0_u32..4), 0..300),
    ) {
        let mut now = 0;
        let events: Vec<_> = steps.into_iter().map(|(passed, cpu, what, many)| {
            now += passed;
            (now, match what {
                0 => switch(cpu, None),
                1 | 2 => switch(cpu, Some(many)),
                3 => Event::Higher { cpu, begins: many > 1 },
                4 => Event::Online { cpu, online: many > 0 },
                _ => Event::Load { waiting: many, idle: cpu },
            })
        }).collect();
        let (timeline, times) = collect(cpus, duration, &events, now);
        prop_assert_eq!(times.busy + times.higher + times.offline + times.idle, now * cpus as u64);
        prop_assert!(times.idle_while_waiting <= times.idle);
        let cells = timeline.cells().unwrap();
        prop_assert!(cells.iter().flatten().all(|cell| cell.iter().sum::<u8>() == 15));
        prop_assert!(u64::from(timeline.columns) * timeline.column_ns >= now);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[0-9a-f*,g]{0,40}") {
        let _ = decode(&text, 100);
    }
}
