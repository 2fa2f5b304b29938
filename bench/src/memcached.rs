// SPDX-License-Identifier: GPL-2.0-only
//! memcached under an open-loop load modelled on Facebook's ETC pool (bench/programs/etc.c):
//! section 5.6 of Enoki. As there, `arbiter` runs a server of user-level threads instead of
//! memcached (`baton threads kv`); the same server is also measured under EEVDF. In a guest, whose
//! CPU is slow, times are scaled as in [`slow`].

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};

use baton_vm::FileIn;
use serde::Deserialize;

use super::loads::output;
use super::programs::PROGRAMS;
use super::report::{entries, Entry, Series};
use super::subject::Subject;
use super::table::{self, Measured as Numbers, Table};
use super::{arbiter, slow, Arguments, Bench};
use baton_control::error::{Error, Result};
use baton_control::modules::Search;

/// Loads, in percent of the capacity of the first subject.
const LOADS: &[u32] = &[50, 70, 80, 90];
/// The length of a run, ns.
const DURATION: u64 = 500_000_000;
/// The gap between requests for each CPU while the capacity is measured, ns.
const OVERLOAD: f64 = 5_000.0;
const PERCENTILES: [&str; 2] = ["p50", "p99"];
const PORT: &str = "11211";
/// The user `nobody`; memcached does not run as root.
const USER: u32 = 65534;

/// The output of the load program.
#[derive(Deserialize)]
struct Ran {
    answered: u64,
    gets: Gets,
}

/// Latencies of GET, ns.
#[derive(Deserialize)]
struct Gets {
    p50: u64,
    p99: u64,
}

pub struct Memcached;

impl Bench for Memcached {
    fn runs(&self) -> u32 {
        3
    }

    fn cpus(&self) -> &'static [u32] {
        // The CPUs of a guest that counts instructions run in turn. With several, a woken task
        // would also wait for its CPU's turn.
        &[1]
    }

    fn subjects(&self) -> Vec<Subject> {
        subjects()
    }

    fn run(&self, search: &Search, args: &Arguments) -> Result<ExitCode> {
        table::run(self, search, args)
    }
}

impl Table for Memcached {
    fn tools(&self) -> &'static [&'static str] {
        &["memcached"]
    }

    fn files(&self, _subjects: &[Subject]) -> Result<Vec<FileIn>> {
        PROGRAMS.for_guest(&["etc"])
    }

    fn measure(&self, search: &Search, args: &Arguments, cpus: u32) -> Result<Numbers> {
        measure(search, args, cpus).map(Numbers::from)
    }
}

fn subjects() -> Vec<Subject> {
    let policies = ["fifo", "wfq", "central", "shinjuku", arbiter::POLICY]
        .map(|name| Subject::Policy(name.into()));
    let kernels = [
        Subject::Eevdf,
        Subject::Scx {
            program: "scx_simple",
            options: &[],
        },
    ];
    kernels.into_iter().chain(policies).collect()
}

/// Measures on the running machine: the capacity, and latencies of GET at fractions of the capacity
/// of the first subject.
fn measure(search: &Search, args: &Arguments, cpus: u32) -> Result<Vec<Entry>> {
    output("ip", &["link", "set", "lo", "up"])?;
    let factor = slow::factor(args);
    let _slice = args.icount.then(slow::BaseSlice::longer).transpose()?;
    let overload = OVERLOAD / slow::at_once(args, cpus);
    let subjects = args.subjects();
    let measured = measured(&subjects);
    let series = || {
        measured
            .iter()
            .map(|m| Series {
                subject: m.name(),
                values: Vec::new(),
            })
            .collect::<Vec<_>>()
    };
    let mut rates = series();
    let mut times = LOADS
        .iter()
        .map(|_| PERCENTILES.map(|_| series()))
        .collect::<Vec<_>>();
    let mut whole = None;
    for (place, Measured { subject, server }) in measured.iter().enumerate() {
        subject.measure_with(
            search,
            slow::options(subject).filter(|_| args.icount),
            || {
                let running = server.start(cpus)?;
                for run in 1..=args.runs() {
                    let rate = load(overload, run)?.answered as f64 * 1e9 / DURATION as f64;
                    let whole = *whole.get_or_insert(rate);
                    rates[place].values.push(rate * factor as f64);
                    for (load_is, times) in LOADS.iter().zip(&mut times) {
                        let gets = load(1e9 * 100.0 / (whole * f64::from(*load_is)), run)?.gets;
                        for (series, ns) in times.iter_mut().zip([gets.p50, gets.p99]) {
                            series[place].values.push(slow::us(ns, factor));
                        }
                    }
                }
                eprintln!(
                    "baton: {:<15} {:>12.0} requests in a second",
                    rates[place].subject, rates[place].values[0]
                );
                drop(running);
                Ok(())
            },
        )?;
    }
    let mut found = entries(cpus, "answered", "requests in a second", &rates, true);
    for (load_is, times) in LOADS.iter().zip(&times) {
        for (percentile, series) in PERCENTILES.iter().zip(times) {
            found.extend(entries(
                cpus,
                &format!("get_{percentile}_at_{load_is}"),
                "us",
                series,
                true,
            ));
        }
    }
    Ok(found)
}

fn load(gap: f64, seed: u32) -> Result<Ran> {
    let (gap, duration, seed) = (gap.to_string(), DURATION.to_string(), seed.to_string());
    let words = [
        "--gap",
        &gap,
        "--duration",
        &duration,
        "--seed",
        &seed,
        "--port",
        PORT,
    ];
    let program = PROGRAMS.find("etc")?;
    let text = output(&program.display().to_string(), &words)?;
    serde_json::from_str(&text)
        .map_err(|e| Error::baton(format!("{} printed {text}: {e}", program.display())))
}

/// A scheduler and the server that runs under it.
struct Measured<'a> {
    subject: &'a Subject,
    server: Server,
}

/// Memcached under each subject, except that `arbiter` has the server of user-level threads. If
/// `arbiter` is measured, that server also runs under EEVDF, for comparison.
fn measured(subjects: &[Subject]) -> Vec<Measured<'_>> {
    let is_arbiter = |subject: &Subject| subject.name() == arbiter::POLICY;
    let has_arbiter = subjects.iter().any(is_arbiter);
    let of = |subject| match is_arbiter(subject) {
        true => vec![Measured {
            subject,
            server: Server::Kv("policy"),
        }],
        false if has_arbiter && *subject == Subject::Eevdf => {
            vec![
                Measured {
                    subject,
                    server: Server::Memcached,
                },
                Measured {
                    subject,
                    server: Server::Kv("threads"),
                },
            ]
        }
        false => vec![Measured {
            subject,
            server: Server::Memcached,
        }],
    };
    subjects.iter().flat_map(of).collect()
}

impl Measured<'_> {
    fn name(&self) -> String {
        match self.server {
            Server::Memcached => self.subject.name(),
            Server::Kv(_) => format!("{}, kv", self.subject.name()),
        }
    }
}

enum Server {
    Memcached,
    /// A server of user-level threads, with this value of its option `--on`.
    Kv(&'static str),
}

/// A running server. It ends when this value is dropped.
struct Running(Child);

impl Server {
    fn start(&self, cpus: u32) -> Result<Running> {
        let mut command = match self {
            Server::Memcached => {
                let mut command = Command::new("memcached");
                command
                    .args([
                        "-t",
                        "4",
                        "-m",
                        "64",
                        "-U",
                        "0",
                        "-l",
                        "127.0.0.1",
                        "-p",
                        PORT,
                    ])
                    .uid(USER);
                command
            }
            Server::Kv(on) => {
                let own = std::env::current_exe()
                    .map_err(|e| Error::file("looking for this program", &e))?;
                let mut command = Command::new(own);
                command.args([
                    "threads",
                    "kv",
                    "--on",
                    on,
                    "--most",
                    &cpus.to_string(),
                    "--port",
                    PORT,
                ]);
                command
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().map(Running).map_err(|e| {
            Error::environment(
                format!("the server cannot be run: {e}"),
                "install memcached (Debian has it), or measure in a guest (without --here), which \
                 has it",
            )
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
