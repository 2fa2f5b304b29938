// SPDX-License-Identifier: GPL-2.0-only
//! The formats of the arguments of `baton sim`. Each parses its own text, and reports errors in it.

use std::path::Path;
use std::str::FromStr;

use baton_abi::BatonCpu;
use baton_sim::idle::{IdleState, TABLES};
use baton_sim::topology::{Topology, MAX_CPUS};

use baton_control::names;

/// A policy that takes part: `NAME`, `NAME:KEY=VALUE,...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Party {
    pub policy: String,
    pub options: String,
}

impl FromStr for Party {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (policy, options) = text.split_once(':').unwrap_or((text, ""));
        if policy.is_empty() {
            return Err("the name of a policy is missing".into());
        }
        Ok(Self {
            policy: policy.into(),
            options: names::options(options)?,
        })
    }
}

/// The shape of a machine, and the name that was given for it.
#[derive(Clone, Debug)]
pub struct Shape {
    pub name: String,
    pub topology: Topology,
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let topology = match text {
            "live" => live()?,
            text => text.parse()?,
        };
        Ok(Self {
            name: text.into(),
            topology,
        })
    }
}

/// The topology of this machine, from /sys/devices/system/cpu. A CPU without information there
/// has a core and a last-level cache of its own, and is on node 0.
fn live() -> Result<Topology, String> {
    let root = Path::new("/sys/devices/system/cpu");
    let cpus = (0..MAX_CPUS).take_while(|cpu| root.join(format!("cpu{cpu}")).exists());
    let mut ids = [const { Vec::new() }; 4];
    let mut dense = |kind: usize, key: String| {
        let known: &mut Vec<String> = &mut ids[kind];
        let found = known.iter().position(|other| *other == key);
        found.unwrap_or_else(|| {
            known.push(key);
            known.len() - 1
        }) as u32
    };
    let place = |cpu: usize| {
        let dir = root.join(format!("cpu{cpu}"));
        let read = |path: &str| {
            std::fs::read_to_string(dir.join(path))
                .ok()
                .map(|text| text.trim().to_owned())
        };
        let alone = format!("cpu {cpu}");
        let core = read("topology/thread_siblings_list").unwrap_or(alone.clone());
        // The last index has the highest level.
        let llc = (0..8)
            .filter_map(|index| read(&format!("cache/index{index}/shared_cpu_list")))
            .next_back();
        let second =
            |index: &usize| read(&format!("cache/index{index}/level")).as_deref() == Some("2");
        let cluster = (0..8)
            .find(second)
            .and_then(|index| read(&format!("cache/index{index}/shared_cpu_list")));
        let node = (0..MAX_CPUS)
            .find(|node| dir.join(format!("node{node}")).exists())
            .unwrap_or(0);
        BatonCpu {
            cluster: dense(3, cluster.unwrap_or(core.clone())),
            core: dense(0, core),
            llc: dense(1, llc.unwrap_or(alone)),
            node: dense(2, node.to_string()),
            online: 1,
        }
    };
    Topology::of(cpus.map(place).collect())
}

/// A time with a unit, in ns.
fn time(text: &str) -> Result<u64, String> {
    names::duration(text).map(|time| time.as_nanos() as u64)
}

/// `KEY=FROM..TO[/STEPS]`: values of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    pub key: String,
    /// In the format in which the policy gets them.
    pub values: Vec<String>,
}

impl FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not KEY=FROM..TO or KEY=FROM..TO/STEPS");
        let (key, range) = text.split_once('=').ok_or_else(wrong)?;
        let (range, steps) = range
            .split_once('/')
            .map_or((range, None), |(range, steps)| (range, Some(steps)));
        let (from, to) = range.split_once("..").ok_or_else(wrong)?;
        let steps: u32 = steps.map_or(Ok(8), |steps| steps.parse().map_err(|_| wrong()))?;
        // Numbers are kept, times are in ns.
        let (low, high, unit) = match (from.parse::<u64>(), to.parse::<u64>()) {
            (Ok(low), Ok(high)) => (low, high, ""),
            _ => (time(from)?, time(to)?, "ns"),
        };
        if low == 0 || low >= high || !(2..=100).contains(&steps) {
            return Err(format!(
                "{text}: it must go from a value above 0 to a greater one, in 2 to 100 steps"
            ));
        }
        // Values form a geometric sequence, as the effect of an option depends on its magnitude.
        let step = (high as f64 / low as f64).powf(1.0 / f64::from(steps - 1));
        let value = |at: u32| match at {
            at if at + 1 == steps => high,
            at => (low as f64 * step.powi(at as i32)).round() as u64,
        };
        Ok(Self {
            key: key.into(),
            values: (0..steps)
                .map(|at| format!("{}{unit}", value(at)))
                .collect(),
        })
    }
}

/// `GROUP=POLICY`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assign {
    pub group: String,
    pub policy: String,
}

impl FromStr for Assign {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (group, policy) = text
            .split_once('=')
            .ok_or_else(|| format!("'{text}' is not GROUP=POLICY"))?;
        Ok(Self {
            group: group.into(),
            policy: policy.into(),
        })
    }
}

/// `TIME:POLICY`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swap {
    pub at: u64,
    pub policy: String,
}

impl FromStr for Swap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (at, policy) = text
            .split_once(':')
            .ok_or_else(|| format!("'{text}' is not TIME:POLICY"))?;
        Ok(Self {
            at: time(at)?,
            policy: policy.into(),
        })
    }
}

/// `CPU@FROM..TO`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offline {
    pub cpu: u32,
    pub from: u64,
    pub to: u64,
}

impl FromStr for Offline {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not CPU@FROM..TO");
        let (cpu, range) = text.split_once('@').ok_or_else(wrong)?;
        let (from, to) = range.split_once("..").ok_or_else(wrong)?;
        let (from, to) = (time(from)?, time(to)?);
        if from >= to {
            return Err(format!("{text}: the end is not after the beginning"));
        }
        Ok(Self {
            cpu: cpu.parse().map_err(|_| wrong())?,
            from,
            to,
        })
    }
}

/// `FROM..TO` or `FROM..`: a part of a run, ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub from: u64,
    pub to: u64,
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (from, to) = text
            .split_once("..")
            .ok_or_else(|| format!("'{text}' is not FROM..TO"))?;
        let from = if matches!(from, "0" | "0s") {
            0
        } else {
            time(from)?
        };
        let to = if to.is_empty() { u64::MAX } else { time(to)? };
        if from >= to {
            return Err(format!("{text}: the end is not after the beginning"));
        }
        Ok(Self { from, to })
    }
}

/// `higher=EVERY/FOR` or `interrupt=EVERY/FOR`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noisy {
    pub is_interrupt: bool,
    pub every: u64,
    pub length: u64,
}

impl FromStr for Noisy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not higher=EVERY/FOR or interrupt=EVERY/FOR");
        let (kind, times) = text.split_once('=').ok_or_else(wrong)?;
        let (every, length) = times.split_once('/').ok_or_else(wrong)?;
        let is_interrupt = match kind {
            "higher" => false,
            "interrupt" => true,
            _ => return Err(wrong()),
        };
        Ok(Self {
            is_interrupt,
            every: time(every)?,
            length: time(length)?,
        })
    }
}

/// `NAME=NS`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    pub name: String,
    pub ns: u64,
}

impl FromStr for Cost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, ns) = text
            .split_once('=')
            .ok_or_else(|| format!("'{text}' is not NAME=NS"))?;
        let mut costs = baton_sim::cost::Costs::default();
        let names = costs.by_name().map(|(name, _)| name);
        if !names.contains(&name) {
            return Err(format!(
                "there is no cost '{name}', but: {}",
                names.join(", ")
            ));
        }
        let ns = ns
            .parse()
            .ok()
            .filter(|&ns: &u64| ns <= 1_000_000_000)
            .ok_or("a cost is 0 to 1000000000 ns")?;
        if name == "smt" && ns > 1_024 {
            return Err("smt is a part of 1024".into());
        }
        // Without time for a tick, or with hardware threads that make no progress, the simulation
        // would not end.
        if ns == 0 && ["tick", "smt"].contains(&name) {
            return Err(format!("{name} must be more than 0"));
        }
        Ok(Self {
            name: name.into(),
            ns,
        })
    }
}

/// A table of idle states, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sleeps(pub &'static [IdleState]);

impl FromStr for Sleeps {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || {
            TABLES
                .iter()
                .map(|(name, _)| *name)
                .collect::<Vec<_>>()
                .join(", ")
        };
        let found = TABLES.iter().find(|(name, _)| *name == text);
        found
            .map(|(_, states)| Self(states))
            .ok_or_else(|| format!("there is no table '{text}', but: {}", names()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: FromStr<Err = String> + std::fmt::Debug>(text: &str, expected: Result<&str, &str>) {
        match (text.parse::<T>(), expected) {
            (Ok(got), Ok(part)) => assert!(format!("{got:?}").contains(part), "{text}: {got:?}"),
            (Err(why), Err(part)) => assert!(why.contains(part), "{text}: {why}"),
            (got, _) => panic!("{text}: {got:?}"),
        }
    }

    #[test]
    fn this_machine_has_a_shape() {
        let live = live().unwrap();
        assert!(live.cpus().len() >= std::thread::available_parallelism().unwrap().get());
        assert!(live
            .cpus()
            .iter()
            .any(|cpu| (cpu.core, cpu.llc, cpu.node) == (0, 0, 0)));
    }

    #[test]
    fn arguments() {
        check::<Party>("wfq", Ok("policy: \"wfq\", options: \"\""));
        check::<Party>(
            "wfq:period=6ms, credit=1ms",
            Ok("options: \"period=6ms,credit=1ms\""),
        );
        check::<Party>(":a=b", Err("missing"));
        check::<Party>("wfq:period", Err("KEY=VALUE"));
        check::<Sweep>(
            "slice=1ms..4ms/3",
            Ok("values: [\"1000000ns\", \"2000000ns\", \"4000000ns\"]"),
        );
        check::<Sweep>("n=1..100/3", Ok("[\"1\", \"10\", \"100\"]"));
        check::<Sweep>("n=5..5", Err("greater"));
        check::<Sweep>("n=5", Err("FROM..TO"));
        check::<Assign>("rocks=fifo", Ok("group: \"rocks\""));
        check::<Assign>("rocks", Err("GROUP=POLICY"));
        check::<Swap>("500ms:relay-v2", Ok("at: 500000000"));
        check::<Offline>("3@100ms..200ms", Ok("cpu: 3, from: 100000000"));
        check::<Offline>("3@200ms..100ms", Err("not after"));
        check::<Part>("100ms..200ms", Ok("from: 100000000, to: 200000000"));
        check::<Part>("0..1s", Ok("from: 0, to: 1000000000"));
        check::<Part>("5us..", Ok("from: 5000, to: 18446744073709551615"));
        check::<Part>("2ms..1ms", Err("not after"));
        check::<Part>("..1ms", Err("whole number"));
        check::<Part>("1ms", Err("FROM..TO"));
        check::<Noisy>("higher=10ms/50us", Ok("every: 10000000, length: 50000"));
        check::<Noisy>("lower=10ms/50us", Err("higher=EVERY/FOR"));
        check::<Cost>("switch=100", Ok("ns: 100"));
        check::<Cost>("swich=100", Err("idle_exit"));
        check::<Cost>("tick=0", Err("more than 0"));
        check::<Sleeps>("skx", Ok("exit_latency: 133000"));
        check::<Sleeps>("none", Ok("[]"));
        check::<Sleeps>("C6", Err("none, skl, skx"));
        check::<Shape>("1x4x1", Ok("name: \"1x4x1\""));
        check::<Shape>("4", Err("topology"));
    }
}
