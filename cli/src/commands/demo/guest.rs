// SPDX-License-Identifier: GPL-2.0-only
//! The guest of the demo: what it needs, its one boot, and the recording that comes out of it.

use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use baton_bench::guest::guest_with;
use baton_bench::programs::EXAMPLES;
use baton_bench::subject::Subject;
use baton_build::guest::vm_error;
use baton_build::{Policy, Target};
use baton_control::error::{Error, Result};
use baton_vm::{FileIn, Vm};

use super::kernel::subjects;
use super::pace::{Pace, Paced};
use super::say;

/// The recording's place in the guest.
pub const RECORDING: &str = "/tmp/fault.rec";

/// For the boot and three steps; half a minute is usual.
const TIMEOUT: Duration = Duration::from_secs(900);

/// With --step, a reader's time counts too.
const TIMEOUT_AT_ENTER: Duration = Duration::from_secs(24 * 3600);

/// Builds all that the demo needs, with builds of different directories side by side. Returns the
/// files for the guest.
pub fn files() -> Result<Vec<FileIn>> {
    let mut wanted = subjects().to_vec();
    wanted.push(Subject::Policy("faulty".into()));
    thread::scope(|scope| {
        let desk = scope.spawn(|| {
            let (wfq, faulty) = (Policy::find("wfq")?, Policy::find("faulty")?);
            Target::Native(&wfq).ensure()?;
            Target::Native(&faulty).ensure()
        });
        let checked = scope.spawn(|| Target::Checked(&Policy::find("faulty")?).ensure());
        let examples = scope.spawn(|| EXAMPLES.for_guest(&[]));
        let files = guest_with(&wanted);
        desk.join().expect("a build does not panic")?;
        checked.join().expect("a build does not panic")?;
        examples.join().expect("a build does not panic")?;
        files
    })
}

/// Boots the guest, which runs the steps that need a kernel, and writes the recording.
pub fn run(files_in: Vec<FileIn>, recording: &Path, pace: Pace) -> Result<ExitCode> {
    say("booting an unmodified Debian kernel in a guest with 2 CPUs that counts instructions");
    let vm = Vm {
        cpus: 2,
        icount: Some(0),
        command: ["baton", "demo", "--in-guest"].map(String::from).to_vec(),
        tools: ["perf", "hackbench"].map(String::from).to_vec(),
        files_in,
        files_out: vec![RECORDING.into()],
        timeout: match pace {
            Pace::Straight => TIMEOUT,
            Pace::AtEnter => TIMEOUT_AT_ENTER,
        },
        ..Default::default()
    };
    let mut output = Paced::new(std::io::stdout(), || pace.wait());
    let outcome = vm.run(&mut output).map_err(vm_error)?;
    output
        .finish()
        .map_err(|e| Error::file("writing to standard output", &e))?;
    if outcome.exit_code != 0 {
        return Ok(ExitCode::from(outcome.exit_code as u8));
    }
    let Some(data) = outcome.files.get(RECORDING) else {
        return Err(Error::baton(format!("the guest left no {RECORDING}")));
    };
    std::fs::write(recording, data)
        .map_err(|e| Error::file(format!("writing {}", recording.display()), &e))?;
    say(&format!(
        "the guest has ended, and its kernel's log is clean; its recording is now {}",
        recording.display()
    ));
    Ok(ExitCode::SUCCESS)
}
