// SPDX-License-Identifier: GPL-2.0-only
//! What is made once for each kernel, in `$BATON_CACHE/live/RELEASE`:
//!
//! | file | contents |
//! | --- | --- |
//! | `vmlinux` | the kernel with symbols, from the distribution's debug package |
//! | `source` | the kernel's source, configured as the kernel; its scheduler is the one built last |
//! | `tree` | the scheduler's source, a git tree to change |
//! | `objects` | the objects of the unchanged scheduler, with a section for each function |
//! | `prepared.json` | the record that all of this is complete, and what the comparison found |

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{flock, FlockOperation};
use serde::{Deserialize, Serialize};

use baton_control::error::{Error, Result};
use baton_control::modules::cache;
use baton_vm::Kernel;

use crate::boundary::Boundary;
use crate::btf::{self, Layouts};
use crate::build::{Built, Parts};
use crate::elf::Object;
use crate::gates;
use crate::graph::Objects;
use crate::identity::{self, Identity, Placed};
use crate::vmlinux::Vmlinux;
use crate::{image, package, process};

/// The objects of the scheduler, without `.o`.
const OBJECTS: [&str; 4] = ["core", "fair", "build_policy", "build_utility"];

/// How the scheduler is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// As the kernel was. Only then is the code the same to the byte.
    Stock,
    /// With a section for each function and each datum, whose relocations tell who refers to them.
    /// In one of a hundred functions the compiler then arranges the code otherwise.
    Sections,
}

/// The version of the record.
const VERSION: u32 = 1;

/// A kernel whose scheduler can be changed. Only one process works on it at a time, as long as the
/// value lives.
pub struct Prepared {
    /// The kernel's release, as `uname -r` prints it.
    pub release: String,
    /// The identifier of the kernel's link, in hexadecimal.
    pub build_id: String,
    /// What the comparison of the unchanged scheduler with the kernel found.
    pub identity: Identity,
    dir: PathBuf,
    _lock: File,
}

/// The record.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    version: u32,
    build_id: String,
    identity: Identity,
}

impl Prepared {
    /// Prepares a kernel, and says on standard error how far that has come. What is complete is not
    /// made again.
    ///
    /// # Errors
    /// The debug package or the source is missing; or the scheduler that is built from the source
    /// is not the kernel's.
    pub fn make(kernel: &Kernel) -> Result<Self> {
        let dir = dir(&kernel.release);
        let lock = lock(&dir)?;
        let build_id = image::build_id(&kernel.image)?;
        if let Some(record) = Record::read(&dir).filter(|record| record.build_id == build_id) {
            return Ok(Self::of(&kernel.release, dir, lock, record));
        }
        let vmlinux = vmlinux(&kernel.release, &dir, &build_id)?;
        // A scheduler that was built there may have changes.
        let source = dir.join("source");
        package::remove(&source)?;
        package::unpack_source(&kernel.release, &source)?;
        start_history(&kernel.release, &scheduler(&source), &dir.join("tree"))?;
        configure(&kernel.release, &source)?;
        let stock = compile(&source, Form::Stock)?;
        let (identity, _) = compare(&stock, &vmlinux)?;
        identity.demand(&kernel.release)?;
        compile(&source, Form::Sections)?;
        keep_objects(&source, &dir.join("objects"))?;
        let record = Record {
            version: VERSION,
            build_id,
            identity,
        };
        record.write(&dir)?;
        Ok(Self::of(&kernel.release, dir, lock, record))
    }

    /// A kernel that has been prepared.
    ///
    /// # Errors
    /// It has not, or not completely.
    pub fn open(kernel: &Kernel) -> Result<Self> {
        let dir = dir(&kernel.release);
        let none = || {
            Error::user(
                format!("kernel {} has not been prepared", kernel.release),
                format!("baton live prepare --kernel {}", kernel.release),
            )
        };
        Record::read(&dir).ok_or_else(none)?;
        let lock = lock(&dir)?;
        let record = Record::read(&dir).ok_or_else(none)?;
        Ok(Self::of(&kernel.release, dir, lock, record))
    }

    fn of(release: &str, dir: PathBuf, lock: File, record: Record) -> Self {
        Self {
            release: release.into(),
            build_id: record.build_id,
            identity: record.identity,
            dir,
            _lock: lock,
        }
    }

    /// The git tree of the scheduler's source, to change.
    pub fn tree(&self) -> PathBuf {
        self.dir.join("tree")
    }

    /// The boundary of the kernel's own scheduler.
    ///
    /// # Errors
    /// The files in the cache are damaged.
    pub fn boundary(&self) -> Result<Boundary> {
        let vmlinux = Vmlinux::read(&self.dir.join("vmlinux"))?;
        let objects = read_objects(&self.dir.join("objects"))?;
        let (_, placed) = compare(&objects, &vmlinux)?;
        Ok(Boundary::of(&Objects::new(objects), &placed, &vmlinux))
    }

    /// Builds the module of the scheduler whose source is in a tree, as [`Self::tree`] is one.
    ///
    /// # Errors
    /// The scheduler does not compile, or a gate refuses the change.
    pub fn build(&self, tree: &Path) -> Result<Built> {
        let source = self.dir.join("source");
        if !tree.join("sched.h").exists() {
            return Err(Error::user(
                format!("{} has no source of a scheduler", tree.display()),
                "give a clone of the tree that baton live edit names",
            ));
        }
        package::mirror(tree, &scheduler(&source))?;
        let vmlinux = Vmlinux::read(&self.dir.join("vmlinux"))?;
        let unchanged = read_objects(&self.dir.join("objects"))?;
        let (_, placed) = compare(&unchanged, &vmlinux)?;
        let changed = compile(&source, Form::Sections)?;
        for (object, name) in unchanged.iter().zip(OBJECTS) {
            let [after, before] = [scheduler(&source), self.dir.join("objects")]
                .map(|dir| layouts(&dir.join(format!("{name}.o"))));
            gates::layouts(object.source(), &after?, &before?)?;
        }
        let parts = Parts {
            release: &self.release,
            build_id: &self.build_id,
            changed: &Objects::new(changed),
            unchanged: &Objects::new(unchanged),
            placed: &placed,
            vmlinux: &vmlinux,
        };
        parts.build(&self.dir.join("build"))
    }
}

impl Record {
    const FILE: &'static str = "prepared.json";

    /// None if there is no record, or one of another version.
    fn read(dir: &Path) -> Option<Self> {
        let text = fs::read(dir.join(Self::FILE)).ok()?;
        let record: Self = serde_json::from_slice(&text).ok()?;
        (record.version == VERSION).then_some(record)
    }

    fn write(&self, dir: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self)
            .map_err(|e| Error::baton(format!("the record cannot be written: {e}")))?;
        let (new, path) = (dir.join("prepared.new"), dir.join(Self::FILE));
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, &path))
            .map_err(|e| Error::file(format!("writing {}", path.display()), &e))
    }
}

fn dir(release: &str) -> PathBuf {
    cache().join("live").join(release)
}

fn scheduler(source: &Path) -> PathBuf {
    source.join("kernel/sched")
}

/// Makes the directory, and waits until no other process works in it.
fn lock(dir: &Path) -> Result<File> {
    let path = dir.join("lock");
    let file = fs::create_dir_all(dir).and_then(|()| File::create(&path));
    let file = file.map_err(|e| Error::file(format!("making {}", path.display()), &e))?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        eprintln!("baton: waiting for another baton live to end");
        flock(&file, FlockOperation::LockExclusive)
            .map_err(|e| Error::file(format!("locking {}", path.display()), &e.into()))?;
    }
    Ok(file)
}

/// The kernel with symbols, which is fetched if it is not that of the image.
fn vmlinux(release: &str, dir: &Path, build_id: &str) -> Result<Vmlinux> {
    let path = dir.join("vmlinux");
    if path.exists() {
        let vmlinux = Vmlinux::read(&path)?;
        if vmlinux.build_id == build_id {
            return Ok(vmlinux);
        }
    }
    package::fetch_vmlinux(release, &path, &dir.join("fetched"))?;
    let vmlinux = Vmlinux::read(&path)?;
    if vmlinux.build_id == build_id {
        Ok(vmlinux)
    } else {
        Err(Error::environment(
            format!(
                "the debug package is of another build of kernel {release}: its build identifier \
                 is {}, that of the image {build_id}",
                vmlinux.build_id
            ),
            "update the kernel's image and apt's lists to the same version of the package",
        ))
    }
}

/// Configures the source as the kernel was. Rust is left out, which the scheduler does not use and
/// which would need the compiler of the kernel's builder.
fn configure(release: &str, source: &Path) -> Result<()> {
    let config = PathBuf::from(format!("/lib/modules/{release}/build/.config"));
    let text = fs::read_to_string(&config).map_err(|_| {
        Error::environment(
            format!(
                "there is no configuration of kernel {release}: {}",
                config.display()
            ),
            format!("install the package linux-headers-{release}"),
        )
    })?;
    let options = ["CONFIG_RUST=", "CONFIG_SYSTEM_TRUSTED_KEYS="];
    let others = text
        .lines()
        .filter(|line| !options.iter().any(|option| line.starts_with(option)));
    let changed = [
        "# CONFIG_RUST is not set",
        "CONFIG_SYSTEM_TRUSTED_KEYS=\"\"\n",
    ];
    let lines: Vec<&str> = others.chain(changed).collect();
    let path = source.join(".config");
    fs::write(&path, lines.join("\n"))
        .map_err(|e| Error::file(format!("writing {}", path.display()), &e))?;
    eprintln!("baton: configuring the source as kernel {release}");
    for goal in ["olddefconfig", "prepare"] {
        process::run(make(source).arg(goal), "configuring the source")?;
    }
    Ok(())
}

/// Makes a git tree of the scheduler's source, with the kernel's own as its first commit. A tree
/// that is there stays, as it may have changes.
fn start_history(release: &str, scheduler: &Path, tree: &Path) -> Result<()> {
    if tree.join(".git").exists() {
        return Ok(());
    }
    package::mirror(scheduler, tree)?;
    let git = |arguments: &[&str]| {
        let who = ["-c", "user.name=Baton", "-c", "user.email=baton@localhost"];
        let mut command = Command::new("git");
        command.arg("-C").arg(tree).args(who).args(arguments);
        process::run(&mut command, "making the scheduler's git tree")
    };
    git(&["init", "--quiet"])?;
    git(&["add", "--all"])?;
    let message = format!("kernel/sched of {release}");
    git(&["commit", "--quiet", "--message", &message])
}

/// Compiles the scheduler as it is in the source tree.
fn compile(source: &Path, form: Form) -> Result<Vec<Object>> {
    let flags = match form {
        Form::Stock => "KCFLAGS=",
        Form::Sections => "KCFLAGS=-ffunction-sections -fdata-sections",
    };
    eprintln!(
        "baton: compiling the scheduler{}",
        match form {
            Form::Stock => " as the kernel's was",
            Form::Sections => ", each function in a section of its own",
        }
    );
    let goals = OBJECTS.map(|name| format!("kernel/sched/{name}.o"));
    process::run(
        make(source).arg(flags).args(goals),
        "compiling the scheduler",
    )?;
    read_objects(&scheduler(source))
}

fn read_objects(dir: &Path) -> Result<Vec<Object>> {
    let read = |name: &str| {
        let path = dir.join(format!("{name}.o"));
        let bytes =
            fs::read(&path).map_err(|e| Error::file(format!("reading {}", path.display()), &e))?;
        Object::read(&bytes, &path.display().to_string())
    };
    OBJECTS.into_iter().map(read).collect()
}

fn compare(objects: &[Object], vmlinux: &Vmlinux) -> Result<(Identity, Vec<Placed>)> {
    let mut identity = Identity::default();
    let mut placed = Vec::new();
    for object in objects {
        let (of_object, places) = identity::compare(object, vmlinux)?;
        identity.add(of_object);
        placed.push(places);
    }
    Ok((identity, placed))
}

/// The layouts of an object's structures, from its debug information.
fn layouts(object: &Path) -> Result<Layouts> {
    let out = object.with_extension("btf");
    process::run(
        Command::new("pahole")
            .arg(format!("--btf_encode_detached={}", out.display()))
            .arg(object),
        "reading types",
    )?;
    let bytes =
        fs::read(&out).map_err(|e| Error::file(format!("reading {}", out.display()), &e))?;
    btf::layouts(&bytes)
        .ok_or_else(|| Error::baton(format!("pahole made no types of {}", object.display())))
}

/// Keeps the objects of the unchanged scheduler.
fn keep_objects(source: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).map_err(|e| Error::file(format!("making {}", to.display()), &e))?;
    for name in OBJECTS.map(|name| format!("{name}.o")) {
        let from = scheduler(source).join(&name);
        fs::copy(&from, to.join(&name))
            .map_err(|e| Error::file(format!("copying {}", from.display()), &e))?;
    }
    Ok(())
}

/// `make` in the kernel's source, with the names of tools that the kernel's configuration has.
fn make(source: &Path) -> Command {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut command = Command::new("make");
    command
        .arg("-C")
        .arg(source)
        .arg(format!("-j{jobs}"))
        .args(["-s", "ARCH=x86", "CROSS_COMPILE=x86_64-linux-gnu-"]);
    command
}
