// SPDX-License-Identifier: GPL-2.0-only
//! `baton record`: writes the calls of a running policy and its answers to a file. `baton fault
//! save`: writes the same from a flight recorder.
//!
//! One thread empties the rings, with the real-time priority that the core gives it. The main
//! thread waits for the end.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::{Duration, Instant};

use baton_abi::{BatonPolicyState, BatonRecordEnd, BatonRecordHow, BatonStateType};
use baton_trace::{last_stamp, BlockHead, FileWriter, Header, HEAD_SIZE};
use rustix::io::Errno;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::sim::tables;
use super::{print, print_json};
use crate::cli::{FaultSave, Record};
use baton_control::device::{text, Device, Refused, Rings, BLOCKS_PER_MIB};
use baton_control::error::{Error, Result};
use baton_control::report;
use baton_control::status::Fault;

/// Interval at which the rings are emptied. The smallest ring can take 100 MB/s then.
const LOOK: Duration = Duration::from_millis(10);
/// Interval at which the end is checked for.
const WAIT: Duration = Duration::from_millis(50);

/// Parameters of a recording.
pub struct How {
    /// Memory for each CPU, MiB.
    pub ring: u32,
    /// The recording ends when a ring is full.
    pub lossless: bool,
    /// Interval of checkpoints.
    pub checkpoint: Option<Duration>,
}

/// The result of a recording.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    policy: String,
    /// Version of the policy.
    version: u32,
    pub events: u64,
    /// Size of the file.
    pub bytes: u64,
    /// Number of events for which there was no room.
    pub lost: u64,
    checkpoints: u64,
    /// The cause of the end.
    end: &'static str,
    /// The beginning is present, so that it can be replayed.
    whole: bool,
    /// Time from the first event to the last, ns.
    duration_ns: u64,
}

/// All files of one command. A policy that was upgraded has several.
#[derive(Serialize)]
struct Report {
    /// The sums of all files, and the end of the last one.
    #[serde(flatten)]
    all: Summary,
    files: Vec<Summary>,
}

impl Report {
    fn of(files: Vec<Summary>) -> Self {
        let mut all = Summary {
            file: None,
            ..files.last().cloned().unwrap_or_default()
        };
        for file in files.iter().rev().skip(1) {
            all.events += file.events;
            all.bytes += file.bytes;
            all.lost += file.lost;
            all.checkpoints += file.checkpoints;
            all.duration_ns += file.duration_ns;
            all.whole &= file.whole;
        }
        Self { all, files }
    }

    fn print(&self, as_json: bool) -> Result<()> {
        match as_json {
            true => print_json(self),
            false => print(self.files.iter().map(words).collect::<String>()),
        }
    }
}

/// The file of a recording.
struct Output {
    path: PathBuf,
    file: File,
    /// The file did not exist before.
    is_new: bool,
}

impl Output {
    /// The old contents of the file are kept until the recording has begun.
    fn open(path: &Path) -> Result<Self> {
        let open = |is_new| {
            File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .create_new(is_new)
                .open(path)
        };
        let (opened, is_new) = match open(true) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => (open(false), false),
            opened => (opened, true),
        };
        let file =
            opened.map_err(|e| Error::file(format_args!("making {}", path.display()), &e))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            is_new,
        })
    }

    /// Removes the file if it is new, as nothing is recorded.
    fn give_up(self) {
        if self.is_new {
            // A file that cannot be removed does no harm.
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// Is it a regular file? A pipe or a device has no length, and there is no second one beside
    /// it.
    fn is_regular(&self) -> bool {
        self.file
            .metadata()
            .is_ok_and(|metadata| metadata.is_file())
    }
}

/// Counts the bytes written.
struct Counted {
    file: BufWriter<File>,
    bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

/// A recording in progress. It ends when this is dropped.
pub struct Session {
    stop: Arc<AtomicBool>,
    reader: Option<thread::JoinHandle<Result<Summary>>>,
}

impl Session {
    /// Begins to record a running policy into a file.
    pub fn begin(policy: &str, output: &Path, how: &How) -> Result<Self> {
        let output = Output::open(output)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (begun, begins) = mpsc::channel();
        let (stopped, policy) = (Arc::clone(&stop), policy.to_owned());
        let &How {
            ring,
            lossless,
            checkpoint,
        } = how;
        let reader = thread::spawn(move || {
            let how = if lossless {
                BatonRecordHow::Lossless
            } else {
                BatonRecordHow::Lossy
            };
            let rings = Device::open().and_then(|device| {
                let rings = Rings::begin(
                    device,
                    &policy,
                    ring * BLOCKS_PER_MIB,
                    how,
                    checkpoint.is_some(),
                )?;
                rings.map_err(|why| refused(&policy, &why))
            });
            let rings = match rings {
                Ok(rings) => rings,
                Err(error) => {
                    output.give_up();
                    return Err(error);
                }
            };
            // The receiver exists until the recording has begun.
            let _ = begun.send(());
            read(rings, &policy, output, checkpoint, &stopped)
        });
        let mut session = Self {
            stop,
            reader: Some(reader),
        };
        match begins.recv() {
            Ok(()) => Ok(session),
            // The reader thread has the cause.
            Err(_) => Err(session
                .join()
                .err()
                .unwrap_or_else(|| Error::baton("the recording did not begin"))),
        }
    }

    /// Ends the recording.
    pub fn end(mut self) -> Result<Summary> {
        self.join()
    }

    fn is_over(&self) -> bool {
        self.reader
            .as_ref()
            .is_none_or(thread::JoinHandle::is_finished)
    }

    fn join(&mut self) -> Result<Summary> {
        self.stop.store(true, Relaxed);
        let panicked = || Error::baton("the reader of the rings panicked");
        self.reader.take().map_or_else(
            || Err(panicked()),
            |reader| reader.join().map_err(|_| panicked())?,
        )
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.reader.is_some() {
            // No caller is left for the result.
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
    // The parser requires one of the two.
    let output = args.output.as_deref().unwrap_or_else(|| Path::new(""));
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted)).map_err(|e| {
            Error::environment(format!("signals cannot be received: {e}"), "try again")
        })?;
    }
    let (files, code) = record_all(args, &device, &policy, output, &interrupted)?;
    Report::of(files).print(args.out.json)?;
    let code = code?;
    let fault = device
        .policy(&policy)?
        .filter(|info| info.state == BatonPolicyState::Faulted as u32);
    match fault
        .map(|info| Ok((device.fault(info.index)?, info)))
        .transpose()?
    {
        Some((Some(fault), info)) => {
            eprint!("{}", report::fault(&Fault::new(&fault, Some(&info))));
            Ok(ExitCode::from(4))
        }
        _ => Ok(code),
    }
}

/// The condition for the end of a recording.
struct Until<'a> {
    interrupted: &'a AtomicBool,
    end: Option<Instant>,
    command: Option<Child>,
}

impl<'a> Until<'a> {
    /// Starts the command, if there is one.
    fn begin(args: &Record, interrupted: &'a AtomicBool) -> Result<Self> {
        let command = match args.command.split_first() {
            Some((program, arguments)) => {
                let started = Command::new(program).args(arguments).spawn();
                Some(started.map_err(|e| Error::file(format_args!("running {program}"), &e))?)
            }
            None => None,
        };
        Ok(Self {
            interrupted,
            end: args.duration.map(|duration| Instant::now() + duration),
            command,
        })
    }

    fn is_over(&mut self) -> Result<bool> {
        let status = self
            .command
            .as_mut()
            .map(Child::try_wait)
            .transpose()
            .map_err(lost)?
            .flatten();
        let is_late = self.end.is_some_and(|end| Instant::now() >= end);
        Ok(status.is_some() || is_late || self.interrupted.load(Relaxed))
    }

    /// Waits for the command. Returns its exit code.
    fn finish(self) -> Result<ExitCode> {
        let status = self
            .command
            .map(|mut command| command.wait())
            .transpose()
            .map_err(lost)?;
        Ok(status.map_or(ExitCode::SUCCESS, |status| {
            ExitCode::from(status.code().unwrap_or(1) as u8)
        }))
    }
}

fn lost(e: std::io::Error) -> Error {
    Error::environment(
        format!("the command cannot be waited for: {e}"),
        "try again",
    )
}

/// Records one version after the other. Returns the result of each, and the command's exit code.
fn record_all(
    args: &Record,
    device: &Device,
    policy: &str,
    output: &Path,
    interrupted: &AtomicBool,
) -> Result<(Vec<Summary>, Result<ExitCode>)> {
    let how = How {
        ring: args.ring,
        lossless: args.lossless,
        checkpoint: args.checkpoint,
    };
    // Number of changes of version so far, while the policy runs.
    let changes = || {
        let info = device
            .policy(policy)?
            .filter(|info| info.state == BatonPolicyState::Running as u32);
        Ok(info.map(|info| info.changes))
    };
    let mut before = changes()?;
    let mut session = Session::begin(policy, output, &how)?;
    let mut until = Until::begin(args, interrupted)?;
    let mut files = Vec::new();
    loop {
        while !session.is_over() && changes()?.is_some() && !until.is_over()? {
            thread::sleep(WAIT);
        }
        let summary = session.end()?;
        let now = changes()?;
        let was_upgraded = summary.end == REPLACED && now.is_some() && now != before;
        files.push(summary);
        if !was_upgraded || !output.is_file() || until.is_over()? {
            return Ok((files, until.finish()));
        }
        before = now;
        session = match Session::begin(policy, &numbered(output, files.len() + 1), &how) {
            Ok(session) => session,
            Err(error) => return Ok((files, Err(error))),
        };
    }
}

/// The name of the file with this number: wfq-2.rec for wfq.rec.
fn numbered(first: &Path, number: usize) -> PathBuf {
    let mut name = first.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{number}"));
    if let Some(extension) = first.extension() {
        name.push(".");
        name.push(extension);
    }
    first.with_file_name(name)
}

fn only_policy(device: &Device) -> Result<String> {
    let mut running = device
        .policies()?
        .into_iter()
        .filter(|info| info.state == BatonPolicyState::Running as u32);
    match (running.next(), running.next()) {
        (Some(info), None) => Ok(text(&info.name)),
        (None, _) => Err(Error::user(
            "no policy is running",
            "load one first: baton load POLICY",
        )),
        _ => Err(Error::user(
            "several policies are running",
            "say which one: -p NAME",
        )),
    }
}

/// Gives a policy a flight recorder of this many MiB for each CPU; 0 removes it.
pub fn set_flight(device: &Device, policy: &str, mib: u32) -> Result<()> {
    let how = BatonRecordHow::Flight;
    device
        .record(policy, mib * BLOCKS_PER_MIB, how, false)
        .map(drop)
        .map_err(|why| refused(policy, &why))
}

pub fn save_fault(args: &FaultSave) -> Result<ExitCode> {
    let device = Device::open()?;
    let policy = match &args.policy {
        Some(policy) => policy.clone(),
        None => failed_policy(&device)?,
    };
    let rings = Rings::begin(device, &policy, 0, BatonRecordHow::Fault, false)?
        .map_err(|why| refused(&policy, &why))?;
    let summary = read(
        rings,
        &policy,
        Output::open(&args.output)?,
        None,
        &AtomicBool::new(true),
    )?;
    Report::of(vec![summary]).print(args.out.json)?;
    Ok(ExitCode::SUCCESS)
}

fn failed_policy(device: &Device) -> Result<String> {
    let mut failed = device
        .policies()?
        .into_iter()
        .filter(|info| info.faults != 0);
    match (failed.next(), failed.next()) {
        (Some(info), None) => Ok(text(&info.name)),
        (None, _) => Err(Error::user(
            "no policy has failed",
            "record one that runs: baton record -o FILE",
        )),
        _ => Err(Error::user(
            "several policies have failed",
            "say which one: -p NAME",
        )),
    }
}

/// The error for a recording that the core refused.
fn refused(policy: &str, refused: &Refused) -> Error {
    match refused.errno {
        Errno::NOENT => Error::user(
            format!("the policy {policy} is not loaded"),
            format!("baton load {policy}"),
        ),
        Errno::NODEV => Error::user(
            format!("the policy {policy} is not running"),
            "see `baton status`",
        ),
        Errno::BUSY => Error::user(
            format!("{policy} is being recorded already"),
            "wait for the end of that",
        ),
        Errno::NOMEM => Error::environment(
            "there is not enough memory for the rings",
            "give fewer MiB to each CPU",
        ),
        Errno::OPNOTSUPP => Error::environment(
            "the clocks of this machine's CPUs do not agree (its time stamp counter is unstable)",
            "record on another machine, or in a guest (baton vm run)",
        ),
        Errno::PROTOTYPE => Error::user(
            format!("{policy} saves no state, so there can be no checkpoints"),
            "leave out --checkpoint; docs/upgrade.md says how a policy saves its state",
        ),
        Errno::NODATA => Error::user(
            format!("{policy} had no flight recorder when it failed, or has not failed"),
            format!("give it one: baton record -p {policy} --flight 4"),
        ),
        Errno::FAULT | Errno::INVAL if !refused.message.is_empty() => Error::policy(
            policy,
            format!("{policy} could not be made anew: {}", refused.message),
            "fix the policy; it goes on unchanged",
        ),
        errno => Error::baton(format!("the recording was refused: {errno}")),
    }
}

/// Empties the rings until the recording has ended.
fn read(
    mut rings: Rings,
    policy: &str,
    output: Output,
    checkpoint: Option<Duration>,
    stop: &AtomicBool,
) -> Result<Summary> {
    let failed = |e: std::io::Error| Error::file("writing the recording", &e);
    let header = header(&mut rings, policy)?;
    let mut summary = Summary {
        file: Some(output.path.clone()),
        policy: policy.into(),
        version: header.version,
        whole: true,
        ..Summary::default()
    };
    if output.is_regular() {
        output.file.set_len(0).map_err(failed)?;
    }
    let mut out = Counted {
        file: BufWriter::with_capacity(1 << 20, output.file),
        bytes: 0,
    };
    let mut out = FileWriter::new(&mut out, &header).map_err(failed)?;
    if let Some(state) = rings.state()? {
        out.state(0, &state).map_err(failed)?;
    }
    out.get_mut().flush().map_err(failed)?;
    let mut first = u64::MAX;
    // By CPU: the last block.
    let mut newest = vec![Vec::new(); rings.nr_cpus() as usize];
    let mut begins = vec![None; rings.nr_cpus() as usize];
    let mut due = checkpoint.map(|every| Instant::now() + every);
    // A fault has a second saved state: write it now.
    if rings.about.how == BatonRecordHow::Flight as u32 {
        due = Some(Instant::now());
    }
    loop {
        // The recording is stopped before the last pass, so that this finds all events.
        let is_last = stop.load(Relaxed) || !summary.end.is_empty();
        if is_last {
            rings.stop()?;
        }
        for cpu in 0..rings.nr_cpus() {
            loop {
                let taken = rings.take(cpu)?;
                summary.end = name(taken.end);
                let Some(block) = taken.block else { break };
                let head = block
                    .first_chunk()
                    .and_then(|head: &[u8; HEAD_SIZE]| BlockHead::from_bytes(head));
                let head =
                    head.ok_or_else(|| Error::baton("the core gave a block that is none"))?;
                // With the state from which a flight recorder begins, earlier events are not
                // missing.
                let number = *begins[cpu as usize].get_or_insert(head.number);
                let is_from_state = header.state.is_some();
                summary.whole &= is_from_state || number == 0;
                out.block(block, if is_from_state { number } else { 0 })
                    .map_err(failed)?;
                summary.events += u64::from(head.events);
                summary.lost += head.lost;
                first = first.min(head.stamp);
                newest[cpu as usize].clear();
                newest[cpu as usize].extend_from_slice(block);
            }
        }
        // A checkpoint needs room in the rings, which were emptied just now.
        if due.is_some_and(|due| Instant::now() >= due) {
            if let Some((stamp, state)) = rings.checkpoint()? {
                out.state(stamp, &state).map_err(failed)?;
                summary.checkpoints += 1;
                due = checkpoint.map(|every| Instant::now() + every);
            }
        }
        // If this process is killed, all but the events of the last moment are in the file.
        out.get_mut().flush().map_err(failed)?;
        if is_last {
            break;
        }
        thread::sleep(LOOK);
    }
    summary.bytes = out.get_mut().bytes;
    let last = newest
        .iter()
        .filter_map(|block| last_stamp(block))
        .max()
        .unwrap_or(0);
    summary.duration_ns = (last.saturating_sub(first) as u128 * 1_000_000_000
        / u128::from(header.stamp_hz.max(1))) as u64;
    Ok(summary)
}

fn header(rings: &mut Rings, policy: &str) -> Result<Header> {
    let device = Device::open()?;
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let mut header = Header {
        policy: policy.into(),
        version: rings.about.version,
        options: text(&rings.about.options),
        host: format!("kernel {release}"),
        max_tasks: device.core()?.max_tasks,
        stamp_hz: u64::from(rings.about.stamp_khz) * 1000,
        state: (rings.about.has_state != 0).then(|| state_type(&rings.about.state)),
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

const REPLACED: &str = "the policy was replaced";

/// The name of the cause for which a recording has ended.
fn name(end: u32) -> &'static str {
    const NONE: u32 = BatonRecordEnd::None as u32;
    const FULL: u32 = BatonRecordEnd::Full as u32;
    const UNLOADED: u32 = BatonRecordEnd::Unloaded as u32;
    const BY_ANOTHER: u32 = BatonRecordEnd::Replaced as u32;
    const FAULT: u32 = BatonRecordEnd::Fault as u32;
    match end {
        NONE => "",
        FULL => "a ring was full",
        UNLOADED => "the policy was unloaded",
        BY_ANOTHER => REPLACED,
        FAULT => "the policy failed",
        _ => "stopped",
    }
}

fn words(summary: &Summary) -> String {
    let Summary {
        file,
        policy,
        version,
        events,
        bytes,
        lost,
        checkpoints,
        end,
        duration_ns,
        ..
    } = summary;
    let file = file.as_deref().unwrap_or_else(|| Path::new("")).display();
    let each = *bytes as f64 / (*events).max(1) as f64;
    let mut text = format!(
        "{policy} version {version}: {events} events in {}, {:.1} MiB ({each:.1} bytes each), \
         {lost} lost; {end}\n",
        tables::time(*duration_ns),
        *bytes as f64 / f64::from(1 << 20),
    );
    if *lost != 0 {
        text += "  a replay ends where the first event was lost: use a larger --ring\n";
    }
    if *checkpoints != 0 {
        text += &format!("  {checkpoints} checkpoints, where a replay can begin: --from\n");
    }
    match summary.whole {
        true => text + &format!("  replay it:  baton replay {file}\n"),
        false => {
            text +=
                "  its beginning is missing, and the policy saves no state: it can be read, and \
                not replayed\n";
            text + &format!("  read it:    baton trace print {file}\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_later_versions_have_numbers() {
        let check = |first: &str, expected: &str| {
            assert_eq!(numbered(Path::new(first), 2), Path::new(expected))
        };
        check("wfq.rec", "wfq-2.rec");
        check("/tmp/a.b/wfq", "/tmp/a.b/wfq-2");
        check("./x.y.rec", "./x.y-2.rec");
    }

    #[test]
    fn what_a_recording_came_to() {
        let of = |duration_ns, events, bytes| {
            let policy = "wfq".to_string();
            let summary = Summary {
                policy,
                version: 2,
                events,
                bytes,
                duration_ns,
                ..Summary::default()
            };
            words(&summary)
                .lines()
                .next()
                .unwrap_or_default()
                .to_string()
        };
        let mib = 1 << 20;
        let long = of(12_500_000_000, mib, 4 * mib);
        assert!(
            long.starts_with("wfq version 2: 1048576 events in 12.5 s, 4.0 MiB (4.0 bytes each)"),
            "{long}"
        );
        // A short recording must not show a time of zero, and one without events no size of an
        // event that is not a number.
        for (duration_ns, expected) in [(3_200_000, "in 3.20 ms,"), (45_000, "in 45.0 µs,")] {
            let short = of(duration_ns, 10, 100);
            assert!(short.contains(expected), "{short}");
        }
        let empty = of(0, 0, 128);
        assert!(
            empty.contains(": 0 events in ") && !empty.contains("NaN"),
            "{empty}"
        );
    }

    #[test]
    fn what_was_not_there_is_not_there_when_nothing_comes() {
        let dir = std::env::temp_dir().join(format!("baton-output-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (new, old) = (dir.join("new"), dir.join("old"));
        std::fs::write(&old, "kept").unwrap();
        Output::open(&new).unwrap().give_up();
        Output::open(&old).unwrap().give_up();
        assert!(!new.exists());
        assert_eq!(std::fs::read(&old).unwrap(), b"kept");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
