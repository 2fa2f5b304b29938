// SPDX-License-Identifier: GPL-2.0-only
//! `baton hints`: the permissions to send hints to a policy.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use baton_abi::{
    BatonGrant, BatonGrantAct, BATON_GRANT_CGROUP, BATON_GRANT_GROUP, BATON_GRANT_USER,
    BATON_HINTS_MAX_ENTRIES, BATON_HINTS_MIN_ENTRIES, BATON_MAX_GRANTS,
};
use clap::{Args, Subcommand};
use rustix::io::Errno;
use serde::Serialize;

use super::{print, print_json};
use crate::cli::Output;
use baton_control::device::{no_grant, text, Device};
use baton_control::error::{Error, Result};
use baton_control::kernel::{self, Lock};
use baton_control::{cgroups, names};

#[derive(Subcommand, Debug)]
pub enum Hints {
    /// Permit applications to open queues to a policy, which need not be loaded.
    Grant {
        #[command(flatten)]
        to: To,
        /// Maximum number of hints, and of replies, in a queue: a power of two.
        #[arg(long, value_name = "N", default_value_t = BATON_HINTS_MIN_ENTRIES, value_parser = entries)]
        entries: u32,
        /// Maximum number of queues that each user may have open. A thread has one.
        #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
        queues: u32,
        /// Permit hints to name threads of other processes.
        #[arg(long)]
        any_thread: bool,
    },
    /// Revoke a grant, and close the queues that were opened by it.
    Revoke {
        #[command(flatten)]
        to: To,
    },
    /// List all grants.
    List {
        #[command(flatten)]
        output: Output,
    },
}

/// An application must match all that is given.
#[derive(Args, Debug)]
#[group(id = "who", required = true, multiple = true, args = ["user", "group", "cgroup"])]
pub struct To {
    /// Name of the policy.
    #[arg(value_parser = names::policy)]
    pub policy: String,
    /// A user, by name or number.
    #[arg(long)]
    pub user: Option<String>,
    /// A group, by name or number.
    #[arg(long)]
    pub group: Option<String>,
    /// A cgroup (v2), with all cgroups below it. A path, or a name below /sys/fs/cgroup.
    #[arg(long)]
    pub cgroup: Option<PathBuf>,
}

fn entries(text: &str) -> std::result::Result<u32, String> {
    let range = BATON_HINTS_MIN_ENTRIES..=BATON_HINTS_MAX_ENTRIES;
    text.parse()
        .ok()
        .filter(|n: &u32| n.is_power_of_two() && range.contains(n))
        .ok_or_else(|| {
            format!(
                "a power of two from {BATON_HINTS_MIN_ENTRIES} to \
            {BATON_HINTS_MAX_ENTRIES} is needed"
            )
        })
}

/// A grant, for output.
#[derive(Debug, Serialize)]
struct Granted {
    policy: String,
    user: Option<u32>,
    group: Option<u32>,
    cgroup: Option<u64>,
    entries: u32,
    queues: u32,
    any_thread: bool,
    open: u32,
}

pub fn command(command: &Hints) -> Result<ExitCode> {
    match command {
        Hints::Grant {
            to,
            entries,
            queues,
            any_thread,
        } => {
            let (entries, queues, any_thread) = (*entries, *queues, u32::from(*any_thread));
            set(BatonGrant {
                set: BatonGrantAct::Grant as u32,
                entries,
                queues,
                any_thread,
                ..grant(to)?
            })
        }
        Hints::Revoke { to } => set(BatonGrant {
            set: BatonGrantAct::Revoke as u32,
            ..grant(to)?
        }),
        Hints::List { output } => list(*output),
    }
}

fn grant(to: &To) -> Result<BatonGrant> {
    let mut grant = BatonGrant {
        name: baton_control::device::field(&to.policy),
        ..no_grant(0)
    };
    if let Some(user) = &to.user {
        grant.who |= BATON_GRANT_USER;
        grant.user = number(user, "user", "/etc/passwd")?;
    }
    if let Some(group) = &to.group {
        grant.who |= BATON_GRANT_GROUP;
        grant.group = number(group, "group", "/etc/group")?;
    }
    if let Some(cgroup) = &to.cgroup {
        grant.who |= BATON_GRANT_CGROUP;
        grant.cgroup = cgroups::id(&cgroups::find(cgroup)?)?;
    }
    Ok(grant)
}

/// The number of a user or a group.
fn number(name: &str, what: &str, file: &str) -> Result<u32> {
    let known = || {
        fs::read_to_string(Path::new(file))
            .ok()
            .and_then(|text| in_table(&text, name))
    };
    name.parse().ok().or_else(known).ok_or_else(|| {
        Error::user(
            format!("there is no {what} {name} in {file}"),
            "check the name, or give the number",
        )
    })
}

/// The third field of the line whose first field is the name.
fn in_table(table: &str, name: &str) -> Option<u32> {
    let mut lines = table.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| {
        (fields.next() == Some(name))
            .then(|| fields.nth(1)?.parse().ok())
            .flatten()
    })
}

fn set(grant: BatonGrant) -> Result<ExitCode> {
    kernel::require_root("granting hints")?;
    let device = Device::open()?;
    let _lock = Lock::take()?;
    device.grant(grant).map_err(|errno| match errno {
        Errno::NOENT => Error::user("that was not granted", "see the grants: baton hints list"),
        Errno::NOSPC => Error::user(
            format!("there are {BATON_MAX_GRANTS} grants already"),
            "revoke one: baton hints list",
        ),
        other => Error::baton(format!("the grant was not changed: {other}")),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn list(output: Output) -> Result<ExitCode> {
    let grants = Device::open()?.grants()?.into_iter().map(|grant| {
        let is = |bit: u32| grant.who & bit != 0;
        Granted {
            policy: text(&grant.name),
            user: is(BATON_GRANT_USER).then_some(grant.user),
            group: is(BATON_GRANT_GROUP).then_some(grant.group),
            cgroup: is(BATON_GRANT_CGROUP).then_some(grant.cgroup),
            entries: grant.entries,
            queues: grant.queues,
            any_thread: grant.any_thread != 0,
            open: grant.open,
        }
    });
    let grants: Vec<Granted> = grants.collect();
    if output.json {
        print_json(&grants)?
    } else {
        print(table(&grants))?
    }
    Ok(ExitCode::SUCCESS)
}

fn table(grants: &[Granted]) -> String {
    let or_all = |number: Option<u64>| number.map_or("-".into(), |number| number.to_string());
    let line = |g: &Granted| {
        let (user, group, cgroup) = (
            or_all(g.user.map(u64::from)),
            or_all(g.group.map(u64::from)),
            or_all(g.cgroup),
        );
        let any = if g.any_thread { "any" } else { "own" };
        format!(
            "{:<16} {user:>10} {group:>10} {cgroup:>10} {:>8} {:>7} {any:>8} {:>6}\n",
            g.policy, g.entries, g.queues, g.open
        )
    };
    let head = format!(
        "{:<16} {:>10} {:>10} {:>10} {:>8} {:>7} {:>8} {:>6}\n",
        "POLICY", "USER", "GROUP", "CGROUP", "ENTRIES", "QUEUES", "THREADS", "OPEN"
    );
    head + &grants.iter().map(line).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_tables() {
        let table = "root:x:0:0:root:/root:/bin/sh\nweb:x:1001:\nbad:x:none:\n";
        let check = |name: &str, expected: Option<u32>| {
            assert_eq!(in_table(table, name), expected, "{name}")
        };
        check("root", Some(0));
        check("web", Some(1001));
        check("bad", None);
        check("we", None);
    }

    #[test]
    fn numbers_of_entries() {
        assert_eq!(entries("64"), Ok(64));
        for wrong in ["8", "17", "8192", "x", "-16"] {
            assert!(entries(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_table_has_a_line_for_each() {
        let granted = Granted {
            policy: "echo".into(),
            user: Some(1000),
            group: None,
            cgroup: None,
            entries: 16,
            queues: 256,
            any_thread: false,
            open: 3,
        };
        let shown = table(&[granted]);
        let words: Vec<&str> = shown.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(words, ["echo", "1000", "-", "-", "16", "256", "own", "3"]);
    }
}
