// SPDX-License-Identifier: GPL-2.0-only
//! The schedulers that are measured. Each is put in charge of every normal task of the machine, and
//! removed again.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use baton_abi::BatonPolicyState;
use rustix::process::{kill_process, Pid, Signal};

use super::programs::EXAMPLES;
use super::report::BASELINE;
use baton_build::Policy;
use baton_control::device::Device;
use baton_control::enclaves::Enclaves;
use baton_control::error::{Error, Result};
use baton_control::modules::Search;
use baton_control::status::Fault;
use baton_control::{kernel, load, names, report, tasks, unload};

/// The timeout for attaching or detaching a scheduler.
const PATIENCE: Duration = Duration::from_secs(30);

/// A scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// The kernel's own scheduler.
    Eevdf,
    /// One of the kernel's examples for sched_ext, with its options, or [`TWIN`].
    Scx {
        program: &'static str,
        options: &'static [&'static str],
    },
    /// A policy of Baton, by name.
    Policy(String),
    /// A policy in an agent, by name, and the option that says which threads decide. It is in
    /// charge of the load alone.
    Agent { policy: String, mode: &'static str },
}

/// The options of `baton agent run` for the threads that decide.
const MODES: [&str; 2] = ["--per-cpu", "--global"];

const SCX: &[Subject] = &[
    Subject::Scx {
        program: "scx_simple",
        options: &[],
    },
    Subject::Scx {
        program: "scx_simple",
        options: &["-f"],
    },
    Subject::Scx {
        program: "scx_central",
        options: &[],
    },
    Subject::Scx {
        program: "scx_userland",
        options: &[],
    },
];

/// The BPF scheduler with the decisions of `fifo`.
pub const TWIN: Subject = Subject::Scx {
    program: "scx_fifo",
    options: &[],
};

impl Subject {
    /// The subjects of a bench, unless others are given.
    pub fn usual() -> Vec<Self> {
        let policies = ["fifo", "wfq", "cfs_like", "central", "shinjuku", "locality"]
            .map(|name| Subject::Policy(name.into()));
        std::iter::once(Subject::Eevdf)
            .chain(SCX.iter().cloned())
            .chain(policies)
            .collect()
    }

    /// Parses a name as [`Self::name`] gives it.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let known = std::iter::once(Subject::Eevdf)
            .chain(SCX.iter().cloned())
            .chain([TWIN])
            .find(|s| s.name() == text);
        match known {
            Some(subject) => Ok(subject),
            None => match MODES.iter().find_map(|mode| agent_of(text, mode)) {
                Some((policy, mode)) => {
                    names::policy(policy).map(|policy| Self::agent(&policy, mode))
                }
                None => names::policy(text).map(Subject::Policy),
            },
        }
    }

    /// A policy in an agent.
    pub fn agent(policy: &str, mode: &'static str) -> Self {
        Subject::Agent {
            policy: policy.into(),
            mode,
        }
    }

    pub fn name(&self) -> String {
        match self {
            Subject::Eevdf => BASELINE.into(),
            Subject::Scx { program, options } => std::iter::once(program)
                .chain(*options)
                .copied()
                .collect::<Vec<_>>()
                .join(" "),
            Subject::Policy(name) => name.clone(),
            Subject::Agent { policy, mode } => format!("{policy} {mode}"),
        }
    }

    /// The source, if this is a policy in the kernel.
    pub fn policy(&self) -> Option<Result<Policy>> {
        match self {
            Subject::Policy(name) => Some(Policy::find(name)),
            _ => None,
        }
    }

    /// The source, if this is a policy in an agent.
    /// A scheduler that is written for agents is no policy, and a part of this program.
    pub fn policy_of_agent(&self) -> Option<Result<Policy>> {
        match self {
            Subject::Agent { policy, .. } if baton_agents::find(policy).is_none() => {
                Some(Policy::find(policy))
            }
            _ => None,
        }
    }

    /// Runs `measure` with this subject in charge.
    ///
    /// # Errors
    /// When the subject cannot be put in charge, or is no longer in charge at the end: the
    /// measurement would then be that of another scheduler.
    pub fn measure<T>(&self, search: &Search, measure: impl FnOnce() -> Result<T>) -> Result<T> {
        self.measure_with(search, None, measure)
    }

    /// The same, with these options for a policy.
    pub fn measure_with<T>(
        &self,
        search: &Search,
        options: Option<String>,
        measure: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        match self {
            Subject::Eevdf => match kernel::attached_scheduler() {
                None => measure(),
                Some(name) => Err(Error::user(
                    format!(
                        "the scheduler {name} is attached, but the kernel's own is to be \
                        measured"
                    ),
                    "end it first; if it is Baton's: baton unload --everything",
                )),
            },
            Subject::Scx { program, options } => {
                let mut running = Example::start(program, options)?;
                let result = measure()?;
                running.check()?;
                drop(running);
                gone(program)?;
                Ok(result)
            }
            Subject::Policy(name) => {
                drop(load::load(
                    search,
                    name,
                    &load::Options {
                        options,
                        all: true,
                        ..Default::default()
                    },
                )?);
                let result = measure();
                let running = check_policy(name);
                unload::unload(None)?;
                running.and(result)
            }
            Subject::Agent { policy, mode } => {
                let options = options.unwrap_or_default();
                let agent = Agent::start(policy, mode, &options)?;
                let device = Device::open()?;
                let own = std::process::id();
                tasks::give(&device, &device.core()?, own, policy)?;
                let result = measure();
                tasks::take(&device, own)?;
                drop(device);
                let running = check_policy(policy);
                drop(agent);
                unload::unload(None)?;
                running.and(result)
            }
        }
    }
}

/// The policy of a name as [`Subject::name`] gives it, if it is that of an agent of this mode.
fn agent_of<'a>(text: &'a str, mode: &'static str) -> Option<(&'a str, &'static str)> {
    let policy = text.strip_suffix(mode)?.strip_suffix(' ')?;
    Some((policy, mode))
}

/// `baton agent run`, in the background. It ends when this value is dropped.
struct Agent(Child);

impl Agent {
    fn start(policy: &str, mode: &str, options: &str) -> Result<Self> {
        let own =
            std::env::current_exe().map_err(|e| Error::file("looking for this program", &e))?;
        let child = Command::new(own)
            .args(["agent", "run", "--enclave", policy, policy, mode])
            .args(["--options", options])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|e| {
                Error::environment(format!("the agent cannot be run: {e}"), "try again")
            })?;
        let agent = Self(child);
        let runs = || {
            let Some(enclaves) = Enclaves::open_if_loaded()? else {
                return Ok(false);
            };
            Ok(enclaves
                .find(policy)?
                .is_some_and(|enclave| enclave.agent.is_some()))
        };
        if kernel::wait_until(PATIENCE, runs)? {
            Ok(agent)
        } else {
            Err(Error::environment(
                format!("the agent of {policy} has not begun"),
                format!("see why: baton agent run {policy} {mode}"),
            ))
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let (Ok(None), Some(pid)) = (self.0.try_wait(), Pid::from_raw(self.0.id() as i32)) {
            let _ = kill_process(pid, Signal::TERM);
            let _ = self.0.wait();
        }
    }
}

/// Checks that the policy has been in charge all the time.
pub fn check_policy(name: &str) -> Result<()> {
    let device = Device::open()?;
    let info = device.policy(name)?;
    let sound = |i: &baton_abi::BatonPolicyInfo| {
        i.state == BatonPolicyState::Running as u32 && i.faults == 0
    };
    if let Some(fault) = info
        .and_then(|info| device.fault(info.index).transpose())
        .transpose()?
    {
        eprint!("{}", report::fault(&Fault::new(&fault, info.as_ref())));
    }
    match (
        info.is_some_and(|info| sound(&info)),
        device.core()?.attached,
    ) {
        (true, 1) => Ok(()),
        (true, _) => Err(Error::baton(
            "the kernel ejected the shim during the measurement",
        )),
        (false, _) => Err(Error::policy(
            name,
            format!("{name} had a fault during the measurement, so there is no result"),
            "see its fault above",
        )),
    }
}

/// A running example. It ends when this value is dropped.
struct Example {
    program: &'static str,
    child: Child,
}

impl Example {
    fn start(program: &'static str, options: &[&str]) -> Result<Self> {
        let path = EXAMPLES.find(program)?;
        // The program prints statistics each second.
        let mut command = Command::new(&path);
        let command = command
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command
            .spawn()
            .map_err(|e| Error::file(format!("starting {}", path.display()), &e))?;
        let mut example = Self { program, child };
        let attached = kernel::wait_until(PATIENCE, || {
            example.check_alive()?;
            Ok(example.is_attached())
        })?;
        if attached {
            Ok(example)
        } else {
            Err(example.lost("was not attached by the kernel"))
        }
    }

    fn is_attached(&self) -> bool {
        let enabled = std::fs::read_to_string("/sys/kernel/sched_ext/state")
            .is_ok_and(|s| s.trim() == "enabled");
        let name = self.program.trim_start_matches("scx_");
        enabled && kernel::attached_scheduler().is_some_and(|attached| attached.starts_with(name))
    }

    fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.lost(&format!("ended by itself ({status})"))),
            Err(e) => Err(Error::environment(
                format!("watching {}: {e}", self.program),
                "try again",
            )),
        }
    }

    fn check(&mut self) -> Result<()> {
        self.check_alive()?;
        if self.is_attached() {
            Ok(())
        } else {
            Err(self.lost("was ejected by the kernel"))
        }
    }

    fn lost(&self, how: &str) -> Error {
        Error::environment(
            format!(
                "{} {how}, so there is nothing to compare with",
                self.program
            ),
            "the kernel's log says why (dmesg | grep sched_ext)",
        )
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        // No signal to a program that has ended by itself: its pid may belong to another process
        // now.
        if let (Ok(None), Some(pid)) =
            (self.child.try_wait(), Pid::from_raw(self.child.id() as i32))
        {
            let _ = kill_process(pid, Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

/// Stops and starts an example this many times. Returns how long it was not attached each time, ns.
pub fn restarts(program: &'static str, times: u32) -> Result<Vec<f64>> {
    let mut example = Example::start(program, &[])?;
    let mut took = Vec::new();
    for _ in 0..times {
        let begin = std::time::Instant::now();
        drop(example);
        gone(program)?;
        example = Example::start(program, &[])?;
        took.push(begin.elapsed().as_nanos() as f64);
    }
    drop(example);
    gone(program)?;
    Ok(took)
}

/// Waits until the kernel's own scheduler has all tasks again.
fn gone(program: &str) -> Result<()> {
    if kernel::wait_until(PATIENCE, || Ok(kernel::attached_scheduler().is_none()))? {
        Ok(())
    } else {
        Err(Error::environment(
            format!("{program} has ended, but its scheduler is still attached"),
            "the kernel's log says why (dmesg | grep sched_ext)",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_is_parsed() {
        for subject in Subject::usual() {
            assert_eq!(Subject::parse(&subject.name()), Ok(subject));
        }
        let check = |text: &str, expected: Option<Subject>| {
            assert_eq!(Subject::parse(text).ok(), expected, "{text}")
        };
        check("scx_simple -f", Some(SCX[1].clone()));
        check("mine", Some(Subject::Policy("mine".into())));
        check("mine --global", Some(Subject::agent("mine", "--global")));
        check("mine --local", None);
        check(" --global", None);
        check("not a name", None);
        check("", None);
    }
}
