// SPDX-License-Identifier: GPL-2.0-only
//! The environment that a policy is created in.

use crate::{
    runqueue::{Fifo, List, Tree},
    storage::{PerCpu, PerTask},
    Cpu, Error, Topology,
};
use alloc::{format, sync::Arc};
use baton_seam::Links;

/// The machine, the options, and the constructors of run queues and storage.
pub struct Env<'a> {
    topology: Topology,
    max_tasks: u32,
    options: &'a str,
    links: Arc<Links>,
}

impl<'a> Env<'a> {
    /// For hosts: an environment with fresh links. `options` is `key=value,key=value`.
    pub fn new(topology: Topology, max_tasks: u32, options: &'a str) -> Self {
        Self {
            topology,
            max_tasks,
            options,
            links: Arc::new(Links::new(max_tasks)),
        }
    }

    /// The machine's CPUs.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Number of task slots. All slots are below it.
    pub fn max_tasks(&self) -> u32 {
        self.max_tasks
    }

    /// The value of an option that is a duration, in ns. The text may have the unit ns, us, ms or s
    /// (`slice=3ms`); a bare number is ns. Returns `default` when the option was not given.
    pub fn duration(&self, key: &str, default: u64) -> Result<u64, Error> {
        let Some(text) = self.option(key) else {
            return Ok(default);
        };
        let wrong = || {
            format!(
                "the option {key} is a duration, a whole number with ns, us, ms or s, not `{text}`"
            )
        };
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let unit = match &text[digits..] {
            "" | "ns" => 1,
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            _ => return Err(wrong().into()),
        };
        let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
        number
            .checked_mul(unit)
            .ok_or_else(|| format!("the option {key} is too long: `{text}`").into())
    }

    /// The value of an option that is a number; `default` when the option was not given.
    pub fn number(&self, key: &str, default: u64) -> Result<u64, Error> {
        let Some(text) = self.option(key) else {
            return Ok(default);
        };
        text.parse()
            .map_err(|_| format!("the option {key} is a whole number, not `{text}`").into())
    }

    /// The text of an option, if it was given.
    pub fn option(&self, key: &str) -> Option<&'a str> {
        self.options
            .split(',')
            .filter_map(|pair| pair.split_once('='))
            .find(|(k, _)| k.trim() == key)
            .map(|(_, v)| v.trim())
    }

    /// Refuses options other than these.
    pub fn known_options(&self, known: &[&str]) -> Result<(), Error> {
        let names = self
            .options
            .split(',')
            .map(|pair| pair.split('=').next().unwrap_or("").trim());
        match names
            .into_iter()
            .find(|name| !name.is_empty() && !known.contains(name))
        {
            None => Ok(()),
            Some(name) if known.is_empty() => {
                Err(format!("the policy has no option {name}: it has none").into())
            }
            Some(name) => Err(format!(
                "the policy has no option {name}; it has {}",
                known.join(", ")
            )
            .into()),
        }
    }

    /// An empty first-in first-out queue.
    pub fn fifo(&self) -> Fifo {
        Fifo::new(Arc::clone(&self.links))
    }

    /// An empty list ordered by key.
    pub fn list(&self) -> List {
        List::new(Arc::clone(&self.links))
    }

    /// An empty red-black tree ordered by key.
    pub fn tree(&self) -> Tree {
        Tree::new(Arc::clone(&self.links))
    }

    /// One `T` for each CPU, each on cache lines of its own.
    pub fn per_cpu<T>(&self, make: impl FnMut(Cpu) -> T) -> PerCpu<T> {
        PerCpu::new(self.topology.cpus(), make)
    }

    /// One `T` for each task slot. A slot keeps the value of its previous task until the policy
    /// sets it (in `task_new`).
    pub fn per_task<T: Default>(&self) -> PerTask<T> {
        PerTask::new(self.max_tasks)
    }
}
