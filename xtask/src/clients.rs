// SPDX-License-Identifier: GPL-2.0-only
//! The parts of the booted tests that are not in Rust: clients of hints, with the examples of
//! `docs/hints.md`, and a BPF program.

use crate::{
    steps::{cannot_run, cargo},
    Result,
};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The examples of `docs/hints.md`, in Rust, C and Python.
const EXAMPLES: [&str; 3] = [
    "policy/hints/examples/echo.rs",
    "policy/c/examples/echo.c",
    "policy/python/examples/echo.py",
];
/// The folder of Python files in the guest.
const SCRIPTS: &str = "/usr/lib/baton";
/// Prints the files of all modules that the client imports.
const IMPORTS: &str = "
import itertools, sys
sys.path.insert(0, 'policy/python')
import baton_hints
print('\\n'.join(sorted({m.__file__ for m in sys.modules.values() if getattr(m, '__file__', None)})))";

/// Files of this machine, and their paths in a guest.
pub fn files(root: &Path, target: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut files = in_python(root)?;
    for (source, name) in [
        ("tests/booted/hints.c", "baton-hints-c"),
        (EXAMPLES[1], "baton-example-c"),
    ] {
        files.push((
            in_c(root, source, target.join(name))?,
            format!("/usr/bin/{name}"),
        ));
    }
    files.push((
        in_bpf(root, target.join("held.bpf.o"))?,
        format!("{SCRIPTS}/held.bpf.o"),
    ));
    cargo(
        root,
        &[
            "build",
            "--release",
            "--package",
            "baton-hints",
            "--example",
            "echo",
        ],
    )?;
    files.push((
        target.join("examples/echo"),
        "/usr/bin/baton-example-rust".into(),
    ));
    Ok(files)
}

fn in_c(root: &Path, source: &str, program: PathBuf) -> Result<PathBuf> {
    compiled(
        root,
        &["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-Ipolicy/c"],
        source,
        program,
    )
}

/// Builds the BPF program that tests/booted/src/held.rs loads.
fn in_bpf(root: &Path, object: PathBuf) -> Result<PathBuf> {
    // The folder in which Debian has the headers of its architecture.
    let compiler = [
        "clang",
        "-O2",
        "-g",
        "-target",
        "bpf",
        "-I/usr/include/x86_64-linux-gnu",
        "-c",
    ];
    compiled(root, &compiler, "tests/booted/held.bpf.c", object)
}

fn compiled(root: &Path, compiler: &[&str], source: &str, output: PathBuf) -> Result<PathBuf> {
    let mut command = Command::new(compiler[0]);
    command
        .args(&compiler[1..])
        .args([source, "-o"])
        .arg(&output)
        .current_dir(root);
    match command.status() {
        Ok(status) if status.success() => Ok(output),
        Ok(status) => Err(format!("{source} is not compiled ({status}); see above")),
        Err(e) => Err(cannot_run(compiler[0], &e)),
    }
}

/// The interpreter, the required part of its library, the client, its test and its example.
fn in_python(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let interpreter = "/usr/bin/python3";
    let asked = Command::new(interpreter)
        .args(["-B", "-S", "-c", IMPORTS])
        .current_dir(root)
        .output();
    let asked = asked.map_err(|e| cannot_run(interpreter, &e))?;
    if !asked.status.success() {
        let why = String::from_utf8_lossy(&asked.stderr);
        return Err(format!(
            "policy/python/baton_hints.py cannot be imported:\n{why}"
        ));
    }
    let imports = String::from_utf8_lossy(&asked.stdout).into_owned();
    let library = imports
        .lines()
        .filter(|file| file.starts_with("/usr/lib/python"));
    let mut files: Vec<(PathBuf, String)> =
        library.map(|file| (file.into(), file.into())).collect();
    files.push((interpreter.into(), interpreter.into()));
    for script in [
        "policy/python/baton_hints.py",
        "tests/booted/hints.py",
        EXAMPLES[2],
    ] {
        let path = root.join(script);
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        files.push((path, format!("{SCRIPTS}/{name}")));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The booted tests run the examples that users copy: the whole of each example, except the
    /// comment at its top.
    #[test]
    fn the_examples_are_in_the_docs() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let read = |path: &str| {
            std::fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
        };
        let docs = read("docs/hints.md");
        for (path, language) in EXAMPLES.iter().zip(["rust", "c", "python"]) {
            let text = read(path);
            let (_, program) = text
                .split_once("\n\n")
                .unwrap_or_else(|| panic!("{path} has no comment at its top"));
            let expected = format!("```{language}\n{program}```\n");
            assert!(
                docs.contains(&expected),
                "docs/hints.md does not have, as {path} has:\n{expected}"
            );
            assert!(
                docs.contains(&format!("](../{path})")),
                "docs/hints.md has no link to {path}"
            );
        }
    }
}
