// SPDX-License-Identifier: GPL-2.0-only
//! `baton apply` brings the machine into the state of a configuration file, or leaves it unchanged.
//! `baton export` writes such a file.
//!
//! Everything that can be checked in advance is checked before the first step. If a step fails
//! nevertheless, a plan back to the old state is carried out.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use baton_abi::{BatonPolicyState, BATON_MAX_POLICIES};
use serde::Serialize;

use super::{enclave, partition, print, print_json};
use crate::cli::{Apply, Output};
use crate::config::plan::{plan, Loaded, Step};
use crate::config::{self, unplaced, Config, Machine, Policy};
use baton_control::cpulist::CpuList;
use baton_control::device::{text, Device, BLOCKS_PER_MIB};
use baton_control::enclaves::Enclaves;
use baton_control::error::{Error, Result};
use baton_control::kernel::{self, Lock};
use baton_control::modules::{module_of, Search, AGENT, CORE, SHIM};
use baton_control::{cgroups, exchange, load, recording, unload};

#[derive(Serialize)]
struct Done {
    /// The steps that were taken, or, in a dry run, that would be.
    steps: Vec<String>,
    dry_run: bool,
}

pub fn apply(search: &Search, args: &Apply) -> Result<ExitCode> {
    let to = Config::read(&args.file, &machine()?)?;
    kernel::require_root("changing what the machine runs")?;
    let _lock = Lock::take()?;
    let (mut is, loaded) = current()?;
    // The kernel does not know the files of modules. The way back uses those of the new
    // configuration.
    for policy in &mut is.policies {
        policy.module = to
            .policies
            .iter()
            .find(|other| other.name() == policy.name())
            .and_then(|p| p.module.clone());
    }
    let steps = plan(&is, loaded, &to);
    check(search, &is, loaded, &to, &steps)?;
    if !args.dry_run {
        for (done, step) in steps.iter().enumerate() {
            if !args.output.json {
                eprintln!("baton: {step}");
            }
            if let Err(error) = perform(search, step) {
                return Err(undone(search, &is, &steps[..done], step, error));
            }
        }
        settle()?;
    }
    let texts: Vec<String> = steps.iter().map(Step::to_string).collect();
    match (args.output.json, args.dry_run) {
        (true, dry_run) => print_json(&Done {
            steps: texts,
            dry_run,
        })?,
        (false, _) if steps.is_empty() => print(format!(
            "nothing to do: the machine matches {}\n",
            args.file.display()
        ))?,
        (false, true) => print(
            texts
                .iter()
                .map(|step| format!("would {step}\n"))
                .collect::<String>(),
        )?,
        (false, false) => print(format!("the machine now matches {}\n", args.file.display()))?,
    }
    Ok(ExitCode::SUCCESS)
}

pub fn export(output: Output) -> Result<ExitCode> {
    let (config, _) = current()?;
    if output.json {
        print_json(&config)?
    } else {
        let body = toml::to_string(&config).map_err(|e| {
            Error::baton(format!("the configuration cannot be written as TOML: {e}"))
        })?;
        print(format!(
            "# The policies of this machine, for {}. baton apply restores them.\n{body}",
            config::PATH
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn machine() -> Result<Machine> {
    let list = |name: &str| {
        let path = Path::new("/sys/devices/system/cpu").join(name);
        let text = std::fs::read_to_string(&path)
            .map_err(|e| Error::file(format!("reading {}", path.display()), &e))?;
        text.trim()
            .parse::<CpuList>()
            .map_err(|why| Error::baton(format!("{}: {why}", path.display())))
    };
    let cgroup = |name: &str| {
        cgroups::find(Path::new(name))
            .ok()
            .map(|dir| cgroups::name(&dir))
    };
    Ok(Machine {
        possible: list("possible")?,
        online: list("online")?,
        cgroup,
        user: |name| enclave::user(name).ok(),
    })
}

/// The present state of the machine.
fn current() -> Result<(Config, Loaded)> {
    let Some(device) = Device::open_if_loaded()? else {
        return Ok((Config::default(), Loaded::default()));
    };
    let core = device.core()?;
    let rules = cgroups::rules(&device)?;
    let enclaves =
        Enclaves::open_if_loaded()?.map_or(Ok(Vec::new()), |enclaves| enclaves.list())?;
    let policies = device.policies()?.into_iter().map(|info| {
        let name = text(&info.name);
        let enclave = enclaves.iter().find(|enclave| enclave.name == name);
        let cgroups = rules
            .iter()
            .filter(|rule| rule.policy == name)
            .map(|rule| unplaced(rule.cgroup.clone()));
        Policy {
            cgroups: cgroups.collect(),
            // Those of an enclave are its agent's.
            options: Some(text(&info.options))
                .filter(|options| !options.is_empty() && enclave.is_none())
                .map(unplaced),
            default: info.id == core.default_policy,
            is_idle: info.state == BatonPolicyState::Registered as u32 && enclave.is_none(),
            enclave: enclave.map(|enclave| {
                unplaced(config::Enclave {
                    user: enclave::user_of(&name).map(config::User::Number),
                    limit_ms: Some(enclave.limit_ms),
                    entries: Some(enclave.entries),
                })
            }),
            share: Some(info.share).filter(|share| *share != 0).map(unplaced),
            flight: Some(info.flight / BLOCKS_PER_MIB)
                .filter(|mib| *mib != 0)
                .map(unplaced),
            ..Policy::named(&name)
        }
    });
    let partitions = device
        .partitions()?
        .into_iter()
        .map(|partition| config::Partition {
            name: unplaced(partition.name),
            cpus: unplaced(partition.cpus),
            policies: unplaced(partition.policies),
        });
    let config = Config {
        all: core.attached != 0 && core.all != 0,
        max_tasks: Some(unplaced(core.max_tasks)),
        stall_ms: Some(unplaced(core.stall_ms)),
        policies: policies.collect(),
        partitions: partitions.collect(),
    };
    Ok((
        config,
        Loaded {
            core: true,
            attached: core.attached != 0,
        },
    ))
}

/// Finds errors that can be known before anything is done.
fn check(search: &Search, is: &Config, loaded: Loaded, to: &Config, steps: &[Step]) -> Result<()> {
    let slots = |config: &Config| config.max_tasks.as_ref().map(|n| *n.get_ref());
    if let (true, Some(wanted)) = (loaded.core && !to.policies.is_empty(), slots(to)) {
        if slots(is) != Some(wanted) {
            return Err(Error::user(
                format!(
                    "the core is loaded with {} task slots and cannot change to \
                    {wanted}",
                    slots(is).unwrap_or(0)
                ),
                "unload it first (baton unload --everything), or leave out max_tasks; nothing was \
                 changed",
            ));
        }
    }
    for policy in &to.policies {
        let old = is.policies.iter().find(|old| old.name() == policy.name());
        if let Some(old) = old {
            check_enclave(old, policy)?;
        }
        // Its agent makes it one that can have tasks by default.
        if policy.enclave.is_some() && policy.default && !old.is_some_and(|old| old.default) {
            let name = policy.name();
            return Err(Error::user(
                format!("{name} is an enclave, and has no agent when the file is applied"),
                format!(
                    "leave out its `default`, and give it all tasks later (baton attach {name} \
                     --all); nothing was changed"
                ),
            ));
        }
    }
    for step in steps {
        match step {
            Step::Core { .. } => drop(search.find(CORE)?),
            Step::Attach { .. } => drop(search.find(SHIM)?),
            Step::Enclave { .. } => drop(search.find(AGENT)?),
            Step::Load { policy, module, .. } => drop(module_file(search, policy, module)?),
            Step::Options { policy, module, .. } => drop(module_file(search, policy, module)?),
            _ => {}
        }
    }
    if !steps.is_empty() && !to.policies.is_empty() {
        load::require_sched_ext()?;
    }
    let come = steps
        .iter()
        .filter(|step| matches!(step, Step::Load { .. } | Step::Enclave { .. }))
        .count();
    if is.policies.iter().filter(|policy| !policy.is_idle).count() + come > BATON_MAX_POLICIES {
        return Err(Error::user(
            format!(
                "with those to be unloaded, more than {BATON_MAX_POLICIES} policies would be loaded"
            ),
            "unload some first (baton unload); nothing was changed",
        ));
    }
    let Some(device) = Device::open_if_loaded()? else {
        return Ok(());
    };
    // The agent of an enclave starts its policy.
    let wanted = |name: &str| {
        let is_it = |policy: &Policy| policy.name() == name && policy.enclave.is_none();
        to.policies.iter().any(is_it)
    };
    let faulted = device
        .policies()?
        .into_iter()
        .find(|info| info.state == BatonPolicyState::Faulted as u32 && wanted(&text(&info.name)));
    match faulted.map(|info| text(&info.name)) {
        None => Ok(()),
        Some(name) => Err(Error::user(
            format!("the policy {name} was stopped by a fault"),
            format!(
                "see its fault (baton status), then start it (baton load {name}); nothing was \
                changed"
            ),
        )),
    }
}

/// What an enclave is made with stays.
fn check_enclave(is: &Policy, to: &Policy) -> Result<()> {
    let name = to.name();
    let different = match (is.enclave(), to.enclave()) {
        (None, None) => return Ok(()),
        (Some(is), Some(to)) => {
            if is.has_size_of(to) {
                return Ok(());
            }
            format!("the enclave {name} has another limit_ms or other entries")
        }
        (Some(_), None) => format!("{name} is an enclave, and no policy with a module"),
        (None, Some(_)) => format!("{name} is a policy with a module, and no enclave"),
    };
    Err(Error::user(
        different,
        format!("remove it first (baton unload {name}); nothing was changed"),
    ))
}

fn module_file(search: &Search, policy: &str, module: &Option<PathBuf>) -> Result<PathBuf> {
    module
        .clone()
        .map_or_else(|| search.find(&module_of(policy)), Ok)
}

fn perform(search: &Search, step: &Step) -> Result<()> {
    if let Step::Core { max_tasks } = step {
        let how = load::Options {
            max_tasks: *max_tasks,
            ..Default::default()
        };
        return load::core(search, &how).map(drop);
    }
    if *step == Step::UnloadAll {
        return unload::everything();
    }
    let device = Device::open()?;
    match step {
        Step::Core { .. } | Step::UnloadAll => Ok(()),
        Step::Stall { ms } => load::set_stall(*ms),
        Step::Load {
            policy,
            module,
            options,
        } => {
            let how = load::Options {
                options: Some(options.clone()),
                module: module.clone(),
                ..Default::default()
            };
            load::prepare(search, &device, policy, &how)
        }
        Step::Options {
            policy,
            module,
            options,
        } => exchange::change_options(
            &device,
            policy,
            &module_file(search, policy, module)?,
            options,
        ),
        Step::Enclave { name, how } => {
            Enclaves::open(search)?.create(name, how.entries, how.limit_ms)?;
            Ok(())
        }
        Step::EnclaveUser { name, user } => enclave::set_user(name, *user),
        Step::Attach { all } => load::attach_anew(search, &device, *all),
        Step::Flight { policy, mib } => recording::set_flight(&device, policy, *mib),
        Step::Share { policy, percent } => partition::set_share(&device, policy, *percent),
        Step::Order { policies } => device
            .set_order(policies)
            .map_err(|errno| Error::baton(format!("the order was not set: {errno}"))),
        Step::Partition {
            name,
            cpus,
            policies,
        } => device
            .set_partition(name, cpus, policies)
            .map(drop)
            .map_err(|why| partition::refused(name, &why)),
        Step::Cgroup { cgroup, policy } => {
            let dir = cgroups::find(Path::new(cgroup))?;
            match policy {
                Some(policy) => cgroups::give(&device, &dir, policy),
                None => cgroups::take(&device, &dir).map(drop),
            }
        }
        Step::Default { policy } => device
            .assign(0, policy.as_deref(), false)
            .map_err(|refused| match policy {
                Some(policy) => load::not_default(policy, &refused),
                None => {
                    let errno = refused.errno;
                    Error::baton(format!("the default was not taken back: {errno}"))
                }
            }),
        Step::Unload { policy } => unload::one(policy),
    }
}

/// Assigns every task according to its cgroup, also after a command that was killed.
fn settle() -> Result<()> {
    match Device::open_if_loaded()? {
        Some(device) if device.core()?.attached != 0 => device.apply_rules(),
        _ => Ok(()),
    }
}

/// Restores the old state after a step failed.
fn undone(search: &Search, was: &Config, done: &[Step], step: &Step, error: Error) -> Error {
    let back = || -> Result<()> {
        for step in done.iter().rev() {
            if let Step::Options { policy, .. } = step {
                let before = was
                    .policies
                    .iter()
                    .find(|old| old.name() == policy)
                    .map_or("", Policy::options);
                exchange::undo_options(&Device::open()?, policy, before)?;
            }
        }
        let (is, loaded) = current()?;
        let mut to = was.clone();
        // The core was not loaded, so no policy was.
        if was.max_tasks.is_none() {
            to.policies.clear();
        }
        plan(&is, loaded, &to)
            .iter()
            .try_for_each(|step| perform(search, step))?;
        settle()
    };
    let what = format!("could not {step}: {}", error.what);
    match (done.is_empty(), back()) {
        (true, Ok(())) => Error {
            what,
            next: format!("{}; nothing was changed", error.next),
            ..error
        },
        (false, Ok(())) => Error {
            what,
            next: format!("{}; the machine is as it was before", error.next),
            ..error
        },
        (_, Err(second)) => Error {
            what: format!("{what}\n  and when undoing it: {}", second.what),
            next: format!(
                "{}; see what runs now (baton export), and apply again",
                error.next
            ),
            ..error
        },
    }
}
