// SPDX-License-Identifier: GPL-2.0-only
//! The arguments of `baton bench`.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::subject::Subject;
use crate::Bench;
use crate::{
    agent::Agent, apps::Apps, arbiter::Arbiter, fairness::Fairness, fidelity::Fidelity,
    hackbench::Hackbench, lang::Lang, locality::Locality, memcached::Memcached, pipe::Pipe,
    polls::Polls, record::Record, rocksdb::Rocksdb, sim::Sim, twins::Twins, upgrade::Upgrade,
};

#[derive(clap::Args, Debug, Clone)]
pub struct Arguments {
    /// The bench to run.
    pub what: What,
    /// With --here: state that this machine's clock counts instructions. The clock of a guest
    /// always does.
    #[arg(long)]
    pub icount: bool,
    /// agent, with --here: measure what a counter of each CPU's instructions shows.
    #[arg(long, requires = "here", conflicts_with = "icount")]
    pub counted: bool,
    /// agent: simulate only how many decisions a second a global agent makes, by the number of
    /// CPUs.
    #[arg(long, conflicts_with_all = ["here", "cpus", "runs", "quick"])]
    pub scale: bool,
    /// Numbers of CPUs. A guest is booted for each of them. [default: 1,2; memcached: 1; apps: 1,4;
    /// fairness: 4; upgrade: 1,2,4,8; sim: 1 to 4096; rocksdb, locality, lang and arbiter have
    /// fixed ones]
    #[arg(long, value_name = "N,N", value_delimiter = ',', conflicts_with = "here",
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub cpus: Vec<u32>,
    /// Runs of each subject. [default: pipe 6, hackbench 4, agent 4, fairness 2, upgrade 200,
    /// fidelity 3, memcached 3, apps 4, record 10, sim 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,
    /// Give a first impression: a tenth of the runs, in at most two guests.
    #[arg(long, conflicts_with = "runs")]
    pub quick: bool,
    /// Only this subject: eevdf, scx_simple, "scx_simple -f", scx_central, scx_userland, a policy,
    /// or a policy in an agent as "wfq --per-cpu" or "wfq --global". May be repeated.
    #[arg(long = "subject", value_name = "NAME", value_parser = Subject::parse)]
    pub subjects: Vec<Subject>,
    /// rocksdb, locality: write a page with a figure to this file.
    #[arg(long, value_name = "FILE", conflicts_with = "here")]
    pub page: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Measure on this machine instead of a guest. The scheduler of all its normal tasks changes.
    #[arg(long)]
    pub here: bool,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Two processes that wake each other (perf bench sched pipe). Exit code 1 when a policy breaks
    /// its bound.
    Pipe,
    /// Many processes that send each other messages (hackbench).
    Hackbench,
    /// CPU hogs that share CPUs by their weights. Exit code 1 when wfq breaks a bound.
    Fairness,
    /// Versions of a policy that replace each other: the time for which no scheduler runs tasks.
    Upgrade,
    /// The simulator compared with a booted kernel. Exit code 1 when a number exceeds its bound
    /// without a known reason.
    Fidelity,
    /// Short requests beside long ones, simulated and in a booted kernel. Exit code 1 when shinjuku
    /// breaks a bound.
    Rocksdb,
    /// memcached under open-loop requests with the distributions of Facebook's ETC pool.
    Memcached,
    /// Threads that wake each other, with and without hints, simulated and in a booted kernel. Exit
    /// code 1 when locality breaks a bound.
    Locality,
    /// Two processes whose demand for cores changes, in a booted kernel with four CPUs. Exit code 1
    /// when arbiter breaks a bound.
    Arbiter,
    /// Policies in agents, beside the same in the kernel: pipe and hackbench. Exit code 1 when the
    /// agents of CPUs break a bound.
    Agent,
    /// Policies in Baton's language beside models of the kernel's fair class, on a simulated
    /// machine with 160 CPUs. Exit code 1 when a policy that conserves work breaks a bound.
    Lang,
    /// Whole programs under policies in Baton's language: a parallel one, a tree of processes as
    /// that of a build, and clients of a database.
    Apps,
    /// One policy as handlers in C, in Rust and as a BPF scheduler: a queue for each CPU, first in,
    /// first out. Pipe, hackbench and whole programs. Exit code 1 when the one in C breaks a bound.
    Twins,
    /// The cost of recording: pipe and hackbench under wfq, recorded, not recorded, and built
    /// without recording.
    Record,
    /// The cost of the polls that bound the loops of policies: pipe under policies with and without
    /// them. Exit code 1 when a policy breaks the bound.
    Polls,
    /// The cost of the simulator on this machine: events per second, and memory per task.
    Sim,
}

impl What {
    pub(crate) fn bench(self) -> &'static dyn Bench {
        match self {
            What::Pipe => &Pipe,
            What::Hackbench => &Hackbench,
            What::Fairness => &Fairness,
            What::Upgrade => &Upgrade,
            What::Fidelity => &Fidelity,
            What::Rocksdb => &Rocksdb,
            What::Memcached => &Memcached,
            What::Locality => &Locality,
            What::Agent => &Agent,
            What::Arbiter => &Arbiter,
            What::Lang => &Lang,
            What::Apps => &Apps,
            What::Twins => &Twins,
            What::Record => &Record,
            What::Polls => &Polls,
            What::Sim => &Sim,
        }
    }

    /// The name on the command line.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

impl Arguments {
    /// Runs of each subject.
    pub(crate) fn runs(&self) -> u32 {
        let usual = self.what.bench().runs();
        self.runs.unwrap_or(if self.quick {
            (usual / 10).max(1)
        } else {
            usual
        })
    }

    /// The numbers of CPUs. A guest is booted for each of them.
    pub(crate) fn guests(&self) -> Vec<u32> {
        let usual = self.what.bench().cpus();
        match (self.cpus.is_empty(), self.quick) {
            (false, _) => self.cpus.clone(),
            (true, true) => usual.iter().take(2).copied().collect(),
            (true, false) => usual.to_vec(),
        }
    }

    /// The schedulers that are measured.
    pub(crate) fn subjects(&self) -> Vec<Subject> {
        if self.subjects.is_empty() {
            self.what.bench().subjects()
        } else {
            self.subjects.clone()
        }
    }
}
