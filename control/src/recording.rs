// SPDX-License-Identifier: GPL-2.0-only
//! Writing a recording: a policy's inputs and answers, from the core's rings to a file.
//!
//! One thread empties the rings, with the real-time priority that the core gives it; the caller
//! waits for the end.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::{Duration, Instant};

use baton_abi::{BatonRecordEnd, BatonRecordHow};
use baton_trace::{last_stamp, BlockHead, FileWriter, Header, HEAD_SIZE};
use rustix::io::Errno;
use serde::Serialize;

use crate::device::{text, Device, Refused, Rings, BLOCKS_PER_MIB};
use crate::error::{Error, Result};

/// Interval at which the rings are emptied. The smallest ring can take 100 MB/s then.
const LOOK: Duration = Duration::from_millis(10);

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
    pub file: Option<PathBuf>,
    pub policy: String,
    /// Version of the policy.
    pub version: u32,
    pub events: u64,
    /// Size of the file.
    pub bytes: u64,
    /// Number of events for which there was no room.
    pub lost: u64,
    pub checkpoints: u64,
    /// The cause of the end.
    pub end: &'static str,
    /// The beginning is present, so that it can be replayed.
    pub whole: bool,
    /// Time from the first event to the last, ns.
    pub duration_ns: u64,
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

    /// It has ended by itself.
    pub fn is_over(&self) -> bool {
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

/// Gives a policy a flight recorder of so many MiB for each CPU, or takes it away.
pub fn set_flight(device: &Device, policy: &str, mib: u32) -> Result<()> {
    let how = BatonRecordHow::Flight;
    device
        .record(policy, mib * BLOCKS_PER_MIB, how, false)
        .map(drop)
        .map_err(|why| refused(policy, &why))
}

/// Writes what a policy's flight recorder had when the policy failed.
pub fn save_fault(device: Device, policy: &str, output: &Path) -> Result<Summary> {
    let rings = Rings::begin(device, policy, 0, BatonRecordHow::Fault, false)?
        .map_err(|why| refused(policy, &why))?;
    let output = Output::open(output)?;
    read(rings, policy, output, None, &AtomicBool::new(true))
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
        state: (rings.about.has_state != 0).then(|| Header::state_type(&rings.about.state)),
        ..Header::default()
    };
    let places = (0..rings.nr_cpus()).map(|cpu| rings.topology(cpu));
    header.set_places(&places.collect::<Result<Vec<_>>>()?);
    Ok(header)
}

/// [`Summary::end`] of a recording whose policy was replaced by a newer version.
pub const REPLACED: &str = "the policy was replaced";

/// [`Summary::end`] of a recording whose policy failed.
pub const FAILED: &str = "the policy failed";

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
        FAULT => FAILED,
        _ => "stopped",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
