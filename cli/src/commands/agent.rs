// SPDX-License-Identifier: GPL-2.0-only
//! `baton agent`: runs a policy in this process, as the agent of an enclave.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use clap::{Args, Subcommand};
use object::{Object, ObjectSegment};
use rustix::fs::{memfd_create, MemfdFlags};
use rustix::process::{kill_process, Pid, Signal};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use super::enclave::{self, EnclaveOptions};
use baton_abi::BatonPolicyState;
use baton_agent::{device_of, Agent, AttachError, Ended, Mode, RunError, Runner, Session, Wishes};
use baton_agents::Native;
use baton_control::cpulist::CpuList;
use baton_control::device::Device;
use baton_control::error::{Blame, Error, Result};
use baton_control::kernel::{self, Lock};
use baton_control::modules::{library_of, Search};
use baton_control::names;
use baton_native::Policy;

#[derive(Subcommand, Debug)]
pub enum AgentCommand {
    /// Schedule the tasks of an enclave by a policy that runs in this process, or by one of the
    /// schedulers that are written for agents: sol, edf, snap, search and secure_vm.
    ///
    /// With a command, that command runs in the enclave, and the agent ends with it. Otherwise give
    /// the enclave tasks by `baton attach`, and end the agent by Ctrl-C. An enclave that this
    /// command made is removed at the end.
    Run(AgentRun),
    /// Have the agent of an enclave replace its policy by the version that is in the policy's
    /// library now.
    ///
    /// The new version gets the state of the old one, and the tasks run on. The agent prints for
    /// how long it answered nothing. Build the new version first: baton build POLICY. The signal
    /// USR1 does the same.
    Upgrade {
        /// The enclave.
        enclave: String,
    },
}

#[derive(Args, Debug)]
pub struct AgentRun {
    /// The policy: a name, the path of its source, or the path of its library; or one of
    /// the schedulers that are written for agents.
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
        AgentCommand::Upgrade { enclave } => upgrade(enclave),
    }
}

/// What schedules.
#[derive(Clone, Copy)]
enum Scheduler {
    Policy(Policy),
    Native(&'static Native),
}

impl Scheduler {
    fn find(search: &Search, args: &AgentRun) -> Result<Self> {
        let Some(native) = baton_agents::find(&args.policy) else {
            return open(&library(search, &args.policy)?).map(Self::Policy);
        };
        let name = native.name;
        if !args.options.is_empty() {
            return Err(Error::user(
                format!("{name} has no options"),
                "omit --options",
            ));
        }
        if args.record.is_some() {
            return Err(Error::user(
                format!("{name} is a scheduler for agents, and only policies can be recorded"),
                "omit --record",
            ));
        }
        if args.per_cpu != native.is_per_cpu && (args.per_cpu || args.global) {
            let (has, option) = if native.is_per_cpu {
                ("has an agent on each CPU", "--global")
            } else {
                ("decides for all CPUs", "--per-cpu")
            };
            return Err(Error::user(
                format!("{name} {has}"),
                format!("omit {option}"),
            ));
        }
        Ok(Self::Native(native))
    }

    fn name(self) -> String {
        match self {
            Self::Policy(policy) => policy.name(),
            Self::Native(native) => native.name.into(),
        }
    }

    /// Has each CPU an agent of its own?
    fn is_per_cpu(self, args: &AgentRun) -> bool {
        match self {
            Self::Policy(_) => args.per_cpu,
            Self::Native(native) => native.is_per_cpu,
        }
    }

    /// Attaches to the enclave.
    fn attach(self, enclave: &str, options: &str) -> Result<Agent> {
        let wishes = match self {
            Self::Policy(policy) => {
                let ops = policy.ops();
                Wishes {
                    events: policy.events(),
                    options,
                    hint_type: ops.hint_type,
                    reply_type: ops.reply_type,
                }
            }
            Self::Native(native) => Wishes {
                events: native.events,
                hint_type: native.hint_type,
                reply_type: native.reply_type,
                ..Wishes::default()
            },
        };
        Agent::attach(enclave, &wishes).map_err(not_attached)
    }

    /// Begins a session.
    fn begin(
        self,
        agent: Agent,
        mode: Mode,
        args: &AgentRun,
        record: Option<&Path>,
    ) -> Result<Arc<dyn Session>> {
        match self {
            Self::Policy(policy) => Runner::new(policy, &args.options, agent, mode, record)
                .map(|runner| Arc::new(runner) as _)
                .map_err(not_run),
            Self::Native(native) => native
                .begin(agent, mode)
                .map(Arc::from)
                .map_err(|why| Error::user(why.to_string(), "give the enclave other CPUs: --cpus")),
        }
    }
}

/// The policy's library: a file, one that is installed, or one that is built from source.
fn library(search: &Search, text: &str) -> Result<PathBuf> {
    if text.ends_with(".so") {
        return Ok(text.into());
    }
    match search.find(&library_of(text)) {
        Ok(path) => Ok(path),
        Err(missing) => match baton_build::source() {
            Ok(_) => baton_build::native_file(text),
            Err(_) => Err(missing),
        },
    }
}

fn open(path: &Path) -> Result<Policy> {
    Policy::open(path).map_err(|why| Error::user(why, "build it again: baton build POLICY"))
}

/// Opens a library of which this process may have an older version, which has the same name.
fn open_again(path: &Path) -> Result<Policy> {
    let failed = |e: io::Error| Error::file(path.display(), &e);
    let bytes = fs::read(path).map_err(failed)?;
    let loaded = loaded_part(&bytes).ok_or_else(|| {
        let what = format!("{} is no library", path.display());
        Error::user(what, "build it again: baton build POLICY")
    })?;
    let memory = memfd_create("baton-policy", MemfdFlags::CLOEXEC);
    let mut copy = File::from(memory.map_err(|e| failed(e.into()))?);
    copy.write_all(loaded).map_err(failed)?;
    let policy = open(Path::new(&format!("/proc/self/fd/{}", copy.as_raw_fd())))?;
    // The file stays open, so that the next one has another name. A library is never unloaded.
    let _ = copy.into_raw_fd();
    Ok(policy)
}

/// The part of a library that is loaded. What follows, such as symbols for a debugger, is most of
/// the file, and each version would keep it in memory.
fn loaded_part(library: &[u8]) -> Option<&[u8]> {
    let file = object::File::parse(library).ok()?;
    let end = file.segments().map(|segment| {
        let (at, size) = segment.file_range();
        at.saturating_add(size)
    });
    library.get(..usize::try_from(end.max()?).ok()?)
}

/// Does the process have a handler for USR1, which would end it otherwise?
fn handles_usr1(pid: u32) -> Result<bool> {
    let file = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&file).map_err(|e| Error::file(&file, &e))?;
    let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    Ok(caught.is_some_and(|mask| mask >> (SIGUSR1 - 1) & 1 == 1))
}

/// `baton agent upgrade`.
fn upgrade(enclave: &str) -> Result<ExitCode> {
    let agent = enclave::agent_of(enclave)?;
    if !handles_usr1(agent)? {
        return Err(Error::user(
            format!("process {agent}, the agent of {enclave}, is not of baton agent run"),
            "end it, and begin its new version: it finds all tasks",
        ));
    }
    let pid = Pid::from_raw(agent as i32).ok_or(Error::baton("the agent has no number"))?;
    kill_process(pid, Signal::USR1).map_err(|e| {
        Error::environment(
            format!("process {agent}, the agent of {enclave}, cannot be told: {e}"),
            "run this as root, or as the agent's user",
        )
    })?;
    println!("{enclave}: process {agent} takes its policy's library again, and says what follows");
    Ok(ExitCode::SUCCESS)
}

fn run(search: &Search, args: &AgentRun) -> Result<ExitCode> {
    let scheduler = Scheduler::find(search, args)?;
    let name = args.enclave.clone().unwrap_or_else(|| scheduler.name());
    let online = kernel::cpus("online")?;
    let online: Vec<usize> = online.iter().map(|cpu| cpu as usize).collect();
    let cpus = args.how.cpus.iter().flat_map(CpuList::iter);
    let given: Vec<usize> = cpus.map(|cpu| cpu as usize).collect();
    if let Some(cpu) = given.iter().find(|cpu| !online.contains(cpu)) {
        return Err(Error::user(
            format!("CPU {cpu} is not online"),
            "name other --cpus",
        ));
    }
    let cpus = Cpus {
        online,
        given,
        is_per_cpu: scheduler.is_per_cpu(args),
    };
    if !kernel::is_root() {
        allowed(&name, args)?;
        return attached(search, &name, scheduler, args, &cpus);
    }
    let is_made = prepare(search, &name, args, &cpus)?;
    let result = attached(search, &name, scheduler, args, &cpus);
    if is_made {
        let _lock = Lock::take()?;
        // Another command may have unloaded everything meanwhile.
        if enclave::is_there(&name)? {
            enclave::destroy(&name)?;
        }
    }
    result
}

/// Checks that this user, not being root, may run an agent of the enclave.
fn allowed(name: &str, args: &AgentRun) -> Result<()> {
    if !args.command.is_empty() {
        return Err(Error::user(
            "only root gives an enclave tasks",
            "omit the command, and ask root for: baton attach or baton run",
        ));
    }
    let node = device_of(name);
    match OpenOptions::new().read(true).write(true).open(&node) {
        Ok(_) => Ok(()),
        Err(e) => Err(Error::environment(
            format!(
                "this user may not be the agent of {name}: {}: {e}",
                node.display()
            ),
            format!("ask root for: baton enclave create {name} --user USER --cpus LIST"),
        )),
    }
}

/// CPUs of this machine.
struct Cpus {
    online: Vec<usize>,
    /// Those of --cpus; empty if it was not given.
    given: Vec<usize>,
    /// Has each CPU an agent of its own?
    is_per_cpu: bool,
}

impl Cpus {
    /// The CPU on which a global agent of a new enclave polls.
    fn polled(&self) -> Option<usize> {
        self.given.first().or(self.online.first()).copied()
    }

    /// Which threads decide. Unless --cpus says otherwise, a global agent polls on a CPU that is
    /// not the enclave's, if there is one.
    fn mode(&self, agent: &Agent) -> Result<Mode> {
        let of_enclave = |cpu: &usize| agent.is_online(*cpu);
        if self.is_per_cpu {
            return Ok(Mode::PerCpu);
        }
        let other = self.online.iter().copied().find(|cpu| !of_enclave(cpu));
        let own = self.given.first().copied().or(other).or(self.polled());
        let is_left = |own: usize| self.online.iter().any(|cpu| of_enclave(cpu) && *cpu != own);
        own.filter(|own| is_left(*own))
            .map(Mode::Global)
            .ok_or_else(|| {
                Error::user(
                    "a global agent needs a CPU beside those of its tasks",
                    "name two or more --cpus, or take an agent for each CPU (--per-cpu)",
                )
            })
    }
}

/// Makes the enclave if there is none. True if it did.
fn prepare(search: &Search, name: &str, args: &AgentRun, cpus: &Cpus) -> Result<bool> {
    let _lock = Lock::take()?;
    if enclave::is_there(name)? {
        return Ok(false);
    }
    let mut how = args.how.clone();
    if let Some(own) = cpus.polled().filter(|_| !cpus.is_per_cpu) {
        // The agent has its CPU for itself.
        let all = || cpus.online.iter().map(|cpu| *cpu as u32).collect();
        let mut cpus: CpuList = how.cpus.unwrap_or_else(all);
        cpus.remove(&CpuList::from_iter([own as u32]));
        how.cpus = Some(cpus);
    }
    enclave::create(search, name, &how)?;
    Ok(true)
}

/// A scheduler that runs as the agent of an enclave, from session to session.
struct Sessions<'a> {
    enclave: &'a str,
    scheduler: Scheduler,
    args: &'a AgentRun,
    cpus: &'a Cpus,
    /// None between two sessions.
    current: Mutex<Option<Arc<dyn Session>>>,
    stopping: AtomicBool,
}

impl<'a> Sessions<'a> {
    fn begin(
        enclave: &'a str,
        scheduler: Scheduler,
        args: &'a AgentRun,
        cpus: &'a Cpus,
    ) -> Result<Self> {
        let sessions = Self {
            enclave,
            scheduler,
            args,
            cpus,
            current: Mutex::new(None),
            stopping: AtomicBool::new(false),
        };
        sessions.next(args.record.as_deref())?;
        Ok(sessions)
    }

    /// Begins a session, after the one before it has been closed: closing waits until all read-side
    /// sections of RCU have ended, and tasks of the enclave that are preempted in one run only when
    /// the new session's agents do.
    fn next(&self, record: Option<&Path>) -> Result<Arc<dyn Session>> {
        self.set(None);
        let next = self.begin_session(record)?;
        self.set(Some(Arc::clone(&next)));
        if self.stopping.load(SeqCst) {
            next.stop();
        }
        Ok(next)
    }

    /// Attaches to the enclave, and makes the scheduler.
    fn begin_session(&self, record: Option<&Path>) -> Result<Arc<dyn Session>> {
        let agent = self.scheduler.attach(self.enclave, &self.args.options)?;
        let mode = self.cpus.mode(&agent)?;
        self.scheduler.begin(agent, mode, self.args, record)
    }

    fn set(&self, session: Option<Arc<dyn Session>>) {
        *self.current.lock().expect("no thread panics here") = session;
    }

    fn current(&self) -> Option<Arc<dyn Session>> {
        self.current.lock().expect("no thread panics here").clone()
    }

    /// Answers until the end. After lost messages, a new session begins.
    fn run(&self) -> Result<Ended> {
        let mut session = self.current().ok_or(Error::baton("there is no session"))?;
        loop {
            let ended = session.run().map_err(not_run)?;
            match ended {
                Ended::Lost(count) if !self.stopping.load(SeqCst) => {
                    eprintln!(
                        "baton: {count} messages to the agent of {} found no room; it begins \
                         anew. More room: --entries",
                        self.enclave
                    );
                    drop(session);
                    if self.args.record.is_some() {
                        eprintln!("baton: the recording ends here");
                    }
                    session = self.next(None)?;
                }
                ended => return Ok(ended),
            }
        }
    }

    /// Replaces the policy by the version that is in its library now.
    fn upgrade(&self, search: &Search) {
        let name = &self.enclave;
        let Some(session) = self.current() else {
            eprintln!("baton: {name} begins a session just now; try again");
            return;
        };
        let open = || {
            let path = library(search, &self.args.policy);
            path.and_then(|path| open_again(&path))
                .map_err(|e| e.to_string())
        };
        let upgraded = session.upgrade(&open);
        match upgraded {
            Ok(done) => eprintln!(
                "baton: {name}: upgrade {}: a new version has the state of the old one; the agent \
                 answered nothing for {} us",
                done.number,
                done.gap.as_micros()
            ),
            Err(why) => eprintln!("baton: {name}: the policy was not replaced: {why}"),
        }
    }

    fn stop(&self) {
        self.stopping.store(true, SeqCst);
        if let Some(session) = self.current() {
            session.stop();
        }
    }
}

fn attached(
    search: &Search,
    name: &str,
    scheduler: Scheduler,
    args: &AgentRun,
    cpus: &Cpus,
) -> Result<ExitCode> {
    // Before there is an agent that could be told.
    let mut upgrades = signals(&[SIGUSR1])?;
    let sessions = Sessions::begin(name, scheduler, args, cpus)?;
    let handle = upgrades.handle();
    let (code, ended) = thread::scope(|scope| {
        let answering = scope.spawn(|| sessions.run());
        scope.spawn(|| upgrades.forever().for_each(|_| sessions.upgrade(search)));
        let code = if args.command.is_empty() {
            until_interrupted(|| answering.is_finished())
        } else {
            run_in(name, &args.command)
        };
        handle.close();
        sessions.stop();
        (code, answering.join())
    });
    let ended = ended.map_err(|_| Error::baton("the agent's thread panicked"))?;
    let policy = || Some(Blame::Policy(name.into()));
    let blame = match ended? {
        // With a command, `baton run` has said so.
        Ended::Fault(_) if !args.command.is_empty() => policy(),
        Ended::Fault(failure) if !kernel::is_root() => {
            let (file, line, message) = (&failure.file, failure.line, &failure.message);
            eprintln!("baton: {file}:{line}: {message}");
            policy()
        }
        // The kernel also stops an agent that does not answer.
        Ended::Fault(_) | Ended::Stopped if args.command.is_empty() => report(name)?,
        Ended::Fault(_) | Ended::Stopped | Ended::Lost(_) => None,
    };
    match blame {
        Some(blame) => Err(Error {
            blame,
            what: format!("{name} was stopped by a fault"),
            next: "see the report above".into(),
        }),
        None => code,
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

fn signals(numbers: &[i32]) -> Result<Signals> {
    Signals::new(numbers)
        .map_err(|e| Error::environment(format!("signals cannot be received: {e}"), "try again"))
}

/// Waits for Ctrl-C, or for the end of the agent.
fn until_interrupted(has_ended: impl Fn() -> bool) -> Result<ExitCode> {
    let mut signals = signals(&[SIGINT, SIGTERM])?;
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

/// Prints the report of the fault that stopped the enclave's policy, and returns the party at
/// fault. None if no fault did, or if this user may not read it.
fn report(name: &str) -> Result<Option<Blame>> {
    if !kernel::is_root() {
        return Ok(None);
    }
    let device = Device::open()?;
    let info = device.policy(name)?;
    let Some(info) = info.filter(|info| info.state == BatonPolicyState::Faulted as u32) else {
        return Ok(None);
    };
    let Some(fault) = device.fault(info.index)? else {
        return Ok(Some(Blame::Policy(name.into())));
    };
    let fault = baton_control::status::Fault::new(&fault, Some(&info));
    eprint!("{}", baton_control::report::fault(&fault));
    Ok(Some(baton_control::report::blame(&fault)))
}
