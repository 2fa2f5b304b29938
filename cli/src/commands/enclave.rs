// SPDX-License-Identifier: GPL-2.0-only
//! `baton enclave`: policies whose answers come from a process, the agent.

use std::fs;
use std::os::unix::fs::{chown, MetadataExt};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::{print, print_json};
use crate::cli::Output;
use baton_abi::{BATON_AGENT_MAX_ENTRIES, BATON_AGENT_MIN_ENTRIES};
use baton_agent::device_of;
use baton_control::cpulist::CpuList;
use baton_control::device::Device;
use baton_control::enclaves::{Enclave, Enclaves};
use baton_control::error::{Error, Result};
use baton_control::kernel::{self, Lock};
use baton_control::modules::Search;
use baton_control::status::{Fault, Partition, Policy, Status};
use baton_control::{load, names, report};
use serde::Serialize;

use super::partition::refused;

#[derive(Subcommand, Debug)]
pub enum EnclaveCommand {
    /// Make an enclave. It schedules nothing until an agent attaches to it.
    Create {
        /// Its name, which is also that of its policy: see `baton attach`.
        #[arg(value_parser = names::policy)]
        name: String,
        /// The user whose processes may be its agents, beside root's: a name or a number. They
        /// schedule only the tasks that root gives the enclave, and on its own --cpus only.
        #[arg(long, value_name = "USER", requires = "cpus", value_parser = user)]
        user: Option<u32>,
        #[command(flatten)]
        how: EnclaveOptions,
    },
    /// Remove an enclave. Its tasks go on under the default policy, or the fallback.
    Destroy {
        /// Its name.
        #[arg(value_parser = names::policy)]
        name: String,
    },
    /// Show an enclave: its agent, tasks, CPUs, messages, and why its last agent was stopped.
    Status {
        /// Its name.
        #[arg(value_parser = names::policy)]
        name: String,
        #[command(flatten)]
        output: Output,
    },
    /// List all enclaves.
    List {
        #[command(flatten)]
        output: Output,
    },
}

/// How many messages a ring may hold.
const ENTRIES: std::ops::RangeInclusive<i64> =
    BATON_AGENT_MIN_ENTRIES as i64..=BATON_AGENT_MAX_ENTRIES as i64;

#[derive(Args, Debug, Clone)]
pub struct EnclaveOptions {
    /// CPUs that its tasks have for themselves, as a partition of the enclave's name: 2-5. Without
    /// this, they use all CPUs with others.
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<CpuList>,
    /// No task waits longer than this for an agent that does not answer: the enclave gives it up
    /// when it has left a message unread for half of this. [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = names::duration)]
    pub limit: Option<Duration>,
    /// Messages that the ring of each CPU holds, a power of two. [default: 1024]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(ENTRIES))]
    pub entries: Option<u32>,
}

pub fn command(search: &Search, command: &EnclaveCommand) -> Result<ExitCode> {
    match command {
        EnclaveCommand::Create { name, user, how } => {
            kernel::require_root("making an enclave")?;
            let _lock = Lock::take()?;
            create(search, name, how)?;
            if let Some(user) = *user {
                set_user(name, Some(user))?;
            }
            eprintln!(
                "baton: the enclave {name} waits for an agent: \
                 baton agent run --enclave {name} POLICY"
            );
        }
        EnclaveCommand::Destroy { name } => {
            kernel::require_root("removing an enclave")?;
            let _lock = Lock::take()?;
            destroy(name)?;
        }
        EnclaveCommand::Status { name, output } => status(name, output.json)?,
        EnclaveCommand::List { output } => list(output.json)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Parses a user: a number, or a name of /etc/passwd.
pub fn user(text: &str) -> std::result::Result<u32, String> {
    if let Ok(number) = text.parse() {
        return match number {
            u32::MAX => Err(format!("{number} is the number of no user")),
            number => Ok(number),
        };
    }
    let known = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut users = known.lines().map(|line| line.split(':'));
    users
        .find_map(|mut fields| (fields.next() == Some(text)).then(|| fields.nth(1)?.parse().ok()))
        .flatten()
        .ok_or(format!("there is no user {text} in /etc/passwd"))
}

/// Lets this user's processes be the agents of an enclave, beside root's. `None`: root's only. Ends
/// an agent that then may no longer be one.
pub fn set_user(name: &str, user: Option<u32>) -> Result<()> {
    let (node, user) = (device_of(name), user.unwrap_or(0));
    chown(&node, Some(user), None).map_err(|e| Error::file(node.display(), &e))?;
    let Some(enclaves) = Enclaves::open_if_loaded()? else {
        return Ok(());
    };
    let Some(agent) = enclaves.find(name)?.and_then(|enclave| enclave.agent) else {
        return Ok(());
    };
    // A process that has ended is no agent any more.
    let of_process = fs::metadata(format!("/proc/{agent}")).map(|process| process.uid());
    if of_process.is_ok_and(|uid| uid != 0 && uid != user) {
        enclaves.dismiss(name)?;
    }
    Ok(())
}

/// The number of the user whose processes may be the agents of an enclave; `None` if root's only.
pub fn user_of(name: &str) -> Option<u32> {
    let owner = fs::metadata(device_of(name)).ok()?.uid();
    Some(owner).filter(|owner| *owner != 0)
}

/// Makes an enclave, and loads what it needs. The caller has the lock.
pub fn create(search: &Search, name: &str, how: &EnclaveOptions) -> Result<Device> {
    let options = load::Options::default();
    load::require_sched_ext()?;
    let device = load::core(search, &options)?;
    load::attach(search, &device, false)?;
    let limit = how.limit.map(|limit| limit.as_millis() as u32);
    let enclaves = Enclaves::open(search)?;
    enclaves.create(name, how.entries, limit)?;
    if let Some(cpus) = &how.cpus {
        let policies = [name.to_owned()];
        if let Err(unset) = device.set_partition(name, cpus, &policies) {
            enclaves.destroy(name)?;
            return Err(refused(name, &unset));
        }
    }
    Ok(device)
}

/// Is there an enclave of that name?
pub fn is_there(name: &str) -> Result<bool> {
    match Enclaves::open_if_loaded()? {
        Some(enclaves) => Ok(enclaves.find(name)?.is_some()),
        None => Ok(false),
    }
}

/// The process that is the agent of an enclave.
pub fn agent_of(name: &str) -> Result<u32> {
    kernel::require_root("finding an agent")?;
    let enclave = match Enclaves::open_if_loaded()? {
        Some(enclaves) => enclaves.find(name)?,
        None => None,
    };
    enclave.and_then(|enclave| enclave.agent).ok_or_else(|| {
        Error::user(
            format!("there is no agent of an enclave {name}"),
            "see which there are: baton enclave list",
        )
    })
}

fn absent(name: &str) -> Error {
    Error::user(
        format!("there is no enclave {name}"),
        "see which there are: baton enclave list",
    )
}

/// Removes an enclave, with its partition. The caller has the lock.
pub fn destroy(name: &str) -> Result<()> {
    let enclaves = Enclaves::open_if_loaded()?.ok_or_else(|| absent(name))?;
    enclaves.find(name)?.ok_or_else(|| absent(name))?;
    let device = Device::open()?;
    if let Some(policy) = device.policy(name)? {
        baton_control::tasks::take_all(&device, Some(policy.id))?;
    }
    enclaves.destroy(name)?;
    if device
        .partitions()?
        .iter()
        .any(|partition| partition.name == name)
    {
        device
            .set_partition(name, &CpuList::default(), &[])
            .map_err(|unset| refused(name, &unset))?;
    }
    Ok(())
}

/// An enclave as `baton enclave status` prints it.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    enclave: Enclave,
    /// The user whose processes may be its agents, beside root's.
    user: Option<u32>,
    /// Its CPUs; none if it has no partition, and so shares those in no partition with others.
    cpus: Option<CpuList>,
    /// Its policy: tasks, state, options, share.
    policy: Option<Policy>,
    /// Its last fault.
    fault: Option<Fault>,
}

fn status(name: &str, json: bool) -> Result<()> {
    kernel::require_root("showing an enclave")?;
    let found = match Enclaves::open_if_loaded()? {
        Some(enclaves) => enclaves.find(name)?,
        None => None,
    };
    let enclave = found.ok_or_else(|| absent(name))?;
    let status = Status::read(&Device::open()?)?;
    let is_policy = |policy: &Policy| policy.name == name;
    let policy = status.policies.into_iter().find(is_policy);
    let partition = policy.as_ref().and_then(|policy| policy.partition.as_ref());
    let is_partition = |other: &Partition| Some(&other.name) == partition;
    let partition = status.partitions.into_iter().find(is_partition);
    let shown = Shown {
        user: user_of(name),
        cpus: partition.map(|partition| partition.cpus),
        fault: status.faults.into_iter().find(|fault| fault.policy == name),
        policy,
        enclave,
    };
    if json {
        print_json(&shown)
    } else {
        print(shown.text())
    }
}

impl Shown {
    fn text(&self) -> String {
        let Enclave {
            name,
            agent,
            queued,
            attached,
            posted,
            lost,
            picks,
            stale,
            entries,
            limit_ms,
        } = &self.enclave;
        let agent = match agent {
            Some(pid) => format!("process {pid}"),
            None => format!("none: baton agent run --enclave {name} POLICY"),
        };
        let state = self
            .policy
            .as_ref()
            .map_or("unknown", |policy| policy.state);
        let tasks = self.policy.as_ref().map_or(0, |policy| policy.tasks);
        let cpus = self.cpus.as_ref().map(CpuList::to_string);
        let cpus = cpus
            .as_deref()
            .unwrap_or("those in no partition, with others");
        let users = match self.user {
            Some(user) => format!("root and user {user}"),
            None => "root".into(),
        };
        let mut text = format!(
            "enclave {name}, {state}\n\
             \x20 agent     {agent}; {attached} agents so far; processes of {users} may be \
             its agent\n\
             \x20 tasks     {tasks}, of which {queued} wait for the agent\n\
             \x20 CPUs      {cpus}\n\
             \x20 messages  {posted} to this agent; {lost} lost because a ring was full (each CPU's \
             ring holds {entries})\n\
             \x20 picks     {picks}; {stale} transactions came too late or were refused\n\
             \x20 limit     no task waits longer than {limit_ms} ms for an agent that does not \
             answer\n"
        );
        if let Some(fault) = &self.fault {
            text += &report::fault(fault);
        }
        text
    }
}

fn list(json: bool) -> Result<()> {
    let enclaves =
        Enclaves::open_if_loaded()?.map_or(Ok(Vec::new()), |enclaves| enclaves.list())?;
    if json {
        return print_json(&enclaves);
    }
    let mut text = format!(
        "{:<16} {:>8} {:>7} {:>9} {:>10} {:>6} {:>10} {:>7}\n",
        "ENCLAVE", "AGENT", "QUEUED", "ATTACHED", "MESSAGES", "LOST", "PICKS", "STALE"
    );
    for enclave in &enclaves {
        text += &row(enclave);
    }
    print(&text)
}

fn row(enclave: &Enclave) -> String {
    let agent = enclave.agent.map_or("-".into(), |pid| pid.to_string());
    format!(
        "{:<16} {agent:>8} {:>7} {:>9} {:>10} {:>6} {:>10} {:>7}\n",
        enclave.name,
        enclave.queued,
        enclave.attached,
        enclave.posted,
        enclave.lost,
        enclave.picks,
        enclave.stale
    )
}
