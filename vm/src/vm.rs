// SPDX-License-Identifier: GPL-2.0-only
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::fs::{memfd_create, MemfdFlags};
use rustix::process::{getpid, getppid, set_parent_process_death_signal, Signal};

use crate::error::Doing;
use crate::initramfs::which;
use crate::qemu::{self, Accelerator, Machine, MAX_CPUS};
use crate::{cpio, kernel_log, monitor, systemd, Error, Initramfs, Kernel, Result, Topology};

/// The programs, besides busybox's applets, that a guest has by default.
pub const DEFAULT_TOOLS: &[&str] = &[
    "perf",
    "hackbench",
    "stress-ng",
    "bpftool",
    "taskset",
    "chrt",
];

/// Number of attempts to boot a guest that dies in the kernel's first second because this machine
/// is busy, as described at [`BUSY_HOST`].
const BOOTS: u32 = 3;

/// The message of a kernel whose timer interrupt came too late because QEMU had no CPU for it.
const BUSY_HOST: &str = "IO-APIC + timer doesn't work";

/// Time that a guest has to print where it is after an NMI.
const LAST_WORDS: Duration = Duration::from_secs(20);

/// A file or directory to put into the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileIn {
    /// Path on this machine. A program brings its shared libraries along.
    pub host: PathBuf,
    /// Absolute path in the guest.
    pub guest: String,
}

/// A guest that is booted for one command. Construct it with
/// `Vm { command, ..Default::default() }`.
#[derive(Debug, Clone)]
pub struct Vm {
    /// Number of CPUs, 1 to 255; a topology overrides it. Default 2.
    pub cpus: u32,
    /// Shape of the CPUs.
    pub topology: Option<Topology>,
    /// Memory in MiB, which includes the files in the guest. Default 1024.
    pub memory_mb: u32,
    /// Whether to count instructions, each of which takes 2 to this power of ns of guest time (0 to
    /// 10); a run is then repeatable. With 0 a guest is several times slower than without; each
    /// further step halves the work in a second of guest time. Default none.
    pub icount: Option<u8>,
    /// A plugin of QEMU that counts the instructions of each CPU, with which CPUs run at the same
    /// time. It takes precedence. Default none.
    pub counter: Option<PathBuf>,
    /// Whether systemd is the guest's first process, with the command as one of its services.
    /// Default false.
    pub systemd: bool,
    /// The program to run and its arguments. A program installed on this machine is copied into the
    /// guest. Any other name must be an applet of busybox, one of `tools`, or a path that
    /// `files_in` fills.
    pub command: Vec<String>,
    /// Programs to copy into the guest, by name. Default [`DEFAULT_TOOLS`]; fewer boot faster under
    /// `icount`.
    pub tools: Vec<String>,
    /// Other files to copy into the guest.
    pub files_in: Vec<FileIn>,
    /// Absolute paths in the guest of files or directories to return. Paths that do not exist are
    /// skipped.
    pub files_out: Vec<String>,
    /// The kernel to boot. Default: the kernel of the root.
    pub kernel: Option<Kernel>,
    /// Additions to the kernel's command line.
    pub kernel_args: Vec<String>,
    /// Whether a CPU that executes a module with interrupts off and does not end that gets NMIs, as
    /// from a machine's watchdog. Default false.
    pub watchdog: bool,
    /// Timeout on this machine's clock, boot included. Default 5 minutes.
    pub timeout: Duration,
    /// Whether a run succeeds in spite of complaints in the kernel's log. Default false.
    pub tolerate_complaints: bool,
}

impl Default for Vm {
    fn default() -> Self {
        Vm {
            cpus: 2,
            topology: None,
            memory_mb: 1024,
            icount: None,
            counter: None,
            systemd: false,
            command: Vec::new(),
            tools: DEFAULT_TOOLS.iter().map(|t| t.to_string()).collect(),
            files_in: Vec::new(),
            files_out: Vec::new(),
            kernel: None,
            kernel_args: Vec::new(),
            watchdog: false,
            timeout: Duration::from_secs(300),
            tolerate_complaints: false,
        }
    }
}

/// The results of a guest that ran its command to the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The command's exit code; 128 + n when signal n killed it.
    pub exit_code: i32,
    /// The command's standard output and standard error, in the order written.
    pub output: Vec<u8>,
    /// The kernel's log.
    pub kernel_log: String,
    /// The kernel's complaints in the log; empty unless they were tolerated.
    pub complaints: Vec<String>,
    /// The returned files, by absolute path in the guest.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Vm {
    /// Boots the guest, runs the command and powers off. The command's output is forwarded to
    /// `output` as it arrives.
    ///
    /// QEMU dies with the thread that called this. With `BATON_KVM=1` in the environment the host's
    /// virtualisation is used, if a trial boot shows that it can run this kernel; `icount` takes
    /// precedence.
    ///
    /// # Errors
    /// See [`Error`]. A command that fails is not an error, but an [`Outcome`] with its exit code.
    pub fn run(&self, output: &mut (dyn Write + Send)) -> Result<Outcome> {
        let accelerator = match (&self.counter, self.icount) {
            (Some(plugin), _) => Accelerator::Counter(plugin.clone()),
            (None, Some(shift)) => Accelerator::Icount {
                shift: shift.min(10),
            },
            (None, None) if kvm_works() => Accelerator::Kvm,
            (None, None) => Accelerator::Fast,
        };
        self.run_on(&accelerator, output)
    }

    fn run_on(
        &self,
        accelerator: &Accelerator,
        output: &mut (dyn Write + Send),
    ) -> Result<Outcome> {
        if self.command.is_empty() {
            return Err(Error::User(
                "there is no command for the guest to run".into(),
            ));
        }
        if !(1..=MAX_CPUS).contains(&self.cpus) {
            return Err(Error::User(format!(
                "a guest has 1 to {MAX_CPUS} CPUs, not {}",
                self.cpus
            )));
        }
        let initrd = self.initramfs()?;
        for _ in 1..BOOTS {
            match self.boot(accelerator, &initrd, output) {
                Err(Error::Died { log, .. }) if log.contains(BUSY_HOST) => {}
                result => return result,
            }
        }
        match self.boot(accelerator, &initrd, output) {
            Err(Error::Died { log, .. }) if log.contains(BUSY_HOST) => {
                Err(Error::Environment(format!(
                "the guest's timer did not tick as it booted ({BUSY_HOST}), {BOOTS} times: this \
                 machine is too busy"
            )))
            }
            result => result,
        }
    }

    fn boot(
        &self,
        accelerator: &Accelerator,
        initrd: &File,
        output: &mut (dyn Write + Send),
    ) -> Result<Outcome> {
        static GUESTS: AtomicU32 = AtomicU32::new(0);
        let (console, control) = (memory_file("console")?, memory_file("control")?);
        let monitor = format!(
            "baton-{}-{}",
            std::process::id(),
            GUESTS.fetch_add(1, Ordering::Relaxed)
        );
        let kernel = self.kernel.clone().map_or_else(Kernel::of_root, Ok)?;
        let arguments = qemu::arguments(&Machine {
            accelerator: accelerator.clone(),
            cpus: self.cpus,
            topology: self.topology,
            memory_mb: self.memory_mb,
            kernel: &kernel.image,
            kernel_args: &self.kernel_args,
            initrd: &path_of(initrd),
            console: &path_of(&console),
            control: &path_of(&control),
            serial_control: self.kernel.is_some(),
            watchdog: self.watchdog,
            monitor: &monitor,
        });
        let (end, captured) = self.supervise(spawn(&arguments)?, &monitor, output)?;

        let console = text_of(console)?;
        let report = Report::parse(&bytes_of(control)?);
        let status = match end {
            End::Exited(status, messages) if !status.success() => {
                return Err(Error::Environment(format!(
                    "QEMU failed ({status}): {}",
                    if messages.trim().is_empty() {
                        "it said nothing"
                    } else {
                        messages.trim()
                    }
                )));
            }
            End::Exited(status, _) => status,
            End::Stopped(cpus) => {
                let state = match report {
                    Some(_) => "the command had ended, but the guest did not power off",
                    None => "the command had not ended",
                };
                let is_stuck = cpus == Some(monitor::Cpus::Stuck);
                let cpus = cpus.map_or(String::new(), |cpus| format!("; {cpus}"));
                let state = format!("{state}{cpus}");
                return Err(Error::TimedOut {
                    seconds: self.timeout.as_secs(),
                    state,
                    is_stuck,
                    log: console,
                });
            }
        };
        let Some(report) = report else {
            return Err(Error::Died {
                how: format!("QEMU: {status}"),
                log: console,
            });
        };
        let complaints = kernel_log::complaints(&console);
        let outcome = Outcome {
            exit_code: report.exit_code,
            output: captured,
            kernel_log: console,
            complaints: complaints.clone(),
            files: report.files,
        };
        if complaints.is_empty() || self.tolerate_complaints {
            Ok(outcome)
        } else {
            Err(Error::Complaints {
                complaints,
                outcome: Box::new(outcome),
            })
        }
    }

    /// Writes all the guest's files to a memory file.
    fn initramfs(&self) -> Result<File> {
        let file = BufWriter::with_capacity(1 << 20, memory_file("initramfs")?);
        let mut guest = Initramfs::new(file, include_str!("../init"))?;
        for tool in &self.tools {
            guest.tool(tool)?;
        }
        for FileIn { host, guest: path } in &self.files_in {
            guest.host_path(host, path)?;
        }
        if self.systemd {
            systemd::add(&mut guest)?;
        }
        let program = &self.command[0];
        if !program.contains('/') && !is_applet(program) && which(program).is_some() {
            guest.tool(program)?;
        }
        let command = format!(
            "exec {}\n",
            self.command
                .iter()
                .map(|a| quote(a))
                .collect::<Vec<_>>()
                .join(" ")
        );
        guest.file("/run/baton/command", 0o644, command.as_bytes())?;
        let out: String = self
            .files_out
            .iter()
            .map(|path| format!("{path}\n"))
            .collect();
        guest.file("/run/baton/out", 0o644, out.as_bytes())?;
        guest
            .finish()?
            .into_inner()
            .map_err(|e| e.into_error())
            .doing(|| "writing the guest's initramfs".into())
    }

    /// Forwards the output until QEMU ends or the timeout expires.
    fn supervise(
        &self,
        mut qemu: Child,
        monitor: &str,
        output: &mut (dyn Write + Send),
    ) -> Result<(End, Vec<u8>)> {
        let deadline = Instant::now() + self.timeout;
        let mut stdout = qemu
            .stdout
            .take()
            .expect("QEMU's standard output is a pipe");
        let mut stderr = qemu.stderr.take().expect("QEMU's standard error is a pipe");
        let nobody_listens = AtomicBool::new(false);
        std::thread::scope(|threads| {
            let forward = threads.spawn(|| {
                let result = forward(&mut stdout, output);
                nobody_listens.store(result.is_err(), Ordering::Relaxed);
                result
            });
            let messages = threads.spawn(move || {
                let mut text = Vec::new();
                // A read error is not reported by itself: the exit status is sufficient.
                let _ = stderr.read_to_end(&mut text);
                String::from_utf8_lossy(&text).into_owned()
            });
            let mut watchdog = self.watchdog.then(|| monitor::Watchdog::new(monitor));
            let mut turns = 0_u32;
            let mut cpus = None;
            let status = loop {
                if let Some(status) = qemu.try_wait().doing(|| "waiting for QEMU".into())? {
                    break Some(status);
                }
                let is_late = Instant::now() >= deadline;
                if is_late || nobody_listens.load(Ordering::Relaxed) {
                    if is_late {
                        cpus = Some(monitor::ask_where(monitor));
                    }
                    if cpus == Some(monitor::Cpus::Stuck) {
                        wait_for(&mut qemu, LAST_WORDS);
                    }
                    qemu.kill().doing(|| "stopping QEMU".into())?;
                    qemu.wait().doing(|| "waiting for QEMU".into())?;
                    break None;
                }
                std::thread::sleep(Duration::from_millis(10));
                turns = turns.wrapping_add(1);
                if let Some(watchdog) = watchdog.as_mut().filter(|_| turns.is_multiple_of(10)) {
                    watchdog.look();
                }
            };
            let messages = messages.join().expect("reading does not panic");
            let forwarded = forward.join().expect("the output's write does not panic");
            let captured = forwarded.doing(|| "passing on the guest's output".into())?;
            Ok((
                match status {
                    Some(status) => End::Exited(status, messages),
                    None => End::Stopped(cpus),
                },
                captured,
            ))
        })
    }
}

/// Waits at most this long for QEMU's end.
fn wait_for(qemu: &mut Child, time: Duration) {
    let deadline = Instant::now() + time;
    while Instant::now() < deadline && matches!(qemu.try_wait(), Ok(None)) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Copies until the end of `from`, and returns the copied bytes.
fn forward(from: &mut impl Read, to: &mut (dyn Write + Send)) -> std::io::Result<Vec<u8>> {
    let mut captured = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(captured),
            n => {
                captured.extend_from_slice(&buffer[..n]);
                to.write_all(&buffer[..n])?;
                to.flush()?;
            }
        }
    }
}

/// How QEMU ended.
enum End {
    /// QEMU ended by itself, with this output on standard error.
    Exited(ExitStatus, String),
    /// QEMU was killed after the timeout, when its CPUs did this.
    Stopped(Option<monitor::Cpus>),
}

/// The report of the guest's first process after the command has ended: `exit CODE`, newline, a
/// cpio archive.
struct Report {
    exit_code: i32,
    files: BTreeMap<String, Vec<u8>>,
}

impl Report {
    /// Parses a report; `None` if the guest did not reach the end of its report.
    fn parse(control: &[u8]) -> Option<Report> {
        let newline = control.iter().position(|b| *b == b'\n')?;
        let line = std::str::from_utf8(&control[..newline]).ok()?;
        let exit_code = line.strip_prefix("exit ")?.parse().ok()?;
        let entries = cpio::read(&control[newline + 1..]).ok()?;
        let files = entries
            .into_iter()
            .filter(|e| e.mode & cpio::S_IFMT == cpio::S_IFREG);
        let files = files
            .map(|e| (format!("/{}", e.name.trim_start_matches('/')), e.data))
            .collect();
        Some(Report { exit_code, files })
    }
}

/// Whether a guest boots on the host's virtualisation. This is tested once, and only if BATON_KVM=1
/// is set.
fn kvm_works() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    *WORKS.get_or_init(|| {
        let asked = std::env::var_os("BATON_KVM").is_some_and(|v| v == "1");
        let trial = Vm {
            cpus: 1,
            command: vec!["true".into()],
            tools: Vec::new(),
            timeout: Duration::from_secs(10),
            ..Default::default()
        };
        asked
            && qemu::kvm_device().is_ok()
            && trial
                .run_on(&Accelerator::Kvm, &mut std::io::sink())
                .is_ok()
    })
}

fn spawn(arguments: &[String]) -> Result<Child> {
    const QEMU: &str = "qemu-system-x86_64";
    let us = getpid();
    let mut command = Command::new(QEMU);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // SAFETY: Fork-quiet. Between fork and exec only two system calls are made, and nothing is
    // allocated.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // If the parent died before the call above, no signal will ever come.
            if getppid() == Some(us) {
                Ok(())
            } else {
                Err(std::io::ErrorKind::Interrupted.into())
            }
        });
    }
    command.spawn().map_err(|e| {
        Error::Environment(format!(
            "{QEMU} cannot be started ({e}); run inside Baton's Debian root (vm/enter), which has \
             it, or install it"
        ))
    })
}

fn memory_file(name: &str) -> Result<File> {
    let fd = memfd_create(format!("baton-{name}"), MemfdFlags::CLOEXEC)
        .doing(|| "making a memory file".into())?;
    Ok(File::from(fd))
}

/// The path by which QEMU opens a file that is open in this process.
fn path_of(file: &File) -> PathBuf {
    PathBuf::from(format!(
        "/proc/{}/fd/{}",
        std::process::id(),
        file.as_raw_fd()
    ))
}

fn bytes_of(mut file: File) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()
        .and_then(|()| file.read_to_end(&mut bytes))
        .doing(|| "reading what the guest sent".into())?;
    Ok(bytes)
}

/// Reads a console log. A serial console ends its lines with a carriage return and a newline.
fn text_of(file: File) -> Result<String> {
    Ok(String::from_utf8_lossy(&bytes_of(file)?).replace('\r', ""))
}

fn is_applet(name: &str) -> bool {
    let list = Command::new("busybox").arg("--list").output();
    list.is_ok_and(|o| {
        String::from_utf8_lossy(&o.stdout)
            .lines()
            .any(|applet| applet == name)
    })
}

/// Quotes one word for a shell.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_survives_a_shell() {
        for word in [
            "",
            "plain",
            "two words",
            "it's",
            "$HOME `x` \\ \"q\"",
            "a\nb",
            "*",
        ] {
            let script = format!("printf %s {}", quote(word));
            let output = Command::new("sh").arg("-c").arg(script).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
    }

    #[test]
    fn reports() {
        let mut archive = cpio::Writer::new(b"exit 137\n".to_vec());
        archive.entry("tmp", cpio::S_IFDIR | 0o755, &[]).unwrap();
        archive
            .entry("tmp/a", cpio::S_IFREG | 0o644, b"data")
            .unwrap();
        let whole = archive.finish().unwrap();
        let report = Report::parse(&whole).unwrap();
        assert_eq!(report.exit_code, 137);
        assert_eq!(
            report.files,
            BTreeMap::from([("/tmp/a".to_owned(), b"data".to_vec())])
        );
        for cut in [0, 4, 9, 50, whole.len() - 20] {
            assert!(Report::parse(&whole[..cut]).is_none(), "cut at {cut}");
        }
        assert!(Report::parse(b"exit x\n").is_none());
    }
}
