// SPDX-License-Identifier: GPL-2.0-only
//! Policies and the core built without a part of Baton, in the guest beside the usual ones.

use std::path::{Path, PathBuf};

use baton_build::without;
use baton_control::error::Result;
use baton_control::modules::{module_of, Search, CORE, SHIM};
use baton_vm::FileIn;

use crate::subject::Subject;

/// The guest's directory for them.
fn dir(part: &str) -> PathBuf {
    Path::new("/usr/lib/baton").join(format!("without-{part}"))
}

/// The files that the guest needs, which are built first.
pub fn files(part: &str, subjects: &[Subject]) -> Result<Vec<FileIn>> {
    let mut files = Vec::new();
    for policy in subjects.iter().filter_map(Subject::policy) {
        let policy = policy?;
        let out = without(part, &policy)?;
        for file in [CORE, SHIM, &module_of(&policy.name)] {
            files.push(FileIn {
                host: out.join(file),
                guest: dir(part).join(file).display().to_string(),
            });
        }
    }
    Ok(files)
}

/// Where they are found in the guest.
pub fn search(part: &str) -> Search {
    Search::new(Some(&dir(part)))
}
