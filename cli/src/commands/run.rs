// SPDX-License-Identifier: GPL-2.0-only
//! `baton run`: runs a command under a policy. This process joins the policy and starts the
//! command, which inherits class and policy, as all its child processes do.

use std::ffi::{CString, OsStr};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode};

use rustix::process::{pidfd_open, pidfd_send_signal, Pid, PidfdFlags, Signal};
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::iterator::SignalsInfo;

use crate::cli::Run;
use baton_control::device::Device;
use baton_control::error::{Error, Result};
use baton_control::load;
use baton_control::modules::Search;
use baton_control::status::{Fault, Status};
use baton_control::{report, tasks};

pub fn run(search: &Search, args: &Run) -> Result<ExitCode> {
    // Read before the policy has any task, as it may fail with its first one.
    let before = newest_fault(&args.policy)?.map_or(0, |fault| fault.serial);
    let device = load::load(search, &args.policy, &(&args.how).into())?;
    if !args.how.all {
        // This process becomes a task of the policy, and passes that on. The policy is asked about
        // it by the name of the command.
        let name = Path::new(&args.command[0])
            .file_name()
            .map(OsStr::as_encoded_bytes);
        let name = CString::new(name.unwrap_or(b"baton")).unwrap_or_default();
        let _ = rustix::thread::set_name(&name);
        tasks::give(&device, &device.core()?, std::process::id(), &args.policy)?;
    }
    // An open device would prevent the command from unloading the core.
    drop(device);
    // Set up before the command starts, so that no signal is missed.
    let signals = SignalsInfo::<WithOrigin>::new([
        SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM,
    ])
    .map_err(|e| Error::environment(format!("signals cannot be received: {e}"), "try again"))?;
    let mut child = start(&args.command)?;
    forward(signals, &child)?;
    let status = child
        .wait()
        .map_err(|e| Error::environment(format!("waiting for the command: {e}"), "try again"))?;
    let code = exit_code(status.code(), status.signal());
    // It may have been unloaded meanwhile, and that is not to hide how the command ended.
    eprint!("{}", refused(&args.policy).unwrap_or_default());
    // The fault of a policy that was unloaded meanwhile cannot be read any more.
    match newest_fault(&args.policy)?.filter(|fault| fault.serial > before) {
        Some(fault) => {
            eprint!("{}", report::fault(&fault));
            let what = format!(
                "{} was stopped by a fault while the command ran, which ended with {code}",
                args.policy
            );
            Err(Error {
                blame: report::blame(&fault),
                what,
                next: "see the report above; what was measured is not this policy's".into(),
            })
        }
        None => Ok(ExitCode::from(code)),
    }
}

/// The exit code of the command, or 128 plus the signal that killed it.
fn exit_code(code: Option<i32>, signal: Option<i32>) -> u8 {
    code.or(signal.map(|n| 128 + n)).unwrap_or(1) as u8
}

fn start(command: &[String]) -> Result<Child> {
    let (program, arguments) = command
        .split_first()
        .ok_or_else(|| Error::baton("there is no command"))?;
    Command::new(program).args(arguments).spawn().map_err(|e| {
        let what = format!("{program} cannot be run: {e}");
        match e.kind() {
            std::io::ErrorKind::NotFound => Error::user(what, "check its name, or give its path"),
            _ => Error::user(what, "check that it is a program and may be executed"),
        }
    })
}

/// Forwards signals from other processes to the command. Signals from the terminal reach all its
/// processes anyway, and are only prevented from ending this one.
fn forward(mut signals: SignalsInfo<WithOrigin>, child: &Child) -> Result<()> {
    let pid =
        Pid::from_raw(child.id() as i32).ok_or_else(|| Error::baton("the command has no pid"))?;
    // By descriptor, as the number may be reused once the command has ended.
    let command = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| {
        Error::environment(format!("the command cannot be watched: {e}"), "try again")
    })?;
    std::thread::spawn(move || {
        for origin in &mut signals {
            if let Some(signal) =
                Signal::from_named_raw(origin.signal).filter(|_| origin.process.is_some())
            {
                // Fails only if the command has ended.
                let _ = pidfd_send_signal(&command, signal);
            }
        }
    });
    Ok(())
}

/// The changes of states that a policy in C was refused, as text.
fn refused(policy: &str) -> Result<String> {
    let Some(device) = Device::open_if_loaded()? else {
        return Ok(String::new());
    };
    let status = Status::read(&device)?;
    let policy = status.policies.iter().find(|found| found.name == policy);
    Ok(policy.map_or(String::new(), report::refused_changes))
}

fn newest_fault(policy: &str) -> Result<Option<Fault>> {
    let Some(device) = Device::open_if_loaded()? else {
        return Ok(None);
    };
    let Some(info) = device.policy(policy)? else {
        return Ok(None);
    };
    Ok(device
        .fault(info.index)?
        .map(|fault| Fault::new(&fault, Some(&info))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes() {
        let check = |code, signal, expected| assert_eq!(exit_code(code, signal), expected);
        check(Some(0), None, 0);
        check(Some(77), None, 77);
        check(None, Some(15), 143);
    }
}
