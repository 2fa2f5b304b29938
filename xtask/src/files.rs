// SPDX-License-Identifier: GPL-2.0-only
//! The files of the repository, for rules that check text.

use crate::{steps::cannot_run, Result};
use std::{path::Path, process::Command};

/// A text file of the repository.
#[derive(Debug, Default)]
pub struct File {
    /// Path from the root, with slashes.
    pub path: String,
    pub text: String,
}

impl File {
    /// A file of a test.
    #[cfg(test)]
    pub fn of(path: &str, text: &str) -> Self {
        Self {
            path: path.into(),
            text: text.into(),
        }
    }

    /// The last component of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Its extension, or the whole name of a file that has none.
    pub fn extension(&self) -> &str {
        self.name().rsplit('.').next().unwrap_or("")
    }
}

/// All text files that git tracks, or would track if they were added.
pub fn list(root: &Path) -> Result<Vec<File>> {
    // The clone may belong to a user other than the one who runs the check. Without this option git
    // treats that as an attack.
    let arguments = [
        "-c",
        "safe.directory=*",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ];
    let output = Command::new("git")
        .args(arguments)
        .current_dir(root)
        .output();
    let output = output.map_err(|e| cannot_run("git ls-files", &e))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!(
            "`git ls-files` failed ({}); the check needs a git clone:\n{why}",
            output.status
        ));
    }
    let mut files = Vec::new();
    for path in String::from_utf8_lossy(&output.stdout)
        .split('\0')
        .filter(|path| !path.is_empty())
    {
        let full = root.join(path);
        // Deleted but not committed, or a symbolic link to a directory.
        if !full.is_file() {
            continue;
        }
        let bytes = std::fs::read(&full).map_err(|e| format!("cannot read {path}: {e}"))?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File {
                path: path.into(),
                text,
            });
        }
    }
    Ok(files)
}
