// SPDX-License-Identifier: GPL-2.0-only
//! The curves on a separate page: figure 2 of Enoki, simulated and measured. The tables below the
//! curves have every value.

use std::fmt::Write;

use super::judge::{text, Verdict};
use super::{Found, Place, Point, FACTOR};

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 320.0;
/// The space for the numbers of the axes: left, right, above, below.
const MARGIN: [f64; 4] = [64.0, 110.0, 32.0, 44.0];
/// Colours that most eyes can tell apart (Okabe and Ito).
const COLOURS: [&str; 6] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00",
];

const HEAD: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>baton bench \
    rocksdb</title><style>\
    body{font:15px/1.5 sans-serif;max-width:1180px;margin:2em auto;padding:0 1em;background:#fff;color:#222}\
    svg{margin:0 1em 1em 0}svg text{font:12px sans-serif;fill:#222}pre{overflow-x:auto}</style>";

/// One curve.
struct Curve {
    name: String,
    colour: &'static str,
    points: Vec<(f64, f64)>,
}

/// A value of a run, if it has one.
type Value = fn(&Point) -> Option<f64>;

pub fn page(found: &Found, verdicts: &[Verdict]) -> String {
    let mut page = String::from(HEAD);
    let _ = write!(
        page,
        "<h1>Short requests beside long ones</h1><p>99.5 % GET of 4 us, 0.5 % range queries of 10 \
         ms, 50 workers, an open loop; latencies \
         of GET from when a request was due. Simulated on 5 CPUs; and on kernel {}, on one CPU of \
         a guest that counts \
         instructions, where all service times and slices are {FACTOR} times as long as shown.</p>",
        found.kernel
    );
    let p99: Value = |point| Some(point.p99);
    let mut subjects: Vec<&str> = Vec::new();
    for point in &found.points {
        if !subjects.contains(&&*point.subject) {
            subjects.push(&point.subject);
        }
    }
    for (place, name) in [
        (Place::Simulator, "simulated"),
        (Place::Kernel, "booted kernel"),
    ] {
        let _ = write!(
            page,
            "<h2>{}</h2>",
            if place == Place::Kernel {
                "In the booted kernel"
            } else {
                "Simulated"
            }
        );
        let mut draw = |title: &str, batch: bool, value: Value, scale: Scale| {
            let points = found
                .points
                .iter()
                .filter(|p| p.place == place && p.batch == batch);
            page.push_str(&chart(
                &format!("{title}, {name}"),
                &curves(points, value, &subjects),
                scale,
            ));
        };
        draw("p99 of GET, us", false, p99, Scale::Logarithmic);
        draw(
            "p99 of GET beside a batch program, us",
            true,
            p99,
            Scale::Logarithmic,
        );
        draw(
            "CPU time of the batch program, %",
            true,
            |point| point.batch_share,
            Scale::Linear,
        );
    }
    let _ = writeln!(
        page,
        "<h2>Numbers</h2><pre>{}</pre></html>",
        text(found, verdicts)
    );
    page
}

/// Returns a curve for each subject with such values. A subject has the same colour in all charts.
fn curves<'a>(
    points: impl Iterator<Item = &'a Point>,
    value: Value,
    subjects: &[&str],
) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for point in points {
        let Some(value) = value(point) else { continue };
        let at = (point.offered / 1e3, value);
        match curves.iter_mut().find(|curve| curve.name == point.subject) {
            Some(curve) => curve.points.push(at),
            None => {
                let number = subjects
                    .iter()
                    .position(|subject| *subject == point.subject)
                    .unwrap_or(0);
                let colour = COLOURS[number % COLOURS.len()];
                curves.push(Curve {
                    name: point.subject.clone(),
                    colour,
                    points: vec![at],
                });
            }
        }
    }
    curves
}

#[derive(Clone, Copy, PartialEq)]
enum Scale {
    Linear,
    Logarithmic,
}

/// Draws the curves over thousand requests per second, as SVG.
fn chart(title: &str, curves: &[Curve], scale: Scale) -> String {
    let [left, right, above, below] = MARGIN;
    let most = |of: fn(&(f64, f64)) -> f64| {
        curves
            .iter()
            .flat_map(|c| &c.points)
            .map(of)
            .fold(1.0, f64::max)
    };
    let (most_x, most_y) = (most(|p| p.0), most(|p| p.1));
    let height = |y: f64| match scale {
        Scale::Linear => y / 100.0,
        Scale::Logarithmic => y.max(1.0).log10() / most_y.log10().ceil().max(1.0),
    };
    let x = |at: f64| left + at / most_x * (WIDTH - left - right);
    let y = |at: f64| HEIGHT - below - height(at) * (HEIGHT - above - below);
    let mut svg = format!(
        "<svg width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\" aria-label=\"{title}\"><text \
         x=\"{left}\" y=\"18\" \
         style=\"font-weight:bold\">{title}</text>"
    );
    let lines: Vec<f64> = match scale {
        Scale::Linear => (0..=4).map(|step| f64::from(step) * 25.0).collect(),
        Scale::Logarithmic => (0..=most_y.log10().ceil().max(1.0) as i32)
            .map(|power| 10f64.powi(power))
            .collect(),
    };
    for line in lines {
        let (end, at) = (WIDTH - right, y(line));
        let _ = write!(
            svg,
            "<path d=\"M{left} {at:.1}H{end}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{line}</text>",
            left - 6.0,
            at + 4.0
        );
    }
    for step in 0..=4 {
        let at = most_x * f64::from(step) / 4.0;
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{at:.0}</text>",
            x(at),
            HEIGHT - below + 18.0
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">thousand requests in a second</text>",
        (left + WIDTH - right) / 2.0,
        HEIGHT - 6.0
    );
    for (nr, curve) in curves.iter().enumerate() {
        let colour = curve.colour;
        let line: Vec<_> = curve
            .points
            .iter()
            .map(|&(at, value)| format!("{:.1},{:.1}", x(at), y(value)))
            .collect();
        let _ = write!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" style=\"fill:{colour}\">{}</text>",
            line.join(" "),
            WIDTH - right + 8.0,
            above + 16.0 * (nr as f64 + 1.0),
            curve.name
        );
    }
    svg.push_str("</svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_are_where_their_numbers_are() {
        let curve = |name: &str, points: &[(f64, f64)]| Curve {
            name: name.into(),
            colour: COLOURS[0],
            points: points.into(),
        };
        let both = [
            curve("low", &[(0.0, 1.0), (10.0, 10.0)]),
            curve("high", &[(5.0, 100.0)]),
        ];
        let svg = chart("latency", &both, Scale::Logarithmic);
        // The left end is 1, at the bottom. 10 is half way up to 100, which is at the right end.
        assert!(svg.contains("points=\"64.0,276.0 450.0,154.0\""), "{svg}");
        assert!(
            svg.contains("points=\"257.0,32.0\"") && svg.contains(">high</text>"),
            "{svg}"
        );
        let svg = chart("share", &both, Scale::Linear);
        assert!(
            svg.contains("450.0,251.6") && svg.contains(">75</text>"),
            "{svg}"
        );
    }
}
