// SPDX-License-Identifier: GPL-2.0-only
//! `baton agent`: runs a policy in this process, as the agent of an enclave.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use clap::{Args, Subcommand};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::enclave::{self, EnclaveOptions};
use baton_agent::{Agent, AttachError, Ended, Mode, RunError, Runner};
use baton_control::cpulist::CpuList;
use baton_control::device::Device;
use baton_control::error::{Error, Result};
use baton_control::kernel::{self, Lock};
use baton_control::modules::{library_of, Search};
use baton_control::names;
use baton_native::Policy;

#[derive(Subcommand, Debug)]
pub enum AgentCommand {
    /// Schedule the tasks of an enclave by a policy that runs in this process.
    ///
    /// With a command, that command runs in the enclave, and the agent ends with it. Otherwise give
    /// the enclave tasks by `baton attach`, and end the agent by Ctrl-C. An enclave that this
    /// command made is removed at the end.
    Run(AgentRun),
}

#[derive(Args, Debug)]
pub struct AgentRun {
    /// The policy: a name, the path of its source, or the path of its library.
    pub policy: String,
    /// The enclave. It is made if there is none of that name. [default: the policy's name]
    #[arg(long, value_name = "NAME", value_parser = names::policy)]
    pub enclave: Option<String>,
    /// Options of the policy: KEY=VALUE,KEY=VALUE.
    #[arg(long, value_parser = names::options, default_value = "", hide_default_value = true)]
    pub options: String,
    /// One thread decides for all CPUs. It polls on the first CPU of --cpus, or on CPU 0. This is
    /// the default.
    #[arg(long)]
    pub global: bool,
    /// Each CPU has an agent of its own.
    #[arg(long, conflicts_with = "global")]
    pub per_cpu: bool,
    /// Record the policy's calls into this file: see baton replay.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    #[command(flatten)]
    pub how: EnclaveOptions,
    /// A command to run in the enclave, and its arguments.
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<String>,
}

pub fn command(search: &Search, command: &AgentCommand) -> Result<ExitCode> {
    match command {
        AgentCommand::Run(args) => run(search, args),
    }
}

/// The policy's library: a file, one that is installed, or one that is built from source.
fn library(search: &Search, text: &str) -> Result<Policy> {
    let open = |path: &Path| {
        Policy::open(path).map_err(|why| Error::user(why, "build it again: baton build POLICY"))
    };
    if text.ends_with(".so") {
        return open(Path::new(text));
    }
    match search.find(&library_of(text)) {
        Ok(path) => open(&path),
        Err(missing) => match baton_build::source() {
            Ok(_) => baton_build::native(text),
            Err(_) => Err(missing),
        },
    }
}

fn run(search: &Search, args: &AgentRun) -> Result<ExitCode> {
    kernel::require_root("running an agent")?;
    let policy = library(search, &args.policy)?;
    let name = args.enclave.clone().unwrap_or_else(|| policy.name());
    let online = online_cpus()?;
    let mode = mode(args, &online)?;
    let is_made = prepare(search, &name, args, &mode, &online)?;
    let result = attached(&name, policy, args, mode);
    if is_made {
        let _lock = Lock::take()?;
        // Another command may have unloaded everything meanwhile.
        if enclave::is_there(&name)? {
            enclave::destroy(&name)?;
        }
    }
    result
}

fn online_cpus() -> Result<Vec<usize>> {
    const FILE: &str = "/sys/devices/system/cpu/online";
    let text = std::fs::read_to_string(FILE).map_err(|e| Error::file(FILE, &e))?;
    let cpus: CpuList = text
        .trim()
        .parse()
        .map_err(|why| Error::baton(format!("{FILE} cannot be read: {why}")))?;
    Ok(cpus.iter().map(|cpu| cpu as usize).collect())
}

fn mode(args: &AgentRun, online: &[usize]) -> Result<Mode> {
    let cpus: Vec<usize> = match &args.how.cpus {
        Some(list) => list.iter().map(|cpu| cpu as usize).collect(),
        None => online.to_vec(),
    };
    if let Some(cpu) = cpus.iter().find(|cpu| !online.contains(cpu)) {
        return Err(Error::user(
            format!("CPU {cpu} is not online"),
            "name other --cpus",
        ));
    }
    if args.per_cpu {
        return Ok(Mode::PerCpu(cpus));
    }
    match cpus.as_slice() {
        [own, _, ..] => Ok(Mode::Global(*own)),
        _ => Err(Error::user(
            "a global agent needs a CPU beside those of its tasks",
            "name two or more --cpus, or take an agent for each CPU (--per-cpu)",
        )),
    }
}

/// Makes the enclave if there is none. True if it did.
fn prepare(
    search: &Search,
    name: &str,
    args: &AgentRun,
    mode: &Mode,
    online: &[usize],
) -> Result<bool> {
    let _lock = Lock::take()?;
    if enclave::is_there(name)? {
        return Ok(false);
    }
    let mut how = args.how.clone();
    if let Mode::Global(own) = mode {
        // The agent has its CPU for itself.
        let all = || online.iter().map(|cpu| *cpu as u32).collect();
        let mut cpus: CpuList = how.cpus.unwrap_or_else(all);
        cpus.remove(&CpuList::from_iter([*own as u32]));
        how.cpus = Some(cpus);
    }
    enclave::create(search, name, &how)?;
    Ok(true)
}

/// A policy that runs as the agent of an enclave, from session to session.
struct Sessions<'a> {
    enclave: &'a str,
    policy: Policy,
    args: &'a AgentRun,
    mode: Mode,
    /// None between two sessions.
    current: Mutex<Option<Arc<Runner>>>,
    stopping: AtomicBool,
}

impl<'a> Sessions<'a> {
    fn begin(enclave: &'a str, policy: Policy, args: &'a AgentRun, mode: Mode) -> Result<Self> {
        let sessions = Self {
            enclave,
            policy,
            args,
            mode,
            current: Mutex::new(None),
            stopping: AtomicBool::new(false),
        };
        sessions.next(args.record.as_deref())?;
        Ok(sessions)
    }

    /// Begins a session, after the one before it has been closed: closing waits until all read-side
    /// sections of RCU have ended, and tasks of the enclave that are preempted in one run only when
    /// the new session's agents do.
    fn next(&self, record: Option<&Path>) -> Result<Arc<Runner>> {
        self.set(None);
        let next = Arc::new(self.begin_session(record)?);
        self.set(Some(Arc::clone(&next)));
        if self.stopping.load(SeqCst) {
            next.stop();
        }
        Ok(next)
    }

    /// Attaches to the enclave, and makes the policy.
    fn begin_session(&self, record: Option<&Path>) -> Result<Runner> {
        let (policy, options) = (self.policy, &self.args.options);
        let agent = Agent::attach(self.enclave, policy.events(), options).map_err(not_attached)?;
        Runner::new(policy, options, agent, self.mode.clone(), record).map_err(not_run)
    }

    fn set(&self, runner: Option<Arc<Runner>>) {
        *self.current.lock().expect("no thread panics here") = runner;
    }

    fn current(&self) -> Option<Arc<Runner>> {
        self.current.lock().expect("no thread panics here").clone()
    }

    /// Answers until the end. After lost messages, a new session begins.
    fn run(&self) -> Result<Ended> {
        let mut runner = self.current().ok_or(Error::baton("there is no session"))?;
        loop {
            let ended = runner.run().map_err(not_run)?;
            match ended {
                Ended::Lost(count) if !self.stopping.load(SeqCst) => {
                    eprintln!(
                        "baton: {count} messages to the agent of {} found no room; it begins \
                         anew. More room: --entries",
                        self.enclave
                    );
                    drop(runner);
                    if self.args.record.is_some() {
                        eprintln!("baton: the recording ends here");
                    }
                    runner = self.next(None)?;
                }
                ended => return Ok(ended),
            }
        }
    }

    fn stop(&self) {
        self.stopping.store(true, SeqCst);
        if let Some(runner) = self.current() {
            runner.stop();
        }
    }
}

fn attached(name: &str, policy: Policy, args: &AgentRun, mode: Mode) -> Result<ExitCode> {
    let sessions = Sessions::begin(name, policy, args, mode)?;
    let (code, ended) = thread::scope(|scope| {
        let answering = scope.spawn(|| sessions.run());
        let code = match args.command.is_empty() {
            true => until_interrupted(|| answering.is_finished()),
            false => run_in(name, &args.command),
        };
        sessions.stop();
        (code, answering.join())
    });
    let ended = ended.map_err(|_| Error::baton("the agent's thread panicked"))?;
    match ended? {
        Ended::Fault(_) => {
            // With a command, `baton run` has said so.
            if args.command.is_empty() {
                report(name)?;
            }
            Err(Error::policy(
                name,
                format!("{name} was stopped by a fault"),
                "see the report above",
            ))
        }
        Ended::Stopped | Ended::Lost(_) => code,
    }
}

fn not_run(error: RunError) -> Error {
    let text = error.to_string();
    match error {
        RunError::Policy(_) => {
            Error::user(text, "check its --options; its source shows which it has")
        }
        RunError::Thread(_) => {
            Error::environment(text, "see what else uses these CPUs: baton partition list")
        }
        RunError::Recording(_) => Error::environment(text, "name another file: --record FILE"),
    }
}

fn not_attached(error: AttachError) -> Error {
    let text = error.to_string();
    match error {
        AttachError::Device(..) => Error::user(text, "make it: baton enclave create NAME"),
        AttachError::Refused(..) => Error::user(text, "see baton enclave list"),
    }
}

/// Waits for Ctrl-C, or for the end of the agent.
fn until_interrupted(has_ended: impl Fn() -> bool) -> Result<ExitCode> {
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|e| Error::environment(format!("signals cannot be received: {e}"), "try again"))?;
    while !has_ended() && signals.pending().next().is_none() {
        thread::sleep(Duration::from_millis(50));
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a command in the enclave, by `baton run` in a process of its own: what the agent's process
/// starts itself would not be the enclave's.
fn run_in(name: &str, command: &[String]) -> Result<ExitCode> {
    let own = std::env::current_exe().map_err(|e| Error::file("looking for this program", &e))?;
    let status = Command::new(own)
        .args(["run", "--policy", name, "--"])
        .args(command)
        .status()
        .map_err(|e| Error::environment(format!("the command cannot be run: {e}"), "try again"))?;
    Ok(ExitCode::from(status.code().unwrap_or(1) as u8))
}

/// Prints the report of the enclave's fault.
fn report(name: &str) -> Result<()> {
    let device = Device::open()?;
    if let Some(info) = device.policy(name)? {
        if let Some(fault) = device.fault(info.index)? {
            let fault = baton_control::status::Fault::new(&fault, Some(&info));
            eprint!("{}", baton_control::report::fault(&fault));
        }
    }
    Ok(())
}
