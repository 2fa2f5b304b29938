// SPDX-License-Identifier: GPL-2.0-only
//! `cargo xtask turns`: how often the loops of each policy turn in a call on a very large machine
//! (tests/turns), beside what a call is granted.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    booted::{judged, side_by_side, Job},
    steps::{cannot_run, cargo_with},
    Result,
};

/// What a call with interrupts off is granted: `BATON_MAX_LOOKS` times `BATON_TURNS` of
/// hosts/kernel/guard.h.
const GRANTED: u64 = 1 << 24;

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Each block of code calls `__sanitizer_cov_trace_pc`, which libraries find in the program.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 \
    -Cllvm-args=-sanitizer-coverage-trace-pc \
    -Clink-arg=-Wl,--export-dynamic-symbol=__sanitizer_cov_trace_pc";

/// A compiler that does the same.
const COMPILER: &str = "#!/bin/sh\nexec gcc -fsanitize-coverage=trace-pc \"$@\" -Wl,-z,undefs\n";

/// Measures all policies that do not fail on purpose, and fails if one reaches what is granted.
pub fn measure(root: &Path) -> Result {
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let dir = target
        .map_or_else(|| root.join("target"), PathBuf::from)
        .join("turns");
    let dir_name = dir.display().to_string();
    let build = ["build", "--release", "--package", "baton-turns"];
    let to = ["--target", TARGET, "--target-dir", &dir_name];
    cargo_with(root, &[&build[..], &to].concat(), &[("RUSTFLAGS", FLAGS)])?;
    let program = dir.join(TARGET).join("release/baton-turns");
    let list = output(Command::new(&program).arg("--list"))?;
    let mut policies: Vec<String> = list.lines().map(str::to_owned).collect();
    policies.extend(in_c(root, &dir)?);
    let job = |policy: String| {
        let mut command = Command::new(&program);
        command.arg(&policy);
        Job {
            name: policy,
            run: Box::new(move || output(&mut command).map(|line| line.trim().to_owned())),
        }
    };
    let done = side_by_side(policies.into_iter().map(job).collect());
    judged(&done)?;
    println!("\n| policy | most turns | in | calls |\n| --- | --- | --- | --- |");
    for one in &done {
        let line = one.end.as_deref().unwrap_or_default();
        println!("| {line} |");
        let turns = line
            .split(" | ")
            .nth(1)
            .and_then(|turns| turns.parse().ok());
        let turns: u64 = turns.ok_or(format!("{}: {line}", one.name))?;
        if turns >= GRANTED {
            return Err(format!("{line}: a call is granted {GRANTED} turns"));
        }
    }
    Ok(())
}

/// Builds the policies in C, and returns their libraries.
fn in_c(root: &Path, dir: &Path) -> Result<Vec<String>> {
    let failed = |e: std::io::Error| format!("{}: {e}", dir.display());
    let compiler = dir.join("cc");
    fs::write(&compiler, COMPILER).map_err(failed)?;
    fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    let mut libraries = Vec::new();
    for entry in fs::read_dir(root.join("policies")).map_err(failed)? {
        let policy = entry.map_err(failed)?.path();
        let folder = policy
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !policy.join(format!("{folder}.c")).exists() {
            continue;
        }
        let mut build = Command::new(root.join("hosts/native/build.sh"));
        build
            .arg(&policy)
            .arg(dir)
            .env("CC", &compiler)
            .env("BATON_CACHE", dir);
        output(&mut build)?;
        let library = dir.join(format!("baton_{}.so", folder.replace('-', "_")));
        libraries.push(library.display().to_string());
    }
    libraries.sort();
    Ok(libraries)
}

/// Runs a command, and returns what it prints.
fn output(command: &mut Command) -> Result<String> {
    let shown = format!("{command:?}");
    let output = command.output().map_err(|e| cannot_run(&shown, &e))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!(
            "{shown}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ))
    }
}
