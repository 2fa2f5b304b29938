// SPDX-License-Identifier: GPL-2.0-only
//! Computes the steps from one configuration of the machine to another. Pure: both are arguments.

use std::fmt;
use std::path::PathBuf;

use super::{Config, Enclave, Policy};
use baton_control::cpulist::CpuList;

/// A step. Each can be carried out, and the plan back undoes it.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Loads the core with this many task slots.
    Core {
        max_tasks: Option<u32>,
    },
    Stall {
        ms: u32,
    },
    /// Loads a policy and starts it, without tasks.
    Load {
        policy: String,
        module: Option<PathBuf>,
        options: String,
    },
    /// Makes an enclave, without an agent.
    Enclave {
        name: String,
        how: Enclave,
    },
    /// Lets a user's processes be the agents of an enclave; `None`: root's only.
    EnclaveUser {
        name: String,
        user: Option<u32>,
    },
    /// Replaces a policy by itself with other options; its state is kept if it can be handed over.
    Options {
        policy: String,
        module: Option<PathBuf>,
        options: String,
    },
    /// Attaches the shim for all tasks, or for those of class SCHED_EXT.
    Attach {
        all: bool,
    },
    Share {
        policy: String,
        percent: u32,
    },
    /// Sets the size of a policy's flight recorder for each CPU, MiB; 0 removes it.
    Flight {
        policy: String,
        mib: u32,
    },
    Order {
        policies: Vec<String>,
    },
    /// Sets a partition. Without CPUs and policies it is ended.
    Partition {
        name: String,
        cpus: CpuList,
        policies: Vec<String>,
    },
    Cgroup {
        cgroup: String,
        policy: Option<String>,
    },
    Default {
        policy: Option<String>,
    },
    Unload {
        policy: String,
    },
    /// Removes the shim and the core.
    UnloadAll,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with = |options: &String| {
            if options.is_empty() {
                "without options".into()
            } else {
                format!("with {options}")
            }
        };
        match self {
            Self::Core { max_tasks: None } => write!(f, "load the core"),
            Self::Core {
                max_tasks: Some(slots),
            } => write!(f, "load the core with {slots} task slots"),
            Self::Stall { ms } => write!(f, "a queued task may wait {ms} ms"),
            Self::Load {
                policy, options, ..
            } => write!(f, "load {policy} {}", with(options)),
            Self::Enclave { name, .. } => write!(f, "make the enclave {name}"),
            Self::EnclaveUser {
                name,
                user: Some(user),
            } => write!(f, "let processes of user {user} be the agents of {name}"),
            Self::EnclaveUser { name, user: None } => {
                write!(f, "let only processes of root be the agents of {name}")
            }
            Self::Options {
                policy, options, ..
            } => write!(f, "run {policy} {}", with(options)),
            Self::Attach { all: true } => write!(f, "take every normal task of the machine"),
            Self::Attach { all: false } => write!(f, "take tasks of class SCHED_EXT only"),
            Self::Share { policy, percent } => write!(f, "a share of {percent} % for {policy}"),
            Self::Flight { policy, mib: 0 } => write!(f, "no flight recorder for {policy}"),
            Self::Flight { policy, mib } => {
                write!(f, "a flight recorder of {mib} MiB for {policy}")
            }
            Self::Order { policies } => {
                write!(f, "ask policies in the order {}", policies.join(", "))
            }
            Self::Partition { name, policies, .. } if policies.is_empty() => {
                write!(f, "end partition {name}")
            }
            Self::Partition {
                name,
                cpus,
                policies,
            } => {
                write!(
                    f,
                    "partition {name}: CPUs {cpus} for {}",
                    policies.join(", ")
                )
            }
            Self::Cgroup {
                cgroup,
                policy: Some(policy),
            } => write!(f, "give cgroup /{cgroup} to {policy}"),
            Self::Cgroup {
                cgroup,
                policy: None,
            } => write!(f, "take cgroup /{cgroup} from its policy"),
            Self::Default {
                policy: Some(policy),
            } => write!(f, "give all other tasks to {policy}"),
            Self::Default { policy: None } => write!(f, "give all other tasks to no policy"),
            Self::Unload { policy } => write!(f, "unload {policy}"),
            Self::UnloadAll => write!(f, "unload the core"),
        }
    }
}

/// Parts of the kernel's state that are not in a configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    pub core: bool,
    pub attached: bool,
}

/// The steps from `is` to `to`, in an order in which each can be carried out. New policies are
/// loaded first and old ones are unloaded last, so tasks go directly from their old policy to the
/// new one. Among shares, users and partitions, a step that releases something precedes the one
/// that needs it.
pub fn plan(is: &Config, loaded: Loaded, to: &Config) -> Vec<Step> {
    let mut steps = Vec::new();
    if to.policies.is_empty() {
        if loaded.core {
            steps.push(Step::UnloadAll);
        }
        return steps;
    }
    if !loaded.core {
        steps.push(Step::Core {
            max_tasks: to.max_tasks.as_ref().map(|n| *n.get_ref()),
        });
    }
    if let Some(ms) = to.stall_ms.as_ref().map(|ms| *ms.get_ref()) {
        if is.stall_ms.as_ref().map(|ms| *ms.get_ref()) != Some(ms) {
            steps.push(Step::Stall { ms });
        }
    }
    for policy in &to.policies {
        let (name, options) = (policy.name().to_owned(), policy.options().to_owned());
        let module = policy
            .module
            .as_ref()
            .map(|module| module.get_ref().clone());
        if let Some(how) = policy.enclave() {
            if find(is, &name).is_none() {
                let how = how.clone();
                steps.push(Step::Enclave { name, how });
            }
            continue;
        }
        match find(is, policy.name()) {
            Some(old) if old.is_idle => steps.push(Step::Load {
                policy: name,
                module,
                options,
            }),
            None => steps.push(Step::Load {
                policy: name,
                module,
                options,
            }),
            Some(old) if old.options() != options => steps.push(Step::Options {
                policy: name,
                module,
                options,
            }),
            Some(_) => {}
        }
    }
    if !loaded.attached || is.all != to.all {
        steps.push(Step::Attach { all: to.all });
    }
    orders(is, to, &mut steps);
    shares(is, to, &mut steps);
    users_leave(is, to, &mut steps);
    partitions(is, to, &mut steps);
    users_come(is, to, &mut steps);
    memberships(is, to, loaded, &mut steps);
    flights(is, to, &mut steps);
    let gone = is
        .policies
        .iter()
        .filter(|policy| find(to, policy.name()).is_none());
    steps.extend(gone.map(|policy| Step::Unload {
        policy: policy.name().to_owned(),
    }));
    steps
}

/// The user of an enclave, by the name of its policy.
fn user_of(config: &Config, name: &str) -> Option<u32> {
    find(config, name).and_then(Policy::enclave)?.user()
}

/// Is the user of an enclave to lose it, if only for a moment? Its partition may end and begin
/// again.
fn is_interrupted(is: &Config, to: &Config, name: &str) -> bool {
    let partition = |config: &Config| {
        let mut all = config.partitions.iter();
        let found = all.find(|partition| partition.policies.get_ref().iter().any(|p| p == name))?;
        Some((found.name.get_ref().clone(), found.cpus.get_ref().clone()))
    };
    user_of(is, name) != user_of(to, name)
        || match (partition(is), partition(to)) {
            (Some((old, before)), Some((new, after))) => {
                old != new || before.common(&after).is_none()
            }
            _ => true,
        }
}

/// Takes the enclave from its user before the partition changes. Otherwise the user's agent could
/// use all CPUs in between.
fn users_leave(is: &Config, to: &Config, steps: &mut Vec<Step>) {
    let names = is.policies.iter().map(Policy::name);
    let left = names.filter(|name| user_of(is, name).is_some() && is_interrupted(is, to, name));
    steps.extend(left.map(|name| Step::EnclaveUser {
        name: name.to_owned(),
        user: None,
    }));
}

/// Gives an enclave to its user after its partition is set.
fn users_come(is: &Config, to: &Config, steps: &mut Vec<Step>) {
    let names = to.policies.iter().map(Policy::name);
    let come = names.filter(|name| user_of(to, name).is_some() && is_interrupted(is, to, name));
    steps.extend(come.map(|name| Step::EnclaveUser {
        name: name.to_owned(),
        user: user_of(to, name),
    }));
}

fn find<'c>(config: &'c Config, name: &str) -> Option<&'c Policy> {
    config.policies.iter().find(|policy| policy.name() == name)
}

fn orders(is: &Config, to: &Config, steps: &mut Vec<Step>) {
    let wanted: Vec<String> = to
        .policies
        .iter()
        .map(|policy| policy.name().to_owned())
        .collect();
    // New policies are added at the end as they are loaded. Policies that are unloaded do not
    // count.
    let stay = is
        .policies
        .iter()
        .map(Policy::name)
        .filter(|name| find(to, name).is_some());
    let come = wanted
        .iter()
        .map(String::as_str)
        .filter(|name| find(is, name).is_none());
    if !stay.chain(come).eq(wanted.iter().map(String::as_str)) {
        steps.push(Step::Order { policies: wanted });
    }
}

/// After all other changes to the policies that stay: a policy that cannot save its state is
/// created anew when its flight recorder begins.
fn flights(is: &Config, to: &Config, steps: &mut Vec<Step>) {
    let before = |name: &str| find(is, name).map_or(0, Policy::flight);
    let changed = to
        .policies
        .iter()
        .filter(|policy| before(policy.name()) != policy.flight());
    steps.extend(changed.map(|policy| Step::Flight {
        policy: policy.name().to_owned(),
        mib: policy.flight(),
    }));
}

/// Shares become smaller before others become larger, so that the sum never exceeds 100 %.
fn shares(is: &Config, to: &Config, steps: &mut Vec<Step>) {
    let before = |name: &str| find(is, name).map_or(0, Policy::share);
    let gone = is
        .policies
        .iter()
        .filter(|policy| find(to, policy.name()).is_none() && policy.share() != 0);
    steps.extend(gone.map(|policy| Step::Share {
        policy: policy.name().to_owned(),
        percent: 0,
    }));
    for smaller in [true, false] {
        let changed = to.policies.iter().filter(|policy| {
            let (old, new) = (before(policy.name()), policy.share());
            old != new && (new < old) == smaller
        });
        steps.extend(changed.map(|policy| Step::Share {
            policy: policy.name().to_owned(),
            percent: policy.share(),
        }));
    }
}

/// Each partition first gives up what it loses, so that no CPU or policy is ever in two.
fn partitions(is: &Config, to: &Config, steps: &mut Vec<Step>) {
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    let parts = |config: &Config| -> Vec<(String, CpuList, Vec<String>)> {
        let part = |p: &super::Partition| {
            (
                p.name.get_ref().clone(),
                p.cpus.get_ref().clone(),
                sorted(p.policies.get_ref().clone()),
            )
        };
        config.partitions.iter().map(part).collect()
    };
    let (old, new) = (parts(is), parts(to));
    let mut now = Vec::new();
    for (name, cpus, policies) in old {
        let (mut kept, mut members) = (cpus.clone(), policies.clone());
        match new.iter().find(|(other, ..)| *other == name) {
            Some((_, wanted, wanted_policies)) => {
                kept.keep(wanted);
                members.retain(|policy| wanted_policies.contains(policy));
            }
            None => kept = CpuList::default(),
        }
        if kept.is_empty() || members.is_empty() {
            (kept, members) = (CpuList::default(), Vec::new());
        }
        if (&kept, &members) != (&cpus, &policies) {
            steps.push(Step::Partition {
                name: name.clone(),
                cpus: kept.clone(),
                policies: members.clone(),
            });
        }
        now.push((name, kept, members));
    }
    let changed = new.into_iter().filter(|part| !now.contains(part));
    steps.extend(changed.map(|(name, cpus, policies)| Step::Partition {
        name,
        cpus,
        policies,
    }));
}

fn memberships(is: &Config, to: &Config, loaded: Loaded, steps: &mut Vec<Step>) {
    let rules = |config: &Config| -> Vec<(String, String)> {
        let of = |policy: &Policy| -> Vec<_> {
            policy
                .cgroups
                .iter()
                .map(|cgroup| (cgroup.get_ref().clone(), policy.name().to_owned()))
                .collect()
        };
        config.policies.iter().flat_map(of).collect()
    };
    let (old, new) = (rules(is), rules(to));
    let gone = old
        .iter()
        .filter(|(cgroup, _)| !new.iter().any(|(other, _)| other == cgroup));
    steps.extend(gone.map(|(cgroup, _)| Step::Cgroup {
        cgroup: cgroup.clone(),
        policy: None,
    }));
    let fresh = new.iter().filter(|rule| !old.contains(rule));
    steps.extend(fresh.map(|(cgroup, policy)| Step::Cgroup {
        cgroup: cgroup.clone(),
        policy: Some(policy.clone()),
    }));
    let default = |config: &Config| {
        config
            .policies
            .iter()
            .find(|p| p.default)
            .map(|p| p.name().to_owned())
    };
    let is_default = default(is).filter(|_| loaded.attached);
    if is_default != default(to) {
        steps.push(Step::Default {
            policy: default(to),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::{unplaced, Partition, User};
    use super::*;

    const RUNNING: Loaded = Loaded {
        core: true,
        attached: true,
    };

    fn part(name: &str, cpus: &str, policies: &[&str]) -> Partition {
        Partition {
            name: unplaced(name.into()),
            cpus: unplaced(cpus.parse().unwrap()),
            policies: unplaced(policies.iter().map(|p| (*p).to_owned()).collect()),
        }
    }

    fn config(policies: &[&str], partitions: Vec<Partition>) -> Config {
        Config {
            policies: policies.iter().map(|name| Policy::named(name)).collect(),
            partitions,
            ..Config::default()
        }
    }

    fn check(is: &Config, to: &Config, expected: &[&str]) {
        let steps: Vec<String> = plan(is, RUNNING, to).iter().map(Step::to_string).collect();
        assert_eq!(steps, expected);
        assert_eq!(plan(to, RUNNING, to), [], "nothing is to be done twice");
    }

    #[test]
    fn from_nothing_and_to_nothing() {
        let to = config(&["a", "b"], Vec::new());
        let none = Loaded::default();
        let steps: Vec<String> = plan(&Config::default(), none, &to)
            .iter()
            .map(Step::to_string)
            .collect();
        let expected = [
            "load the core",
            "load a without options",
            "load b without options",
            "take tasks of class SCHED_EXT only",
        ];
        assert_eq!(steps, expected);
        assert_eq!(plan(&Config::default(), none, &Config::default()), []);
        assert_eq!(plan(&to, RUNNING, &Config::default()), [Step::UnloadAll]);
    }

    #[test]
    fn policies_come_and_go_in_order() {
        let ab = config(&["a", "b"], Vec::new());
        check(
            &ab,
            &config(&["a", "b", "c"], Vec::new()),
            &["load c without options"],
        );
        check(&ab, &config(&["b"], Vec::new()), &["unload a"]);
        check(
            &ab,
            &config(&["b", "a"], Vec::new()),
            &["ask policies in the order b, a"],
        );
        let expected = [
            "load c without options",
            "ask policies in the order c, b",
            "unload a",
        ];
        check(&ab, &config(&["c", "b"], Vec::new()), &expected);
        let mut other = ab.clone();
        other.policies[1].options = Some(unplaced("x=1".into()));
        check(&ab, &other, &["run b with x=1"]);
        check(&other, &ab, &["run b without options"]);
        let mut idle = ab.clone();
        idle.policies[0].is_idle = true;
        idle.policies[0].share = Some(unplaced(30));
        let steps: Vec<String> = plan(&idle, RUNNING, &ab)
            .iter()
            .map(Step::to_string)
            .collect();
        assert_eq!(steps, ["load a without options", "a share of 0 % for a"]);
    }

    #[test]
    fn enclaves_are_made_and_get_users() {
        let of = |user: Option<u32>| {
            let partition = user.map(|_| part("p", "1", &["a"]));
            let mut config = config(&["a"], partition.into_iter().collect());
            let how = Enclave {
                user: user.map(User::Number),
                ..Enclave::default()
            };
            config.policies[0].enclave = Some(unplaced(how));
            config
        };
        let none = config(&["b"], Vec::new());
        check(&none, &of(None), &["make the enclave a", "unload b"]);
        let (begin, end) = ("partition p: CPUs 1 for a", "end partition p");
        let alice = "let processes of user 1 be the agents of a";
        let nobody = "let only processes of root be the agents of a";
        check(
            &none,
            &of(Some(1)),
            &["make the enclave a", begin, alice, "unload b"],
        );
        check(&of(None), &of(Some(1)), &[begin, alice]);
        check(&of(Some(1)), &of(None), &[nobody, end]);
        let bob = "let processes of user 2 be the agents of a";
        check(&of(Some(1)), &of(Some(2)), &[nobody, bob]);
        let mut elsewhere = of(Some(1));
        elsewhere.partitions = vec![part("p", "2", &["a"])];
        let other = "partition p: CPUs 2 for a";
        check(&of(Some(1)), &elsewhere, &[nobody, end, other, alice]);
        let mut wider = of(Some(1));
        wider.partitions = vec![part("p", "1-2", &["a"])];
        check(&of(Some(1)), &wider, &["partition p: CPUs 1-2 for a"]);
        let expected = ["load b without options", nobody, end, "unload a"];
        check(&of(Some(1)), &none, &expected);
    }

    #[test]
    fn flight_recorders_come_last() {
        let with = |mib: u32| {
            let mut config = config(&["a"], Vec::new());
            config.policies[0].flight = Some(mib).filter(|mib| *mib != 0).map(unplaced);
            config
        };
        check(&with(0), &with(4), &["a flight recorder of 4 MiB for a"]);
        check(&with(4), &with(0), &["no flight recorder for a"]);
    }

    #[test]
    fn shares_never_are_more_than_a_hundred_percent() {
        let with = |shares: [u32; 2]| {
            let mut config = config(&["a", "b"], Vec::new());
            config
                .policies
                .iter_mut()
                .zip(shares)
                .for_each(|(policy, share)| policy.share = Some(unplaced(share)));
            config
        };
        check(
            &with([80, 20]),
            &with([20, 80]),
            &["a share of 20 % for a", "a share of 80 % for b"],
        );
        check(
            &with([20, 80]),
            &with([80, 0]),
            &["a share of 0 % for b", "a share of 80 % for a"],
        );
    }

    #[test]
    fn cpus_go_from_one_partition_to_another() {
        let of = |a: &str, b: &str| {
            config(
                &["a", "b"],
                vec![part("x", a, &["a"]), part("y", b, &["b"])],
            )
        };
        let expected = ["partition x: CPUs 1 for a", "partition y: CPUs 2-3 for b"];
        check(&of("1-2", "3"), &of("1", "2-3"), &expected);
        let expected = ["partition y: CPUs 1 for b", "partition x: CPUs 2-3 for a"];
        check(&of("3", "1-2"), &of("2-3", "1"), &expected);
        let expected = [
            "end partition x",
            "end partition y",
            "partition x: CPUs 2 for a",
            "partition y: CPUs 1 for b",
        ];
        check(&of("1", "2"), &of("2", "1"), &expected);
        let swapped = config(
            &["a", "b"],
            vec![part("x", "1", &["b"]), part("y", "2", &["a"])],
        );
        let expected = [
            "end partition x",
            "end partition y",
            "partition x: CPUs 1 for b",
            "partition y: CPUs 2 for a",
        ];
        check(&of("1", "2"), &swapped, &expected);
        let both = config(&["a", "b"], vec![part("x", "1-2", &["b", "a"])]);
        check(
            &of("1", "2"),
            &both,
            &["end partition y", "partition x: CPUs 1-2 for a, b"],
        );
        check(
            &both,
            &config(&["a", "b"], Vec::new()),
            &["end partition x"],
        );
    }

    #[test]
    fn members_move_from_policy_to_policy() {
        let with = |owner: usize, default: usize| {
            let mut config = config(&["a", "b"], Vec::new());
            config.all = true;
            config.policies[owner].cgroups = vec![unplaced("x".into())];
            config.policies[default].default = true;
            config
        };
        check(
            &with(0, 0),
            &with(1, 1),
            &["give cgroup /x to b", "give all other tasks to b"],
        );
        let mut none = with(0, 0);
        none.policies[0].cgroups.clear();
        none.policies[0].default = false;
        check(
            &with(0, 0),
            &none,
            &[
                "take cgroup /x from its policy",
                "give all other tasks to no policy",
            ],
        );
        let mut some = none.clone();
        some.all = false;
        check(&none, &some, &["take tasks of class SCHED_EXT only"]);
    }
}
