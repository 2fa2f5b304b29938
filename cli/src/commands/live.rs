// SPDX-License-Identifier: GPL-2.0-only
//! `baton live`: changes of the kernel's own scheduler.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use baton_live::boundary::{Boundary, Class, Function};
use baton_live::running::{self, Status};
use baton_live::Prepared;
use baton_vm::Kernel;

use super::{print, print_json};
use crate::cli::Output;
use baton_build::guest::vm_error;
use baton_control::error::{Error, Result};

#[derive(clap::Subcommand, Debug)]
pub enum LiveCommand {
    /// Fetch symbols and source of a kernel, compile its scheduler, and compare it with the kernel.
    ///
    /// Done once for each kernel. The first time it downloads the kernel's debug package (350 MB)
    /// and takes some minutes; 400 MB stay in $BATON_CACHE/live.
    Prepare {
        #[command(flatten)]
        kernel: Which,
    },
    /// Say where the scheduler's source is: a git tree to change.
    Edit {
        #[command(flatten)]
        kernel: Which,
    },
    /// Show which functions of the scheduler can be replaced, and where the rest of the kernel
    /// meets them.
    ///
    /// Without names it prints how many there are of each kind, and those that are kept.
    Boundary {
        #[command(flatten)]
        kernel: Which,
        /// Functions or data to show, with all reasons.
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Build the module of the changed scheduler.
    ///
    /// A change that would have no effect, or break the kernel's state, is refused.
    Build {
        #[command(flatten)]
        kernel: Which,
        /// The scheduler's source. [default: the tree that `baton live edit` names]
        #[arg(long, value_name = "DIR")]
        tree: Option<PathBuf>,
    },
    /// Put a changed scheduler in the place of the kernel's own.
    ///
    /// All CPUs are stopped for a moment. If a task is inside the scheduler then, it is tried
    /// again; if that does not help, nothing is changed.
    Load {
        /// The module that `baton live build` made.
        module: PathBuf,
        #[command(flatten)]
        output: Output,
    },
    /// Show whether a changed scheduler runs, and what the last switch found.
    Status {
        #[command(flatten)]
        output: Output,
    },
    /// Go back to the kernel's own scheduler.
    Unload {
        #[command(flatten)]
        output: Output,
    },
}

/// Selects a kernel.
#[derive(clap::Args, Debug)]
pub struct Which {
    /// The kernel's release, as printed by `uname -r`. [default: that of `baton vm`]
    #[arg(long, value_name = "RELEASE", env = "BATON_KERNEL")]
    kernel: Option<String>,
}

impl Which {
    fn find(&self) -> Result<Kernel> {
        let found = match &self.kernel {
            Some(release) => Kernel::find(release),
            None => Kernel::of_root(),
        };
        found.map_err(vm_error)
    }
}

pub fn command(command: &LiveCommand) -> Result<ExitCode> {
    match command {
        LiveCommand::Prepare { kernel } => prepare(&kernel.find()?)?,
        LiveCommand::Edit { kernel } => {
            let tree = Prepared::open(&kernel.find()?)?.tree();
            print(format!("{}\n", tree.display()))?;
        }
        LiveCommand::Boundary {
            kernel,
            names,
            output,
        } => {
            let boundary = Prepared::open(&kernel.find()?)?.boundary()?;
            match (output.json, names.is_empty()) {
                (true, _) => print_json(&boundary)?,
                (false, true) => print(summary(&boundary))?,
                (false, false) => print(details(&boundary, names)?)?,
            }
        }
        LiveCommand::Build { kernel, tree } => build(&kernel.find()?, tree.as_deref())?,
        LiveCommand::Load { module, output } => {
            show(Some(&running::load(module)?), output.json)?;
        }
        LiveCommand::Status { output } => show(running::status()?.as_ref(), output.json)?,
        LiveCommand::Unload { output } => show(running::unload()?.as_ref(), output.json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn build(kernel: &Kernel, tree: Option<&Path>) -> Result<()> {
    let prepared = Prepared::open(kernel)?;
    let built = prepared.build(tree.unwrap_or(&prepared.tree()))?;
    let mut text = format!(
        "replaced   {} functions, of which {} are reached from outside\n\
         kept       {} functions\n",
        built.replaced, built.redirected, built.kept
    );
    if !built.new.is_empty() {
        text.push_str(&format!("new        {}\n", built.new.join(" ")));
    }
    text.push_str(&format!("module     {}\n", built.module.display()));
    print(text)
}

/// Prints the state, and of the last switch what it took.
fn show(status: Option<&Status>, json: bool) -> Result<()> {
    if json {
        return print_json(&status);
    }
    let Some(status) = status else {
        return print("the kernel's own scheduler runs; no changed one is loaded\n");
    };
    let runs = if status.enabled {
        "the changed scheduler"
    } else {
        "the kernel's own scheduler"
    };
    let us = |ns: u64| ns as f64 / 1e3;
    let mut text = format!(
        "runs       {runs}\n\
         changes    {} functions, jumps at {} places\n\
         stopped    {:.1} us: stacks of {} threads {:.1} us, stores {:.1} us\n\
         CPUs       {}; attempt {}\n",
        status.functions,
        status.sites,
        us(status.total_ns),
        status.tasks,
        us(status.check_ns),
        us(status.stores_ns),
        status.cpus,
        status.attempts,
    );
    if let Some(busy) = &status.busy {
        text.push_str(&format!("in the way {busy}\n"));
    }
    print(text)
}

fn prepare(kernel: &Kernel) -> Result<()> {
    let prepared = Prepared::make(kernel)?;
    let identity = &prepared.identity;
    let mut text = format!(
        "kernel    {} (build {})\nfunctions {} of {} are the kernel's, byte for byte\n",
        prepared.release, prepared.build_id, identity.equal, identity.functions
    );
    for unequal in &identity.excused {
        text.push_str(&format!(
            "          not {} in {}: {}\n",
            unequal.function, unequal.file, unequal.why
        ));
    }
    text.push_str(&format!(
        "          {} references lead where the kernel's do\nscheduler {}\n",
        identity.references,
        prepared.tree().display()
    ));
    print(text)
}

fn summary(boundary: &Boundary) -> String {
    let shared = boundary.data.iter().filter(|datum| datum.shared).count();
    let mut text = format!(
        "{:>5}  functions of the scheduler\n\
         {:>5}  internal: replaced, and only replaced functions call them\n\
         {:>5}  interface: replaced; the kernel's own lead to the new ones\n\
         {:>5}  kept: the kernel's own go on, and a change of them is refused\n\
         {:>5}  functions outside that the scheduler calls\n\
         {:>5}  data shared with the kernel: a change of their types or first values is refused\n\
         {:>5}  data private to the new scheduler\n",
        boundary.functions.len(),
        boundary.count(Class::Internal),
        boundary.count(Class::Interface),
        boundary.count(Class::Kept),
        boundary.external.len(),
        shared,
        boundary.data.len() - shared,
    );
    text.push_str("\nKept:\n");
    let kept = boundary.functions.iter().filter(|f| f.class == Class::Kept);
    for function in kept {
        text.push_str(&row(function));
    }
    text
}

fn row(function: &Function) -> String {
    let reasons: Vec<_> = function.reasons.iter().map(ToString::to_string).collect();
    format!(
        "  {:<32} {:<16} {}\n",
        function.name,
        function.file,
        reasons.join("; ")
    )
}

fn details(boundary: &Boundary, names: &[String]) -> Result<String> {
    let mut text = String::new();
    for name in names {
        let before = text.len();
        for function in boundary.functions.iter().filter(|f| f.name == *name) {
            let class = match function.class {
                Class::Kept => "kept",
                Class::Interface => "interface",
                Class::Internal => "internal",
            };
            text.push_str(&format!("{name} in {}: {class}\n", function.file));
            for reason in &function.reasons {
                text.push_str(&format!("  {reason}\n"));
            }
        }
        for datum in boundary.data.iter().filter(|d| d.name == *name) {
            let class = if datum.shared { "shared" } else { "private" };
            text.push_str(&format!("{name} in {}: {class} data\n", datum.file));
        }
        for external in boundary.external.iter().filter(|e| e.name == *name) {
            let callers = external.callers;
            text.push_str(&format!(
                "{name}: external, called by {callers} functions\n"
            ));
        }
        if text.len() == before {
            return Err(Error::user(
                format!("the scheduler has neither a function nor a datum {name}, nor calls one"),
                "check the name: baton live boundary --json has all",
            ));
        }
    }
    Ok(text)
}
