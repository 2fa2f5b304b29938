// SPDX-License-Identifier: GPL-2.0-only
//! `cargo xtask kernels`: builds for kernels of Debian's archive, boots each of them, tests it
//! briefly, and writes the table of results in docs/kernel-policy.md.

use crate::{
    booted::{judged, side_by_side, Built, Done, Job, Shown, ICOUNT, PROGRAM},
    steps::cannot_run,
    Result,
};
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

const PAGE: &str = "docs/kernel-policy.md";
/// The table is between these lines.
const BEGIN: &str = "<!-- kernels: written by make kernels -->\n";
const END: &str = "<!-- kernels: end -->\n";

/// The policies that the tests of each kernel load.
const POLICIES: [&str; 7] = [
    "wfq", "fifo", "fifo-c", "faulty", "relay-v1", "relay-v2", "echo",
];

/// Exit code of `baton` when the machine is at fault.
const ENVIRONMENT: i32 = 3;

/// Tests the kernels of each suite and flavour in Debian, and writes the table of results.
pub fn all(root: &Path) -> Result {
    let built = Built::new(root)?;
    let job = |release: String| {
        let (name, built) = (release.clone(), &built);
        Job {
            name,
            run: Box::new(move || tried(built, &release)?.judged()),
        }
    };
    let done = side_by_side(fetched(root, &[])?.into_iter().map(job).collect());
    let mut table = String::from("| kernel | |\n| --- | --- |\n");
    for Done { name, end, .. } in &done {
        let text = end.clone().unwrap_or_else(|why| format!("FAILED: {why}"));
        table += &format!("| {name} | {text} |\n");
    }
    let page = root.join(PAGE);
    let text = fs::read_to_string(&page).map_err(|e| format!("{PAGE}: {e}"))?;
    let parts = text.split_once(BEGIN).zip(text.split_once(END));
    let ((before, _), (_, after)) =
        parts.ok_or(format!("{PAGE} has no place for the table of kernels"))?;
    fs::write(&page, format!("{before}{BEGIN}{table}{END}{after}"))
        .map_err(|e| format!("{PAGE}: {e}"))?;
    judged(&done)
}

/// Fetches the other flavours of the root's kernel, and returns their releases.
pub fn flavours(root: &Path) -> Result<Vec<String>> {
    let usual = fs::read_to_string("/kernel/default")
        .map_err(|e| format!("/kernel/default: {e}; make the root anew"))?;
    let version = usual.trim().trim_end_matches("-cloud-amd64");
    fetched(
        root,
        &[&format!("{version}-amd64"), &format!("{version}-rt-amd64")],
    )
}

/// `cargo xtask flavours`: tests only these flavours.
pub fn all_flavours(root: &Path) -> Result {
    let built = Built::new(root)?;
    flavours(root)?
        .iter()
        .try_for_each(|release| must_pass(&built, release).map(drop))
}

/// The result of a kernel that is required to pass.
pub fn must_pass(built: &Built<'_>, release: &str) -> Result<String> {
    match tried(built, release)? {
        End::Refused(why) => Err(format!("refused: {why}")),
        end => end.judged(),
    }
}

fn fetched(root: &Path, releases: &[&str]) -> Result<Vec<String>> {
    let mut script = Command::new(root.join("vm/kernels.sh"));
    let output = script
        .args(releases)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| cannot_run("vm/kernels.sh", &e))?;
    if !output.status.success() {
        return Err(format!(
            "vm/kernels.sh failed ({}); see above",
            output.status
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_owned)
        .collect())
}

enum End {
    Passed(String),
    /// Baton refused it, for this reason.
    Refused(String),
    Failed(String),
}

impl End {
    /// The table's text for the kernel; an error if the kernel failed.
    fn judged(self) -> Result<String> {
        match self {
            Self::Passed(count) => Ok(count),
            Self::Refused(why) => Ok(format!("refused: {why}")),
            Self::Failed(why) => Err(why),
        }
    }
}

fn tried(built: &Built<'_>, release: &str) -> Result<End> {
    let machine = [
        "--kernel",
        release,
        "--cpus",
        "2",
        "--timeout",
        "1800",
        ICOUNT,
    ];
    let shown = Shown::of(
        release,
        built.guest(&machine, &POLICIES, &[PROGRAM, "--brief"]),
    )?;
    let last = |begin: &str| {
        let mut lines = shown
            .errors
            .lines()
            .filter_map(|line| line.strip_prefix(begin));
        let last = lines.next_back().unwrap_or("no reason was given");
        last.trim_end_matches(" (environment)").to_owned()
    };
    Ok(match (shown.status.code(), shown.counted()) {
        (Some(0), Some(count)) => End::Passed(count.to_owned()),
        (Some(ENVIRONMENT), _) => End::Refused(last("baton build: ")),
        (_, Some(count)) => End::Failed(count.to_owned()),
        _ => End::Failed(last("baton: ")),
    })
}
