// SPDX-License-Identifier: GPL-2.0-only
//! The waits as bars on a separate page: table 6 of Enoki, simulated and measured. The tables below
//! the bars have every value.

use std::fmt::Write;

use super::judge::{text, Verdict, PAPERS};
use super::{Found, Place, Row};

const WIDTH: f64 = 560.0;
/// The width for names, and that for values.
const LEFT: f64 = 150.0;
const RIGHT: f64 = 70.0;
/// The height of a row with its two bars.
const STEP: f64 = 40.0;
const BAR: f64 = 14.0;
/// The colours of p50 and p99, which most eyes can tell apart (Okabe and Ito).
const COLOURS: [&str; 2] = ["#0072b2", "#d55e00"];

const HEAD: &str =
    "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>baton bench \
     locality</title><style>\
    body{font:15px/1.5 sans-serif;max-width:1180px;margin:2em auto;padding:0 1em;background:#fff;color:#222}\
    svg{margin:0 1em 1em 0}svg text{font:12px sans-serif;fill:#222}pre{overflow-x:auto}</style>";

pub fn page(found: &Found, verdicts: &[Verdict]) -> String {
    let mut page = String::from(HEAD);
    let _ = write!(
        page,
        "<h1>Threads that share a hint share a CPU</h1><p>Two message threads wake two workers \
         each; how long a woken worker waits, median \
         (blue) and 99th percentile (red), us, on a logarithmic scale. Simulated on 8 CPUs, and on \
         kernel {} in a guest with 4; their idle CPUs \
         take as long to leave an idle state as those of the paper's machine.</p>",
        found.kernel
    );
    let papers = |place| {
        found
            .rows
            .iter()
            .filter(move |row: &&Row| row.place == place && row.idle_states == PAPERS)
    };
    page.push_str(&chart("simulated", papers(Place::Simulator)));
    page.push_str(&chart("booted kernel", papers(Place::Kernel)));
    let _ = write!(page, "<pre>{}</pre></html>", text(found, verdicts));
    page
}

fn chart<'a>(title: &str, rows: impl Iterator<Item = &'a Row>) -> String {
    let rows: Vec<_> = rows.collect();
    let most = rows
        .iter()
        .map(|row| row.p99.max(row.p50))
        .fold(10.0, f64::max);
    // The left end is a tenth of a microsecond.
    let length =
        |us: f64| (us.max(0.1) * 10.0).log10() / (most * 10.0).log10() * (WIDTH - LEFT - RIGHT);
    let height = STEP * rows.len() as f64 + 30.0;
    let mut svg = format!(
        "<svg width=\"{WIDTH}\" height=\"{height}\" role=\"img\" aria-label=\"{title}\"><text \
         x=\"0\" y=\"16\">{title}</text>"
    );
    for (nr, row) in rows.iter().enumerate() {
        let top = 30.0 + STEP * nr as f64;
        let _ = write!(
            svg,
            "<text x=\"0\" y=\"{:.0}\">{}</text>",
            top + BAR + 4.0,
            row.subject
        );
        for (bar, us) in [row.p50, row.p99].into_iter().enumerate() {
            let (y, long) = (top + BAR * bar as f64, length(us));
            let _ = write!(
                svg,
                "<rect x=\"{LEFT}\" y=\"{y:.0}\" width=\"{long:.1}\" height=\"{}\" fill=\"{}\"/>\
                 <text x=\"{:.1}\" y=\"{:.0}\">{us:.1}</text>",
                BAR - 1.0,
                COLOURS[bar],
                LEFT + long + 4.0,
                y + BAR - 3.0
            );
        }
    }
    svg.push_str("</svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_numbers() {
        let row = |subject: &str, p50, p99| Row {
            place: Place::Kernel,
            idle_states: "none".into(),
            subject: subject.into(),
            work: 100,
            wakeups: 1,
            p50,
            p99,
            max: p99,
        };
        let rows = [row("slow", 10.0, 1_000.0), row("quick", 0.1, 1.0)];
        let svg = chart("both", rows.iter());
        // A bar has at most 340, on a logarithmic scale: four decades from a tenth to a thousand.
        for long in ["170.0", "340.0", "0.0", "85.0"] {
            assert!(svg.contains(&format!("width=\"{long}\"")), "{long}: {svg}");
        }
        assert!(
            svg.contains(">slow</text>") && svg.contains(">1000.0</text>"),
            "{svg}"
        );
    }
}
