// SPDX-License-Identifier: GPL-2.0-only
//! An open loop whose arrivals and CPU times come from distributions or a file; a pool of workers
//! serves the requests.
//!
//! All requests go into one queue that the workers share. Each request is an operation; the
//! response is the time from its due time to its answer.
//!
//! A file has one request per line: its arrival, counted from the beginning, and its CPU time, as
//! in `1.5ms 20us`. If the second is missing, `service` and `mean` determine the CPU time. `#`
//! begins a comment. Arrivals must not go back in time. No requests arrive after the last line.
//!
//! Keys: `workers`; `arrivals` and `service`, distributions; `mean`, of the CPU time; `load`, the
//! share of `on` CPUs that the requests need; `file`, which replaces `arrivals` and `load`; `nice`.

use super::law::Law;
use super::open::{gap, Worker};
use super::spec::time;
use super::{read_text, Key, Kind, Stage, Workload};
use crate::rng::Rng;
use crate::world::{Item, Object, Source, Spawn};

const S: u64 = 1_000_000_000;

pub(super) const WORKLOAD: Workload = Workload {
    name: "requests",
    help: "open loop with distributions, or arrivals from a file, of one's own",
    keys: &[
        Key {
            name: "workers",
            kind: Kind::Count(1, 100_000),
            default: "50",
            help: "workers",
        },
        Key {
            name: "load",
            kind: Kind::Number(0.001, 10.0),
            default: "0.7",
            help: "share of the CPUs that is needed",
        },
        Key {
            name: "on",
            kind: Kind::Count(1, 4096),
            default: "cpus",
            help: "CPUs that load is a share of",
        },
        Key {
            name: "arrivals",
            kind: Kind::Law,
            default: "exponential",
            help: "times from request to request",
        },
        Key {
            name: "service",
            kind: Kind::Law,
            default: "exponential",
            help: "CPU times of requests",
        },
        Key {
            name: "mean",
            kind: Kind::Time(1, 10 * S),
            default: "100us",
            help: "mean CPU time of a request",
        },
        Key {
            name: "file",
            kind: Kind::Path,
            default: "",
            help: "requests, a line each: TIME [CPU-TIME]",
        },
        Key {
            name: "nice",
            kind: Kind::Nices,
            default: "0",
            help: "of the workers, in turn",
        },
    ],
    add,
};

struct Requests {
    queue: Object,
    arrivals: Arrivals,
    service: Law,
    mean: f64,
}

enum Arrivals {
    /// Times in ns, with fractions.
    Drawn { law: Law, at: f64, gap: f64 },
    /// The requests of a file in reverse order.
    Listed(Vec<Line>),
}

/// A request of a file, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    at: u64,
    service: Option<u64>,
}

impl Source for Requests {
    fn next(&mut self, rng: &mut Rng) -> Option<(u64, Object, Item)> {
        let (due, service) = match &mut self.arrivals {
            Arrivals::Drawn { law, at, gap } => {
                *at += law.draw(rng) * *gap;
                (*at as u64, None)
            }
            Arrivals::Listed(lines) => lines.pop().map(|line| (line.at, line.service))?,
        };
        let service = service
            .unwrap_or_else(|| (self.service.draw(rng) * self.mean) as u64)
            .max(1);
        Some((
            due,
            self.queue,
            Item {
                due,
                service,
                tag: 0,
            },
        ))
    }
}

/// Parses the requests of a file; the error names the line.
fn read(text: &str) -> Result<Vec<Line>, String> {
    let mut lines: Vec<Line> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line
            .split(|c: char| c.is_whitespace() || c == ',')
            .filter(|w| !w.is_empty())
            .collect();
        let read = |word: &str| {
            time(word).ok_or_else(|| format!("line {number}: '{word}' is no time, as 1.5ms is"))
        };
        let line = match words[..] {
            [] => continue,
            [at] => Line {
                at: read(at)?,
                service: None,
            },
            [at, service] => Line {
                at: read(at)?,
                service: Some(read(service)?),
            },
            _ => return Err(format!("line {number}: a request is TIME [CPU-TIME]")),
        };
        if lines.last().is_some_and(|before| before.at > line.at) {
            return Err(format!(
                "line {number}: its time is before that of the request before"
            ));
        }
        lines.push(line);
    }
    if lines.is_empty() {
        Err("there is no request in it".into())
    } else {
        Ok(lines)
    }
}

fn add(stage: &mut Stage<'_>) -> Result<(), String> {
    let (workers, on, mean) = (
        stage.params.whole("workers"),
        stage.params.whole("on"),
        stage.params.whole("mean"),
    );
    stage.room_for(workers)?;
    let arrivals = match stage.params.path("file") {
        "" => {
            let gap = gap(stage.params.number("load"), on, mean as f64);
            Arrivals::Drawn {
                law: stage.params.law("arrivals"),
                at: 0.0,
                gap,
            }
        }
        path => {
            let text = read_text(stage.read, path)?;
            let mut lines = read(&text).map_err(|why| format!("{path}: {why}"))?;
            lines.reverse();
            Arrivals::Listed(lines)
        }
    };
    let group = stage.group();
    let queue = stage.world.queue();
    for worker in 0..workers {
        let nices = stage.params.nices("nice");
        let nice = nices[worker as usize % nices.len()];
        stage.world.task(
            Spawn::new(format!("{}-{worker}", stage.name), Worker::of(queue))
                .group(group)
                .nice(nice),
        );
    }
    let service = stage.params.law("service");
    stage.world.source(Requests {
        queue,
        arrivals,
        service,
        mean: mean as f64,
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_or_refused() {
        let good = read("# when, what\n0\n1ms 20us\n\n1.5ms,30us # a slow one\n").unwrap();
        let line = |at, service| Line { at, service };
        assert_eq!(
            good,
            [
                line(0, None),
                line(1_000_000, Some(20_000)),
                line(1_500_000, Some(30_000))
            ]
        );
        let refused = |text: &str, why: &str| assert_eq!(read(text).unwrap_err(), why);
        refused("", "there is no request in it");
        refused("1ms\nsoon\n", "line 2: 'soon' is no time, as 1.5ms is");
        refused("1ms 2us 3us", "line 1: a request is TIME [CPU-TIME]");
        refused(
            "2ms\n1ms\n",
            "line 2: its time is before that of the request before",
        );
    }
}
