// SPDX-License-Identifier: GPL-2.0-only
//! Policies in Baton's language: `policies/*/NAME.baton`, with the crate in Rust beside it that the
//! compiler makes, so that the tests of all hosts have it as any other policy.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::steps::{cannot_run, cargo_with};
use crate::Result;

/// `cargo xtask language`.
pub fn write(root: &Path) -> Result {
    for (path, text) in generate(root)? {
        fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        println!("{} written", path.display());
    }
    Ok(())
}

/// Fails when a policy in Rust differs from what its source makes.
pub fn check(root: &Path) -> Result {
    for (path, text) in generate(root)? {
        if fs::read_to_string(&path).ok().as_deref() != Some(&*text) {
            return Err(format!(
                "{} is not what its source makes: run `cargo xtask language`",
                path.display()
            ));
        }
    }
    Ok(())
}

/// How many programs are built at once: those of a crate take memory together.
const AT_ONCE: u64 = 200;

/// `cargo xtask programs TIMES`: so many random programs, compiled and interpreted.
pub fn programs(root: &Path, times: &str) -> Result {
    let times: u64 = times
        .parse()
        .map_err(|_| format!("{times} is no number of programs"))?;
    for first in (0..times).step_by(AT_ONCE as usize) {
        let range = format!("{first}..{}", times.min(first + AT_ONCE));
        println!("programs {range} of {times}");
        let test = ["test", "-q", "-p", "baton-programs", "--test", "same"];
        let arguments = [&test[..], &["random", "--", "--nocapture"]].concat();
        cargo_with(root, &arguments, &[("BATON_PROGRAMS", &range)])?;
    }
    Ok(())
}

/// The sources in the language.
pub fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    let read = |dir: &Path| -> Result<Vec<PathBuf>> {
        let entries =
            fs::read_dir(dir).map_err(|e| format!("cannot read {}: {e}", dir.display()))?;
        Ok(entries.flatten().map(|entry| entry.path()).collect())
    };
    let mut found = Vec::new();
    for dir in read(&root.join("policies"))? {
        if dir.is_dir() {
            let files = read(&dir)?.into_iter();
            found.extend(files.filter(|path| path.extension().is_some_and(|it| it == "baton")));
        }
    }
    found.sort();
    Ok(found)
}

fn generate(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut made = Vec::new();
    for source in sources(root)? {
        let text = fs::read_to_string(&source)
            .map_err(|e| format!("cannot read {}: {e}", source.display()))?;
        let name = source.file_name().unwrap_or_default().to_string_lossy();
        let shown = source.display().to_string();
        let policy = baton_lang::compile(&text).map_err(|diagnostics| {
            let shown = diagnostics.iter().map(|it| it.render(&shown, &text, false));
            shown.collect::<String>()
        })?;
        let library = baton_lang::crate_of(&policy, &name, "../..").library;
        made.push((
            source.with_file_name("src").join("lib.rs"),
            formatted(&library)?,
        ));
    }
    Ok(made)
}

/// The text as rustfmt formats it.
fn formatted(text: &str) -> Result<String> {
    let mut rustfmt = Command::new("rustfmt")
        .args(["--edition", "2024"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| cannot_run("rustfmt", &e))?;
    if let Some(mut stdin) = rustfmt.stdin.take() {
        stdin
            .write_all(text.as_bytes())
            .map_err(|e| format!("rustfmt does not read: {e}"))?;
    }
    let output = rustfmt
        .wait_with_output()
        .map_err(|e| cannot_run("rustfmt", &e))?;
    if output.status.success() {
        String::from_utf8(output.stdout).map_err(|e| format!("rustfmt: {e}"))
    } else {
        Err("rustfmt does not take what the compiler makes".into())
    }
}
