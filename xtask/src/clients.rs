// SPDX-License-Identifier: GPL-2.0-only
//! Clients of hints in other languages than Rust, for the booted tests: what a guest needs to run them.

use crate::{steps::cannot_run, Result};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Where the guest has what is in Python.
const SCRIPTS: &str = "/usr/lib/baton";
/// Prints the files of all that the client imports.
const IMPORTS: &str = "
import itertools, sys
sys.path.insert(0, 'policy/python')
import baton_hints
print('\\n'.join(sorted({m.__file__ for m in sys.modules.values() if getattr(m, '__file__', None)})))";

/// Files of this machine, and where a guest has them.
pub fn files(root: &Path, target: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut files = in_python(root)?;
    files.push((in_c(root, target)?, "/usr/bin/baton-hints-c".into()));
    Ok(files)
}

fn in_c(root: &Path, target: &Path) -> Result<PathBuf> {
    let (mut compiler, program) = (Command::new("cc"), target.join("baton-hints-c"));
    compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", "-Ipolicy/c", "tests/booted/hints.c", "-o"]).current_dir(root);
    match compiler.arg(&program).status() {
        Ok(status) if status.success() => Ok(program),
        Ok(status) => Err(format!("tests/booted/hints.c is not compiled ({status}); see above")),
        Err(e) => Err(cannot_run("cc", &e)),
    }
}

/// The interpreter, of its library what is needed, the client and its test.
fn in_python(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let interpreter = "/usr/bin/python3";
    let asked = Command::new(interpreter).args(["-B", "-S", "-c", IMPORTS]).current_dir(root).output();
    let asked = asked.map_err(|e| cannot_run(interpreter, &e))?;
    if !asked.status.success() {
        let why = String::from_utf8_lossy(&asked.stderr);
        return Err(format!("policy/python/baton_hints.py cannot be imported:\n{why}"));
    }
    let imports = String::from_utf8_lossy(&asked.stdout).into_owned();
    let library = imports.lines().filter(|file| file.starts_with("/usr/lib/python"));
    let mut files: Vec<(PathBuf, String)> = library.map(|file| (file.into(), file.into())).collect();
    files.push((interpreter.into(), interpreter.into()));
    for script in ["policy/python/baton_hints.py", "tests/booted/hints.py"] {
        let path = root.join(script);
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        files.push((path, format!("{SCRIPTS}/{name}")));
    }
    Ok(files)
}
