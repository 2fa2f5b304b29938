// SPDX-License-Identifier: GPL-2.0-only
//! Combines runs that differ only in their seeds into one, with means and confidence intervals.

use serde_json::{json, Map, Value};
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::report::{thin, Point, Run};

/// Fields that are taken from the first run, as they identify a run or have no mean.
const KEPT: [&str; 8] = [
    "stuck_ns",
    "version",
    "seed",
    "seeds",
    "jitter_ppm",
    "timeline",
    "detail",
    "confidence",
];

/// Combines the runs of one configuration under several seeds. The numbers of the result are means,
/// with 95 % confidence intervals (Student's t, for independent runs). Its timeline and detail are
/// those of the first run. The error is a message for the user: there are no runs, or they do not
/// match.
pub fn series(runs: &[Run]) -> Result<Run, String> {
    let [first, _, ..] = runs else {
        return runs.first().cloned().ok_or("there are no runs".into());
    };
    let values: Result<Vec<Value>, _> = runs.iter().map(serde_json::to_value).collect();
    let values = values.map_err(|e| e.to_string())?;
    let (mean, spread) = combine(&values.iter().collect::<Vec<_>>());
    let mut run: Run = serde_json::from_value(mean).map_err(|e| e.to_string())?;
    run.seeds = runs.len() as u64;
    run.confidence = Some(spread);
    run.timeline.clone_from(&first.timeline);
    run.detail.clone_from(&first.detail);
    run.hash = format!(
        "{:016x}",
        runs.iter().fold(0, |all, run| fold(all, &run.hash))
    );
    run.faults = runs
        .iter()
        .flat_map(|run| {
            run.faults
                .iter()
                .map(|why| format!("seed {}: {why}", run.seed))
        })
        .collect();
    Ok(run)
}

/// FNV-1a.
fn fold(all: u64, hash: &str) -> u64 {
    hash.bytes().fold(all ^ 0xcbf2_9ce4_8422_2325, |all, byte| {
        (all ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The means and intervals of values; null where there is none.
fn combine(values: &[&Value]) -> (Value, Value) {
    let there: Vec<&Value> = values
        .iter()
        .copied()
        .filter(|value| !value.is_null())
        .collect();
    let Some(&first) = there.first() else {
        return (Value::Null, Value::Null);
    };
    match first {
        Value::Number(_) => numbers(&there),
        Value::Object(object) => objects(object, &there),
        // Groups. Each run has the same ones, in the same order.
        Value::Array(items) if items.iter().all(Value::is_object) => {
            let item = |at: usize| {
                there
                    .iter()
                    .filter_map(|value| value.get(at))
                    .collect::<Vec<_>>()
            };
            let (means, mut spreads): (Vec<_>, Vec<_>) =
                (0..items.len()).map(|at| combine(&item(at))).unzip();
            for (spread, item) in spreads.iter_mut().zip(items) {
                if let (Value::Object(spread), Some(name)) = (spread, item.get("name")) {
                    spread.insert("name".into(), name.clone());
                }
            }
            (means.into(), spreads.into())
        }
        other => (other.clone(), Value::Null),
    }
}

fn objects(first: &Map<String, Value>, values: &[&Value]) -> (Value, Value) {
    let (mut means, mut spreads) = (Map::new(), Map::new());
    let keys = values
        .iter()
        .filter_map(|value| value.as_object())
        .flat_map(Map::keys);
    for key in keys {
        if means.contains_key(key) {
            continue;
        }
        let own: Vec<&Value> = values.iter().filter_map(|value| value.get(key)).collect();
        let (mean, spread) = match key.as_str() {
            kept if KEPT.contains(&kept) => {
                (first.get(key).cloned().unwrap_or_default(), Value::Null)
            }
            "wakeup_curve" | "response_curve" => (curves(&own), Value::Null),
            _ => combine(&own),
        };
        means.insert(key.clone(), mean);
        if !spread.is_null() {
            spreads.insert(key.clone(), spread);
        }
    }
    (means.into(), spreads.into())
}

fn numbers(values: &[&Value]) -> (Value, Value) {
    let numbers: Vec<f64> = values.iter().filter_map(|value| value.as_f64()).collect();
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let shown = if values.iter().all(|value| value.is_u64()) {
        json!(mean.round() as u64)
    } else {
        json!(mean)
    };
    if numbers.len() < 2 {
        return (shown, Value::Null);
    }
    let variance = numbers
        .iter()
        .map(|number| (number - mean).powi(2))
        .sum::<f64>()
        / (count - 1.0);
    let half = quantile(numbers.len()) * (variance / count).sqrt();
    (shown, json!([mean - half, mean + half]))
}

/// Half the width of the 95 % confidence interval of the mean of this number of runs, in standard
/// errors. At least two runs.
fn quantile(runs: usize) -> f64 {
    let student =
        StudentsT::new(0.0, 1.0, (runs - 1) as f64).expect("two runs have a degree of freedom");
    student.inverse_cdf(0.975)
}

/// The mean of curves: at each time the mean of their shares.
fn curves(values: &[&Value]) -> Value {
    let read =
        |value: &&Value| serde_json::from_value::<Vec<Point>>((*value).clone()).unwrap_or_default();
    let curves: Vec<Vec<Point>> = values
        .iter()
        .map(read)
        .filter(|curve| !curve.is_empty())
        .collect();
    let mut times: Vec<u64> = curves.iter().flatten().map(|point| point.0).collect();
    times.sort_unstable();
    times.dedup();
    let share = |curve: &[Point], time: u64| match curve.partition_point(|point| point.0 <= time) {
        0 => 0.0,
        after => curve[after - 1].1,
    };
    let mean = |&time: &u64| {
        let sum: f64 = curves.iter().map(|curve| share(curve, time)).sum();
        Point(time, sum / curves.len() as f64)
    };
    json!(thin(times.iter().map(mean).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Fairness, GroupReport, Percentiles, VERSION};

    fn run(seed: u64, p50: u64, jain: Option<f64>) -> Run {
        let wakeup = Percentiles {
            count: 3,
            p50,
            ..Percentiles::default()
        };
        let wakeup_curve = vec![Point(p50, 0.5), Point(100, 1.0)];
        Run {
            version: VERSION,
            policy: "wfq".into(),
            workload: "pipe".into(),
            topology: "1x2x1".into(),
            seed,
            seeds: 1,
            confidence: None,
            jitter_ppm: 10_000,
            duration_ns: 1_000,
            stuck_ns: None,
            hash: format!("{seed:016x}"),
            events: 10,
            groups: vec![GroupReport {
                name: "a/b".into(),
                wakeup,
                wakeup_curve,
                ..GroupReport::default()
            }],
            cpu: Default::default(),
            fairness: jain.map(|jain| Fairness {
                jain,
                worst_lag_ns: 0,
            }),
            upgrades: 0,
            refused_upgrades: vec![],
            tasks_not_made: 0,
            hints: 0,
            hints_refused: 0,
            faults: vec![],
            timeline: None,
            detail: None,
        }
    }

    #[test]
    fn means_and_what_they_are_within() {
        let all = series(&[
            run(5, 10, Some(0.5)),
            run(6, 20, None),
            run(7, 30, Some(1.0)),
        ])
        .unwrap();
        assert_eq!(
            (all.seed, all.seeds, all.groups[0].wakeup.p50, all.events),
            (5, 3, 20, 10)
        );
        assert_eq!(all.fairness.map(|fairness| fairness.jain), Some(0.75));
        let confidence = all.confidence.unwrap();
        let [low, high] = [0, 1].map(|end| {
            confidence["groups"][0]["wakeup"]["p50"][end]
                .as_f64()
                .unwrap()
        });
        // Printed tables have 4.303 for two degrees of freedom. The standard error is 10 divided by
        // the square root of 3.
        assert!(
            (high - 20.0 - 4.303 * 10.0 / 3.0_f64.sqrt()).abs() < 0.01
                && (low + high - 40.0).abs() < 1e-9
        );
        assert_eq!(confidence["groups"][0]["name"], "a/b");
        assert!(confidence["groups"][0]["wakeup_curve"].is_null() && confidence["seed"].is_null());
        let third = 1.0 / 6.0;
        let curve = &all.groups[0].wakeup_curve;
        assert_eq!(
            curve.iter().map(|point| point.0).collect::<Vec<_>>(),
            [10, 20, 30, 100]
        );
        assert!(
            (curve[0].1 - third).abs() < 1e-9
                && (curve[2].1 - 0.5).abs() < 1e-9
                && curve[3].1 == 1.0
        );
    }

    #[test]
    fn one_run_is_itself_and_none_is_refused() {
        assert_eq!(series(&[run(1, 10, None)]).unwrap(), run(1, 10, None));
        assert!(series(&[]).is_err());
    }

    #[test]
    fn a_series_is_told_from_another() {
        let of = |seeds: &[u64]| {
            series(
                &seeds
                    .iter()
                    .map(|&seed| run(seed, 1, None))
                    .collect::<Vec<_>>(),
            )
            .unwrap()
            .hash
        };
        assert_eq!(of(&[1, 2]), of(&[1, 2]));
        assert_ne!(of(&[1, 2]), of(&[1, 3]));
    }
}
