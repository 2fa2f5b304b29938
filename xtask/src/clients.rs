// SPDX-License-Identifier: GPL-2.0-only
//! The parts of the booted tests that are not in the tool: clients of hints and agents, with the
//! examples of the docs, and a BPF program.

use crate::{
    steps::{cannot_run, cargo},
    Result,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// An example that the docs show, and that the booted tests run.
struct Example {
    source: &'static str,
    /// Its name in the guest.
    name: &'static str,
    /// The page, and the language as it says it there.
    page: &'static str,
    language: &'static str,
}

const HINTS: &str = "docs/hints.md";
const ATTRIBUTES: &str = "docs/attributes.md";
const AGENTS: &str = "docs/agents.md";

const fn example(
    source: &'static str,
    name: &'static str,
    page: &'static str,
    language: &'static str,
) -> Example {
    Example {
        source,
        name,
        page,
        language,
    }
}

const EXAMPLES: &[Example] = &[
    example(
        "policy/hints/examples/echo.rs",
        "baton-example-rust",
        HINTS,
        "rust",
    ),
    example("policy/c/examples/echo.c", "baton-example-c", HINTS, "c"),
    example("policy/python/examples/echo.py", "echo.py", HINTS, "python"),
    example(
        "policy/hints/examples/attributes.rs",
        "baton-attributes-rust",
        ATTRIBUTES,
        "rust",
    ),
    example(
        "policy/c/examples/attributes.c",
        "baton-attributes-c",
        ATTRIBUTES,
        "c",
    ),
    example(
        "policy/python/examples/attributes.py",
        "attributes.py",
        ATTRIBUTES,
        "python",
    ),
    example(
        "hosts/agent/examples/fifo.rs",
        "baton-agent-rust",
        AGENTS,
        "rust",
    ),
    example(
        "policy/c/examples/fifo_agent.c",
        "baton-agent-c",
        AGENTS,
        "c",
    ),
    example(
        "policy/python/examples/fifo.py",
        "fifo.py",
        AGENTS,
        "python",
    ),
];

/// Scripts in Python besides the examples.
const SCRIPTS: &[&str] = &[
    "policy/python/baton_abi.py",
    "policy/python/baton_agent.py",
    "policy/python/baton_hints.py",
    "tests/booted/hints.py",
];
/// The folder of Python files in the guest.
const SCRIPTS_IN_GUEST: &str = "/usr/lib/baton";
/// Prints the files of all modules that the clients import.
const IMPORTS: &str = "
import collections, itertools, sys
sys.path.insert(0, 'policy/python')
import baton_agent, baton_hints
print('\\n'.join(sorted({m.__file__ for m in sys.modules.values() if getattr(m, '__file__', None)})))";

/// Files of this machine, and their paths in a guest.
pub fn files(root: &Path, target: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut files = in_python(root)?;
    files.push((
        in_c(root, "tests/booted/hints.c", target.join("baton-hints-c"))?,
        "/usr/bin/baton-hints-c".into(),
    ));
    files.push((
        in_bpf(root, target.join("held.bpf.o"))?,
        format!("{SCRIPTS_IN_GUEST}/held.bpf.o"),
    ));
    cargo(
        root,
        &[
            "build",
            "--release",
            "--package",
            "baton-hints",
            "--package",
            "baton-agent",
            "--examples",
        ],
    )?;
    for example in EXAMPLES {
        let file = match example.language {
            "c" => in_c(root, example.source, target.join(example.name))?,
            "rust" => {
                let name = Path::new(example.source).file_stem().unwrap_or_default();
                target.join("examples").join(name)
            }
            _ => continue,
        };
        files.push((file, format!("/usr/bin/{}", example.name)));
    }
    Ok(files)
}

fn in_c(root: &Path, source: &str, program: PathBuf) -> Result<PathBuf> {
    compiled(
        root,
        &[
            "cc",
            "-O2",
            "-Wall",
            "-Wextra",
            "-Wno-unused-parameter",
            "-Werror",
            "-Ipolicy/c",
        ],
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

/// The interpreter, the required part of its library, the clients, and the scripts that use them.
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
            "the clients in policy/python cannot be imported:\n{why}"
        ));
    }
    let imports = String::from_utf8_lossy(&asked.stdout).into_owned();
    let library = imports
        .lines()
        .filter(|file| file.starts_with("/usr/lib/python"));
    let mut files: Vec<(PathBuf, String)> =
        library.map(|file| (file.into(), file.into())).collect();
    files.push((interpreter.into(), interpreter.into()));
    let examples = EXAMPLES.iter().map(|example| example.source);
    let scripts = examples.filter(|source| source.ends_with(".py"));
    for script in scripts.chain(SCRIPTS.iter().copied()) {
        let path = root.join(script);
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        files.push((path, format!("{SCRIPTS_IN_GUEST}/{name}")));
    }
    Ok(files)
}

/// Fails when a page does not show an example as it is: users copy from the page, and the booted
/// tests run the file. The comment at the top of an example is not in the page.
pub fn check(root: &Path) -> Result {
    let read = |path: &str| fs::read_to_string(root.join(path)).map_err(|e| format!("{path}: {e}"));
    for example in EXAMPLES {
        let (path, page) = (example.source, example.page);
        let docs = read(page)?;
        let text = read(path)?;
        let (_, program) = text
            .split_once("\n\n")
            .ok_or_else(|| format!("{path} has no comment at its top"))?;
        // The comment of a script may have paragraphs.
        let program = match program.split_once("\"\"\"\n\n") {
            Some((_, rest)) if example.language == "python" => rest,
            _ => program,
        };
        let expected = format!("```{}\n{program}```\n", example.language);
        if !docs.contains(&expected) {
            return Err(format!("{page} does not have, as {path} has:\n{expected}"));
        }
        if !docs.contains(&format!("](../{path})")) {
            return Err(format!("{page} has no link to {path}"));
        }
    }
    Ok(())
}
