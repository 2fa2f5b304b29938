// SPDX-License-Identifier: GPL-2.0-only
//! `cargo xtask kernels`: kernels of Debian's archive, each built for, booted, and tried briefly; the table of that in docs/kernel-policy.md.

use crate::{
    booted::{Built, Shown, ICOUNT, PROGRAM},
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

/// What the tests of each kernel load.
const POLICIES: [&str; 7] = ["wfq", "fifo", "fifo-c", "faulty", "relay-v1", "relay-v2", "echo"];

/// `baton` ends so where the machine is at fault.
const ENVIRONMENT: i32 = 3;

/// Those that Debian has, of each suite and flavour; and the table of what came of it.
pub fn all(root: &Path) -> Result {
    let mut table = String::from("| kernel | |\n| --- | --- |\n");
    let mut failed = Vec::new();
    let built = Built::new(root)?;
    for release in fetched(root, &[])? {
        let end = tried(&built, &release)?;
        println!("== kernel {release}: {}", end.text());
        table += &format!("| {release} | {} |\n", end.text());
        if let End::Failed(_) = end {
            failed.push(release);
        }
    }
    let page = root.join(PAGE);
    let text = fs::read_to_string(&page).map_err(|e| format!("{PAGE}: {e}"))?;
    let parts = text.split_once(BEGIN).zip(text.split_once(END));
    let ((before, _), (_, after)) = parts.ok_or(format!("{PAGE} has no place for the table of kernels"))?;
    fs::write(&page, format!("{before}{BEGIN}{table}{END}{after}")).map_err(|e| format!("{PAGE}: {e}"))?;
    if failed.is_empty() {
        Ok(())
    } else {
        Err(format!("kernels failed: {}; see above", failed.join(", ")))
    }
}

/// The other flavours of the root's kernel, fetched: their releases.
pub fn flavours(root: &Path) -> Result<Vec<String>> {
    let usual =
        fs::read_to_string("/kernel/default").map_err(|e| format!("/kernel/default: {e}; make the root anew"))?;
    let version = usual.trim().trim_end_matches("-cloud-amd64");
    fetched(root, &[&format!("{version}-amd64"), &format!("{version}-rt-amd64")])
}

/// `cargo xtask flavours`: only those.
pub fn all_flavours(root: &Path) -> Result {
    let built = Built::new(root)?;
    flavours(root)?.iter().try_for_each(|release| must_pass(&built, release).map(drop))
}

/// The end of a kernel that is to pass.
pub fn must_pass(built: &Built<'_>, release: &str) -> Result<String> {
    match tried(built, release)? {
        End::Passed(count) => Ok(count),
        end => Err(end.text()),
    }
}

fn fetched(root: &Path, releases: &[&str]) -> Result<Vec<String>> {
    let mut script = Command::new(root.join("vm/kernels.sh"));
    let output =
        script.args(releases).stderr(Stdio::inherit()).output().map_err(|e| cannot_run("vm/kernels.sh", &e))?;
    if !output.status.success() {
        return Err(format!("vm/kernels.sh failed ({}); see above", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

enum End {
    Passed(String),
    /// By Baton, which says why.
    Refused(String),
    Failed(String),
}

impl End {
    fn text(&self) -> String {
        match self {
            Self::Passed(count) => count.clone(),
            Self::Refused(why) => format!("refused: {why}"),
            Self::Failed(why) => format!("FAILED: {why}"),
        }
    }
}

fn tried(built: &Built<'_>, release: &str) -> Result<End> {
    let machine = ["--kernel", release, "--cpus", "2", "--timeout", "1800", ICOUNT];
    let shown = Shown::of(release, built.guest(&machine, &POLICIES, &[PROGRAM, "--brief"]))?;
    let last = |begin: &str| {
        let mut lines = shown.errors.lines().filter_map(|line| line.strip_prefix(begin));
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
