// SPDX-License-Identifier: GPL-2.0-only
//! Builds policies from source, as files that a kernel or a process loads. This crate finds the
//! sources and the built files, runs the build scripts, and detects outdated files.

pub mod guest;
pub mod language;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

use baton_vm::kernel::{version_key, Kernel};

use baton_control::error::{Error, Result};
use baton_control::modules::{
    cache, library_of, module_of, output_dir, output_dir_without, AGENT, CORE, CORES, LATENCY, SHIM,
};
use baton_control::{kernel, names};

/// The root of Baton's source tree: $BATON_SOURCE if it is set. Otherwise the first source tree
/// that contains the current directory, this program, or the directory in which this program was
/// compiled.
pub fn source() -> Result<PathBuf> {
    if let Some(given) = std::env::var_os("BATON_SOURCE").map(PathBuf::from) {
        return if is_source(&given) {
            Ok(given)
        } else {
            Err(Error::user(
                format!(
                    "$BATON_SOURCE is {}, which is not Baton's source tree",
                    given.display()
                ),
                "set it to the directory with policies/ and hosts/kernel/build.sh",
            ))
        };
    }
    let starts = [
        std::env::current_dir().ok(),
        std::env::current_exe().ok(),
        Some(env!("CARGO_MANIFEST_DIR").into()),
    ];
    let found = starts
        .iter()
        .flatten()
        .flat_map(|start| start.ancestors())
        .find(|dir| is_source(dir));
    found.map(Path::to_path_buf).ok_or_else(|| {
        Error::user(
            "Baton's source tree was not found",
            "go there, or set BATON_SOURCE to it",
        )
    })
}

fn is_source(dir: &Path) -> bool {
    dir.join("hosts/kernel/build.sh").is_file() && dir.join("policy/api/Cargo.toml").is_file()
}

/// A policy's source directory and name.
#[derive(Debug, PartialEq, Eq)]
pub struct Policy {
    /// The name by which the kernel knows the policy.
    pub name: String,
    pub dir: PathBuf,
}

impl Policy {
    /// Is it a folder with C files?
    fn is_c(&self) -> bool {
        !self.dir.join("Cargo.toml").exists()
    }

    /// Finds a policy. `text` is a path, a name in policies/ or policies/testing/ of the source
    /// tree, or a name in the current directory. A path may be that of a source in Baton's
    /// language, which is then compiled.
    pub fn find(text: &str) -> Result<Self> {
        if text.ends_with(".baton") {
            return if Path::new(text).is_file() {
                language::find(Path::new(text))
            } else {
                Err(Error::user(
                    format!("there is no file {text}"),
                    "check the path",
                ))
            };
        }
        let dir = &directory(text)?;
        if let Some(source) = language::source_of(dir) {
            return language::find(&source);
        }
        let dir = fs::canonicalize(dir)
            .map_err(|e| Error::file(format!("reading {}", dir.display()), &e))?;
        let name = match fs::read_to_string(dir.join("Cargo.toml")) {
            Ok(toml) => package_name(&toml).map(str::to_owned),
            Err(_) if has_c_file(&dir) => {
                dir.file_name().and_then(OsStr::to_str).map(str::to_owned)
            }
            Err(_) => None,
        };
        let name = name
            .and_then(|name| names::policy(&name).ok())
            .ok_or_else(|| {
                Error::user(
                    format!(
                    "{} is no policy: it has neither a Cargo.toml with a name for a policy nor a C \
                     file",
                    dir.display()
                ),
                    "give the directory of a policy; `baton new NAME` makes one",
                )
            })?;
        Ok(Self { name, dir })
    }
}

/// The directory of a policy, by path or name: see [`Policy::find`].
fn directory(text: &str) -> Result<PathBuf> {
    let tree = source()?.join("policies");
    let dashed = text.replace('_', "-");
    let candidates = if text.contains('/') || text == "." {
        vec![PathBuf::from(text)]
    } else {
        let testing = tree.join("testing");
        let places = [&tree, &testing].map(|place| [place.join(text), place.join(&dashed)]);
        places.into_iter().flatten().chain([text.into()]).collect()
    };
    let Some(dir) = candidates.iter().find(|dir| dir.is_dir()) else {
        return Err(Error::user(
            format!(
                "there is no policy '{text}': neither in {} nor here",
                tree.display()
            ),
            "check the name, give a path, or begin one: baton new NAME",
        ));
    };
    Ok(dir.clone())
}

fn has_c_file(dir: &Path) -> bool {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .into_iter()
        .any(|e| e.path().extension() == Some(OsStr::new("c")))
}

/// The value of the first `name = "..."`. The build scripts read it in the same way.
fn package_name(toml: &str) -> Option<&str> {
    let line = toml
        .lines()
        .find_map(|line| line.strip_prefix("name")?.trim_start().strip_prefix('='))?;
    line.trim().strip_prefix('"')?.split('"').next()
}

static KERNEL: OnceLock<String> = OnceLock::new();

/// Selects the kernel for later builds. Only the first call has an effect.
pub fn build_for(release: &str) {
    KERNEL.get_or_init(|| release.to_owned());
}

/// Set if policies may have unsafe code. It is set at most once, before anything is built.
static ALLOW_UNSAFE: OnceLock<()> = OnceLock::new();

/// Permits unsafe code in policies that are built later.
pub fn allow_unsafe() {
    ALLOW_UNSAFE.get_or_init(|| ());
}

/// The release of the kernel to build for: the selected kernel, else the running one, else the one
/// that `baton vm` boots, else the newest. Kernels without installed headers are skipped. It is an
/// error if the selected kernel has none.
pub fn headers_release() -> Result<String> {
    let has_headers = |release: &str| {
        Path::new("/lib/modules")
            .join(release)
            .join("build")
            .exists()
    };
    if let Some(release) = KERNEL.get() {
        return if has_headers(release) {
            Ok(release.clone())
        } else {
            Err(Error::environment(
                format!(
                    "the headers of kernel {release} are not installed here: there is no \
                     /lib/modules/{release}/build"
                ),
                format!(
                    "install them (Debian: linux-headers-{release}), or run baton where they are \
                     (vm/enter baton ...)"
                ),
            ))
        };
    }
    let running = kernel::release();
    if has_headers(&running) {
        return Ok(running);
    }
    if let Some(kernel) = Kernel::of_root()
        .ok()
        .filter(|kernel| has_headers(&kernel.release))
    {
        return Ok(kernel.release);
    }
    let entries = fs::read_dir("/lib/modules").into_iter().flatten().flatten();
    let names = entries
        .filter_map(|e| e.file_name().to_str().map(str::to_owned))
        .filter(|name| has_headers(name));
    names.max_by_key(|name| version_key(name)).ok_or_else(|| {
        Error::environment(
            "no kernel headers to build against are installed here",
            format!(
                "install those of this kernel (Debian: linux-headers-{running}), or run baton \
                inside Baton's Debian root: vm/enter baton ..."
            ),
        )
    })
}

/// Something that can be built.
pub enum Target<'a> {
    Core,
    /// The module of enclaves.
    Agent,
    Policy(&'a Policy),
    /// A policy's library, for the simulator and replays.
    Native(&'a Policy),
    /// The same library for `baton check`: its atomics are scheduling points.
    Checked(&'a Policy),
    /// The same library for a debugger.
    Debuggable(&'a Policy),
}

impl Target<'_> {
    /// What is built, if it is a policy.
    fn policy(&self) -> Option<&Policy> {
        match self {
            Target::Core | Target::Agent => None,
            Target::Policy(policy)
            | Target::Native(policy)
            | Target::Checked(policy)
            | Target::Debuggable(policy) => Some(policy),
        }
    }

    fn title(&self) -> String {
        match self {
            Target::Core => "the core".into(),
            Target::Agent => "the module of enclaves".into(),
            Target::Policy(policy) => format!("the policy {}", policy.name),
            Target::Native(policy) => format!("the policy {} for user space", policy.name),
            Target::Checked(policy) => format!("the policy {} for the checker", policy.name),
            Target::Debuggable(policy) => format!("the policy {} for a debugger", policy.name),
        }
    }

    fn files(&self) -> Vec<String> {
        match self {
            Target::Core => vec![CORE.into(), SHIM.into(), LATENCY.into(), CORES.into()],
            Target::Agent => vec![AGENT.into()],
            Target::Policy(policy) => vec![module_of(&policy.name)],
            Target::Native(policy) | Target::Checked(policy) | Target::Debuggable(policy) => {
                vec![library_of(&policy.name)]
            }
        }
    }

    /// The file whose modification time is the beginning of the last successful build. The times of
    /// the modules cannot serve for that, because a build does not touch a module whose content
    /// stays the same.
    fn stamp(&self) -> String {
        match self {
            Target::Core => ".core.built".into(),
            Target::Agent => ".agent.built".into(),
            Target::Policy(policy)
            | Target::Native(policy)
            | Target::Checked(policy)
            | Target::Debuggable(policy) => {
                format!(".{}.built", policy.name)
            }
        }
    }

    /// The output directory, and words for messages that name the kernel, if there is one.
    fn place(&self) -> Result<(PathBuf, String)> {
        match self {
            Target::Native(_) => Ok((cache().join("native"), String::new())),
            Target::Checked(_) => Ok((cache().join("checked"), String::new())),
            Target::Debuggable(_) => Ok((cache().join("debuggable"), String::new())),
            Target::Core | Target::Agent | Target::Policy(_) => {
                let release = headers_release()?;
                Ok((output_dir(&release), format!(" for kernel {release}")))
            }
        }
    }

    /// Builds unconditionally, and reports the progress on standard error.
    pub fn build(&self) -> Result<PathBuf> {
        let source = source()?;
        let (out, whose) = self.place()?;
        fs::create_dir_all(&out)
            .map_err(|e| Error::file(format!("making {}", out.display()), &e))?;
        eprintln!("baton: building {}{whose}", self.title());
        let (begun, start) = (SystemTime::now(), Instant::now());
        let host = match self {
            Target::Native(_) | Target::Checked(_) | Target::Debuggable(_) => "hosts/native",
            Target::Core | Target::Agent | Target::Policy(_) => "hosts/kernel",
        };
        let mut command = Command::new(source.join(host).join("build.sh"));
        if let Target::Core | Target::Agent | Target::Policy(_) = self {
            command.env("BATON_KERNEL", headers_release()?);
        }
        if ALLOW_UNSAFE.get().is_some() {
            command.env("BATON_ALLOW_UNSAFE", "1");
        }
        match self {
            Target::Core => command.arg("core"),
            Target::Agent => command.arg("agent"),
            Target::Policy(policy) => command.arg("policy").arg(&policy.dir),
            Target::Native(policy) => command.arg(&policy.dir),
            Target::Checked(policy) => command.arg(&policy.dir).env("BATON_CHECKED", "1"),
            Target::Debuggable(policy) => command.arg(&policy.dir).env("BATON_DEBUGGABLE", "1"),
        };
        // Messages of compilers go to standard error. A build prints nothing on standard output.
        let status = command
            .arg(&out)
            .stdin(Stdio::null())
            .stdout(std::io::stderr())
            .status();
        let status = status.map_err(|e| {
            Error::environment(
                format!("the build cannot be run: {e}"),
                format!("check {host}"),
            )
        })?;
        if status.code() == Some(3) {
            return Err(Error::environment(
                format!(
                    "{} cannot be built{whose}; what is missing is named above",
                    self.title()
                ),
                "see docs/kernel-policy.md for what a kernel must have, and `baton doctor` for \
                 what this one has",
            ));
        }
        if !status.success() {
            let what = format!(
                "building {} failed; the compiler's messages are above",
                self.title()
            );
            return Err(match self.policy() {
                Some(policy) if policy.is_c() => {
                    Error::policy(&policy.name, what, "fix the first error and build again")
                }
                Some(policy) => Error::policy(
                    &policy.name,
                    what,
                    "fix the first error and build again (unsafe code is refused without \
                     --allow-unsafe)",
                ),
                None => Error::environment(what, "mend what the first one names, or report it"),
            });
        }
        // The stamp has the time at which the build began. So files that change during the build
        // count as newer.
        let stamp = out.join(self.stamp());
        File::create(&stamp)
            .and_then(|file| file.set_modified(begun))
            .map_err(|e| Error::file(format!("writing {}", stamp.display()), &e))?;
        eprintln!(
            "baton: built {} ({:.1} s)",
            self.title(),
            start.elapsed().as_secs_f32()
        );
        Ok(out)
    }

    /// Builds the target if a file is missing or older than the sources. Returns the output
    /// directory.
    pub fn ensure(&self) -> Result<PathBuf> {
        let (out, _) = self.place()?;
        let built = fs::metadata(out.join(self.stamp()))
            .and_then(|m| m.modified())
            .ok();
        let complete = self.files().iter().all(|file| out.join(file).exists());
        let tree = source()?;
        let mut sources = match self {
            Target::Native(_) | Target::Checked(_) | Target::Debuggable(_) => {
                vec![
                    tree.join("hosts/native"),
                    tree.join("policy"),
                    tree.join("lang/machine"),
                ]
            }
            Target::Core | Target::Agent | Target::Policy(_) => {
                vec![
                    tree.join("hosts/core"),
                    tree.join("hosts/kernel"),
                    tree.join("policy"),
                    tree.join("lang/machine"),
                ]
            }
        };
        if let Target::Policy(policy)
        | Target::Native(policy)
        | Target::Checked(policy)
        | Target::Debuggable(policy) = self
        {
            sources.push(policy.dir.clone());
        }
        if let Target::Agent = self {
            sources.push(tree.join("hosts/agent/kernel"));
        }
        match built {
            Some(built) if complete && sources.iter().all(|dir| newest(dir) <= built) => Ok(out),
            _ => self.build(),
        }
    }
}

/// Builds the core and a policy without a part of Baton, `recording` or `polls`, to measure what it
/// costs. Returns the output directory.
pub fn without(part: &str, policy: &Policy) -> Result<PathBuf> {
    let script = source()?.join("hosts/kernel/build.sh");
    let out = output_dir_without(&headers_release()?, part);
    for arguments in [
        vec!["core".as_ref()],
        vec!["policy".as_ref(), policy.dir.as_os_str()],
    ] {
        let mut command = Command::new(&script);
        command
            .args(&arguments)
            .arg(&out)
            .env("BATON_WITHOUT", part)
            .env("BATON_KERNEL", headers_release()?);
        let status = command
            .stdin(Stdio::null())
            .stdout(std::io::stderr())
            .status();
        let status =
            status.map_err(|e| Error::file(format_args!("running {}", script.display()), &e))?;
        if !status.success() {
            return Err(Error::baton(format!(
                "the version without {part} does not build; the compiler's messages are above"
            )));
        }
    }
    Ok(out)
}

/// A policy's library for user space, from its name or path. It is built first if needed.
pub fn native(text: &str) -> Result<baton_native::Policy> {
    let policy = Policy::find(text)?;
    open(&policy, &Target::Native(&policy))
}

/// The file of that library.
pub fn native_file(text: &str) -> Result<PathBuf> {
    let policy = Policy::find(text)?;
    let library = library_of(&policy.name);
    Ok(Target::Native(&policy).ensure()?.join(library))
}

/// The same as [`native`], for the checker.
pub fn checked(text: &str) -> Result<baton_native::Policy> {
    let policy = Policy::find(text)?;
    open(&policy, &Target::Checked(&policy))
}

fn open(policy: &Policy, target: &Target<'_>) -> Result<baton_native::Policy> {
    let library = target.ensure()?.join(library_of(&policy.name));
    baton_native::Policy::open(&library).map_err(|why| {
        Error::environment(
            why,
            format!(
                "build it again: rm {}, and the same command",
                library.display()
            ),
        )
    })
}

/// The path of a policy's library for a debugger. It is built first if needed.
pub fn debuggable(policy: &Policy) -> Result<PathBuf> {
    Ok(Target::Debuggable(policy)
        .ensure()?
        .join(library_of(&policy.name)))
}

/// The time of the last change of a file in a directory.
fn newest(dir: &Path) -> SystemTime {
    let mut newest = SystemTime::UNIX_EPOCH;
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(meta) = entry.metadata() else { continue };
        // Tests and the output of builds do not count.
        if meta.is_dir() && !["target", "tests"].contains(&entry.file_name().to_str().unwrap_or(""))
        {
            newest = newest.max(self::newest(&entry.path()));
        } else if !meta.is_dir() && entry.file_name() != "Cargo.lock" {
            // Of a link, that of the file.
            let changed = fs::metadata(entry.path()).and_then(|meta| meta.modified());
            newest = newest.max(changed.unwrap_or(newest));
        }
    }
    newest
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn names_of_packages() {
        let check = |toml: &str, expected: Option<&str>| assert_eq!(package_name(toml), expected);
        check("[package]\nname = \"wfq\"\nversion = \"1\"\n", Some("wfq"));
        check("[package]\nname=\"my-one\" # x\n", Some("my-one"));
        check("[package]\nnames = \"x\"\n", None);
        check("", None);
    }

    #[test]
    fn the_newest_file_counts() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("src")).unwrap();
        fs::create_dir_all(dir.path().join("target")).unwrap();
        let touch = |path: &str, age: u64| {
            let file = File::create(dir.path().join(path)).unwrap();
            let time = SystemTime::now() - Duration::from_secs(age);
            file.set_modified(time).unwrap();
            fs::metadata(dir.path().join(path))
                .unwrap()
                .modified()
                .unwrap()
        };
        touch("Cargo.toml", 100);
        let source = touch("src/lib.rs", 50);
        touch("target/x", 1);
        assert_eq!(newest(dir.path()), source);
    }

    #[test]
    fn policies_of_the_tree_are_found_by_name() {
        let fifo = Policy::find("fifo").unwrap();
        assert_eq!(fifo.name, "fifo");
        assert!(fifo.dir.ends_with("policies/fifo"));
        assert_eq!(Policy::find(fifo.dir.to_str().unwrap()).unwrap(), fifo);
        assert!(Policy::find("no_such_policy")
            .unwrap_err()
            .to_string()
            .contains("no_such_policy"));
    }
}
