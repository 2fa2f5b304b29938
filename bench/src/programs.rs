// SPDX-License-Identifier: GPL-2.0-only
//! Programs that are built only for benches: their place in a guest, and how they get there.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use baton_vm::FileIn;

use baton_build::source;
use baton_control::error::{Error, Result};
use baton_control::modules::cache;

/// Programs that one script builds.
pub struct Programs {
    /// The script, in the source tree. Its argument is a directory.
    script: &'static str,
    /// That directory, in the cache.
    dir: &'static str,
    guest: &'static str,
}

/// The kernel's example schedulers.
pub const EXAMPLES: Programs = Programs {
    script: "bench/scx/build.sh",
    dir: "scx",
    guest: "/usr/lib/baton/scx",
};
/// Baton's own load programs.
pub const PROGRAMS: Programs = Programs {
    script: "bench/programs/build.sh",
    dir: "programs",
    guest: "/usr/lib/baton/programs",
};
/// The plugin of QEMU that counts the instructions of each CPU. It has no place in a guest.
pub const COUNTER: Programs = Programs {
    script: "bench/counter/build.sh",
    dir: "counter",
    guest: "",
};
/// The module that gives a guest idle states.
pub const IDLE: Programs = Programs {
    script: "bench/idle/build.sh",
    dir: "idle",
    guest: "/usr/lib/baton/idle",
};

impl Programs {
    /// Builds the programs if they are missing or stale, and returns the files that a guest needs.
    pub fn for_guest(&self, names: &[&str]) -> Result<Vec<FileIn>> {
        let dir = self.build()?;
        let file = |name: &&str| FileIn {
            host: dir.join(name),
            guest: format!("{}/{name}", self.guest),
        };
        Ok(names.iter().map(file).collect())
    }

    /// Builds the programs if they are missing or stale, and returns their directory.
    pub fn build(&self) -> Result<PathBuf> {
        let script = source()?.join(self.script);
        let out = cache().join(self.dir);
        let status = Command::new(&script)
            .arg(&out)
            .stdin(Stdio::null())
            .stdout(std::io::stderr())
            .status();
        match status {
            Ok(status) if status.success() => Ok(out),
            Ok(status) => Err(Error::environment(
                format!(
                    "{} failed ({status}); its messages are above",
                    script.display()
                ),
                "run it inside Baton's Debian root (./baton bench ...), which has what it needs",
            )),
            Err(e) => Err(Error::file(format!("running {}", script.display()), &e)),
        }
    }

    /// Finds one of the programs on this machine.
    pub fn find(&self, name: &str) -> Result<PathBuf> {
        let places = [PathBuf::from(self.guest), cache().join(self.dir)];
        places
            .iter()
            .map(|dir| dir.join(name))
            .find(|path| path.exists())
            .ok_or_else(|| {
                Error::user(
                    format!("{name} is missing on this machine"),
                    format!(
                        "build it ({} {}), or measure in a guest",
                        self.script,
                        places[1].display()
                    ),
                )
            })
    }
}
