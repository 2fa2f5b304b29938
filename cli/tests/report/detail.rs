// SPDX-License-Identifier: GPL-2.0-only
//! Zoomed timelines, tasks and intervals: the page shows what is in a run's detail.

use std::collections::BTreeMap;

use baton_sim::detail::{Decoded, Detail};
use baton_sim::report::Run;

use crate::browser::Window;
use crate::machine::{watched, END};
use crate::{check_in, page};

/// The numbers of an interval as the page names them, by their path.
fn numbers(detail: &Detail, from: u64, to: u64) -> BTreeMap<String, u64> {
    let Decoded { spans, waits } = detail.decode().unwrap();
    let (from, to) = (from.max(detail.from_ns), to.min(detail.to_ns));
    let inside = |one: (u64, u64)| one.1.min(to).saturating_sub(one.0.max(from));
    let mut found = BTreeMap::new();
    let paths = |task: u32| {
        let task = &detail.tasks[task as usize];
        [
            format!("task/{}", task.0),
            format!("group/{}", detail.groups[task.1 as usize]),
        ]
    };
    let keys = ["run", "wait", "waits", "longest", "migrations"];
    for path in (0..detail.tasks.len() as u32).flat_map(paths) {
        found.extend(keys.map(|key| (format!("{path}/{key}"), 0)));
    }
    found.extend((0..detail.cpus).map(|cpu| (format!("cpu/{cpu}"), 0)));
    let mut add = |path: String, number: u64| *found.get_mut(&path).unwrap() += number;
    for span in &spans {
        let length = inside((span.from, span.to));
        add(format!("cpu/{}", span.cpu), length);
        for path in paths(span.task) {
            add(format!("{path}/run"), length);
            add(
                format!("{path}/migrations"),
                u64::from(span.moved && (from..to).contains(&span.from)),
            );
        }
    }
    for wait in &waits {
        let length = inside((wait.from, wait.to));
        for path in paths(wait.task) {
            add(format!("{path}/wait"), length);
            add(format!("{path}/waits"), u64::from(length > 0));
        }
    }
    for wait in &waits {
        for path in paths(wait.task) {
            let longest = found.get_mut(&format!("{path}/longest")).unwrap();
            *longest = (*longest).max(inside((wait.from, wait.to)));
        }
    }
    found
}

fn two_runs() -> [Run; 2] {
    [
        watched("wfq", 5, 2_000_000..u64::MAX),
        watched("fifo", 6, 0..12_000_000),
    ]
}

fn detail(run: &Run) -> &Detail {
    run.detail.as_ref().unwrap()
}

#[test]
fn numbers_of_an_interval() {
    let dir = tempfile::tempdir().unwrap();
    let runs = two_runs();
    let page = page(dir.path(), &runs);
    // Within both details, beyond one of them, beyond all, and a single moment.
    for (at, (from, to)) in [
        (5_000_000, 6_234_567),
        (10_000_000, 13_000_001),
        (0, END),
        (7_000_000, 7_000_001),
    ]
    .into_iter()
    .enumerate()
    {
        let hash = format!("select={from}..{to}&open=workers&open=a+%3Cb%3E+%26+c");
        // As narrow as a phone, and as wide as a screen.
        let (width, dark) = if at % 2 == 0 {
            (1280, false)
        } else {
            (360, true)
        };
        let window = Window {
            width,
            dark,
            hash: &hash,
            ..Window::default()
        };
        let dom = check_in(&page, window, &format!("interval-{at}-{width}"));
        let mut expected = BTreeMap::new();
        for (run, of) in runs.iter().enumerate() {
            expected.extend(
                numbers(detail(of), from, to)
                    .into_iter()
                    .map(|(path, number)| ((run, path), number)),
            );
        }
        assert_eq!(dom.interval, expected, "{from} to {to}");
        assert_eq!(dom.interval.len(), 2 * (5 * (2 + 14) + 4));
    }
}

/// For an interval without a detail the page shows no numbers, but a message.
#[test]
fn an_interval_without_detail() {
    let dir = tempfile::tempdir().unwrap();
    let runs = two_runs();
    let hash = format!("from=15ms&to=16ms&select=15ms..{END}");
    let script = "note('said', [...document.querySelectorAll('.tasks, .interval')].map((one) => \
         one.innerText).join('|'));";
    let window = Window {
        width: 700,
        dark: false,
        hash: &hash,
        script,
    };
    let dom = check_in(&page(dir.path(), &runs), window, "no-detail-700");
    assert!(dom.interval.keys().all(|(run, _)| *run == 0) && !dom.interval.is_empty());
    let said = &dom.notes["said"];
    assert!(
        said.contains("no detail was kept of it") && said.contains("from 0 ns to 12.0 ms"),
        "{said}"
    );
}

/// Points at some moments of each row of canvases. Notes the text that is shown there, and the
/// colour of the row near its top.
///
/// Most moments are passed to the strip directly, without a pointer event. Chromium, whose time is
/// virtual here, occasionally hangs when a page is laid out many hundred times.
const PROBE: &str = "
const COLORS = Object.fromEntries(['task0', 'task1', 'waste', 'idle', 'higher', 'offline', \
'waiting'].map((name) => [name, rgb(name).join()]));
const probe = (name, strip, read, rows, top, high) => {
  const { canvas } = strip;
  // The cursor is not drawn on the canvas.
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height), lines \
  = [];
  const box = canvas.getBoundingClientRect();
  MOMENTS.forEach((ns, number) => {
    const x = gutter() + (ns - view.from) / (view.to - view.from) * (box.width - gutter());
    for (const row of rows) {
      const y = top + row * high, seen = {};
      if (number % 8 === 0) {
        const at = canvas.getBoundingClientRect();
        canvas.dispatchEvent(new PointerEvent('pointermove', \
        { clientX: at.left + x, clientY: at.top + y + high / 2 }));
      } else {
        strip.cursor = { ns, row };
        strip.owner.say(strip);
      }
      // An arrow may cross some of these.
      for (const [way, down] of [-4, -2, 0, 2, 4].flatMap((way) => [[way, 1], [way, 3]])) {
        const at = (Math.round(y + down) * canvas.width + Math.round(x) + way) * 4, pixel = \
        data.slice(at, at + 3).join();
        seen[pixel] = (seen[pixel] ?? 0) + 1;
      }
      const most = Object.keys(seen).sort((a, b) => seen[b] - seen[a])[0];
      lines.push([ns, row, Object.keys(COLORS).find((name) => COLORS[name] === most) ?? most, \
      read.textContent].join('~'));
    }
  });
  note(name, lines.join('^'));
};
document.querySelectorAll('.timeline').forEach((timeline, run) => {
  const { strip, tasks } = views[run], lanes = tasks.groups.find((group) => group.name === \
  'workers').lanes;
  probe(`cpus${run}`, strip, timeline.querySelector('.read'), [0, 1, 2, 3], STRIP, 26);
  strip.leave();
  probe(`tasks${run}`, lanes, timeline.querySelector('.tasks .read'), [...Array(10).keys()], 6, 18);
  note(`arrows${run}`, strip.canvas.dataset.arrows);
});
note('hash', location.hash);
";

/// A moment and a row that were pointed at, with the colour and the text there.
fn probes(text: &str) -> Vec<(u64, u32, String, String)> {
    let probe = |line: &str| {
        let [ns, row, color, said] = line.split('~').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        (
            ns.parse().unwrap(),
            row.parse().unwrap(),
            color.to_owned(),
            said.to_owned(),
        )
    };
    text.split('^').map(probe).collect()
}

/// The name of a task on the page.
fn name(detail: &Detail, task: u32) -> String {
    let task = &detail.tasks[task as usize];
    format!("{} {}", task.2, task.0)
}

#[test]
fn tasks_are_shown_where_they_ran() {
    let dir = tempfile::tempdir().unwrap();
    let runs = two_runs();
    let page = page(dir.path(), &runs);
    // The run begins during a wait, whose arrow is shown in part.
    let waits = detail(&runs[0]).decode().unwrap().waits;
    let is_long = |wait: &&baton_sim::detail::Wait| {
        wait.from > 8_000_000 && wait.to > wait.from + 20_000 && wait.woken.is_some()
    };
    let from = waits
        .iter()
        .find(is_long)
        .map(|wait| (wait.from + wait.to) / 2)
        .unwrap();
    let to = from + 1_000_000;
    // Moments with no change of any CPU within some pixels, which are about 1 µs each.
    let far = |ns: &u64| {
        let edges = runs.iter().flat_map(|run| {
            let Decoded { spans, waits } = detail(run).decode().unwrap();
            let spans = spans.into_iter().flat_map(|span| [span.from, span.to]);
            spans
                .chain(waits.into_iter().flat_map(|wait| [wait.from, wait.to]))
                .collect::<Vec<_>>()
        });
        edges.into_iter().all(|edge| edge.abs_diff(*ns) > 4_000)
    };
    // Some moments at which tasks wait, and some others.
    let (mut waits, mut others): (Vec<u64>, Vec<u64>) = (from + 10_000..to - 10_000)
        .step_by(7_001)
        .filter(far)
        .partition(|ns| waits.iter().any(|wait| wait.from <= *ns && *ns < wait.to));
    waits.truncate(10);
    others.truncate(20);
    let moments = [waits, others].concat();
    assert!(moments.len() > 20, "{} moments", moments.len());
    let script = PROBE.replace("MOMENTS", &format!("{moments:?}"));
    let hash = format!("from={from}&to={to}&open=workers");
    let window = Window {
        width: 1280,
        dark: false,
        hash: &hash,
        script: &script,
    };
    let dom = check_in(&page, window, "zoomed-1280");
    assert_eq!(dom.notes["hash"], format!("#{hash}"));
    let (mut seen, mut said_to) = (BTreeMap::new(), [0; 3]);
    for (run, of) in runs.iter().enumerate() {
        let detail = detail(of);
        let Decoded { spans, waits } = detail.decode().unwrap();
        for (ns, cpu, color, said) in probes(&dom.notes[&format!("cpus{run}")]) {
            let at = |span: &&baton_sim::detail::Span| span.from <= ns && ns < span.to;
            let waiting = waits
                .iter()
                .filter(|wait| wait.from <= ns && ns < wait.to)
                .count();
            let place = format!("run {run}, CPU {cpu} at {ns} ns: {color}, {said}");
            assert!(said.starts_with(&format!("CPU {cpu}, ")), "{place}");
            assert!(
                said.contains(&format!(
                    "{waiting} task{}.",
                    if waiting == 1 { " waits" } else { "s wait" }
                )),
                "{place}"
            );
            match spans.iter().filter(|span| span.cpu == cpu).find(at) {
                Some(span) => {
                    let group = detail.tasks[span.task as usize].1 as usize;
                    let expected = if detail.groups[group] == "workers" {
                        "task0"
                    } else {
                        "task1"
                    };
                    assert_eq!(color, expected, "{place}");
                    assert!(
                        said.contains(&format!(
                            "{} ({})",
                            name(detail, span.task),
                            detail.groups[group]
                        )),
                        "{place}"
                    );
                }
                None if said.contains(": idle;") => {
                    assert_eq!(color, if waiting > 0 { "waste" } else { "idle" }, "{place}")
                }
                None => assert!(
                    said.contains(": offline") && color == "offline"
                        || said.contains("higher") && color == "higher"
                ),
            }
            *seen.entry(color).or_insert(0) += 1;
        }
        let expected = waits.iter().filter(|wait| {
            let shown = |ns| (from..=to).contains(&ns);
            wait.woken.is_some() && wait.ran_on.is_some() && (shown(wait.from) || shown(wait.to))
        });
        assert_eq!(
            dom.notes[&format!("arrows{run}")],
            expected.count().to_string()
        );
        for (ns, row, _, said) in probes(&dom.notes[&format!("tasks{run}")]) {
            // The ten workers, by number.
            let task = detail.tasks.iter().position(|task| task.0 == row).unwrap() as u32;
            let place = format!("run {run}, task {task} at {ns} ns: {said}");
            assert!(said.starts_with(&format!("worker {row}, ")), "{place}");
            let runs_on = spans
                .iter()
                .find(|span| span.task == task && span.from <= ns && ns < span.to);
            let waits = waits
                .iter()
                .find(|wait| wait.task == task && wait.from <= ns && ns < wait.to);
            let (kind, expected) = match (runs_on, waits) {
                (Some(span), _) => (0, format!("running on CPU {} from", span.cpu)),
                (None, Some(wait)) => {
                    let woken = wait.woken.map(|waker| match waker.task {
                        Some(task) => {
                            format!("woken by {} on CPU {}", name(detail, task), waker.cpu)
                        }
                        None => format!("woken by an interrupt on CPU {}", waker.cpu),
                    });
                    assert!(said.contains(": waiting from"), "{place}");
                    (1, woken.unwrap_or("since it".into()))
                }
                (None, None) => (2, ": sleeping".into()),
            };
            assert!(said.contains(&expected), "{place}; expected: {expected}");
            said_to[kind] += 1;
        }
    }
    // Each kind of thing was checked.
    assert!(
        ["task0", "task1", "idle"]
            .iter()
            .all(|color| seen.get(*color).is_some_and(|count| *count > 10)),
        "{seen:?}"
    );
    assert!(
        seen.contains_key("higher") || seen.contains_key("offline"),
        "{seen:?}"
    );
    assert!(said_to.iter().all(|&count| count > 10), "{said_to:?}");
}

/// Uses the pointer, fingers, the wheel, keys and buttons, and notes the address after each.
const USE: &str = "
const canvas = document.querySelector('canvas.cpus'), box = canvas.getBoundingClientRect();
const place = (part) => box.left + gutter() + part * (box.width - gutter());
const steps = [];
// The page writes its address a little later, as browsers let it do that only so often.
const done = (what) => { writeAddress(); steps.push(`${what} ${location.hash}`); };
const pointer = (target, type, pointerId, part) =>
  target.dispatchEvent(new PointerEvent(type, \
  { pointerId, clientX: place(part), clientY: box.top + 50, bubbles: true }));
const wheel = (init) => canvas.dispatchEvent(new WheelEvent('wheel', \
{ clientX: place(0.5), cancelable: true, ...init }));
const key = (key, shiftKey) => canvas.dispatchEvent(new KeyboardEvent('keydown', \
{ key, shiftKey, bubbles: true, cancelable: true }));
const click = (id) => document.getElementById(id).click();
done('at-first');
pointer(canvas, 'pointerdown', 1, 0.25); pointer(window, 'pointermove', 1, 0.4); pointer(window, \
'pointermove', 1, 0.5); pointer(window, 'pointerup', 1, 0.5);
done('drag');
click('to-interval'); done('to-interval');
note('scrolled', wheel({ deltaY: -100 })); done('wheel');
wheel({ deltaY: -1000, ctrlKey: true }); done('ctrl-wheel');
click('no-interval'); click('whole'); done('whole');
pointer(canvas, 'pointerdown', 1, 0.4); pointer(canvas, 'pointerdown', 2, 0.6); pointer(window, \
'pointermove', 1, 0.2); pointer(window, 'pointermove', 2, 0.8);
pointer(window, 'pointerup', 1, 0.2); pointer(window, 'pointerup', 2, 0.8);
done('pinch');
canvas.focus(); key('0'); key('Home'); key('+'); done('plus');
key('-'); done('minus');
key('+'); key('End'); key('+'); done('plus-at-end');
key('PageDown'); done('later');
click('earlier'); done('earlier');
key('0'); key('Home'); key('ArrowRight'); key('ArrowRight', true); key('ArrowRight', true); \
done('select');
key('Escape'); done('escape');
document.querySelector('.fold').click(); done('open');
document.querySelector('.fold').click(); done('closed');
for (let n = 0; n < 60; n += 1) click('zoom-in');
done('narrowest');
key('End'); key('ArrowRight'); done('follows');
click('to-detail'); done('detail');
note('steps', steps.join('^'));
click('later');
setTimeout(() => note('later', location.hash), 500);
";

#[test]
fn pointer_keys_and_buttons() {
    let dir = tempfile::tempdir().unwrap();
    let runs = [watched("wfq", 5, 2_000_000..12_000_000)];
    let window = Window {
        width: 1280,
        dark: true,
        script: USE,
        ..Window::default()
    };
    let dom = check_in(&page(dir.path(), &runs), window, "used-1280-dark");
    let steps: BTreeMap<&str, &str> = dom.notes["steps"]
        .split('^')
        .map(|step| step.split_once(' ').unwrap())
        .collect();
    let number = |step: &str, name: &str| -> f64 {
        let part = steps[step]
            .trim_start_matches('#')
            .split('&')
            .find_map(|part| part.strip_prefix(&format!("{name}=")));
        part.unwrap_or_else(|| panic!("{step}: {}", steps[step]))
            .parse()
            .unwrap()
    };
    let at = |step: &str, from: f64, to: f64| {
        for (name, expected) in [("from", from), ("to", to)] {
            let got = number(step, name);
            assert!(
                (got - expected).abs() <= 30_000.0,
                "{step}: {}, expected {from} to {to}",
                steps[step]
            );
        }
    };
    let all = END as f64;
    for step in ["at-first", "whole", "minus", "escape", "closed"] {
        assert_eq!(steps[step], "", "{step}");
    }
    let ends = |step: &str| {
        let text = steps[step]
            .split("select=")
            .nth(1)
            .unwrap_or_else(|| panic!("{step}: {}", steps[step]));
        let (from, to) = text.split('&').next().unwrap().split_once("..").unwrap();
        (from.parse::<f64>().unwrap(), to.parse::<f64>().unwrap())
    };
    let (from, to) = ends("drag");
    assert!(
        (from - all / 4.0).abs() < 30_000.0 && (to - all / 2.0).abs() < 30_000.0,
        "{}",
        steps["drag"]
    );
    at("to-interval", all / 4.0, all / 2.0);
    // Without Ctrl and without the focus on the timeline, a wheel scrolls the page.
    assert_eq!(
        (steps["wheel"], dom.notes["scrolled"].as_str()),
        (steps["to-interval"], "true")
    );
    let (middle, half) = (all * 3.0 / 8.0, all / 8.0 / std::f64::consts::E);
    at("ctrl-wheel", middle - half, middle + half);
    // Moments 20 % apart are now 60 % apart, with the same middle.
    at("pinch", all / 3.0, all * 2.0 / 3.0);
    at("plus", 0.0, all / 2.0);
    at("plus-at-end", all / 4.0, all / 2.0);
    at("later", all * 3.0 / 8.0, all * 5.0 / 8.0);
    at("earlier", all / 4.0, all / 2.0);
    assert_eq!(ends("select"), (all / 100.0, all * 3.0 / 100.0));
    assert_eq!(steps["open"], "#open=workers");
    let (from, to) = (number("narrowest", "from"), number("narrowest", "to"));
    assert_eq!(to - from, 100.0);
    assert_eq!(
        (number("follows", "from"), number("follows", "to")),
        (from + 1.0, to + 1.0)
    );
    assert_eq!(steps["detail"], "#from=2000000&to=12000000");
    assert_eq!(dom.notes["later"], "#from=7000000&to=17000000");
}

/// The detail that `baton sim` writes agrees with the run's own counts.
#[test]
fn a_simulated_run_in_detail() {
    let dir = tempfile::tempdir().unwrap();
    let sim = |more: &str| -> Vec<Run> {
        let file = dir.path().join("run.json");
        let mut tool = std::process::Command::new(env!("CARGO_BIN_EXE_baton"));
        let line = format!(
            "sim fifo -w hackbench:groups=1 --topology 1x4x1 --duration 20ms --max-tasks \
                4096 {more} -o"
        );
        let output = tool
            .args(line.split_whitespace())
            .arg(&file)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap()
    };
    let [run] = &sim("")[..] else {
        panic!("one run")
    };
    let whole = detail(run);
    assert_eq!((whole.from_ns, whole.to_ns, whole.cpus), (0, 20_000_000, 4));
    let Decoded { spans, waits } = whole.decode().unwrap();
    let ran: u64 = spans.iter().map(|span| span.to - span.from).sum();
    let moved = spans.iter().filter(|span| span.moved).count() as u64;
    assert_eq!((ran, moved), (run.cpu.busy_ns, run.cpu.migrations.llc));
    let woken = waits
        .iter()
        .filter(|wait| wait.woken.is_some() && wait.ran_on.is_some());
    assert_eq!(woken.clone().count() as u64, run.groups[0].wakeup.count);
    assert_eq!(
        woken.clone().map(|wait| wait.to - wait.from).max().unwrap(),
        run.groups[0].wakeup.max
    );
    // Tasks of hackbench wake each other; only the first wakeups come from no task.
    let by_none = woken
        .filter(|wait| wait.woken.is_some_and(|waker| waker.task.is_none()))
        .count();
    assert_eq!(by_none, 40);
    let part = sim("--detail 5ms..8ms --seeds 2");
    assert_eq!(
        (
            part[0].seeds,
            detail(&part[0]).from_ns,
            detail(&part[0]).to_ns
        ),
        (2, 5_000_000, 8_000_000)
    );
    let (one, other) = (
        numbers(whole, 5_000_000, 8_000_000),
        numbers(detail(&part[0]), 0, u64::MAX),
    );
    assert!(
        other
            .iter()
            .all(|(path, number)| one.get(path) == Some(number)),
        "{other:?}, expected {one:?}"
    );
}
