// SPDX-License-Identifier: GPL-2.0-only
//! `cargo xtask sanitized`: runs booted tests on kernels that look for mistakes in Baton's own
//! kernel code (vm/sanitized.sh). That takes hours, so what has passed is not run again on the same
//! tree: a run goes on where the last one ended.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    booted::{judged, side_by_side, tested, Built, Job, PROGRAM},
    steps::cannot_run,
    Result,
};

/// A kernel, and the tests that run on it.
struct Kernel {
    /// As vm/sanitized.sh names it.
    kind: &'static str,
    /// Its arguments.
    append: &'static str,
    tests: &'static [Test],
}

/// What runs in a guest.
enum Test {
    /// The booted tests' program: options of the guest, and the program's arguments.
    Booted(&'static [&'static str], &'static [&'static str]),
    /// `baton torture` with these options.
    Torture(&'static [&'static str]),
}
use Test::{Booted, Torture};

const TWO: &[&str] = &["--cpus", "2"];
const FOUR: &[&str] = &["--cpus", "4"];
const EIGHT: &[&str] = &["--topology", "1x4x2"];

/// A call of a policy is then some ten times as long, so instructions take less of the guest's
/// time than in other tests.
const ICOUNT: &str = "--icount=1";

/// Time limit of a guest, in seconds of this machine's clock.
const TIMEOUT: &str = "14400";

const KERNELS: [Kernel; 3] = [
    // All booted tests.
    Kernel {
        kind: "kasan",
        append: "slub_debug=FZ",
        tests: &[
            Booted(TWO, &["--part", "1/8"]),
            Booted(TWO, &["--part", "2/8"]),
            Booted(TWO, &["--part", "3/8"]),
            Booted(TWO, &["--part", "4/8"]),
            Booted(TWO, &["--part", "5/8"]),
            Booted(TWO, &["--part", "6/8"]),
            Booted(TWO, &["--part", "7/8"]),
            Booted(TWO, &["--part", "8/8"]),
            Booted(FOUR, &[]),
            Booted(EIGHT, &[]),
            Booted(TWO, &["--upgrades", "100"]),
            Booted(TWO, &["--hostile", "30"]),
            Torture(&["--minutes", "2", "--stall", "10000", "--growth", "131072"]),
        ],
    },
    // Those that load and unload most. kmemleak makes each allocation three times as long.
    Kernel {
        kind: "kasan",
        append: "kmemleak=on",
        tests: &[
            Booted(TWO, &["--upgrades", "20"]),
            Booted(TWO, &["--monkey", "1", "20"]),
            Booted(TWO, &["conformance"]),
        ],
    },
    // Those in which CPUs, clients and agents work at the same time.
    Kernel {
        kind: "kcsan",
        append: "",
        tests: &[
            Booted(TWO, &["conformance"]),
            Booted(TWO, &["upgrade"]),
            Booted(TWO, &["hints"]),
            Booted(TWO, &["record"]),
            Booted(FOUR, &["several"]),
            Booted(EIGHT, &["agents"]),
        ],
    },
];

/// Builds each kernel once, and runs the tests of one kind of kernel, or of all.
pub fn run(root: &Path, kind: Option<&str>) -> Result {
    let built = Built::new(root)?;
    let passed = Passed::new(root)?;
    let mut jobs = Vec::new();
    for kernel in KERNELS
        .iter()
        .filter(|kernel| kind.is_none_or(|kind| kind == kernel.kind))
    {
        let release = release(root, kernel.kind)?;
        let tests = kernel.tests.iter();
        jobs.extend(tests.map(|test| job(&built, &passed, kernel, &release, test)));
    }
    if jobs.is_empty() {
        return Err("there is no such kernel: kasan or kcsan".into());
    }
    judged(&side_by_side(jobs))
}

/// The tests that passed on this tree before: a file each, which has their closing line.
struct Passed {
    dir: PathBuf,
    tree: String,
}

impl Passed {
    fn new(root: &Path) -> Result<Self> {
        let cache = std::env::var_os("BATON_CACHE").ok_or("BATON_CACHE is not set")?;
        let dir = Path::new(&cache).join("sanitized/passed");
        fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        // All files but the docs, as they are recorded in git and as they are.
        let recorded = git(root, &["ls-files", "--stage", "--", ":!*.md"])?;
        let changed = git(root, &["diff", "--", ":!*.md"])?;
        Ok(Self {
            dir,
            tree: recorded + &changed,
        })
    }

    fn file(&self, name: &str) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        (&self.tree, name).hash(&mut hasher);
        self.dir.join(format!("{:016x}", hasher.finish()))
    }
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(root)
        .output()
        .map_err(|e| cannot_run("git", &e))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("git {arguments:?} failed ({})", output.status))
    }
}

fn job<'a>(
    built: &'a Built<'_>,
    passed: &Passed,
    kernel: &Kernel,
    release: &str,
    test: &Test,
) -> Job<'a> {
    let boots = ["--kernel", release, "--append", kernel.append];
    let (what, command) = match *test {
        Booted(machine, arguments) => {
            let what = [machine, arguments].concat();
            let machine = [&[ICOUNT, "--timeout", TIMEOUT], &boots[..], machine].concat();
            let command = [&[PROGRAM], arguments].concat();
            (what, built.guest(&machine, &built.policies, &command))
        }
        Torture(options) => {
            let mut command = built.tool();
            command.arg("torture").args(boots).args(options);
            ([&["torture"], options].concat(), command)
        }
    };
    let name = format!("{} {}: {}", kernel.kind, kernel.append, what.join(" "));
    let passed = passed.file(&format!("{release} {name}"));
    Job {
        name: name.clone(),
        run: Box::new(move || {
            if let Ok(line) = fs::read_to_string(&passed) {
                return Ok(format!("{line} (in an earlier run on this tree)"));
            }
            let line = tested(&name, command)?;
            fs::write(&passed, &line).map_err(|e| format!("{}: {e}", passed.display()))?;
            Ok(line)
        }),
    }
}

/// Builds the kernel if it is not there, and returns its release.
fn release(root: &Path, kind: &str) -> Result<String> {
    let output = Command::new(root.join("vm/sanitized.sh"))
        .arg(kind)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| cannot_run("vm/sanitized.sh", &e))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(format!(
            "vm/sanitized.sh {kind} failed ({}); see above",
            output.status
        ))
    }
}
