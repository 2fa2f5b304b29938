// SPDX-License-Identifier: GPL-2.0-only
//! The definition of the command line. Help, man pages and completions are generated from it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::commands::agent::AgentCommand;
use crate::commands::attr::Attr;
use crate::commands::check::Check;
use crate::commands::demo::Demo;
use crate::commands::enclave::EnclaveCommand;
use crate::commands::hints::Hints;
use crate::commands::live::LiveCommand;
use crate::commands::monitor::Monitor;
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
/// tries them out in a guest. `baton doctor` shows what this machine can do.
#[derive(Parser, Debug)]
#[command(
    name = "baton",
    version,
    max_term_width = 110,
    after_help = "Exit codes: 0 done; 1 the command failed; 2 wrong usage; 3 the machine \
        lacks something, or starved an agent; 4 a policy \
                  faulted. `run` and `vm run` give the exit code of their command."
)]
pub struct Cli {
    /// Directory to search first for baton.ko, baton_POLICY.ko and shim.bpf.o.
    ///
    /// After it, /usr/lib/baton/RELEASE and $BATON_CACHE/kernel/RELEASE are searched, where RELEASE
    /// is that of the kernel.
    #[arg(long, global = true, value_name = "DIR", env = "BATON_MODULES")]
    pub modules: Option<PathBuf>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Show what this machine can do, what is missing and how to get it.
    ///
    /// Exit code 0 if policies can run on this machine's own kernel, else 1.
    Doctor {
        #[command(flatten)]
        output: Output,
    },
    /// Create a new policy from the template.
    New(New),
    /// Build policies, and the kernel modules that they need.
    Build(Build),
    /// Format policies in Baton's language.
    ///
    /// Exit code 1 if --check is given and a file is not formatted.
    Fmt(Fmt),
    /// Prove that a policy in Baton's language leaves no core idle beside waiting threads.
    ///
    /// Exit code 0 if all goals hold, 1 if one fails or stays open.
    Prove(Prove),
    /// Serve an editor that writes policies in Baton's language.
    ///
    /// Speaks the Language Server Protocol on standard input and output: messages of the compiler,
    /// goals that do not hold when a policy is opened or saved, explanations of words, and
    /// formatting.
    Lsp,
    /// Load a policy and start it. Loading it again does no harm.
    Load(Load),
    /// Stop a policy and give its tasks back to the kernel's scheduler.
    ///
    /// The core is unloaded with the last policy.
    Unload(Unload),
    /// List the loaded policies.
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Replace the running version of a policy by another, which takes over its state.
    Upgrade(Upgrade),
    /// Bring back the version that ran before the last upgrade.
    Rollback(Rollback),
    /// Give all tasks of a policy to another one, which is loaded if needed.
    Switch(Switch),
    /// Set which policies are asked first on each CPU, and show the order.
    Order(Order),
    /// Guarantee a policy a share of each CPU's time while it has tasks for it, whatever its place
    /// in the order.
    Share(Share),
    /// Reserve CPUs for some policies.
    Partition {
        #[command(subcommand)]
        command: PartitionCommand,
    },
    /// Set which applications may send hints to a policy.
    Hints {
        #[command(subcommand)]
        command: Hints,
    },
    /// Show and set the attributes that a policy gives its threads.
    Attr {
        #[command(subcommand)]
        command: Attr,
    },
    /// Bring the machine into the state of a configuration file: policies, order, options, members,
    /// shares, partitions.
    ///
    /// If a step fails, the earlier ones are undone. What is already as wanted is not changed.
    Apply(Apply),
    /// Print the present state of the machine as a configuration file.
    Export {
        #[command(flatten)]
        output: Output,
    },
    /// Show policies, counters and faults.
    Status {
        #[command(flatten)]
        output: Output,
    },
    /// Show what policies and CPUs do, live: calls of each method, how long they take, refused
    /// answers, and how long each CPU idles, also while tasks wait elsewhere.
    ///
    /// Costs nothing before and after. Works without a policy, too: then it shows the CPUs alone.
    Monitor(Monitor),
    /// Give running tasks to a loaded policy.
    Attach(Attach),
    /// Take tasks from their policies and give them back to the kernel's scheduler.
    Detach(Detach),
    /// Run a command, and all processes that it starts, under a policy.
    Run(Run),
    /// Schedule tasks from a process in user space.
    Agent {
        #[command(subcommand)]
        command: AgentCommand,
    },
    /// Make, remove and show enclaves: policies whose answers come from a process, the agent.
    Enclave {
        #[command(subcommand)]
        command: EnclaveCommand,
    },
    /// Change the kernel's own scheduler.
    Live {
        #[command(subcommand)]
        command: LiveCommand,
    },
    /// Run commands in a guest: the stock kernel in QEMU.
    Vm {
        #[command(subcommand)]
        command: VmCommand,
    },
    /// Measure schedulers beside each other, in instructions.
    Bench(baton_bench::Arguments),
    /// See the life of a policy in six steps: simulated, checked, compared, upgraded, crashed,
    /// replayed.
    Demo(Demo),
    /// Stress a policy with everything that can happen to tasks, at once.
    Torture(Torture),
    /// Record the calls of a running policy and its answers, for `baton replay`.
    ///
    /// A policy whose state can be saved is recorded from that state. Any other policy starts anew,
    /// with its tasks. The policy needs no special build, and continues when the recording ends.
    Record(Record),
    /// Run policies on a simulated machine.
    ///
    /// Exit codes of a policy's fault: 42 if a task waited too long, 44 if the policy's answers
    /// were refused again and again, 43 for any other.
    Sim(Box<Sim>),
    /// Create a page of simulated runs: numbers side by side, latency curves, timelines of CPUs.
    Report(Report),
    /// Search for an order of events in which a policy fails, on simulated CPUs.
    ///
    /// Exit code 4 if one is found.
    Check(Check),
    /// Feed a recording to its policy, or to another, and report the first difference.
    ///
    /// Exit code 0 if there is no difference, else 1.
    Replay(Replay),
    /// Save the last calls before a policy's fault, from its flight recorder, for `baton replay`.
    #[command(subcommand)]
    Fault(Fault),
    /// Show the contents of a recording.
    Trace {
        #[command(subcommand)]
        command: Trace,
    },
    /// The programs of user-level threads that `baton bench` measures.
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
    /// The file to write. After an upgrade the recording continues with the next version in FILE-2,
    /// FILE-3 and so on.
    #[arg(short, long, value_name = "FILE", required_unless_present = "flight")]
    pub output: Option<PathBuf>,
    /// The policy. [default: the running one]
    #[arg(short, long, value_name = "NAME", value_parser = names::policy)]
    pub policy: Option<String>,
    /// Instead of writing a file, keep the policy's last calls in memory, for `baton fault save`:
    /// so many MiB for each CPU. 0 ends that.
    #[arg(long, value_name = "MIB", conflicts_with_all = ["output", "duration", "checkpoint", "lossless", "ring", "command"],
          value_parser = clap::value_parser!(u32).range(0..=4000))]
    pub flight: Option<u32>,
    /// Duration. Without it and without a command, record until interrupted (Ctrl-C).
    #[arg(long = "for", value_name = "TIME", value_parser = names::duration)]
    pub duration: Option<std::time::Duration>,
    /// Interval of checkpoints, at which a replay can begin (--from): 1s. All CPUs are held for
    /// each.
    #[arg(long, value_name = "TIME", value_parser = names::duration)]
    pub checkpoint: Option<std::time::Duration>,
    /// End the recording when a CPU's ring is full, instead of losing events (which are counted).
    #[arg(long)]
    pub lossless: bool,
    /// Memory for each CPU, MiB.
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub ring: u32,
    #[command(flatten)]
    pub out: Output,
    /// Record while this command runs. The command is not given to the policy: see `baton run` for
    /// that.
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "duration")]
    pub command: Vec<String>,
}

#[derive(Subcommand, Debug)]
pub enum Fault {
    /// Save the calls before a fault to a file. They are kept until the policy is unloaded or fails
    /// again.
    Save(FaultSave),
}

#[derive(Args, Debug)]
pub struct FaultSave {
    /// The file to write.
    pub output: PathBuf,
    /// The policy. [default: the failed one]
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
    /// Language of the policy.
    #[arg(long, value_enum, default_value_t = Language::Rust)]
    pub lang: Language,
    /// Parent directory: the policy is created in DIR/NAME.
    #[arg(long, default_value = ".")]
    pub dir: PathBuf,
}

/// A language for new policies.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    Rust,
    C,
}

#[derive(Args, Debug)]
pub struct Build {
    /// A policy: a path, or a name in Baton's policies/ or in the current directory. Without a
    /// policy only the core is built.
    #[arg(value_name = "POLICY")]
    pub policies: Vec<String>,
    /// The kernel to build for, as printed by `uname -r`. [default: the running one, else that of
    /// `baton vm`]
    #[arg(long, value_name = "RELEASE", env = "BATON_KERNEL")]
    pub kernel: Option<String>,
    /// Build a policy that has unsafe code of its own, whose effects nothing limits. With
    /// BATON_ALLOW_UNSAFE=1 every command does this.
    #[arg(long)]
    pub allow_unsafe: bool,
}

#[derive(Args, Debug)]
pub struct Fmt {
    /// Files: NAME.baton.
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Only say which files are not formatted.
    #[arg(long)]
    pub check: bool,
}

#[derive(Args, Debug)]
pub struct Prove {
    /// Write each policy as a module for Why3 to DIR/NAME.mlw, too. Its goals are the assumptions
    /// of the theory in lang/proofs: why3 prove -L lang/proofs -P z3 -a split_vc DIR/NAME.mlw
    #[arg(long, value_name = "DIR")]
    pub why3: Option<PathBuf>,
    /// Policies in Baton's language: the path of a NAME.baton, or a name in Baton's policies/.
    #[arg(value_name = "POLICY", required = true)]
    pub policies: Vec<String>,
    #[command(flatten)]
    pub output: Output,
}

/// How to load a policy.
#[derive(Args, Debug, Clone, Default)]
pub struct LoadOptions {
    /// Options of the policy: KEY=VALUE,KEY=VALUE.
    #[arg(long, value_parser = names::options)]
    pub options: Option<String>,
    /// Give it every normal task of the machine, not only those that are attached.
    #[arg(long)]
    pub all: bool,
    /// Number of task slots, 256 to 1048576. Tasks without a slot run under the fallback. [default:
    /// 32768]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(256..=1 << 20))]
    pub max_tasks: Option<u32>,
    /// Stall limit: a task may be queued for at most this time, in ms. [default: 10000]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(10..=3_600_000))]
    pub stall: Option<u32>,
    /// Turns that the loops of a call are granted, 65536 to 1073741824. With more than the default,
    /// the time that a call may last, 50 ms, grows in proportion. [default: 16777216]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1 << 16..=1 << 30))]
    pub turns: Option<u32>,
    /// The policy's module, if it is not in the search path.
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
            turns: how.turns,
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
    /// Name of the running policy.
    #[arg(value_parser = names::policy)]
    pub policy: String,
    /// The new version's module. [default: the one in the search path, where `baton build` puts it]
    #[arg(long, value_name = "FILE")]
    pub module: Option<PathBuf>,
    /// Options of the new version. [default: those of the running one]
    #[arg(long, value_parser = names::options)]
    pub options: Option<String>,
    /// Bring the old version back if the new one has a fault within this time: 30s, 500ms. The
    /// command waits until the time is over.
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
    /// Name of the running policy.
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
    /// The module of the policy that gets them, if it is not in the search path.
    #[arg(long, value_name = "FILE")]
    pub module: Option<PathBuf>,
    /// Keep the first policy loaded, without tasks.
    #[arg(long)]
    pub keep: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct Order {
    /// Names of policies in the order in which they are asked. The others follow in their present
    /// order.
    #[arg(value_name = "POLICY", num_args = 0..=16, value_parser = names::policy)]
    pub first: Vec<String>,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct Apply {
    /// The configuration file.
    #[arg(default_value = config::PATH)]
    pub file: PathBuf,
    /// Only print what would be done.
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
    /// Percent; 0 for none. The sum over all policies is at most 100.
    #[arg(value_parser = clap::value_parser!(u32).range(0..=100))]
    pub percent: u32,
}

#[derive(Subcommand, Debug)]
pub enum PartitionCommand {
    /// Create a partition: tasks of its policies run only on its CPUs, and those of other policies
    /// do not run there.
    Create {
        /// Name of the partition: small letters, digits, _ and -.
        #[arg(value_parser = names::partition)]
        name: String,
        /// CPUs of the partition, in the kernel's format: 2-5,7.
        #[arg(long, value_name = "CPUS")]
        cpus: CpuList,
        /// A loaded policy. May be repeated.
        #[arg(long = "policy", value_name = "POLICY", required = true, value_parser = names::policy)]
        policies: Vec<String>,
    },
    /// Change the CPUs of a partition. Tasks leave removed CPUs at once.
    Resize {
        /// Name of the partition.
        name: String,
        /// All CPUs of the partition.
        #[arg(long, value_name = "CPUS")]
        cpus: CpuList,
    },
    /// End a partition: all policies may use its CPUs again, and its policies all CPUs.
    Destroy {
        /// Name of the partition.
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
    /// Unload every policy, the shim and the core.
    #[arg(long)]
    pub everything: bool,
}

/// Selects tasks.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub struct Which {
    /// This thread; with --threads all threads of its process.
    #[arg(long)]
    pub pid: Option<u32>,
    /// All tasks that are in this cgroup (v2) or below it, now and later. A path, or a name below
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
    /// Name of the policy. It is loaded if needed.
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
    /// Boot the stock kernel, run a command there, and return its output and exit code.
    ///
    /// What is missing or older than its source is built first. A warning or error in the guest's
    /// kernel log is a failure.
    Run(VmRun),
}

#[derive(Args, Debug)]
pub struct VmRun {
    /// Policy under which the command runs: a path, or a name in Baton's policies/ or in the
    /// current directory.
    #[arg(short, long)]
    pub policy: Option<String>,
    /// Give it every normal task of the guest.
    #[arg(long, requires = "policy")]
    pub all: bool,
    /// Options of the policy: KEY=VALUE,KEY=VALUE.
    #[arg(long, value_parser = names::options, requires = "policy")]
    pub options: Option<String>,
    /// Further policies to copy into the guest, for `baton load` there. May be repeated.
    #[arg(long = "with", value_name = "POLICY")]
    pub with: Vec<String>,
    /// Policies to copy into the guest for `baton agent run` there. May be repeated.
    #[arg(long = "agent", value_name = "POLICY")]
    pub agents: Vec<String>,
    /// Number of CPUs.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=255))]
    pub cpus: u32,
    /// Shape of the CPUs: NUMA nodes x cores x hardware threads, for example 2x4x2.
    #[arg(long, value_name = "NxCxT", conflicts_with = "cpus")]
    pub topology: Option<baton_vm::Topology>,
    /// Count instructions: each takes 2^N ns of guest time (0 to 10), and runs are repeatable. With
    /// 0 a run is several times slower. Each increment halves the work in a second of guest time.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "0",
          value_parser = clap::value_parser!(u8).range(0..=10))]
    pub icount: Option<u8>,
    /// Use systemd as the guest's first process, and run the command as one of its services.
    #[arg(long)]
    pub systemd: bool,
    /// Memory in MiB. Files in the guest are in this memory too.
    #[arg(long, value_name = "MB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(128..))]
    pub memory: u32,
    /// Time limit on this machine's clock, in seconds, including the boot.
    #[arg(long, value_name = "S", default_value_t = 300)]
    pub timeout: u64,
    /// The kernel to boot: its release, or the path of its image. [default: that of Baton's Debian
    /// root]
    #[arg(long, value_name = "RELEASE|FILE", env = "BATON_KERNEL")]
    pub kernel: Option<String>,
    /// Arguments to add to the kernel's command line.
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true)]
    pub append: Option<String>,
    /// Send NMIs to a CPU that executes a module with interrupts off and does not end that, as a
    /// machine's watchdog does. They end an endless loop of a policy that was built without polls.
    #[arg(long)]
    pub watchdog: bool,
    /// A file or directory to copy into the guest; without DEST into the command's directory. The
    /// libraries of a program are copied too.
    #[arg(long = "in", value_name = "FILE[:DEST]", value_parser = names::file_in)]
    pub files_in: Vec<names::FileIn>,
    /// A file or directory to copy back from the guest.
    #[arg(long = "out", value_name = "GUESTFILE:HOSTFILE", value_parser = names::file_out)]
    pub files_out: Vec<names::FileOut>,
    /// File for the guest's kernel log.
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// The command and its arguments, as in the guest. If it is a program of this machine, it is
    /// copied into the guest.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

#[derive(Args, Debug)]
pub struct Man {
    /// The command, for example `vm run`. Without it, baton itself.
    #[arg(value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Write the pages of all commands into this directory instead.
    #[arg(long, conflicts_with = "command")]
    pub dir: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct Report {
    /// Files with runs, as printed by `baton sim --json`. The other runs are compared with the
    /// first.
    #[arg(value_name = "RUN.json", required = true)]
    pub runs: Vec<PathBuf>,
    /// The page to write; - for standard output.
    #[arg(short, long, value_name = "FILE.html", default_value = "report.html")]
    pub output: PathBuf,
}
