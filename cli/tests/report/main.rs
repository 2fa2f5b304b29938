// SPDX-License-Identifier: GPL-2.0-only
//! `baton report`, opened in headless Chromium: the numbers on the page are those of the runs, its
//! script has no errors, and no element is wider than the window. Pictures of the pages are left in
//! $BATON_CACHE/report.

mod browser;
mod detail;
mod machine;
mod runs;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use baton_sim::report::Run;
use browser::{open, Dom, Window};
use runs::{run, Shape};
use serde_json::Value;

/// Creates the page of runs, in the directory of the test.
fn page(dir: &Path, runs: &[Run]) -> PathBuf {
    let mut tool = Command::new(env!("CARGO_BIN_EXE_baton"));
    tool.arg("report").arg("-o").arg(dir.join("page.html"));
    for (at, run) in runs.iter().enumerate() {
        let path = dir.join(format!("{at}.json"));
        std::fs::write(&path, serde_json::to_string(run).unwrap()).unwrap();
        tool.arg(path);
    }
    let output = tool.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    dir.join("page.html")
}

/// Numbers of a run that are compared, by their path; groups by name.
fn numbers(path: &str, value: &Value, found: &mut Vec<(String, f64)>) {
    let below = |name: &str| {
        if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}/{name}")
        }
    };
    match value {
        Value::Number(number) => found.push((path.to_owned(), number.as_f64().unwrap())),
        Value::Object(fields) => {
            let skipped = [
                "version",
                "seed",
                "seeds",
                "jitter_ppm",
                "confidence",
                "active_ns",
                "timeline",
                "detail",
                "wakeup_curve",
                "response_curve",
            ];
            for (name, value) in fields
                .iter()
                .filter(|(name, _)| !skipped.contains(&name.as_str()))
            {
                numbers(&below(name), value, found);
            }
        }
        Value::Array(values) => values.iter().filter(|one| one.is_object()).for_each(|one| {
            let name = one["name"]
                .as_str()
                .unwrap()
                .replace('<', "%3C")
                .replace('>', "%3E")
                .replace('/', "%2F")
                .replace(' ', "%20");
            numbers(&below(&name), one, found);
        }),
        _ => {}
    }
}

/// The number in a cell: three digits and a unit, or a full number with spaces.
fn said(text: &str) -> f64 {
    let (number, scale) = match text.rsplit_once(' ') {
        Some((number, "ns")) => (number, 1.0),
        Some((number, "µs")) => (number, 1e3),
        Some((number, "ms")) => (number, 1e6),
        Some((number, "s")) => (number, 1e9),
        _ => (text, 1.0),
    };
    let digits: String = number.chars().filter(|c| !c.is_whitespace()).collect();
    digits
        .parse::<f64>()
        .unwrap_or_else(|_| panic!("'{text}' is no number"))
        * scale
}

/// Compares the page's numbers with the runs'.
fn check_numbers(dom: &Dom, runs: &[Run]) {
    let mut expected = BTreeSet::new();
    for (at, run) in runs.iter().enumerate() {
        let mut found = Vec::new();
        numbers("", &serde_json::to_value(run).unwrap(), &mut found);
        for (path, number) in found.into_iter().filter(|(_, number)| *number != 0.0) {
            let cell = dom
                .cells
                .iter()
                .find(|cell| cell.run == at && cell.key == path);
            let cell = cell.unwrap_or_else(|| panic!("{path} of run {at} is not on the page"));
            assert_eq!(
                cell.value.parse::<f64>().unwrap(),
                number,
                "{path} of run {at}"
            );
            let error = (said(&cell.text) - number).abs();
            assert!(
                error <= number * 0.0051,
                "{path} of run {at} is {number}, the page says {}",
                cell.text
            );
            expected.insert((at, path));
        }
        let jitter = format!("{} %", f64::from(run.jitter_ppm) / 1e4);
        for (name, text) in [
            ("seed", run.seed.to_string()),
            ("hash", run.hash.clone()),
            ("machine", run.topology.clone()),
            ("jitter", jitter),
        ] {
            assert_eq!(
                dom.facts.get(&(at, name.into())),
                Some(&text),
                "{name} of run {at}"
            );
        }
    }
    let more = dom.cells.iter().find(|cell| {
        cell.value.parse::<f64>().is_ok_and(|n| n != 0.0)
            && !expected.contains(&(cell.run, cell.key.clone()))
    });
    assert!(more.is_none(), "no run has {more:?}");
}

/// Opens the page in a window, and checks what must hold for every page.
fn check(page: &Path, width: u32, dark: bool, picture: &str) -> Dom {
    check_in(
        page,
        Window {
            width,
            dark,
            ..Window::default()
        },
        picture,
    )
}

fn check_in(page: &Path, window: Window, picture: &str) -> Dom {
    let dom = open(page, window, picture);
    let width = window.width;
    assert_eq!(dom.errors, "", "errors of the script at {width} px");
    assert_eq!(
        dom.too_wide, "0",
        "the page is wider than {width} px by so much"
    );
    dom
}

#[test]
fn two_runs_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let runs = [
        run("cfs-like", Shape::Piled, 2, 16, u64::MAX),
        run("wfq", Shape::Spread, 2, 16, 7),
    ];
    let page = page(dir.path(), &runs);
    let dom = check(&page, 1280, false, "two-runs-1280");
    check_numbers(&dom, &runs);
    assert_eq!(dom.curves, 2);
    // Tasks piled on half of the machine leave the other half idle, which is red.
    let [piled, spread] = dom.red[..] else {
        panic!("{} timelines", dom.red.len())
    };
    assert!(piled > 0.05 && spread < 0.02, "red: {piled} and {spread}");
    assert!(
        dom.read_curve.contains("Not above") && dom.read_curve.contains("wfq"),
        "{}",
        dom.read_curve
    );
    assert!(
        dom.read_timeline.contains("CPU 1, 0 ns to"),
        "{}",
        dom.read_timeline
    );
    check_numbers(&check(&page, 400, true, "two-runs-400-dark"), &runs);
}

/// Means of several seeds have confidence intervals, and are better or worse than others only if
/// that cannot be chance.
#[test]
fn series_say_what_their_means_are_within() {
    let dir = tempfile::tempdir().unwrap();
    let series = |policy: &str, shape: Shape, first: u64| {
        let runs: Vec<Run> = (first..first + 4)
            .map(|seed| run(policy, shape, 1, 4, seed))
            .collect();
        let mut series = baton_sim::series::series(&runs).unwrap();
        // As the page names it; the rest is the same as for single runs.
        assert!(series.confidence.is_some());
        series.hash = runs[0].hash.clone();
        series
    };
    let runs = [
        series("cfs-like", Shape::Piled, 1),
        series("wfq", Shape::Spread, 11),
        series("same", Shape::Spread, 21),
    ];
    let dom = check(&page(dir.path(), &runs), 1280, false, "series-1280");
    let said = |run: usize, key: &str| {
        let cell = dom
            .cells
            .iter()
            .find(|cell| cell.run == run && cell.key == key);
        cell.unwrap_or_else(|| panic!("{key} is not on the page"))
    };
    let p50 = "groups/workers/wakeup/p50";
    assert!(
        (0..3).all(|run| said(run, p50).within.starts_with("± ")),
        "{:?}",
        said(0, p50)
    );
    // Six times as long, and four samples of one distribution.
    assert_eq!(said(1, p50).word, "better");
    let jain = "fairness/jain";
    assert_eq!(
        (said(1, jain).word.as_str(), said(2, jain).word.as_str()),
        ("", "")
    );
    assert_eq!(
        dom.facts.get(&(0, "seed".into())).map(String::as_str),
        Some("1, and 3 more")
    );
}

#[test]
fn the_largest_machine() {
    let dir = tempfile::tempdir().unwrap();
    let runs = [run("wfq", Shape::Piled, 16, 256, 3)];
    let page = page(dir.path(), &runs);
    assert!(
        std::fs::metadata(&page).unwrap().len() < 8 << 20,
        "a page that is quick to open"
    );
    check_numbers(&check(&page, 1280, true, "4096-cpus-1280-dark"), &runs);
}

#[test]
fn names_are_only_text() {
    let dir = tempfile::tempdir().unwrap();
    let mut odd = run("<img src=x onerror=alert(1)>", Shape::Spread, 1, 2, 1);
    odd.workload = "</script><script>alert(2)</script>".into();
    odd.groups[0].name = "a </b> c".into();
    odd.timeline = None;
    odd.fairness = None;
    odd.faults = vec!["panic in pick_next_task <b>".into()];
    let runs = [odd.clone(), odd];
    let dom = check(&page(dir.path(), &runs), 700, false, "odd-names-700");
    check_numbers(&dom, &runs);
    assert_eq!(dom.facts[&(0, "workload".to_owned())], runs[0].workload);
}

#[test]
fn what_went_wrong_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let well = run("wfq", Shape::Spread, 1, 2, 1);
    let mut ill = run("relay_v1", Shape::Spread, 1, 2, 1);
    ill.upgrades = 2;
    ill.refused_upgrades = vec![
        "their states are not of one <type>".into(),
        "it failed".into(),
    ];
    ill.tasks_not_made = 12_345;
    ill.faults = vec!["panic in pick_next_task".into()];
    let runs = [well, ill];
    let dom = check(&page(dir.path(), &runs), 700, false, "wrong-700");
    check_numbers(&dom, &runs);
    let told = |run: usize| {
        let wrong = dom
            .facts
            .iter()
            .filter(move |((of, name), _)| *of == run && name.starts_with("wrong"));
        wrong.map(|(_, text)| text.as_str()).collect::<Vec<_>>()
    };
    let expected = [
        "fault: panic in pick_next_task",
        "upgrade refused: their states are not of one <type>",
        "upgrade refused: it failed",
        "tasks not made, as there was no slot: 12 345",
    ];
    assert_eq!((told(0), told(1)), (vec![], expected.to_vec()));
    let shown = |key: &str| {
        dom.cells
            .iter()
            .filter(|cell| cell.key == key)
            .map(|cell| cell.text.as_str())
            .collect()
    };
    let rows: [Vec<&str>; 2] = [shown("upgrades"), shown("tasks_not_made")];
    assert_eq!(rows, [["0", "2"], ["0", "12 345"]]);
}
