// SPDX-License-Identifier: GPL-2.0-only
//! A policy in C as `baton new` makes it, for tests to change.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

/// The policy `mine`. Its files are removed with the value.
pub struct Mine {
    directory: TempDir,
    source: String,
}

impl Mine {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let made = Command::new(env!("CARGO_BIN_EXE_baton"))
            .args(["new", "--lang", "c", "mine", "--dir"])
            .arg(directory.path())
            .output()
            .expect("baton runs");
        assert!(made.status.success());
        let mut mine = Self {
            directory,
            source: String::new(),
        };
        mine.source = fs::read_to_string(mine.file()).expect("the policy is there");
        mine
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("mine/mine.c")
    }

    /// The path by which commands find it.
    pub fn path(&self) -> String {
        self.directory.path().join("mine").display().to_string()
    }

    /// Replaces parts of the original source, each of which must be there. Returns the new source.
    pub fn change(&self, parts: &[(&str, &str)]) -> String {
        let mut source = self.source.clone();
        for (old, new) in parts {
            assert!(source.contains(old), "{old} is not in: {source}");
            source = source.replacen(old, new, 1);
        }
        fs::write(self.file(), &source).expect("the policy is changed");
        source
    }
}
