// SPDX-License-Identifier: GPL-2.0-only
//! The report of a bench: `{bench, kernel, machine, results}`, as JSON or as a table.

use serde::{Deserialize, Serialize};

use baton_control::report::table;

/// The subject that all others are compared with.
pub const BASELINE: &str = "eevdf";

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct Report {
    pub bench: String,
    /// The release of the measured kernel (`uname -r`).
    pub kernel: String,
    /// The processor or emulator that executed the instructions.
    pub machine: String,
    pub results: Vec<Entry>,
}

/// One metric of one subject.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct Entry {
    pub subject: String,
    /// The number of the machine's CPUs.
    pub cpus: u32,
    pub metric: String,
    pub unit: String,
    pub median: f64,
    pub min: f64,
    pub max: f64,
    pub runs: u32,
    /// The median divided by that of [`BASELINE`]; null if that was not measured, or if the ratio
    /// is meaningless.
    pub ratio_to_eevdf: Option<f64>,
}

/// All values of one metric of one subject.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    pub subject: String,
    pub values: Vec<f64>,
}

/// The middle value, or the mean of the two middle values. NaN if there are none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// Turns values measured on a machine of `cpus` CPUs into results. With `compare`, also computes
/// ratios to the baseline.
pub fn entries(
    cpus: u32,
    metric: &str,
    unit: &str,
    series: &[Series],
    compare: bool,
) -> Vec<Entry> {
    let baseline = series
        .iter()
        .find(|s| s.subject == BASELINE && compare)
        .map(|s| median(&s.values));
    let entry = |s: &Series| Entry {
        subject: s.subject.clone(),
        cpus,
        metric: metric.into(),
        unit: unit.into(),
        median: rounded(median(&s.values)),
        min: rounded(s.values.iter().copied().fold(f64::INFINITY, f64::min)),
        max: rounded(s.values.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
        runs: s.values.len() as u32,
        ratio_to_eevdf: baseline.map(|b| rounded(median(&s.values) / b)),
    };
    series
        .iter()
        .filter(|s| !s.values.is_empty())
        .map(entry)
        .collect()
}

/// Rounds to four decimals. No number of a bench is more precise.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// Formats a number with as many decimals as its size allows.
fn number(value: f64) -> String {
    match value.abs() {
        0.0..10.0 => format!("{value:.3}"),
        10.0..1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// The report for people: a table for each metric.
pub fn text(report: &Report) -> String {
    let mut text = format!(
        "{} on {}, {}\n",
        report.bench, report.kernel, report.machine
    );
    let mut metrics: Vec<(&str, &str)> = Vec::new();
    for entry in &report.results {
        if !metrics.contains(&(&entry.metric, &entry.unit)) {
            metrics.push((&entry.metric, &entry.unit));
        }
    }
    for (metric, unit) in metrics {
        text.push_str(&format!("\n{metric} ({unit})\n"));
        let rows = report
            .results
            .iter()
            .filter(|e| e.metric == metric)
            .map(|e| {
                vec![
                    e.subject.clone(),
                    e.cpus.to_string(),
                    number(e.median),
                    number(e.min),
                    number(e.max),
                    e.runs.to_string(),
                    e.ratio_to_eevdf
                        .map_or("-".into(), |ratio| format!("{ratio:.3}")),
                ]
            });
        let titles = ["SUBJECT", "CPUS", "MEDIAN", "MIN", "MAX", "RUNS", "/ EEVDF"];
        text.push_str(&table(&titles, &rows.collect::<Vec<_>>()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Report {
        let series = |subject: &str, values: &[f64]| Series {
            subject: subject.into(),
            values: values.to_vec(),
        };
        let all = [
            series(BASELINE, &[9010.0, 9000.0, 9100.0]),
            series("wfq", &[8010.0, 8000.0]),
            series("none", &[]),
        ];
        Report {
            bench: "pipe".into(),
            kernel: "7.2".into(),
            machine: "QEMU".into(),
            results: entries(1, "instructions_per_op", "instructions", &all, true),
        }
    }

    #[test]
    fn medians() {
        let check = |values: &[f64], expected: f64| assert_eq!(median(values), expected);
        check(&[3.0, 1.0, 2.0], 2.0);
        check(&[4.0, 1.0, 2.0, 3.0], 2.5);
        check(&[7.0], 7.0);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn numbers_keep_four_digits() {
        let check = |value, expected: &str| assert_eq!(number(value), expected);
        check(0.0, "0.000");
        check(1.23456, "1.235");
        check(12.3456, "12.3");
        check(8930.4, "8930");
    }

    #[test]
    fn the_json_is_what_was_agreed() {
        let json = serde_json::to_value(measured()).unwrap();
        let names = |value: &serde_json::Value| {
            value
                .as_object()
                .unwrap()
                .keys()
                .cloned()
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(names(&json), "bench kernel machine results");
        let first = &json["results"][0];
        assert_eq!(
            names(first),
            "cpus max median metric min ratio_to_eevdf runs subject unit"
        );
        assert_eq!(first["ratio_to_eevdf"], 1.0);
        assert_eq!(json["results"][1]["ratio_to_eevdf"], 0.8885);
        assert_eq!(
            json["results"].as_array().unwrap().len(),
            2,
            "a subject without a value is left out"
        );
        assert_eq!(serde_json::from_value::<Report>(json).unwrap(), measured());
    }

    #[test]
    fn nothing_to_compare_with() {
        let alone = [Series {
            subject: "wfq".into(),
            values: vec![1.0],
        }];
        assert_eq!(entries(1, "x", "y", &alone, true)[0].ratio_to_eevdf, None);
        let both = [Series {
            subject: BASELINE.into(),
            values: vec![1.0],
        }];
        assert_eq!(entries(1, "x", "y", &both, false)[0].ratio_to_eevdf, None);
    }

    #[test]
    fn the_table() {
        let expected = "pipe on 7.2, QEMU\n\ninstructions_per_op (instructions)\n\
                        SUBJECT  CPUS  MEDIAN   MIN   MAX  RUNS  / EEVDF\n\
                        eevdf       1    9010  9000  9100     3    1.000\n\
                        wfq         1    8005  8000  8010     2    0.888\n";
        assert_eq!(text(&measured()), expected);
    }
}
