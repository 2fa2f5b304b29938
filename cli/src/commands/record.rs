// SPDX-License-Identifier: GPL-2.0-only
//! `baton record`: writes what a running policy is asked, and answers, to a file. `baton fault save`: the same of what a flight
//! recorder had.
//!
//! One thread empties the rings, with the real-time priority that the core gives it; this one waits for the end.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::{Duration, Instant};

use baton_abi::{BatonPolicyState, BatonRecordEnd, BatonRecordHow, BatonStateType};
use baton_trace::{BlockHead, FileWriter, Header, HEAD_SIZE};
use rustix::io::Errno;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::{print, print_json};
use crate::cli::{FaultSave, Record};
use crate::device::{text, Device, Refused, Rings, BLOCKS_PER_MIB};
use crate::error::{Error, Result};
use crate::report;
use crate::status::Fault;

/// How often the rings are looked into. The smallest ring takes 100 MB/s at that.
const LOOK: Duration = Duration::from_millis(10);
/// How often the end is looked for.
const WAIT: Duration = Duration::from_millis(50);

/// What a recording came to.
#[derive(Debug, Default, Serialize)]
pub struct Summary {
    policy: String,
    pub events: u64,
    /// Of the file.
    pub bytes: u64,
    /// Events that there was no room for.
    pub lost: u64,
    /// Why it ended.
    end: &'static str,
    /// Its beginning is there: it can be replayed.
    whole: bool,
    /// From the first event to the last, ns.
    duration_ns: u64,
}

/// A recording that goes on. Ends with this value.
pub struct Session {
    stop: Arc<AtomicBool>,
    reader: Option<thread::JoinHandle<Result<Summary>>>,
}

impl Session {
    /// Begins to record a policy that runs into a file, with so many MiB for each CPU at most.
    pub fn begin(policy: &str, output: &Path, ring_mib: u32, lossless: bool) -> Result<Self> {
        let file = open(output)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (begun, begins) = mpsc::channel();
        let (stopped, policy) = (Arc::clone(&stop), policy.to_owned());
        let reader = thread::spawn(move || {
            let how = if lossless { BatonRecordHow::Lossless } else { BatonRecordHow::Lossy };
            let rings = Rings::begin(Device::open()?, &policy, ring_mib * BLOCKS_PER_MIB, how)?;
            let rings = rings.map_err(|why| refused(&policy, &why))?;
            // Whoever waits for it is there.
            let _ = begun.send(());
            read(rings, &policy, file, &stopped)
        });
        let mut session = Self { stop, reader: Some(reader) };
        match begins.recv() {
            Ok(()) => Ok(session),
            // The reader says why.
            Err(_) => Err(session.join().err().unwrap_or_else(|| Error::baton("the recording did not begin"))),
        }
    }

    /// Ends it.
    pub fn end(mut self) -> Result<Summary> {
        self.join()
    }

    fn is_over(&self) -> bool {
        self.reader.as_ref().is_none_or(thread::JoinHandle::is_finished)
    }

    fn join(&mut self) -> Result<Summary> {
        self.stop.store(true, Relaxed);
        let panicked = || Error::baton("the reader of the rings panicked");
        self.reader.take().map_or_else(|| Err(panicked()), |reader| reader.join().map_err(|_| panicked())?)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.reader.is_some() {
            // Whatever it came to, nobody asks.
            let _ = self.join();
        }
    }
}

pub fn record(args: &Record) -> Result<ExitCode> {
    let device = Device::open()?;
    let policy = match &args.policy {
        Some(policy) => policy.clone(),
        None => only_policy(&device)?,
    };
    if let Some(mib) = args.flight {
        set_flight(&device, &policy, mib)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Clap asks for one of both.
    let output = args.output.as_deref().unwrap_or_else(|| Path::new(""));
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))
            .map_err(|e| Error::environment(format!("signals cannot be received: {e}"), "try again"))?;
    }
    let session = Session::begin(&policy, output, args.ring, args.lossless)?;
    let code = wait(args, &device, &policy, &interrupted, &session);
    let summary = session.end()?;
    let code = code?;
    match args.out.json {
        true => print_json(&summary)?,
        false => print(words(&summary, output))?,
    }
    let fault = device.policy(&policy)?.filter(|info| info.state == BatonPolicyState::Faulted as u32);
    match fault.map(|info| Ok((device.fault(info.index)?, info))).transpose()? {
        Some((Some(fault), info)) => {
            eprint!("{}", report::fault(&Fault::new(&fault, Some(&info))));
            Ok(ExitCode::from(4))
        }
        _ => Ok(code),
    }
}

fn only_policy(device: &Device) -> Result<String> {
    let mut running = device.policies()?.into_iter().filter(|info| info.state == BatonPolicyState::Running as u32);
    match (running.next(), running.next()) {
        (Some(info), None) => Ok(text(&info.name)),
        (None, _) => Err(Error::user("no policy is running", "load one first: baton load POLICY")),
        _ => Err(Error::user("several policies are running", "say which one: -p NAME")),
    }
}

/// Gives a policy a flight recorder of so many MiB for each CPU, or takes it away.
pub fn set_flight(device: &Device, policy: &str, mib: u32) -> Result<()> {
    let how = BatonRecordHow::Flight;
    device.record(policy, mib * BLOCKS_PER_MIB, how).map(drop).map_err(|why| refused(policy, &why))
}

pub fn save_fault(args: &FaultSave) -> Result<ExitCode> {
    let device = Device::open()?;
    let policy = match &args.policy {
        Some(policy) => policy.clone(),
        None => failed_policy(&device)?,
    };
    let rings = Rings::begin(device, &policy, 0, BatonRecordHow::Fault)?.map_err(|why| refused(&policy, &why))?;
    let summary = read(rings, &policy, open(&args.output)?, &AtomicBool::new(true))?;
    match args.out.json {
        true => print_json(&summary)?,
        false => print(words(&summary, &args.output))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What was in the file stays there until it is known that something comes in its place.
fn open(path: &Path) -> Result<File> {
    let opened = File::options().write(true).create(true).truncate(false).open(path);
    opened.map_err(|e| Error::file(format_args!("making {}", path.display()), &e))
}

fn failed_policy(device: &Device) -> Result<String> {
    let mut failed = device.policies()?.into_iter().filter(|info| info.faults != 0);
    match (failed.next(), failed.next()) {
        (Some(info), None) => Ok(text(&info.name)),
        (None, _) => Err(Error::user("no policy has failed", "record one that runs: baton record -o FILE")),
        _ => Err(Error::user("several policies have failed", "say which one: -p NAME")),
    }
}

/// Why the core does not record.
fn refused(policy: &str, refused: &Refused) -> Error {
    match refused.errno {
        Errno::NOENT => Error::user(format!("the policy {policy} is not loaded"), format!("baton load {policy}")),
        Errno::NODEV => Error::user(format!("the policy {policy} is not running"), "see `baton status`"),
        Errno::BUSY => Error::user(format!("{policy} is being recorded already"), "wait for the end of that"),
        Errno::NOMEM => Error::environment("there is not enough memory for the rings", "give fewer MiB to each CPU"),
        Errno::OPNOTSUPP => Error::environment(
            "the clocks of this machine's CPUs do not agree (its time stamp counter is unstable)",
            "record on another machine, or in a guest (baton vm run)",
        ),
        Errno::NODATA => Error::user(
            format!("{policy} had no flight recorder when it failed, or has not failed"),
            format!("give it one: baton record -p {policy} --flight 4"),
        ),
        Errno::FAULT | Errno::INVAL if !refused.message.is_empty() => Error::policy(
            policy,
            format!("{policy} could not be made anew: {}", refused.message),
            "mend the policy; it goes on as it was",
        ),
        errno => Error::baton(format!("the recording was refused: {errno}")),
    }
}

/// Until the recording is to end: what says so. The exit code of the command, if there is one.
fn wait(args: &Record, device: &Device, policy: &str, interrupted: &AtomicBool, session: &Session) -> Result<ExitCode> {
    let end = args.duration.map(|duration| Instant::now() + duration);
    let mut command = match args.command.split_first() {
        Some((program, arguments)) => {
            let started = Command::new(program).args(arguments).spawn();
            Some(started.map_err(|e| Error::file(format_args!("running {program}"), &e))?)
        }
        None => None,
    };
    let failed = |e| Error::environment(format!("the command cannot be waited for: {e}"), "try again");
    loop {
        let status = command.as_mut().map(|child| child.try_wait()).transpose().map_err(failed)?.flatten();
        if let Some(status) = status {
            return Ok(ExitCode::from(status.code().unwrap_or(1) as u8));
        }
        let runs = device.policy(policy)?.is_some_and(|info| info.state == BatonPolicyState::Running as u32);
        let is_over = interrupted.load(Relaxed) || end.is_some_and(|end| Instant::now() >= end) || !runs;
        if is_over || session.is_over() {
            return match &mut command {
                Some(child) => child.wait().map_err(failed).map(|s| ExitCode::from(s.code().unwrap_or(1) as u8)),
                None => Ok(ExitCode::SUCCESS),
            };
        }
        thread::sleep(WAIT);
    }
}

/// Empties the rings until the recording has ended.
fn read(mut rings: Rings, policy: &str, file: File, stop: &AtomicBool) -> Result<Summary> {
    let failed = |e: std::io::Error| Error::file("writing the recording", &e);
    let mut summary = Summary { policy: policy.into(), whole: true, ..Summary::default() };
    let header = header(&mut rings, policy)?;
    // A pipe or a device has no length.
    if file.metadata().map_err(failed)?.is_file() {
        file.set_len(0).map_err(failed)?;
    }
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let mut out = FileWriter::new(&mut out, &header).map_err(failed)?;
    out.state(&rings.state()?).map_err(failed)?;
    out.get_mut().flush().map_err(failed)?;
    let (mut first, mut last) = (u64::MAX, 0);
    let mut begins = vec![None; rings.nr_cpus() as usize];
    loop {
        // Stopped before the look, so that the last look finds all.
        let is_last = stop.load(Relaxed) || !summary.end.is_empty();
        if is_last {
            rings.stop()?;
        }
        for cpu in 0..rings.nr_cpus() {
            loop {
                let taken = rings.take(cpu)?;
                summary.end = name(taken.end);
                let Some(block) = taken.block else { break };
                let head = block.first_chunk().and_then(|head: &[u8; HEAD_SIZE]| BlockHead::from_bytes(head));
                let head = head.ok_or_else(|| Error::baton("the core gave a block that is none"))?;
                // Of a flight recorder with a state to begin with, nothing is missed before that.
                let number = *begins[cpu as usize].get_or_insert(head.number);
                let is_from_state = header.state.is_some();
                summary.whole &= is_from_state || number == 0;
                out.block(block, if is_from_state { number } else { 0 }).map_err(failed)?;
                summary.events += u64::from(head.events);
                summary.lost += head.lost;
                first = first.min(head.stamp);
                last = last.max(head.stamp);
            }
        }
        // So that whoever kills this finds all but the last moment.
        out.get_mut().flush().map_err(failed)?;
        if is_last {
            break;
        }
        thread::sleep(LOOK);
    }
    summary.bytes = out.get_mut().get_ref().metadata().map_err(failed)?.len();
    summary.duration_ns =
        (last.saturating_sub(first) as u128 * 1_000_000_000 / u128::from(header.stamp_hz.max(1))) as u64;
    Ok(summary)
}

fn header(rings: &mut Rings, policy: &str) -> Result<Header> {
    let device = Device::open()?;
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut header = Header {
        policy: policy.into(),
        version: rings.about.version,
        options: text(&rings.about.options),
        host: format!("kernel {release}"),
        max_tasks: device.core()?.max_tasks,
        stamp_hz: u64::from(rings.about.stamp_khz) * 1000,
        state: (rings.about.state_length != 0).then(|| state_type(&rings.about.state)),
        ..Header::default()
    };
    for cpu in 0..rings.nr_cpus() {
        let at = rings.topology(cpu)?;
        header.cpus.push((at.core, at.llc, at.node, at.online != 0));
    }
    Ok(header)
}

fn state_type(raw: &BatonStateType) -> (String, u32, u64) {
    let name: Vec<u8> = raw.name.iter().map(|&c| c as u8).collect();
    (text(&name), raw.version, raw.layout)
}

/// Why a recording has ended.
fn name(end: u32) -> &'static str {
    const NONE: u32 = BatonRecordEnd::None as u32;
    const FULL: u32 = BatonRecordEnd::Full as u32;
    const UNLOADED: u32 = BatonRecordEnd::Unloaded as u32;
    const REPLACED: u32 = BatonRecordEnd::Replaced as u32;
    const FAULT: u32 = BatonRecordEnd::Fault as u32;
    match end {
        NONE => "",
        FULL => "a ring was full",
        UNLOADED => "the policy was unloaded",
        REPLACED => "the policy was replaced",
        FAULT => "the policy failed",
        _ => "stopped",
    }
}

fn words(summary: &Summary, output: &Path) -> String {
    let Summary { policy, events, bytes, lost, end, duration_ns, .. } = summary;
    let each = *bytes as f64 / (*events).max(1) as f64;
    let mut text = format!(
        "{policy}: {events} events in {:.1} s, {:.1} MiB ({each:.1} bytes each), {lost} lost; {end}\n",
        *duration_ns as f64 / 1e9,
        *bytes as f64 / f64::from(1 << 20),
    );
    if *lost != 0 {
        text += "  a replay ends where the first event was lost: use a larger --ring\n";
    }
    match summary.whole {
        true => text + &format!("  replay it:  baton replay {}\n", output.display()),
        false => {
            text += "  its beginning is gone, and the policy saves no state: it can be read, and not replayed\n";
            text + &format!("  read it:    baton trace print {}\n", output.display())
        }
    }
}
