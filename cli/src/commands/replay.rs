// SPDX-License-Identifier: GPL-2.0-only
//! `baton replay`: feeds a recording to its policy or to another.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Duration;

use baton_native::Policy;
use baton_replay::{Cause, Divergence, End, Fault, Options, Outcome, Until};
use baton_trace::Recording;
use serde_json::{json, Value};

use super::sim::tables;
use super::trace::{self, seconds};
use super::what_if::{self, Side, WhatIf};
use super::{print, print_json};
use baton_control::error::{Error, Result};
use baton_control::{names, report};

#[derive(clap::Args, Debug)]
pub struct Replay {
    /// The recording.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The policy: a path, a library, or a name in Baton's policies/ or in the current directory.
    /// [default: the recorded one]
    #[arg(short, long, value_name = "POLICY|FILE.so")]
    pub policy: Option<String>,
    /// Options of the policy: KEY=VALUE,KEY=VALUE. [default: the recorded ones]
    #[arg(long, value_parser = names::options)]
    pub options: Option<String>,
    /// Replay with the interpreter of Baton's language, by the source of the policy, and not with
    /// what the compiler has made of it. -p gives a policy or a NAME.baton.
    #[arg(long, conflicts_with_all = ["gdb", "what_if"])]
    pub interpreted: bool,
    /// Replay all CPUs on one thread, in turn. [default: a thread for each]
    #[arg(long)]
    pub single: bool,
    /// Begin at the last checkpoint that is not after this event number, or not after this time
    /// since the first call: 5000, 100ms.
    #[arg(long, value_name = "N|TIME", value_parser = place)]
    pub from: Option<Until>,
    /// Stop before this event number, or at this time since the first call: 5000, 100ms.
    #[arg(long, value_name = "N|TIME", value_parser = place)]
    pub until: Option<Until>,
    /// Call the function `baton_replay_stop` just before the call that is event N, as a place for a
    /// debugger's breakpoint.
    #[arg(long, value_name = "N")]
    pub stop_at: Option<u64>,
    /// Replay in the debugger, which stops where the policy fails, and at --stop-at. Arguments
    /// after -- are for gdb.
    #[arg(long, conflicts_with_all = ["json", "until", "print"])]
    pub gdb: bool,
    /// Further arguments for gdb, such as -batch -ex 'info locals'.
    #[arg(last = true, value_name = "GDB", requires = "gdb")]
    pub for_gdb: Vec<String>,
    /// Where the policy decides differently, continue with it in the simulator, from that state on.
    #[arg(long, conflicts_with_all = ["gdb", "from"])]
    pub what_if: bool,
    /// Print the replayed events in words.
    #[arg(long)]
    pub print: bool,
    /// Print JSON.
    #[arg(long, conflicts_with = "print")]
    pub json: bool,
}

fn place(text: &str) -> std::result::Result<Until, String> {
    match text.parse() {
        Ok(number) => Ok(Until::Event(number)),
        Err(_) => names::duration(text).map(|time| Until::Time(time.as_nanos() as u64)),
    }
}

/// The argument from which `place` reads this value.
fn as_argument(place: Until) -> String {
    match place {
        Until::Event(number) => number.to_string(),
        Until::Time(ns) => format!("{ns}ns"),
    }
}

pub fn command(args: &Replay) -> Result<ExitCode> {
    let recording = trace::open(&args.file)?;
    if args.gdb {
        return Err(debug(args, &recording)?);
    }
    let program = if args.interpreted {
        Some(program(args, &recording)?)
    } else {
        None
    };
    let policy = match program {
        Some(_) => INTERPRETED,
        None => policy(args.policy.as_deref(), &recording)?,
    };
    let from = args
        .from
        .map(|place| baton_replay::checkpoint_before(&recording, place))
        .transpose()
        .map_err(|why| {
            Error::user(
            format!("{} cannot be replayed from there: {why}", args.file.display()),
            "leave out --from, or see `baton trace stats`; `baton record` and `baton sim` make \
             checkpoints with --checkpoint TIME",
        )
        })?;
    let options = Options {
        single: args.single,
        policy_options: args.options.clone(),
        from,
        until: args.until,
        stop_at: args.stop_at,
        ..Options::default()
    };
    let (running, over) = mpsc::channel::<()>();
    let (progress, name) = (options.progress.clone(), policy.name());
    std::thread::spawn(move || watch(&progress, &name, &over));
    let replay = || baton_replay::replay(&recording, policy, &options);
    let replayed = match &program {
        Some(program) => baton_interpreter::with(program, replay),
        None => replay(),
    };
    let outcome = replayed.map_err(|why| {
        Error::user(
            format!("{} cannot be replayed: {why}", args.file.display()),
            "see docs/replay.md",
        )
    })?;
    drop(running);
    let what_if = match &outcome.end {
        End::Diverged(divergence) if args.what_if => {
            Some(go_on(args, &recording, policy, divergence)?)
        }
        _ => None,
    };
    let next = match outcome.end {
        End::Gap { .. } => {
            baton_replay::checkpoint_after(&recording, &outcome, &options).map(|mark| mark.number)
        }
        _ => None,
    };
    if args.print {
        trace::print_words(&recording, outcome.first..outcome.first + outcome.events)?;
    }
    if args.json {
        print_json(&as_json(
            &recording,
            &policy,
            &outcome,
            next,
            what_if.as_ref(),
        ))?
    } else {
        let after = what_if.as_ref().map_or_else(String::new, what_if_words);
        print(words(args, &recording, &policy, &outcome, next) + &after)?;
    }
    if outcome.events == 0 {
        return Err(Error::user(
            format!("nothing of {} could be replayed", args.file.display()),
            "see above for why; record anew, with a larger --ring if events were lost",
        ));
    }
    Ok(if matches!(outcome.end, End::Diverged(_)) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn go_on(
    args: &Replay,
    recording: &Recording,
    policy: Policy,
    divergence: &Divergence,
) -> Result<WhatIf> {
    let header = &recording.header;
    let is_other = args.policy.is_some() || args.options.is_some();
    let recorded = is_other.then(|| recorded_policy(recording).ok()).flatten();
    let recorded = recorded.map(|policy| Side {
        policy,
        options: None,
        name: format!("{}, as recorded", header.policy),
    });
    let name = match &args.options {
        Some(options) => format!("{}:{options}", policy.name()),
        None => policy.name(),
    };
    let other = Side {
        policy,
        options: args.options.clone(),
        name,
    };
    what_if::go_on(recording, recorded.as_ref(), &other, divergence)
}

fn what_if_words(what: &WhatIf) -> String {
    let [queued, running, asleep] = what.tasks;
    let mut text = format!(
        "WHAT IF from event {} on, at {}: {queued} tasks queued, {running} running, \
         {asleep} asleep\n",
        what.number,
        seconds(what.at)
    );
    if what.runs.len() == 1 {
        text += "  the recorded policy is not available, so there is no comparison\n";
    }
    let runs: Vec<_> = what.runs.iter().map(|done| &done.run).collect();
    text += &tables::runs(&runs);
    what.runs
        .iter()
        .flat_map(|done| &done.faults)
        .for_each(|fault| text += &report::fault(fault));
    text
}

/// Becomes the debugger, which runs the same replay on one thread. Returns only if that fails, with
/// the reason.
fn debug(args: &Replay, recording: &Recording) -> Result<Error> {
    let header = &recording.header;
    let policy = match &args.policy {
        Some(name) => baton_build::Policy::find(name),
        // Several versions of a policy can have its name.
        None => baton_build::Policy::find(&header.policy).or_else(|error| {
            baton_build::Policy::find(&format!("{}-v{}", header.policy, header.version))
                .map_err(|_| error)
        }),
    }?;
    let library = baton_build::debuggable(&policy)?;
    let source = baton_build::source()?;
    // Paths inside the tree begin at its top: see hosts/native/build.sh.
    let inside = policy.dir.strip_prefix(&source).unwrap_or(&policy.dir);
    let places = format!("{}/:{}/", inside.display(), policy.dir.display());
    let own = std::env::current_exe().map_err(|e| {
        Error::environment(
            format!("the path of this program is unknown: {e}"),
            "mount /proc",
        )
    })?;
    let mut gdb = Command::new("gdb");
    gdb.arg("-q").args([
        "-iex",
        "set debuginfod enabled off",
        "-iex",
        "set auto-load python-scripts off",
        "-iex",
    ]);
    gdb.arg(format!("directory {}", source.display()))
        .arg("-x")
        .arg(source.join("check/replay/replay.py"));
    gdb.args(["-ex", "run"])
        .args(&args.for_gdb)
        .arg("--args")
        .arg(own)
        .arg("replay")
        .arg(&args.file)
        .arg("--single");
    gdb.arg("--policy")
        .arg(library)
        .env("BATON_POLICY_PLACES", places);
    if let Some(options) = &args.options {
        gdb.args(["--options", options]);
    }
    if let Some(from) = args.from {
        gdb.args(["--from", &as_argument(from)]);
    }
    if let Some(number) = args.stop_at {
        gdb.args(["--stop-at", &number.to_string()]);
    }
    let failed = gdb.exec();
    Ok(Error::environment(
        format!("gdb cannot be run: {failed}"),
        "install it (apt install gdb), or run this in Baton's root, which has it: vm/enter baton \
         replay --gdb ...",
    ))
}

/// The policy that is given, or else the recorded one.
pub(super) fn policy(given: Option<&str>, recording: &Recording) -> Result<Policy> {
    match given {
        Some(file) if file.ends_with(".so") => Policy::open(file.as_ref()).map_err(|why| {
            Error::user(
                why,
                "give a library that `baton sim` or `baton replay` has built, or a policy's name",
            )
        }),
        Some(name) => baton_build::native(name),
        None => recorded_policy(recording),
    }
}

/// A policy whose text is interpreted.
const INTERPRETED: Policy = Policy::linked(baton_native::module!(baton_interpreter::BatonPolicy));

/// What is interpreted.
fn program(args: &Replay, recording: &Recording) -> Result<baton_lang::hir::Policy> {
    let text = args.policy.as_ref().unwrap_or(&recording.header.policy);
    baton_build::language::compile(&baton_build::language::source(text)?)
}

fn recorded_policy(recording: &Recording) -> Result<Policy> {
    let header = &recording.header;
    // Several versions of a policy can have its name.
    baton_build::native(&header.policy).or_else(|error| {
        baton_build::native(&format!("{}-v{}", header.policy, header.version)).map_err(|_| error)
    })
}

/// How long a replay may make no progress, on this machine's clock.
const PATIENCE: Duration = Duration::from_secs(10);

/// Ends this process when a call of a policy does not return, as nothing else can end the call.
/// Returns when the sender of `over` is dropped.
fn watch(progress: &AtomicU64, policy: &str, over: &mpsc::Receiver<()>) {
    let mut seen = None;
    while over.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
        let now = progress.load(Relaxed);
        if seen == Some(now) && !is_traced() {
            let what = format!(
                "the replay has made no progress for {} s, after {} events",
                PATIENCE.as_secs(),
                now
            );
            let next = "a call does not return: see where with `baton replay --gdb ...`, and \
                Ctrl-C there";
            eprintln!("baton: {}", Error::policy(policy, what, next));
            std::process::exit(4);
        }
        seen = Some(now);
    }
}

/// Is this process traced by a debugger?
fn is_traced() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| {
        line.strip_prefix("TracerPid:")
            .is_some_and(|pid| pid.trim() != "0")
    })
}

/// `next` is the event from which the replay can continue after a gap.
fn words(
    args: &Replay,
    recording: &Recording,
    policy: &Policy,
    outcome: &Outcome,
    next: Option<u64>,
) -> String {
    let header = &recording.header;
    let Outcome {
        first,
        events,
        all,
        calls,
        ..
    } = outcome;
    let from = if *first == 0 {
        String::new()
    } else {
        format!(" from the checkpoint before event {first} on")
    };
    let mut text = match &outcome.end {
        End::Whole if *first == 0 => format!("same: all {events} events, {calls} calls\n"),
        End::Whole => format!("same: {events} of {all} events{from}, {calls} calls, to the end\n"),
        End::Until => {
            format!("same: {events} of {all} events{from}, {calls} calls, to the requested stop\n")
        }
        End::Gap { cpu, what } => {
            let next = match next {
                Some(number) => format!(
                    "  next      baton replay {} --from {number}\n",
                    args.file.display()
                ),
                None => String::new(),
            };
            format!(
                "same: {events} of {all} events{from}, {calls} calls, up to a gap on CPU \
                {cpu}: {what}\n{next}"
            )
        }
        End::Diverged(divergence) => divergence_words(args, divergence, recording.begin()),
    };
    for fault in &outcome.faults {
        text.push_str(&fault_words(fault, recording.begin()));
    }
    for damage in &recording.damage {
        text.push_str(&format!(
            "  damaged   bytes {} to {} of the file\n",
            damage.place.start, damage.place.end
        ));
    }
    let (took, recorded) = (outcome.elapsed.as_secs_f64(), outcome.recorded as f64 / 1e9);
    let speed = *events as f64 / took.max(1e-9);
    text.push_str(&format!(
        "  recorded  {} version {} on {}: {} CPUs, {recorded:.3} s\n  replayed  {} version {} in \
         {took:.3} s: {:.2} million \
         events a second, {:.2} times as fast as it was recorded\n",
        header.policy,
        header.version,
        header.host,
        header.cpus.len(),
        policy.name(),
        policy.ops().version,
        speed / 1e6,
        recorded / took.max(1e-9),
    ));
    text
}

fn divergence_words(args: &Replay, divergence: &Divergence, begin: u64) -> String {
    let Divergence {
        number,
        call,
        now,
        cpu,
        method,
        task,
        expected,
        got,
        before,
        cause,
        ..
    } = divergence;
    let task = task.map_or(String::new(), |task| format!(", about task {task}"));
    let from = args.from.map_or(String::new(), |place| {
        format!(" --from {}", as_argument(place))
    });
    let cause = match cause {
        Cause::OtherPolicy => {
            "a new instance does the same on this input: the policy, or its options, are not the \
             recorded ones"
        }
        Cause::Nondeterministic => {
            "the policy is not deterministic: a new instance does something else on this input. It \
             depends on something that is not in the \
             recording: an address, the order of a hash, a value that several CPUs change and that \
             is not Shared"
        }
    };
    format!(
        "DIVERGENCE at event {number}: {} on CPU {cpu}, in {method}{task}\n  recorded  \
         {expected}\n  got       {got}\n  cause     \
         {cause}\n  before\n{}\n  see       baton replay {}{from} --gdb --stop-at {call}\n",
        seconds(now.saturating_sub(begin)),
        before
            .iter()
            .map(|line| format!("    {line}"))
            .collect::<Vec<_>>()
            .join("\n"),
        args.file.display(),
    )
}

fn fault_words(fault: &Fault, begin: u64) -> String {
    let Fault {
        number,
        now,
        cpu,
        method,
        task,
        kind,
        message,
        place,
    } = fault;
    let task = task.map_or(String::new(), |task| format!(", about task {task}"));
    let place = place
        .as_ref()
        .map_or(String::new(), |place| format!("  source    {place}\n"));
    format!(
        "FAULT as recorded, at event {number}: {kind} in {method}{task}, {} on CPU {cpu}\n{place}  \
         message   {message}\n",
        seconds(now.saturating_sub(begin))
    )
}

fn as_json(
    recording: &Recording,
    policy: &Policy,
    outcome: &Outcome,
    next: Option<u64>,
    what_if: Option<&WhatIf>,
) -> Value {
    let what_if = what_if.map(|it| {
        let [queued, running, asleep] = it.tasks;
        json!({
            "event": it.number,
            "at_ns": it.at,
            "tasks": {"queued": queued, "running": running, "asleep": asleep},
            "runs": it.runs.iter().map(|done| &done.run).collect::<Vec<_>>(),
        })
    });
    let divergence = match &outcome.end {
        End::Diverged(it) => Some(json!({
            "event": it.number,
            "call": it.call,
            "now_ns": it.now,
            "cpu": it.cpu,
            "method": it.method,
            "task": it.task,
            "expected": it.expected,
            "got": it.got,
            "before": it.before,
            "deterministic": it.cause == Cause::OtherPolicy,
        })),
        _ => None,
    };
    let (end, gap) = match &outcome.end {
        End::Whole => ("whole", None),
        End::Until => ("until", None),
        End::Gap { cpu, what } => ("gap", Some(json!({"cpu": cpu, "what": what, "next": next}))),
        End::Diverged(_) => ("diverged", None),
    };
    let faults = outcome.faults.iter().map(|fault| {
        json!({
            "event": fault.number,
            "now_ns": fault.now,
            "cpu": fault.cpu,
            "method": fault.method,
            "task": fault.task,
            "kind": fault.kind,
            "message": fault.message,
            "place": fault.place,
        })
    });
    let seconds = outcome.elapsed.as_secs_f64();
    json!({
        "policy": policy.name(),
        "version": policy.ops().version,
        "recorded": {"policy": recording.header.policy, "version": recording.header.version, "host": recording.header.host},
        "end": end,
        "first": outcome.first,
        "events": outcome.events,
        "events_in_file": outcome.all,
        "calls": outcome.calls,
        "divergence": divergence,
        "what_if": what_if,
        "gap": gap,
        "faults": faults.collect::<Vec<_>>(),
        "damaged_places": recording.damage.len(),
        "seconds": seconds,
        "recorded_seconds": outcome.recorded as f64 / 1e9,
        "events_per_second": outcome.events as f64 / seconds.max(1e-9),
    })
}
