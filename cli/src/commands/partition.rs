// SPDX-License-Identifier: GPL-2.0-only
//! `baton partition`: CPUs that only some policies use. `baton share`: the guaranteed share of a
//! policy in each CPU.

use std::process::ExitCode;

use rustix::io::Errno;

use super::{enclave, print, print_json};
use crate::cli::{Output, PartitionCommand, Share};
use baton_control::cpulist::CpuList;
use baton_control::device::{Device, Unset};
use baton_control::error::{Error, Result};
use baton_control::kernel::{self, Lock};
use baton_control::report;
use baton_control::status::Partition;

pub fn command(command: &PartitionCommand) -> Result<ExitCode> {
    match command {
        PartitionCommand::Create {
            name,
            cpus,
            policies,
        } => {
            let (device, _lock) = begin()?;
            if find(&device, name)?.is_some() {
                return Err(Error::user(
                    format!("there is a partition {name} already"),
                    format!(
                        "change its CPUs (baton partition resize {name} --cpus {cpus}), or \
                        choose another name"
                    ),
                ));
            }
            set(&device, name, cpus, policies)
        }
        PartitionCommand::Resize { name, cpus } => {
            let (device, _lock) = begin()?;
            let policies = find(&device, name)?.ok_or_else(|| absent(name))?.policies;
            set(&device, name, cpus, &policies)
        }
        PartitionCommand::Destroy { name } => {
            let (device, _lock) = begin()?;
            let partition = find(&device, name)?.ok_or_else(|| absent(name))?;
            require_no_user(&partition)?;
            device
                .set_partition(name, &CpuList::default(), &[])
                .map_err(|e| refused(name, &e))?;
            eprintln!("baton: all policies may use the CPUs of partition {name} again");
            Ok(ExitCode::SUCCESS)
        }
        PartitionCommand::List { output } => list(*output),
    }
}

/// Without its partition, the agent of a user would act on all CPUs.
fn require_no_user(partition: &Partition) -> Result<()> {
    let users = partition.policies.iter();
    let mut users = users.filter_map(|policy| Some((policy, enclave::user_of(policy)?)));
    match users.next() {
        None => Ok(()),
        Some((policy, user)) => Err(Error::user(
            format!(
                "partition {} has the CPUs of the enclave {policy}, which is user {user}'s",
                partition.name
            ),
            format!("remove both: baton enclave destroy {policy}"),
        )),
    }
}

fn begin() -> Result<(Device, Lock)> {
    kernel::require_root("changing partitions")?;
    let lock = Lock::take()?;
    Ok((Device::open()?, lock))
}

fn find(device: &Device, name: &str) -> Result<Option<Partition>> {
    Ok(device
        .partitions()?
        .into_iter()
        .find(|partition| partition.name == name))
}

fn set(device: &Device, name: &str, cpus: &CpuList, policies: &[String]) -> Result<ExitCode> {
    let held = device
        .set_partition(name, cpus, policies)
        .map_err(|e| refused(name, &e))?;
    let policies = policies.join(", ");
    eprintln!(
        "baton: CPUs {cpus} are reserved for tasks of {policies}, which run there only; CPUs were \
         held for {} us",
        held / 1000
    );
    Ok(ExitCode::SUCCESS)
}

fn absent(name: &str) -> Error {
    Error::user(
        format!("there is no partition {name}"),
        "see which there are: baton partition list",
    )
}

pub fn refused(name: &str, refused: &Unset) -> Error {
    let what = format!("partition {name} was not changed: {}", refused.message);
    match refused.errno {
        Errno::NOENT => Error::user(
            what,
            "load the policy first (baton load), and see baton partition list",
        ),
        Errno::BUSY => Error::user(
            what,
            "partitions do not overlap: shrink or destroy that one first",
        ),
        Errno::INVAL | Errno::NOSPC => Error::user(
            what,
            "see baton partition list, and baton status for the CPUs",
        ),
        errno => Error::baton(format!("partition {name} was not changed: {errno}")),
    }
}

fn list(output: Output) -> Result<ExitCode> {
    let partitions = Device::open()?.partitions()?;
    if output.json {
        print_json(&partitions)?
    } else {
        print(report::partitions(&partitions))?
    }
    Ok(ExitCode::SUCCESS)
}

pub fn share(args: &Share) -> Result<ExitCode> {
    kernel::require_root("setting the share of a policy")?;
    let _lock = Lock::take()?;
    set_share(&Device::open()?, &args.policy, args.percent)?;
    Ok(ExitCode::SUCCESS)
}

pub fn set_share(device: &Device, policy: &str, percent: u32) -> Result<()> {
    device
        .set_share(policy, percent)
        .map_err(|errno| match errno {
            Errno::NOENT => Error::user(
                format!("no policy {policy} is loaded"),
                "see which policies are: baton list",
            ),
            Errno::RANGE => Error::user(
                format!("{percent} % for {policy} would make all shares more than 100 %"),
                "see them with baton list, and make another one smaller first",
            ),
            other => Error::baton(format!("the share of {policy} was not set: {other}")),
        })
}
