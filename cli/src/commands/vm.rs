// SPDX-License-Identifier: GPL-2.0-only
//! `baton vm run`: runs a command in a guest with the stock kernel. This program, the core and
//! policies are at their usual places there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use baton_vm::{FileIn, Kernel, Outcome, Vm};

use crate::cli::VmRun;
use baton_build::guest::{files_for, vm_error, BATON};
use baton_build::Policy;
use baton_control::error::{Error, Result};
use baton_control::names::FileOut;

pub fn run(args: &VmRun) -> Result<ExitCode> {
    let policies = args
        .policy
        .iter()
        .chain(&args.with)
        .map(|text| Policy::find(text))
        .collect::<Result<Vec<_>>>()?;
    let kernel = args
        .kernel
        .as_deref()
        .map(Kernel::find)
        .transpose()
        .map_err(vm_error)?;
    // Those that are written for agents are part of this program.
    let agents = args.agents.iter();
    let agents = agents.filter(|text| baton_agents::find(text).is_none());
    let agents = agents.map(|text| Policy::find(text));
    let agents = agents.collect::<Result<Vec<_>>>()?;
    let agents = (!args.agents.is_empty()).then_some(&agents[..]);
    let mut files_in = files_for(kernel.as_ref(), &policies, agents)?;
    files_in.extend(args.files_in.iter().map(|f| FileIn {
        host: f.host.clone(),
        guest: f.guest.clone(),
    }));
    let (command, program) = guest_command(args, policies.first().map(|p| p.name.as_str()));
    let mut vm = Vm {
        cpus: args.cpus,
        topology: args.topology,
        systemd: args.systemd,
        memory_mb: args.memory,
        icount: args.icount,
        command,
        files_in,
        files_out: args.files_out.iter().map(|f| f.guest.clone()).collect(),
        timeout: Duration::from_secs(args.timeout),
        kernel,
        kernel_args: args.append.iter().cloned().collect(),
        watchdog: args.watchdog,
        ..Default::default()
    };
    match program {
        Program::Installed(name) if !vm.tools.contains(&name) => vm.tools.push(name),
        Program::File(path) => vm.files_in.push(FileIn {
            guest: path.display().to_string(),
            host: path,
        }),
        _ => {}
    }
    boot(&vm, args.log.as_deref(), |outcome| {
        args.files_out
            .iter()
            .try_for_each(|file| bring_back(outcome, file))
    })
}

/// Boots a guest, writes its kernel's log, and processes its files, whether or not its kernel
/// reported a problem.
pub fn boot(
    vm: &Vm,
    log: Option<&Path>,
    files: impl FnOnce(&Outcome) -> Result<()>,
) -> Result<ExitCode> {
    let (outcome, complaint) = match vm.run(&mut std::io::stdout()) {
        Ok(outcome) => (outcome, None),
        Err(baton_vm::Error::Complaints {
            complaints,
            outcome,
        }) => (*outcome, Some(complaints)),
        Err(error) => {
            if let baton_vm::Error::Died { log: text, .. }
            | baton_vm::Error::TimedOut { log: text, .. } = &error
            {
                keep(log, text)?;
            }
            return Err(vm_error(error));
        }
    };
    keep(log, &outcome.kernel_log)?;
    files(&outcome)?;
    if let Some(complaints) = complaint {
        return Err(vm_error(baton_vm::Error::Complaints {
            complaints,
            outcome: Box::new(outcome),
        }));
    }
    Ok(ExitCode::from(outcome.exit_code as u8))
}

/// Writes the kernel's log, if requested.
fn keep(log: Option<&Path>, text: &str) -> Result<()> {
    let Some(log) = log else { return Ok(()) };
    fs::write(log, text).map_err(|e| Error::file(format!("writing {}", log.display()), &e))
}

/// Where the command's program comes from.
#[derive(Debug, PartialEq, Eq)]
enum Program {
    /// It is on this machine's PATH.
    Installed(String),
    /// It is a file of this machine, with this absolute path.
    File(PathBuf),
    /// It is in the guest: an applet of busybox, or a file of --in.
    Guest,
}

/// The command as the guest runs it, and the program that it needs from this machine.
fn guest_command(args: &VmRun, policy: Option<&str>) -> (Vec<String>, Program) {
    let mut command = args.command.clone();
    let program = match command.first() {
        Some(name) if name.contains('/') => match fs::canonicalize(name) {
            Ok(path) if path.is_file() && !args.files_in.iter().any(|f| f.guest == *name) => {
                command[0] = path.display().to_string();
                Program::File(path)
            }
            _ => Program::Guest,
        },
        Some(name) if name != "baton" && is_installed(name) => Program::Installed(name.clone()),
        _ => Program::Guest,
    };
    let Some(policy) = policy.filter(|_| args.policy.is_some()) else {
        return (command, program);
    };
    let mut whole: Vec<String> = [BATON, "run", "--policy", policy]
        .map(String::from)
        .to_vec();
    if args.all {
        whole.push("--all".into());
    }
    whole.extend(
        args.options
            .iter()
            .map(|options| format!("--options={options}")),
    );
    whole.push("--".into());
    whole.extend(command);
    (whole, program)
}

fn is_installed(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    found
}

/// Writes a returned file under the requested name; for a directory, all files below it.
fn bring_back(outcome: &Outcome, file: &FileOut) -> Result<()> {
    let below = format!("{}/", file.guest);
    let mut found = false;
    for (path, data) in &outcome.files {
        let to = match (path == &file.guest, path.strip_prefix(&below)) {
            (true, _) => file.host.clone(),
            (false, Some(rest)) => file.host.join(rest),
            (false, None) => continue,
        };
        found = true;
        let parent = to.parent().filter(|p| !p.as_os_str().is_empty());
        let made = parent
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&to, data));
        made.map_err(|e| Error::file(format!("writing {}", to.display()), &e))?;
    }
    if found {
        Ok(())
    } else {
        Err(Error::user(
            format!(
                "the guest had no file {} (the command ended with {})",
                file.guest, outcome.exit_code
            ),
            "check what the command writes; paths are absolute in the guest",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command, VmCommand};
    use clap::Parser;
    use std::collections::BTreeMap;

    fn parse(line: &str) -> VmRun {
        let words = ["baton", "vm", "run"]
            .into_iter()
            .chain(line.split_whitespace());
        match Cli::parse_from(words).command {
            Command::Vm {
                command: VmCommand::Run(args),
            } => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn commands_in_the_guest() {
        let check = |line: &str, expected: &str, program: Program| {
            let args = parse(line);
            let (command, found) = guest_command(&args, args.policy.as_deref());
            assert_eq!(
                (command.join(" "), found),
                (expected.to_owned(), program),
                "{line}"
            );
        };
        let installed = |name: &str| Program::Installed(name.into());
        check("-- sh -c x", "sh -c x", installed("sh"));
        check("-- no_such_program", "no_such_program", Program::Guest);
        check(
            "-p wfq -- sh",
            "/usr/bin/baton run --policy wfq -- sh",
            installed("sh"),
        );
        check(
            "-p wfq --all --options slice=3ms -- /bin/none",
            "/usr/bin/baton run --policy wfq --all --options=slice=3ms -- /bin/none",
            Program::Guest,
        );
        check(
            "--with wfq -- baton load wfq",
            "baton load wfq",
            Program::Guest,
        );
        check("--in Cargo.toml:/x/y -- /x/y", "/x/y", Program::Guest);
        let own = fs::canonicalize("Cargo.toml").unwrap();
        check(
            "-- ./Cargo.toml a",
            &format!("{} a", own.display()),
            Program::File(own.clone()),
        );
    }

    #[test]
    fn files_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let files = [("/tmp/a", "1"), ("/tmp/d/b", "2"), ("/tmp/d/e/c", "3")];
        let outcome = Outcome {
            exit_code: 0,
            output: Vec::new(),
            kernel_log: String::new(),
            complaints: Vec::new(),
            files: files
                .iter()
                .map(|(path, data)| (path.to_string(), data.as_bytes().to_vec()))
                .collect::<BTreeMap<_, _>>(),
        };
        let check = |guest: &str, host: &str, expected: &[(&str, &str)]| {
            let file = FileOut {
                guest: guest.into(),
                host: dir.path().join(host),
            };
            assert_eq!(bring_back(&outcome, &file).is_ok(), !expected.is_empty());
            for (path, text) in expected {
                assert_eq!(fs::read_to_string(dir.path().join(path)).unwrap(), *text);
            }
        };
        check("/tmp/a", "x", &[("x", "1")]);
        check("/tmp/d", "new/y", &[("new/y/b", "2"), ("new/y/e/c", "3")]);
        check("/tmp/none", "z", &[]);
    }
}
