// SPDX-License-Identifier: GPL-2.0-only
//! `/etc/baton.toml`: the wanted state of the machine. It is read and checked here. [`plan`]
//! determines the steps to that state, and `baton apply` carries them out.

pub mod plan;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::Spanned;

use baton_abi::{
    BATON_AGENT_ENTRIES, BATON_AGENT_MAX_ENTRIES, BATON_AGENT_MIN_ENTRIES, BATON_ENCLAVE_LIMIT_MS,
    BATON_ENCLAVE_MAX_LIMIT_MS, BATON_ENCLAVE_MIN_LIMIT_MS,
};
use baton_control::cpulist::CpuList;
use baton_control::error::{Error, Result};
use baton_control::names;

/// The default path.
pub const PATH: &str = "/etc/baton.toml";

/// The contents of a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Baton schedules every normal task of the machine, not only those of class SCHED_EXT.
    #[serde(default)]
    pub all: bool,
    /// Number of task slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tasks: Option<Spanned<u32>>,
    /// Stall limit, ms: a task may be queued for at most this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_ms: Option<Spanned<u32>>,
    /// In the order in which they are asked.
    #[serde(default, rename = "policy", skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<Policy>,
    #[serde(default, rename = "partition", skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<Partition>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    pub name: Spanned<String>,
    /// The file of its module, if it is not in the search path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<Spanned<PathBuf>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<Spanned<String>>,
    /// It has the tasks that are assigned to no other policy.
    #[serde(default, skip_serializing_if = "is_false")]
    pub default: bool,
    /// The guaranteed share of each CPU, percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<Spanned<u32>>,
    /// Size of the flight recorder for each CPU, MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flight: Option<Spanned<u32>>,
    /// The cgroups whose tasks belong to the policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<Spanned<String>>,
    /// It is an enclave, whose agent decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enclave: Option<Spanned<Enclave>>,
    /// Its module is loaded, but it was never started, for example because a command was killed.
    #[serde(skip)]
    pub is_idle: bool,
}

/// What an enclave has beside that of any policy. What is absent has its default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Enclave {
    /// The user whose processes may be its agents, beside root's. A number once it is checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<User>,
    /// No task waits longer than this for an agent that does not answer, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_ms: Option<u32>,
    /// Messages that the ring of each CPU holds, a power of two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<u32>,
}

/// A user of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum User {
    Number(u32),
    Name(String),
}

impl User {
    /// The number, if it is known.
    fn number(&self) -> Option<u32> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Name(_) => None,
        }
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

impl Enclave {
    /// The number of its user, once it is checked.
    pub fn user(&self) -> Option<u32> {
        self.user.as_ref().and_then(User::number)
    }

    /// Has it the limit and the entries of the other?
    pub fn has_size_of(&self, other: &Self) -> bool {
        let limit = |of: &Self| of.limit_ms.unwrap_or(BATON_ENCLAVE_LIMIT_MS);
        let entries = |of: &Self| of.entries.unwrap_or(BATON_AGENT_ENTRIES);
        limit(self) == limit(other) && entries(self) == entries(other)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    pub name: Spanned<String>,
    pub cpus: Spanned<CpuList>,
    pub policies: Spanned<Vec<String>>,
}

/// In MiB, as for `baton record --flight`.
const MAX_FLIGHT: u32 = 4000;

fn is_false(value: &bool) -> bool {
    !value
}

/// A value without a position in a file.
pub fn unplaced<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

impl Policy {
    pub fn named(name: &str) -> Self {
        let name = unplaced(name.to_owned());
        Self {
            name,
            module: None,
            options: None,
            default: false,
            share: None,
            flight: None,
            cgroups: Vec::new(),
            enclave: None,
            is_idle: false,
        }
    }

    pub fn name(&self) -> &str {
        self.name.get_ref()
    }

    pub fn options(&self) -> &str {
        self.options
            .as_ref()
            .map_or("", |options| options.get_ref())
    }

    pub fn flight(&self) -> u32 {
        self.flight.as_ref().map_or(0, |mib| *mib.get_ref())
    }

    pub fn enclave(&self) -> Option<&Enclave> {
        self.enclave.as_ref().map(Spanned::get_ref)
    }

    pub fn share(&self) -> u32 {
        self.share.as_ref().map_or(0, |share| *share.get_ref())
    }
}

impl Policy {
    /// An enclave has no module, and no agent when the file is applied. The program that becomes
    /// its agent chooses the policy and its options.
    fn check_enclave(
        &mut self,
        machine: &Machine,
    ) -> std::result::Result<(), (Range<usize>, String)> {
        let name = self.name.span();
        let Some(enclave) = &mut self.enclave else {
            return Ok(());
        };
        let has = [
            (self.module.is_some(), "module"),
            (self.options.is_some(), "options"),
            (self.flight.is_some(), "flight"),
        ];
        if let Some((_, key)) = has.iter().find(|(has, _)| *has) {
            let why = format!("an enclave has no agent yet, so it cannot have `{key}`");
            return Err((name, why));
        }
        let at = enclave.span();
        let enclave = enclave.get_mut();
        if let Some(user) = &mut enclave.user {
            let number = (machine.user)(&user.to_string());
            let number = number.ok_or_else(|| (at.clone(), format!("there is no user {user}")))?;
            *user = User::Number(number);
        }
        // Processes of root may always be agents.
        enclave.user.take_if(|user| *user == User::Number(0));
        let limits = BATON_ENCLAVE_MIN_LIMIT_MS..=BATON_ENCLAVE_MAX_LIMIT_MS;
        let sizes = BATON_AGENT_MIN_ENTRIES..=BATON_AGENT_MAX_ENTRIES;
        if enclave.limit_ms.is_some_and(|ms| !limits.contains(&ms)) {
            let why = format!("limit_ms is {} to {}", limits.start(), limits.end());
            return Err((at, why));
        }
        let is_size = |n: u32| n.is_power_of_two() && sizes.contains(&n);
        if enclave.entries.is_some_and(|n| !is_size(n)) {
            let (first, last) = (sizes.start(), sizes.end());
            return Err((at, format!("entries is a power of two, {first} to {last}")));
        }
        Ok(())
    }
}

/// The machine with which a file is checked.
pub struct Machine {
    /// The possible CPUs.
    pub possible: CpuList,
    pub online: CpuList,
    /// The canonical name of a cgroup, if it exists.
    pub cgroup: fn(&str) -> Option<String>,
    /// The number of a user, if there is one of that name or number.
    pub user: fn(&str) -> Option<u32>,
}

impl Config {
    /// Reads and checks a file. An error names the line and the cause.
    pub fn read(path: &Path, machine: &Machine) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::file(format!("reading {}", path.display()), &e))?;
        Self::parse(&text, machine).map_err(|(at, why)| {
            let line = text.get(..at.start).unwrap_or(&text).matches('\n').count() + 1;
            let quoted = text.lines().nth(line - 1).unwrap_or("").trim();
            Error::user(
                format!(
                    "{}, line {line}: {why}\n  {line:>4} | {quoted}",
                    path.display()
                ),
                "fix that line; nothing was changed (docs/configuration.md has all keys)",
            )
        })
    }

    fn parse(text: &str, machine: &Machine) -> std::result::Result<Self, (Range<usize>, String)> {
        let mut config: Self = toml::from_str(text)
            .map_err(|e| (e.span().unwrap_or(0..0), e.message().replace('\n', "; ")))?;
        config.check(machine)?;
        Ok(config)
    }

    /// Finds contradictions and invalid values, with their positions. Converts names and options
    /// into the kernel's form.
    fn check(&mut self, machine: &Machine) -> std::result::Result<(), (Range<usize>, String)> {
        self.check_core()?;
        let (mut names, mut cgroups, mut shares) = (BTreeSet::new(), BTreeSet::new(), 0_u32);
        let mut has_default = false;
        for policy in &mut self.policies {
            let at = policy.name.span();
            *policy.name.get_mut() =
                names::policy(policy.name()).map_err(|why| (at.clone(), why))?;
            if !names.insert(policy.name().to_owned()) {
                return Err((at, format!("the policy {} is there twice", policy.name())));
            }
            if policy.default && std::mem::replace(&mut has_default, true) {
                return Err((at, "a second policy is the default: there is one".into()));
            }
            if policy.default && !self.all {
                return Err((
                    at,
                    "a default policy needs `all = true` at the top, which makes tasks Baton's"
                        .into(),
                ));
            }
            policy.check_enclave(machine)?;
            if let Some(options) = &mut policy.options {
                let at = options.span();
                *options.get_mut() = names::options(options.get_ref()).map_err(|why| (at, why))?;
            }
            if let Some(share) = &policy.share {
                shares = shares.saturating_add(*share.get_ref());
                if shares > 100 {
                    return Err((
                        share.span(),
                        format!("with this the shares are {shares} %, more than 100"),
                    ));
                }
            }
            if let Some(flight) = policy
                .flight
                .as_ref()
                .filter(|mib| *mib.get_ref() > MAX_FLIGHT)
            {
                return Err((
                    flight.span(),
                    format!("a flight recorder of more than {MAX_FLIGHT} MiB for each CPU"),
                ));
            }
            if let Some(module) = policy
                .module
                .as_ref()
                .filter(|module| !module.get_ref().is_file())
            {
                return Err((
                    module.span(),
                    format!("there is no file {}", module.get_ref().display()),
                ));
            }
            for cgroup in &mut policy.cgroups {
                let at = cgroup.span();
                let Some(name) = (machine.cgroup)(cgroup.get_ref()) else {
                    return Err((
                        at,
                        format!("there is no cgroup {} (version 2)", cgroup.get_ref()),
                    ));
                };
                *cgroup.get_mut() = name.clone();
                if !cgroups.insert(name.clone()) {
                    return Err((at, format!("the cgroup /{name} is there twice")));
                }
            }
        }
        if names.len() > baton_abi::BATON_MAX_POLICIES || cgroups.len() > baton_abi::BATON_MAX_RULES
        {
            return Err((
                0..0,
                "there are at most 16 policies, and at most 64 cgroups that have one".into(),
            ));
        }
        self.check_partitions(machine, &names)?;
        self.check_users()
    }

    /// The agent of a user acts on the CPUs of a partition, and not on all of the machine.
    fn check_users(&self) -> std::result::Result<(), (Range<usize>, String)> {
        for policy in &self.policies {
            let Some(enclave) = &policy.enclave else {
                continue;
            };
            let is_member = |partition: &Partition| {
                let policies = partition.policies.get_ref();
                policies.iter().any(|member| member == policy.name())
            };
            if enclave.get_ref().user.is_some() && !self.partitions.iter().any(is_member) {
                let name = policy.name();
                let why = format!("an enclave with a user needs a [[partition]] for {name}");
                return Err((enclave.span(), why));
            }
        }
        Ok(())
    }

    fn check_core(&self) -> std::result::Result<(), (Range<usize>, String)> {
        let limits = [
            (&self.max_tasks, "max_tasks", 256..=1 << 20),
            (&self.stall_ms, "stall_ms", 10..=3_600_000),
        ];
        for (value, name, limits) in limits {
            if let Some(value) = value
                .as_ref()
                .filter(|value| !limits.contains(value.get_ref()))
            {
                return Err((
                    value.span(),
                    format!("{name} is {} to {}", limits.start(), limits.end()),
                ));
            }
        }
        Ok(())
    }

    fn check_partitions(
        &mut self,
        machine: &Machine,
        policies: &BTreeSet<String>,
    ) -> std::result::Result<(), (Range<usize>, String)> {
        let mut left = machine.online.clone();
        for partition in &mut self.partitions {
            let at = partition.policies.span();
            for policy in partition.policies.get_mut() {
                *policy = names::policy(policy).map_err(|why| (at.clone(), why))?;
            }
        }
        for (i, partition) in self.partitions.iter().enumerate() {
            let (name, cpus) = (partition.name.get_ref(), partition.cpus.get_ref());
            let earlier = &self.partitions[..i];
            names::partition(name).map_err(|why| (partition.name.span(), why))?;
            if earlier.iter().any(|other| other.name.get_ref() == name) {
                return Err((
                    partition.name.span(),
                    format!("the partition {name} is there twice"),
                ));
            }
            if let Some(cpu) = cpus.first_not_in(&machine.possible) {
                return Err((partition.cpus.span(), format!("there is no CPU {cpu}")));
            }
            for other in earlier {
                if let Some(cpu) = cpus.common(other.cpus.get_ref()) {
                    return Err((
                        partition.cpus.span(),
                        format!("CPU {cpu} is in {} already", other.name.get_ref()),
                    ));
                }
            }
            let at = partition.policies.span();
            if partition.policies.get_ref().is_empty() {
                return Err((at, "a partition has at least one policy".into()));
            }
            for (j, policy) in partition.policies.get_ref().iter().enumerate() {
                if partition.policies.get_ref()[..j].contains(policy) {
                    return Err((at, format!("the policy {policy} is there twice")));
                }
                if !policies.contains(policy) {
                    return Err((at, format!("there is no [[policy]] {policy}")));
                }
                if earlier
                    .iter()
                    .any(|other| other.policies.get_ref().contains(policy))
                {
                    return Err((
                        at,
                        format!("the policy {policy} is in another partition already"),
                    ));
                }
            }
            left.remove(cpus);
            if left.is_empty() {
                return Err((
                    partition.cpus.span(),
                    "no CPU that is online is left for all other tasks".into(),
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        let cpus = |text: &str| text.parse::<CpuList>().unwrap();
        Machine {
            possible: cpus("0-7"),
            online: cpus("0-3"),
            cgroup: |name| (name != "nowhere").then(|| name.trim_matches('/').to_owned()),
            user: |name| (name == "alice").then_some(1000),
        }
    }

    const GOOD: &str = r#"
        all = true
        stall_ms = 5000

        [[policy]]
        name = "fifo-c"
        options = "slice=3ms, x=1"
        share = 20
        flight = 4
        cgroups = ["/latency.slice/", "a/b"]

        [[policy]]
        name = "wfq"
        default = true

        [[policy]]
        name = "theirs"
        enclave = { user = "alice", limit_ms = 500, entries = 256 }

        [[partition]]
        name = "fast"
        cpus = "2-3,5"
        policies = ["wfq"]

        [[partition]]
        name = "theirs"
        cpus = "6"
        policies = ["theirs"]
    "#;

    #[test]
    fn a_good_file() {
        let config = Config::parse(GOOD, &machine()).unwrap();
        assert_eq!(config.policies[0].name(), "fifo_c");
        assert_eq!(config.policies[0].options(), "slice=3ms,x=1");
        assert_eq!(config.policies[0].cgroups[0].get_ref(), "latency.slice");
        assert_eq!(
            (config.policies[0].share(), config.policies[1].share()),
            (20, 0)
        );
        assert_eq!(
            (config.policies[0].flight(), config.policies[1].flight()),
            (4, 0)
        );
        let enclave = config.policies[2].enclave().unwrap();
        assert_eq!(enclave.user(), Some(1000));
        assert_eq!((enclave.limit_ms, enclave.entries), (Some(500), Some(256)));
        assert_eq!(config.partitions[0].cpus.get_ref().to_string(), "2-3,5");
        // Reading the written text gives the same configuration.
        let written = toml::to_string(&config).unwrap();
        let numbers = Machine {
            user: |number| number.parse().ok(),
            ..machine()
        };
        assert_eq!(Config::parse(&written, &numbers).unwrap(), config);
        assert_eq!(Config::parse("", &machine()).unwrap(), Config::default());
    }

    #[test]
    fn bad_files() {
        // Changes the first line with `old`. The error must name that line.
        let check = |old: &str, new: &str, word: &str| {
            let text = GOOD.replacen(old, new, 1);
            let (at, why) = Config::parse(&text, &machine()).unwrap_err();
            let changed = text
                .lines()
                .zip(GOOD.lines())
                .position(|(a, b)| a != b)
                .unwrap();
            assert_eq!(text[..at.start].matches('\n').count(), changed, "{why}");
            assert!(why.contains(word), "{why}");
        };
        check("all = true", "all = maybe", "");
        check("stall_ms", "stal_ms", "unknown field");
        check("5000", "5", "10 to 3600000");
        check("\"fifo-c\"", "\"wfq \"", "small letters");
        check("name = \"wfq\"", "name = \"fifo_c\"", "twice");
        check("slice=3ms,", "slice,", "KEY=VALUE");
        check("share = 20", "share = 120", "more than 100");
        check("share = 20", "share = -1", "");
        check("flight = 4", "flight = 4001", "more than 4000 MiB");
        check("\"a/b\"", "\"nowhere\"", "no cgroup nowhere");
        check("\"a/b\"", "\"latency.slice\"", "twice");
        check("\"alice\"", "\"bob\"", "no user bob");
        check("limit_ms = 500", "limit_ms = 5", "20 to 60000");
        check("entries = 256", "entries = 300", "power of two");
        check("user = ", "agent = ", "unknown field");
        check("2-3,5", "2-3,8", "no CPU 8");
        check("2-3,5", "2-", "'' in '2-'");
        check("2-3,5", "0-3", "no CPU that is online");
        check("[\"wfq\"]", "[\"nobody\"]", "no [[policy]] nobody");
        check("[\"wfq\"]", "[]", "at least one policy");
        check("[\"wfq\"]", "[\"wfq\", \"wfq\"]", "there twice");
        check("\"fast\"", "\"Fast\"", "small letters");
        let whole = |text: &str| Config::parse(text, &machine()).unwrap_err().1;
        assert!(whole("[[policy]]\nname = \"wfq\"\ndefault = true").contains("needs `all = true`"));
        let with_options = "[[policy]]\nname = \"a\"\noptions = \"x=1\"\nenclave = {}";
        assert!(whole(with_options).contains("cannot have `options`"));
        let alone = "[[policy]]\nname = \"a\"\nenclave = { user = \"alice\" }";
        assert!(whole(alone).contains("needs a [[partition]] for a"));
        let two =
            format!("{GOOD}\n[[partition]]\nname = \"b\"\ncpus = \"3\"\npolicies = [\"fifo_c\"]");
        assert!(whole(&two).contains("CPU 3 is in fast already"));
        let two =
            format!("{GOOD}\n[[partition]]\nname = \"b\"\ncpus = \"1\"\npolicies = [\"wfq\"]");
        assert!(whole(&two).contains("another partition already"));
        assert!(!whole("[[policy]\n").is_empty());
    }
}
