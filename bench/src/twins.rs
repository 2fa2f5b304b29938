// SPDX-License-Identifier: GPL-2.0-only
//! One policy, a queue for each CPU, first in, first out: as handlers in C (`fifo_c`), in Rust
//! (`fifo`) and as a BPF scheduler (`scx_fifo`). The evaluation of SaaKM (part IV), whose table II
//! compares a scheduler with its counterpart in the kernel by whole programs.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use baton_control::error::{Error, Result};
use baton_control::modules::Search;
use baton_vm::FileIn;

use crate::arguments::Arguments;
use crate::loads::{self, output};
use crate::programs::PROGRAMS;
use crate::report::{entries, Entry};
use crate::subject::{Subject, TWIN};
use crate::table::{self, compare, Measured, Run, Table};
use crate::{judged, Bench};

/// Of pipe: the largest ratio of `fifo_c` to another subject.
const BOUNDS: [(&str, f64); 2] = [("fifo", 1.01), ("fifo_c_unchecked", 1.02)];
const JUDGED: &str = "fifo_c";

/// A load: its name in the report, and how it runs. Returns ns.
struct Load {
    name: &'static str,
    run: fn(Run) -> Result<f64>,
}

const PIPE: &str = "pipe";

const LOADS: [Load; 8] = [
    Load {
        name: PIPE,
        run: |run| loads::pipe(run.size(30_000)),
    },
    Load {
        name: "hackbench",
        run: |run| loads::hackbench(1, run.size(100)),
    },
    Load {
        name: "openmp",
        run: |run| program("forkjoin", &["threads", "8", "phases"], run.size(100)),
    },
    Load {
        name: "build",
        run: |run| program("forktree", &["jobs", "8", "total"], run.size(20)),
    },
    Load {
        name: "sqlite",
        run: |run| program("oltp", &["clients", "8", "transactions"], run.size(25)),
    },
    Load {
        name: "7zip",
        run: compress,
    },
    Load {
        name: "x265",
        run: encode,
    },
    Load {
        name: "redis",
        run: serve,
    },
];

pub struct Twins;

impl Bench for Twins {
    fn runs(&self) -> u32 {
        2
    }

    fn cpus(&self) -> &'static [u32] {
        &[1, 2]
    }

    fn subjects(&self) -> Vec<Subject> {
        let policies = ["fifo", JUDGED, "fifo_c_unchecked"];
        [Subject::Eevdf, TWIN]
            .into_iter()
            .chain(policies.map(|name| Subject::Policy(name.into())))
            .collect()
    }

    fn run(&self, search: &Search, args: &Arguments) -> Result<ExitCode> {
        table::run(self, search, args)
    }
}

impl Table for Twins {
    fn tools(&self) -> &'static [&'static str] {
        &[
            "perf",
            "hackbench",
            "x265",
            "redis-server",
            "redis-benchmark",
        ]
    }

    fn memory_mb(&self) -> Option<u32> {
        Some(1024)
    }

    fn files(&self, _subjects: &[Subject]) -> Result<Vec<FileIn>> {
        let mut files = PROGRAMS.for_guest(&["forkjoin", "forktree", "oltp"])?;
        // What Debian has in /usr/bin is a script.
        files.push(FileIn {
            host: "/usr/lib/7zip/7za".into(),
            guest: "/usr/bin/7za".into(),
        });
        Ok(files)
    }

    fn measure(&self, search: &Search, args: &Arguments, cpus: u32) -> Result<Measured> {
        // With -icount, one ns of guest time is one instruction.
        let (unit, scale) = if args.icount {
            ("thousand instructions", 1e3)
        } else {
            ("us", 1e3)
        };
        let mut measured = Measured::default();
        for load in &LOADS {
            eprintln!("baton: {}", load.name);
            let series = compare(search, args, |_, run| (load.run)(run).map(|ns| ns / scale))?;
            let results = entries(cpus, load.name, unit, &series, true);
            if load.name == PIPE {
                measured.broken |= !judge(&results);
            }
            measured.entries.extend(results);
        }
        Ok(measured)
    }
}

/// Do the bounds hold of those subjects that were measured?
fn judge(results: &[Entry]) -> bool {
    let median = |subject: &str| {
        let entry = results.iter().find(|entry| entry.subject == subject);
        entry.map(|entry| (entry.median, entry.cpus))
    };
    let mut all_hold = true;
    for (other, most) in BOUNDS {
        let (Some((own, cpus)), Some((other_median, _))) = (median(JUDGED), median(other)) else {
            continue;
        };
        let ratio = own / other_median;
        let holds = ratio <= most;
        all_hold &= holds;
        eprintln!(
            "baton: {JUDGED}, {cpus} CPUs: {ratio:.4} of {other}, bound {most:.2}: {}",
            judged::verdict(holds)
        );
    }
    all_hold
}

/// The time of what `work` does, ns.
fn timed(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let begin = Instant::now();
    work()?;
    Ok(begin.elapsed().as_nanos() as f64)
}

/// One of the programs in bench/programs. Its start is part of the time.
fn program(name: &str, arguments: &[&str], size: u32) -> Result<f64> {
    let path = PROGRAMS.find(name)?.display().to_string();
    let size = size.to_string();
    let arguments = [arguments, &[&size]].concat();
    timed(|| output(&path, &arguments).map(drop))
}

/// Writes a file for a program to read, unless it is there. `byte` says what is at a place.
fn input(path: &str, size: usize, byte: impl Fn(usize) -> u8) -> Result<()> {
    if Path::new(path).exists() {
        return Ok(());
    }
    let bytes: Vec<u8> = (0..size).map(byte).collect();
    let write = || fs::File::create(path)?.write_all(&bytes);
    write().map_err(|e| Error::file(format!("writing {path}"), &e))
}

/// Four threads compress a text.
fn compress(run: Run) -> Result<f64> {
    let size = run.size(2_000_000);
    let path = format!("/tmp/text-{size}");
    // Words that repeat at no fixed distance.
    input(&path, size as usize, |at| {
        b"scheduler of threads, "[(at * at / 7 + at) % 22]
    })?;
    let archive = format!("{path}.7z");
    let _ = fs::remove_file(&archive);
    timed(|| output("7za", &["a", "-mx=3", "-mmt=4", &archive, &path]).map(drop))
}

/// Pixels of a picture, its frames, and bytes of a frame in which brightness has a byte for a
/// pixel.
const PICTURE: (usize, usize) = (128, 96);
const FRAME: usize = PICTURE.0 * PICTURE.1 * 3 / 2;

/// Four threads encode a video.
fn encode(run: Run) -> Result<f64> {
    let frames = run.size(10);
    let path = "/tmp/video.yuv";
    // A pattern that moves.
    input(path, 10 * FRAME, |at| {
        let (frame, place) = (at / FRAME, at % FRAME);
        ((place % PICTURE.0 + 3 * frame) * (place / PICTURE.0 + frame) / 5) as u8
    })?;
    let (size, frames) = (format!("{}x{}", PICTURE.0, PICTURE.1), frames.to_string());
    let arguments = [
        "--input",
        path,
        "--input-res",
        &size,
        "--fps",
        "25",
        "--frames",
        &frames,
        "--preset",
        "ultrafast",
        "--pools",
        "4",
        "--output",
        "/tmp/video.hevc",
    ];
    timed(|| output("x265", &arguments).map(drop))
}

/// A server in the background. It ends when this value is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How long a server may take to begin.
const PATIENCE: Duration = Duration::from_secs(10);

/// Clients of a key-value server.
fn serve(run: Run) -> Result<f64> {
    const SOCKET: &str = "/tmp/redis.sock";
    let _ = fs::remove_file(SOCKET);
    let server = Command::new("redis-server")
        .args(["--port", "0", "--unixsocket", SOCKET, "--save", ""])
        .args(["--locale-collate", "C"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|e| {
            let what = format!("redis-server cannot be run: {e}");
            Error::environment(
                what,
                "install it (Debian: redis-server), or measure in a guest",
            )
        })?;
    let _server = Server(server);
    let begin = Instant::now();
    while UnixStream::connect(SOCKET).is_err() {
        if begin.elapsed() > PATIENCE {
            return Err(Error::environment(
                "redis-server does not begin",
                "run it alone",
            ));
        }
        sleep(Duration::from_millis(10));
    }
    let requests = run.size(2_000).to_string();
    let arguments = [
        "-s", SOCKET, "-c", "16", "-n", &requests, "-t", "set,get", "-q",
    ];
    timed(|| output("redis-benchmark", &arguments).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Series, BASELINE};

    #[test]
    fn fifo_c_has_two_bounds() {
        let holds = |fifo: f64, unchecked: f64| {
            let value = |subject: &str, value: f64| Series {
                subject: subject.into(),
                values: vec![value],
            };
            let series = [
                value(BASELINE, 900.0),
                value("fifo", fifo),
                value(JUDGED, 1_000.0),
                value("fifo_c_unchecked", unchecked),
            ];
            judge(&entries(1, PIPE, "ns", &series, true))
        };
        assert!(holds(1_000.0, 1_000.0) && holds(991.0, 981.0));
        assert!(!holds(989.0, 1_000.0) && !holds(1_000.0, 980.0));
    }
}
