// SPDX-License-Identifier: GPL-2.0-only
//! The files that the kernel loads: their names, and the directories in which they are.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::kernel;

pub const CORE: &str = "baton.ko";
pub const AGENT: &str = "baton_agent.ko";
/// The name of [`AGENT`] in the kernel.
pub const AGENT_MODULE: &str = "baton_agent";
pub const SHIM: &str = "shim.bpf.o";
pub const LATENCY: &str = "latency.bpf.o";
pub const CORES: &str = "cores.bpf.o";

/// The file of a policy's kernel module.
pub fn module_of(policy: &str) -> String {
    format!("baton_{policy}.ko")
}

/// The file of a policy's library for user space.
pub fn library_of(policy: &str) -> String {
    format!("baton_{policy}.so")
}

/// Where everything is kept that can be made again.
pub fn cache() -> PathBuf {
    std::env::var_os("BATON_CACHE").map_or_else(|| PathBuf::from("/var/cache/baton"), PathBuf::from)
}

/// The directory of files built for a kernel. `$BATON_WITHOUT` names a part of Baton without which
/// they are built (hosts/kernel/build.sh).
pub fn output_dir(release: &str) -> PathBuf {
    let part = std::env::var("BATON_WITHOUT").unwrap_or_default();
    match &part[..] {
        "" => cache().join("kernel").join(release),
        part => output_dir_without(release, part),
    }
}

/// The directory of files built for a kernel without a part of Baton.
pub fn output_dir_without(release: &str, part: &str) -> PathBuf {
    let dir = cache().join("kernel").join(release);
    dir.join(format!("without-{part}"))
}

/// The directories that are searched for the running kernel's files.
pub struct Search(Vec<PathBuf>);

impl Search {
    /// `first` is the value of --modules or $BATON_MODULES.
    pub fn new(first: Option<&Path>) -> Self {
        let release = kernel::release();
        let usual = [
            Path::new("/usr/lib/baton").join(&release),
            output_dir(&release),
        ];
        Self(
            first
                .map(Path::to_path_buf)
                .into_iter()
                .chain(usual)
                .collect(),
        )
    }

    /// All files of policies' modules.
    pub fn modules(&self) -> Vec<PathBuf> {
        let dirs = self.0.iter().filter_map(|dir| std::fs::read_dir(dir).ok());
        let files = dirs.flatten().flatten().map(|entry| entry.path());
        let is_module = |path: &PathBuf| path.extension().is_some_and(|end| end == "ko");
        files.filter(is_module).collect()
    }

    pub fn find(&self, file: &str) -> Result<PathBuf> {
        self.0
            .iter()
            .map(|dir| dir.join(file))
            .find(|path| path.exists())
            .ok_or_else(|| {
                let places: Vec<_> = self.0.iter().map(|dir| dir.display().to_string()).collect();
                Error::user(
                    format!(
                        "there is no {file} for kernel {} in {}",
                        kernel::release(),
                        places.join(", ")
                    ),
                    "build it (baton build POLICY), or say where it is (--modules DIR)",
                )
            })
    }
}
