// SPDX-License-Identifier: GPL-2.0-only
//! `baton check`: searches for an order of events in which a policy fails.

use std::fs;
use std::io::{BufRead, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use baton_abi::BatonHint;
use baton_interleave::{
    AgentSpec, HintSample, Options, Outcome, Progress, Property, Seed, Story, Subject,
};
use baton_sim::topology::Topology;
use serde_json::{json, Value};

use crate::commands::{print, print_json};
use baton_bench::simulate::native_agent;
use baton_control::error::{Error, Result};
use baton_control::names;

#[derive(clap::Args, Debug)]
pub struct Check {
    /// Policies: paths, or names in Baton's policies/ or in the current directory.
    #[arg(value_name = "POLICY", required = true)]
    pub policies: Vec<String>,
    /// Check the policies, or schedulers that are written for agents, as agents of enclaves. An
    /// agent has the last of the CPUs for itself.
    #[arg(long, conflicts_with_all = ["hint", "workload", "upgrade_to"])]
    pub agent: bool,
    /// Number of schedules to explore for each policy.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub schedules: u64,
    /// Time limit for each policy.
    #[arg(long, value_name = "S", default_value_t = 60)]
    pub seconds: u64,
    /// Number of CPUs. [default: 2 to 4 in turn]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=4))]
    pub cpus: Option<u8>,
    /// The machine, of at most four CPUs: NODESxCORESxTHREADS[/CORES_PER_LLC], as for `baton sim`.
    /// [default: pairs of CPUs that share a cache]
    #[arg(long, value_name = "TOPOLOGY", value_parser = topology, conflicts_with = "cpus")]
    pub topology: Option<Machine>,
    /// Number of tasks at the beginning. [default: 2 to 6 in turn]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=6))]
    pub tasks: Option<u8>,
    /// A property that the policy is not meant to have. May be repeated.
    #[arg(long, value_name = "PROPERTY", value_parser = property)]
    pub without: Vec<Property>,
    /// A hint that tasks send: TAG[:task] [WORD...], where a word is a number or LOW-HIGH, and
    /// `:task` makes it name a task. May be repeated. [default: random small numbers]
    #[arg(long, value_name = "HINT")]
    pub hint: Vec<HintSample>,
    /// An rt-app file, as for `baton sim`. Tasks also send the hints of its tasks, as with --hint.
    #[arg(short, long, value_name = "FILE")]
    pub workload: Option<PathBuf>,
    /// Number of ticks, of 4 ms, for which a CPU may idle beside a task that it could run.
    #[arg(long, value_name = "TICKS", default_value_t = IDLE_TICKS)]
    pub idle_ticks: u64,
    /// Number of seconds for which a method may run without a lock or a call of its host.
    #[arg(long, value_name = "S", default_value_t = CALL_LIMIT, value_parser = clap::value_parser!(u64).range(1..))]
    pub call_limit: u64,
    /// Options of the policy: KEY=VALUE,KEY=VALUE.
    #[arg(long, value_parser = names::options)]
    pub options: Option<String>,
    /// The version that replaces the policy in an upgrade. [default: the policy itself, if it can
    /// be upgraded]
    #[arg(long, value_name = "POLICY")]
    pub upgrade_to: Option<String>,
    /// The first seed. Other seeds give other schedules.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub first: u64,
    /// Print the story of the schedule with this seed.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["schedules", "seconds", "cpus", "tasks", "first"])]
    pub replay: Option<Seed>,
    /// Print it line by line, one at each Enter.
    #[arg(long, requires = "replay")]
    pub step: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// In ticks.
const IDLE_TICKS: u64 = 4;

/// In seconds.
const CALL_LIMIT: u64 = 2;

fn property(text: &str) -> std::result::Result<Property, String> {
    Property::ALL
        .into_iter()
        .find(|property| property.name() == text)
        .ok_or_else(|| {
            let names = Property::ALL.map(Property::name);
            format!("there is no such property; there are {}", names.join(", "))
        })
}

/// A machine, and the name that was given for it.
#[derive(Clone, Debug)]
pub struct Machine {
    text: String,
    topology: Topology,
}

fn topology(text: &str) -> std::result::Result<Machine, String> {
    let topology: Topology = text.parse()?;
    match topology.cpus().len() {
        1..=4 => Ok(Machine {
            text: text.into(),
            topology,
        }),
        more => Err(format!(
            "{text} has {more} CPUs; the checker has four at most"
        )),
    }
}

pub fn check(args: &Check) -> Result<ExitCode> {
    let options = Options {
        policy: args.options.clone().unwrap_or_default(),
        cpus: args.cpus.map_or(0, usize::from),
        topology: args
            .topology
            .as_ref()
            .map_or(Vec::new(), |machine| machine.topology.cpus().to_vec()),
        tasks: args.tasks.map_or(0, usize::from),
        schedules: args.schedules,
        time: Duration::from_secs(args.seconds),
        first: args.first,
        without: args.without.clone(),
        idle_ticks: args.idle_ticks,
        call_limit: Duration::from_secs(args.call_limit),
        hints: hints(args)?,
        next: args
            .upgrade_to
            .as_deref()
            .map(baton_build::checked)
            .transpose()?,
        ..Options::default()
    };
    let mut results = Vec::new();
    let mut has_failed = false;
    for text in &args.policies {
        let subject = subject(args, text)?;
        let user = |why| {
            Error::user(
                format!("{text} cannot be checked: {why}"),
                "check its options (--options), and the machine (--cpus, --topology)",
            )
        };
        let (outcome, story) = match &args.replay {
            Some(seed) => (
                None,
                Some(
                    baton_interleave::replay(subject.clone(), &options, seed.clone())
                        .map_err(user)?,
                ),
            ),
            None => {
                let outcome =
                    baton_interleave::check(subject.clone(), &options, &mut progress(text))
                        .map_err(user)?;
                let story = outcome.story.clone();
                (Some(outcome), story)
            }
        };
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        has_failed |= story.as_ref().is_some_and(|story| story.finding.is_some());
        if args.json {
            results.push(as_json(&subject.name(), outcome.as_ref(), story.as_ref()));
            continue;
        }
        if let Some(story) = &story {
            tell(story, args.step)?;
        }
        if let Some(outcome) = &outcome {
            print(summary(args, &options.hints, text, outcome))?;
        }
    }
    if args.json {
        print_json(&results)?;
    }
    Ok(if has_failed {
        ExitCode::from(4)
    } else {
        ExitCode::SUCCESS
    })
}

/// What is to be checked.
fn subject(args: &Check, text: &str) -> Result<Subject> {
    if !args.agent {
        return baton_build::checked(text).map(Subject::Policy);
    }
    if let Some(native) = baton_agents::find(text) {
        return native_agent(native).map(Subject::Agent);
    }
    let policy = baton_build::native(text)?;
    let options = args.options.as_deref().unwrap_or_default();
    Ok(Subject::Agent(AgentSpec::of_policy(policy, options)))
}

/// The hints of the command line and of the file.
fn hints(args: &Check) -> Result<Vec<HintSample>> {
    let mut hints = args.hint.clone();
    if let Some(file) = &args.workload {
        let of_file = hints_of(file);
        hints.extend(of_file.map_err(|why| {
            Error::user(why, "docs/workloads.md says how such a file is written")
        })?);
    }
    Ok(hints)
}

fn hints_of(file: &Path) -> std::result::Result<Vec<HintSample>, String> {
    let wrong = |why: String| format!("{}: {why}", file.display());
    let text = fs::read_to_string(file).map_err(|why| wrong(why.to_string()))?;
    let hints = baton_sim::workloads::hints(&text).map_err(wrong)?;
    let sample = |(hint, is_about): (BatonHint, bool)| {
        let about = if is_about { ":task" } else { "" };
        let words = hint.words.map(|word| word.to_string()).join(" ");
        format!("{}{about} {words}", hint.tag).parse()
    };
    hints.into_iter().map(sample).collect()
}

/// Shows the progress on a terminal.
fn progress(policy: &str) -> impl FnMut(&Progress) + use<'_> {
    let is_terminal = std::io::stderr().is_terminal();
    let mut last = Duration::ZERO;
    move |progress| {
        if is_terminal && progress.elapsed - last > Duration::from_millis(200) {
            last = progress.elapsed;
            let what = progress.lines.map_or(String::new(), |lines| {
                format!("; shortening the story: {lines} lines")
            });
            eprint!(
                "\r\x1b[K{policy}: {} schedules, {:.0} s{what}\r",
                progress.schedules,
                last.as_secs_f64()
            );
        }
    }
}

fn tell(story: &Story, step: bool) -> Result<()> {
    if !step {
        return print(story.to_string());
    }
    let stdin = std::io::stdin();
    let waits = stdin.is_terminal();
    for (index, line) in story.abridged().iter().enumerate() {
        print(format!(
            "{:4}  {line}{}",
            index + 1,
            if waits { "" } else { "\n" }
        ))?;
        if waits {
            let mut enter = String::new();
            stdin
                .lock()
                .read_line(&mut enter)
                .map_err(|e| Error::file("reading standard input", &e))?;
        }
    }
    print(format!("\n{}", story.verdict()))
}

fn summary(args: &Check, hints: &[HintSample], text: &str, outcome: &Outcome) -> String {
    let Outcome {
        schedules,
        points,
        said,
        coverage,
        elapsed,
        ..
    } = outcome;
    let said = said.as_ref().map_or(String::new(), |said| {
        let by_tag = |(tag, count)| format!("{count} with tag {tag}");
        let tags = said
            .replies
            .iter()
            .map(by_tag)
            .collect::<Vec<_>>()
            .join(", ");
        let tags = if tags.is_empty() {
            tags
        } else {
            format!(" ({tags})")
        };
        format!(
            ", {} hints and {} replies{tags}",
            said.hints,
            said.replies.values().sum::<u64>()
        )
    });
    let seconds = elapsed.as_secs_f64();
    let explored =
        format!("{schedules} schedules with {points} scheduling points{said} in {seconds:.1} s");
    let seen = format!(
        "  coverage  {} different schedules, the last new one was schedule {}; {} states of the \
         machine, the last new one in schedule {}\n",
        coverage.schedules(),
        coverage.last_schedule(),
        coverage.states(),
        coverage.last_state()
    );
    let left_out = args
        .without
        .iter()
        .map(|property| property.name())
        .collect::<Vec<_>>()
        .join(", ");
    let without = if left_out.is_empty() {
        String::new()
    } else {
        format!(" (without {left_out})")
    };
    let Some(story) = &outcome.story else {
        return format!("{text}: nothing found in {explored}{without}\n{seen}");
    };
    let agent = if args.agent { "--agent " } else { "" };
    let mut again = format!("baton check {agent}{text} --replay {}", story.seed);
    args.options
        .iter()
        .for_each(|options| again.push_str(&format!(" --options {options}")));
    args.upgrade_to
        .iter()
        .for_each(|next| again.push_str(&format!(" --upgrade-to {next}")));
    args.topology
        .iter()
        .for_each(|machine| again.push_str(&format!(" --topology {}", machine.text)));
    hints
        .iter()
        .for_each(|hint| again.push_str(&format!(" --hint '{hint}'")));
    if args.idle_ticks != IDLE_TICKS {
        again.push_str(&format!(" --idle-ticks {}", args.idle_ticks));
    }
    if args.call_limit != CALL_LIMIT {
        again.push_str(&format!(" --call-limit {}", args.call_limit));
    }
    args.without
        .iter()
        .for_each(|property| again.push_str(&format!(" --without {}", property.name())));
    let mut text = format!("  again     {again}\n  explored  {explored}{without}\n{seen}");
    let property = story.finding.as_ref().map(|finding| finding.property);
    if property == Some(Property::WorkConservation) {
        text.push_str(
            "  to do     if the policy is not meant to keep all CPUs busy: --without \
            work-conservation\n",
        );
    } else if property == Some(Property::IdleBeside) {
        text.push_str(
            "  to do     if the policy is meant to take its time: --idle-ticks N, or --without \
             idle-beside-waiting\n",
        );
    }
    text
}

fn as_json(policy: &str, outcome: Option<&Outcome>, story: Option<&Story>) -> Value {
    let finding = story.and_then(|story| story.finding.as_ref());
    let said = outcome.and_then(|outcome| outcome.said.as_ref());
    let fault = finding
        .and_then(|finding| finding.report.as_ref())
        .map(|report| {
            json!({
                "kind": report.kind,
                "method": report.method,
                "task": report.task,
                "cpu": report.cpu,
                "file": report.file,
                "line": report.line,
                "message": report.message,
            })
        });
    json!({
        "policy": policy,
        "schedules": outcome.map(|outcome| outcome.schedules),
        "points": outcome.map(|outcome| outcome.points),
        "hints": said.map(|said| said.hints),
        "replies": said.map(|said| said.replies.values().sum::<u64>()),
        "replies_by_tag": said.map(|said| &said.replies),
        "coverage": outcome.map(|outcome| json!({
            "schedules": outcome.coverage.schedules(),
            "last_new_schedule": outcome.coverage.last_schedule(),
            "states": outcome.coverage.states(),
            "last_new_state": outcome.coverage.last_state(),
        })),
        "seconds": outcome.map(|outcome| outcome.elapsed.as_secs_f64()),
        "passed": finding.is_none(),
        "property": finding.map(|finding| finding.property.name()),
        "what": finding.map(|finding| &finding.what),
        "holder": finding.and_then(|finding| finding.holder.as_ref()),
        "fault": fault,
        "seed": story.map(|story| story.seed.to_string()),
        "story": story.map(|story| story.abridged().iter().map(ToString::to_string).collect::<Vec<_>>()),
    })
}
