// SPDX-License-Identifier: GPL-2.0-only
//! The command line, and nothing else: help, man pages and completions are made from this one
//! definition.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::commands::check::Check;
use crate::commands::demo::Demo;
use crate::commands::hints::Hints;
use crate::commands::replay::Replay;
use crate::commands::sim::Sim;
use crate::commands::torture::Torture;
use crate::commands::trace::Trace;
use crate::config;
use baton_bench::threads::Threads;
use baton_control::cpulist::CpuList;
use baton_control::load;
use baton_control::names;

/// A workbench for Linux CPU schedulers.
///
/// Loads scheduling policies into the running kernel, gives them tasks, shows what they do, and
/// tries them out in a guest. `baton doctor` says what this machine can do.
#[derive(Parser, Debug)]
#[command(
    name = "baton",
    version,
    max_term_width = 110,
    after_help = "Exit codes: 0 done; 1 what was asked for failed; 2 wrong usage; 3 the machine \
        lacks something; 4 a policy \
                  faulted. `run` and `vm run` give the exit code of their command."
)]
pub struct Cli {
    /// Where to look first for baton.ko, baton_POLICY.ko and shim.bpf.o.
    ///
    /// Then come /usr/lib/baton/RELEASE and $BATON_CACHE/kernel/RELEASE, with the kernel's release.
    #[arg(long, global = true, value_name = "DIR", env = "BATON_MODULES")]
    pub modules: Option<PathBuf>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Say what this machine can do, what is missing and how to get it.
    ///
    /// Exit code 0 when policies can run on this machine's own kernel, else 1.
    Doctor {
        #[command(flatten)]
        output: Output,
    },
    /// Begin a policy: a copy of the template.
    New(New),
    /// Build policies, and what they need in the kernel.
    Build(Build),
    /// Load a policy and let it schedule. Doing it twice does no harm.
    Load(Load),
    /// Stop a policy and give its tasks back to the kernel's scheduler.
    ///
    /// With the last policy the core goes, too.
    Unload(Unload),
    /// List the policies that are loaded.
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Put another version of a policy in the place of the one that runs, with its state.
    Upgrade(Upgrade),
    /// Bring the version back that ran before the last upgrade.
    Rollback(Rollback),
    /// Give all tasks of a policy to another one, which is loaded for that.
    Switch(Switch),
    /// Say which policies are asked first on each CPU, and show in which order they are.
    Order(Order),
    /// Guarantee a policy a share of each CPU's time while it has tasks for it, whoever is before
    /// it in the order.
    Share(Share),
    /// Give CPUs to some policies alone.
    Partition {
        #[command(subcommand)]
        command: PartitionCommand,
    },
    /// Say which applications may give hints to a policy.
    Hints {
        #[command(subcommand)]
        command: Hints,
    },
    /// Bring the machine to what a configuration file says: policies, order, options, members,
    /// shares, partitions.
    ///
    /// All of it or nothing; what is so already is left alone.
    Apply(Apply),
    /// Print what the machine runs, as a configuration file.
    Export {
        #[command(flatten)]
        output: Output,
    },
    /// Show policies, counters and faults.
    Status {
        #[command(flatten)]
        output: Output,
    },
    /// Give running tasks to a policy that is loaded.
    Attach(Attach),
    /// Take tasks from their policies, back to the kernel's scheduler.
    Detach(Detach),
    /// Run a command, and all it starts, under a policy.
    Run(Run),
    /// Work with a guest: the stock kernel in QEMU.
    Vm {
        #[command(subcommand)]
        command: VmCommand,
    },
    /// Measure schedulers beside each other, in instructions.
    Bench(baton_bench::Arguments),
    /// See a policy in Rust schedule a stock kernel, and survive a panic.
    Demo(Demo),
    /// Try a policy with everything that can happen to tasks, at once.
    Torture(Torture),
    /// Record what a running policy is asked, and answers, for `baton replay`.
    ///
    /// A policy whose state can be saved is recorded from that state; any other begins anew, with
    /// its tasks. It is not built in another way, and goes on when the recording ends.
    Record(Record),
    /// Run policies on a simulated machine.
    ///
    /// Exit codes of a policy's fault: 42 a task waited too long; 44 a policy whose answers were
    /// refused again and again; 43 any other.
    Sim(Box<Sim>),
    /// Make a page of simulated runs: numbers side by side, latency curves, timelines of CPUs.
    Report(Report),
    /// Look for an order of events in which a policy goes wrong, on simulated CPUs.
    ///
    /// Exit code 4 when one is found.
    Check(Check),
    /// Feed a recording to its policy, or to another, and say where that first does something else.
    ///
    /// Exit code 0 when it does the same, 1 when not.
    Replay(Replay),
    /// Save what a policy's flight recorder had when the policy failed, for `baton replay`.
    #[command(subcommand)]
    Fault(Fault),
    /// Look into a recording.
    Trace {
        #[command(subcommand)]
        command: Trace,
    },
    /// One of the programs that `baton bench` measures: user-level threads.
    #[command(subcommand, hide = true)]
    Threads(Threads),
    /// Print the man page of baton or of one of its commands.
    Man(Man),
    /// Print completions for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
}

#[derive(Args, Debug, Clone, Copy)]
pub struct Output {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Record {
    /// Where to. After an upgrade it goes on with the next version, into FILE-2, FILE-3 and so on.
    #[arg(short, long, value_name = "FILE", required_unless_present = "flight")]
    pub output: Option<PathBuf>,
    /// The policy. [default: the one that runs]
    #[arg(short, long, value_name = "NAME", value_parser = names::policy)]
    pub policy: Option<String>,
    /// Into no file: have the policy's last calls always in memory, so much for each CPU, for
    /// `baton fault save`; 0 ends that.
    #[arg(long, value_name = "MIB", conflicts_with_all = ["output", "duration", "checkpoint", "lossless", "ring", "command"],
          value_parser = clap::value_parser!(u32).range(0..=4000))]
    pub flight: Option<u32>,
    /// For how long; without it and without a command, until it is interrupted (Ctrl-C).
    #[arg(long = "for", value_name = "TIME", value_parser = names::duration)]
    pub duration: Option<std::time::Duration>,
    /// How often there is a checkpoint, at which a replay can begin (--from): 1s. All CPUs stand
    /// still for it.
    #[arg(long, value_name = "TIME", value_parser = names::duration)]
    pub checkpoint: Option<std::time::Duration>,
    /// End the recording when a CPU's ring is full, instead of losing events (which are counted).
    #[arg(long)]
    pub lossless: bool,
    /// What each CPU may have in memory, MiB.
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub ring: u32,
    #[command(flatten)]
    pub out: Output,
    /// Record while this command runs. It is not given to the policy: for that, see `baton run`.
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "duration")]
    pub command: Vec<String>,
}

#[derive(Subcommand, Debug)]
pub enum Fault {
    /// Save it to a file. It stays until the policy is unloaded, or fails again.
    Save(FaultSave),
}

#[derive(Args, Debug)]
pub struct FaultSave {
    /// Where to.
    pub output: PathBuf,
    /// The policy. [default: the one that has failed]
    #[arg(short, long, value_name = "NAME", value_parser = names::policy)]
    pub policy: Option<String>,
    #[command(flatten)]
    pub out: Output,
}

#[derive(Args, Debug)]
pub struct New {
    /// Name of the policy: a letter, then letters, digits and _.
    #[arg(value_parser = names::new_policy)]
    pub name: String,
    /// Where to put it: DIR/NAME.
    #[arg(long, default_value = ".")]
    pub dir: PathBuf,
}

#[derive(Args, Debug)]
pub struct Build {
    /// A policy: a name in Baton's policies/ or here, or a path. Without any, only the core is
    /// built.
    #[arg(value_name = "POLICY")]
    pub policies: Vec<String>,
    /// The kernel to build for, as `uname -r` says it. [default: the running one, else that of
    /// `baton vm`]
    #[arg(long, value_name = "RELEASE", env = "BATON_KERNEL")]
    pub kernel: Option<String>,
    /// Build a policy that has unsafe code of its own, which nothing bounds. With
    /// BATON_ALLOW_UNSAFE=1 every command does.
    #[arg(long)]
    pub allow_unsafe: bool,
}

/// How a policy is to be loaded.
#[derive(Args, Debug, Clone, Default)]
pub struct LoadOptions {
    /// Options of the policy: KEY=VALUE,KEY=VALUE.
    #[arg(long, value_parser = names::options)]
    pub options: Option<String>,
    /// Give it every normal task of the machine, not only those that are attached.
    #[arg(long)]
    pub all: bool,
    /// Task slots, 256 to 1048576; tasks beyond run under the fallback. [default: 32768]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(256..=1 << 20))]
    pub max_tasks: Option<u32>,
    /// A queued task that waits longer than this is a stall, in ms. [default: 10000]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(10..=3_600_000))]
    pub stall: Option<u32>,
    /// The policy's module, when it is not in the search path.
    #[arg(long, value_name = "FILE")]
    pub module: Option<PathBuf>,
}

impl From<&LoadOptions> for load::Options {
    fn from(how: &LoadOptions) -> Self {
        Self {
            options: how.options.clone(),
            all: how.all,
            max_tasks: how.max_tasks,
            stall: how.stall,
            module: how.module.clone(),
        }
    }
}

#[derive(Args, Debug)]
pub struct Load {
    /// Name of the policy.
    #[arg(value_parser = names::policy)]
    pub policy: String,
    #[command(flatten)]
    pub how: LoadOptions,
}

#[derive(Args, Debug)]
pub struct Upgrade {
    /// Name of the policy, which is running.
    #[arg(value_parser = names::policy)]
    pub policy: String,
    /// The new version's module. [default: the one in the search path, as of `baton build`]
    #[arg(long, value_name = "FILE")]
    pub module: Option<PathBuf>,
    /// Options of the new version. [default: those of the running one]
    #[arg(long, value_parser = names::options)]
    pub options: Option<String>,
    /// Bring the old version back if the new one has a fault within this time: 30s, 500ms. The
    /// command waits for the end.
    #[arg(long, value_name = "TIME", value_parser = names::duration)]
    pub probation: Option<std::time::Duration>,
    /// Also bring it back if, within that time, 1 % of wakeups wait for longer than this: 5ms.
    #[arg(long, value_name = "TIME", value_parser = names::duration, requires = "probation")]
    pub max_p99_wakeup: Option<std::time::Duration>,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct Rollback {
    /// Name of the policy, which is running.
    #[arg(value_parser = names::policy)]
    pub policy: String,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct Switch {
    /// Name of the policy that has the tasks.
    #[arg(value_parser = names::policy)]
    pub from: String,
    /// Name of the policy that gets them.
    #[arg(value_parser = names::policy)]
    pub to: String,
    /// Options of the policy that gets them: KEY=VALUE,KEY=VALUE.
    #[arg(long, value_parser = names::options)]
    pub options: Option<String>,
    /// The module of the policy that gets them, when it is not in the search path.
    #[arg(long, value_name = "FILE")]
    pub module: Option<PathBuf>,
    /// Leave the first policy loaded, without tasks.
    #[arg(long)]
    pub keep: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct Order {
    /// Names of policies, the first to be asked first. The others stay behind them as they are.
    #[arg(value_name = "POLICY", num_args = 0..=16, value_parser = names::policy)]
    pub first: Vec<String>,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct Apply {
    /// The file.
    #[arg(default_value = config::PATH)]
    pub file: PathBuf,
    /// Only say what would be done.
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct Share {
    /// Name of the policy.
    #[arg(value_parser = names::policy)]
    pub policy: String,
    /// Percent; 0 for none. The shares of all policies are 100 at most.
    #[arg(value_parser = clap::value_parser!(u32).range(0..=100))]
    pub percent: u32,
}

#[derive(Subcommand, Debug)]
pub enum PartitionCommand {
    /// Make a partition: its policies' tasks run on its CPUs alone, and no other policy's do there.
    Create {
        /// Its name: small letters, digits, _ and -.
        #[arg(value_parser = names::partition)]
        name: String,
        /// Its CPUs, as the kernel writes them: 2-5,7.
        #[arg(long, value_name = "CPUS")]
        cpus: CpuList,
        /// A policy that is loaded. May be repeated.
        #[arg(long = "policy", value_name = "POLICY", required = true, value_parser = names::policy)]
        policies: Vec<String>,
    },
    /// Give a partition other CPUs. Tasks leave those that it has no more at once.
    Resize {
        /// Its name.
        name: String,
        /// All CPUs that it is to have.
        #[arg(long, value_name = "CPUS")]
        cpus: CpuList,
    },
    /// End a partition: its CPUs are all policies', and its policies have all CPUs.
    Destroy {
        /// Its name.
        name: String,
    },
    /// List the partitions.
    List {
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub struct Unload {
    /// Name of the policy.
    #[arg(value_parser = names::policy)]
    pub policy: Option<String>,
    /// Every policy, the shim and the core.
    #[arg(long)]
    pub everything: bool,
}

/// Which tasks.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub struct Which {
    /// This thread; with --threads all of its process.
    #[arg(long)]
    pub pid: Option<u32>,
    /// All tasks that are in this cgroup (v2) or below it, now and later. A path, or a name under
    /// /sys/fs/cgroup.
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,
    /// Every normal task of the machine.
    #[arg(long)]
    pub all: bool,
}

#[derive(Args, Debug)]
pub struct Attach {
    /// Name of the policy.
    #[arg(value_parser = names::policy)]
    pub policy: String,
    #[command(flatten)]
    pub which: Which,
    /// With --pid: all threads of the process.
    #[arg(long, requires = "pid")]
    pub threads: bool,
}

#[derive(Args, Debug)]
pub struct Detach {
    #[command(flatten)]
    pub which: Which,
    /// With --pid: all threads of the process.
    #[arg(long, requires = "pid")]
    pub threads: bool,
}

#[derive(Args, Debug)]
pub struct Run {
    /// Name of the policy; it is loaded if it is not.
    #[arg(short, long, value_parser = names::policy)]
    pub policy: String,
    #[command(flatten)]
    pub how: LoadOptions,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

#[derive(Subcommand, Debug)]
pub enum VmCommand {
    /// Boot the stock kernel, run a command there, bring back its output and exit code.
    ///
    /// What is missing or older than its source is built first. A complaint in the guest's kernel
    /// log is a failure.
    Run(VmRun),
}

#[derive(Args, Debug)]
pub struct VmRun {
    /// Policy to run the command under: a name in Baton's policies/ or here, or a path.
    #[arg(short, long)]
    pub policy: Option<String>,
    /// Give it every normal task of the guest.
    #[arg(long, requires = "policy")]
    pub all: bool,
    /// Options of the policy: KEY=VALUE,KEY=VALUE.
    #[arg(long, value_parser = names::options, requires = "policy")]
    pub options: Option<String>,
    /// Further policies to take along, for `baton load` inside. May be repeated.
    #[arg(long = "with", value_name = "POLICY")]
    pub with: Vec<String>,
    /// Number of CPUs.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=255))]
    pub cpus: u32,
    /// Shape of the CPUs: NUMA nodes x cores x hardware threads, for example 2x4x2.
    #[arg(long, value_name = "NxCxT", conflicts_with = "cpus")]
    pub topology: Option<baton_vm::Topology>,
    /// Count instructions: each is 2^N ns of guest time (0 to 10), and a run repeats. With 0
    /// several times slower, with each more a second of guest time is half the work.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "0",
          value_parser = clap::value_parser!(u8).range(0..=10))]
    pub icount: Option<u8>,
    /// Have systemd as the guest's first process, and the command as one of its services.
    #[arg(long)]
    pub systemd: bool,
    /// Memory in MiB; files in the guest live there, too.
    #[arg(long, value_name = "MB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(128..))]
    pub memory: u32,
    /// How long it may take on this machine's clock, in seconds, boot included.
    #[arg(long, value_name = "S", default_value_t = 300)]
    pub timeout: u64,
    /// The kernel to boot: its release, or the path of its image. [default: that of Baton's Debian
    /// root]
    #[arg(long, value_name = "RELEASE|FILE", env = "BATON_KERNEL")]
    pub kernel: Option<String>,
    /// Arguments to add to the kernel's command line.
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true)]
    pub append: Option<String>,
    /// A file or directory to take along; without DEST into the command's directory. A program
    /// brings its libraries.
    #[arg(long = "in", value_name = "FILE[:DEST]", value_parser = names::file_in)]
    pub files_in: Vec<names::FileIn>,
    /// A file or directory of the guest to bring back.
    #[arg(long = "out", value_name = "GUESTFILE:HOSTFILE", value_parser = names::file_out)]
    pub files_out: Vec<names::FileOut>,
    /// Where to put the guest's kernel log.
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// The command and its arguments, as in the guest. If it is a program of this machine, it is
    /// taken along.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

#[derive(Args, Debug)]
pub struct Man {
    /// The command, for example `vm run`; without it, baton itself.
    #[arg(value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Write the pages of all commands into this directory instead.
    #[arg(long, conflicts_with = "command")]
    pub dir: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct Report {
    /// Files with runs, as `baton sim --json` prints them. The first run is what others are
    /// compared with.
    #[arg(value_name = "RUN.json", required = true)]
    pub runs: Vec<PathBuf>,
    /// Where to put the page; - for standard output.
    #[arg(short, long, value_name = "FILE.html", default_value = "report.html")]
    pub output: PathBuf,
}
