// SPDX-License-Identifier: GPL-2.0-only
//! Recordings under all conditions: the file stays readable, and the policy continues.

use crate::{
    hints, policies,
    tool::{baton, baton_fails, check, is_well, release, run, stress, Load},
    Case, IN_C,
};
use baton_message::attributes::{Attributes, AttributesReply};
use baton_native::Policy;
use baton_replay::{replay, End, Options};
use baton_trace::{About, Event, Item, Mark, Recording};
use serde_json::Value;
use std::{
    fs,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

pub fn cases() -> Vec<Case> {
    vec![
        case!("a recording under load", whole()),
        case!(
            "a recording with checkpoints, each of which replays",
            checkpoints()
        ),
        case!("a recording of each policy, which replays", of_each(false)),
        case!(
            "a recording of each policy in C, which replays",
            of_each(true)
        ),
        case!(
            "recordings one after the other, of a policy without a saved state",
            anew()
        ),
        case!("a refused recording leaves no file", refused()),
        case!("a recording into a pipe", pipe()),
        case!("kill -9 of the recorder", killed()),
        case!("the disk is full while recording", disk_full()),
        case!(
            "unload while recording",
            ended_by(&["unload", "wfq"], "the policy was unloaded")
        ),
        case!("upgrades while recording", upgraded()),
        case!("a refused upgrade while recording", refused_upgrade()),
        case!(
            "switch while recording",
            ended_by(&["switch", "wfq", "fifo"], "the policy was replaced")
        ),
        case!("a ring is full: events are lost, and counted", full(false)),
        case!("a ring is full: a lossless recording ends", full(true)),
        case!("a fault while recording", fault()),
        case!("a recorded call without an end is replayed", endless()),
        case!("CPU hotplug while recording", hotplug()),
    ]
}

const FILE: &str = "/tmp/recording";

/// Sends a hint to a policy, and waits for the reply.
type Says<'a> = &'a dyn Fn() -> Result<(), String>;

/// A recorder in the background.
pub struct Recorder(Child);

impl Recorder {
    /// Starts a recorder. It is running when the file has its header.
    pub fn start(policy: &str, file: &str, more: &[&str]) -> Result<Self, String> {
        let _ = fs::remove_file(file);
        let mut command = Command::new("baton");
        command
            .args(["record", "-p", policy, "-o", file, "--json"])
            .args(more);
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| e.to_string())?;
        let recorder = Self(child);
        let end = Instant::now() + Duration::from_secs(20);
        while !recording(policy)? {
            check(Instant::now() < end, || {
                "the recording does not begin".into()
            })?;
            sleep(Duration::from_millis(20));
        }
        Ok(recorder)
    }

    fn signal(&self, name: &str) -> Result<(), String> {
        run("kill", &[name, &self.0.id().to_string()]).map(|_| ())
    }

    /// Ends the recorder, and returns its exit status and output.
    pub fn end(self) -> Result<(ExitStatus, Value, String), String> {
        self.signal("-INT")?;
        self.wait()
    }

    pub fn wait(self) -> Result<(ExitStatus, Value, String), String> {
        let output = self.0.wait_with_output().map_err(|e| e.to_string())?;
        let summary = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        Ok((
            output.status,
            summary,
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ))
    }
}

/// Whether the policy is being recorded.
fn recording(policy: &str) -> Result<bool, String> {
    let status = crate::tool::status()?;
    Ok(crate::tool::policy(&status, policy)?["recording"] == true)
}

/// Reads the readable part of a file: its events, their number, and whether the file is complete.
fn read(file: &str) -> Result<(Recording, u64, bool), String> {
    let bytes = fs::read(file).map_err(|e| format!("{file}: {e}"))?;
    let recording = Recording::parse(&bytes).map_err(|e| format!("{file}: {e}"))?;
    let items = || recording.streams.iter().flat_map(|stream| stream.items());
    let events = items()
        .filter(|item| matches!(item, Item::Event(_)))
        .count() as u64;
    let is_whole =
        recording.damage.is_empty() && items().all(|item| matches!(item, Item::Event(_)));
    Ok((recording, events, is_whole))
}

/// Checks that the file has everything recorded, and that every CPU's events end correctly.
pub fn is_whole(file: &str, summary: &Value) -> Result<Recording, String> {
    let (recording, events, is_whole) = read(file)?;
    let ends = recording.streams.iter().all(|stream| {
        let last = stream.items().last();
        matches!(last, Some(Item::Event(Event::End { .. })))
    });
    // A slice is an answer. A policy in C could read the previous contents of its place.
    let given = recording
        .streams
        .iter()
        .flat_map(|s| s.items())
        .find(|item| match item {
            Item::Event(Event::Call(call)) => {
                matches!(call.about, About::Waking(..) | About::Given(..))
                    && call.carried.slice != 0
            }
            _ => false,
        });
    check(given.is_none(), || {
        format!("a call begins with a slice: {given:?}")
    })?;
    let calls = recording.streams.iter().flat_map(|s| s.items()).fold(
        (0i64, 0i64),
        |(begun, ended), item| match item {
            Item::Event(Event::Call(_)) => (begun + 1, ended),
            Item::Event(Event::Return(_) | Event::Abandoned { .. }) => (begun, ended + 1),
            _ => (begun, ended),
        },
    );
    check(
        is_whole
            && ends
            && summary["lost"] == 0
            && summary["events"] == events
            && calls.0 == calls.1,
        || {
            format!(
                "the recording is not whole: {summary}, {events} events, {} damaged, {calls:?}",
                recording.damage.len()
            )
        },
    )?;
    Ok(recording)
}

fn whole() -> Result<(), String> {
    baton(&["load", "wfq", "--all"])?;
    let recorder = Recorder::start("wfq", FILE, &[])?;
    stress(&[
        "--fork",
        "1",
        "--affinity",
        "1",
        "--switch",
        "1",
        "--timeout",
        "2s",
    ])?;
    Load::hackbench(1, 50)?.end()?;
    let (status, summary, errors) = recorder.end()?;
    check(status.success(), || format!("{status}: {errors}"))?;
    let recording = is_whole(FILE, &summary)?;
    check(
        summary["end"] == "stopped"
            && recording.state.is_some()
            && recording.header.state.is_some(),
        || format!("it does not begin with the policy's state: {summary}"),
    )?;
    let each =
        summary["bytes"].as_f64().unwrap_or(f64::MAX) / summary["events"].as_f64().unwrap_or(0.0);
    check(each <= 24.0, || format!("{each} bytes for each event"))?;
    is_well("wfq")
}

/// Replays a recording of wfq from its beginning, or from a checkpoint, to the end.
pub fn replays(recording: &Recording, from: Option<Mark>) -> Result<(), String> {
    replays_as(baton_linked::wfq(), recording, from)
}

/// The same for any policy.
pub fn replays_as(policy: Policy, recording: &Recording, from: Option<Mark>) -> Result<(), String> {
    let outcome = replay(
        recording,
        policy,
        &Options {
            single: true,
            from,
            ..Options::default()
        },
    )?;
    check(
        outcome.end == End::Whole && outcome.first + outcome.events == outcome.all,
        || format!("{} from {from:?}: {outcome:?}", policy.name()),
    )
}

/// A policy for a replay. One in C is not linked in.
pub fn in_user_space(name: &str) -> Result<Policy, String> {
    if !IN_C.contains(&name) {
        return Ok((baton_linked::find(name).policy)());
    }
    let library = format!("/usr/lib/baton/{}/baton_{name}.so", release()?);
    Policy::open(Path::new(&library))
}

/// A policy whose text is interpreted.
const INTERPRETED: Policy = Policy::linked(baton_native::module!(baton_interpreter::BatonPolicy));

/// Each policy, or each in C, under a load, with hints and replies if it has them. (For `arbiter`,
/// the case is in cores.rs.)
fn of_each(in_c: bool) -> Result<(), String> {
    let ping = || echo::Hint::Ping {
        number: 7,
        times: 1,
    };
    let group = || locality::Hint::Group {
        thread: hints::this_thread(),
        group: 1,
    };
    // The answer is that it is out of range.
    let far = || edf::Hint::Deadline {
        t: hints::this_thread(),
        within: i64::MAX,
    };
    let get = || Attributes::Get {
        thread: hints::this_thread(),
    };
    let is_wanted = |name: &&str| *name != "arbiter" && IN_C.contains(name) == in_c;
    for name in policies().filter(is_wanted) {
        let policy = in_user_space(name)?;
        let says: Option<Says> = match name {
            "locality" => Some(&|| hints::say::<_, locality::Reply>("locality", &group())),
            "edf" => Some(&|| hints::say::<_, edf::Reply>("edf", &far())),
            "echo" => Some(&|| hints::say::<_, echo::Reply>("echo", &ping())),
            "cfs_c" => Some(&|| hints::say::<_, AttributesReply>("cfs_c", &get())),
            _ => None,
        };
        baton(&["load", name, "--all"])?;
        let recorder = Recorder::start(name, FILE, &[])?;
        says.iter().try_for_each(|say| say())?;
        stress(&[
            "--affinity",
            "1",
            "--nice",
            "1",
            "--yield",
            "1",
            "--timeout",
            "1s",
        ])?;
        says.iter().try_for_each(|say| say())?;
        let (status, summary, errors) = recorder.end()?;
        check(status.success(), || format!("{name}: {status}: {errors}"))?;
        let recording = is_whole(FILE, &summary)?;
        let expected = if says.is_some() { (2, 2) } else { (0, 0) };
        let said = hints::said(&recording);
        check(
            said == expected && summary["events"].as_u64() > Some(1_000),
            || {
                format!(
                    "{name}: {said:?} hints and replies are recorded, of {expected:?}: {summary}"
                )
            },
        )?;
        replays_as(policy, &recording, None)?;
        let source = (!in_c).then(|| baton_linked::find(name).source);
        if let Some(source) = source.flatten() {
            let text =
                baton_lang::compile(source).map_err(|_| format!("{name} does not compile"))?;
            baton_interpreter::with(&text, || replays_as(INTERPRETED, &recording, None))?;
        }
        is_well(name)?;
        baton(&["unload", name])?;
    }
    Ok(())
}

fn checkpoints() -> Result<(), String> {
    baton(&["load", "wfq", "--all"])?;
    let recorder = Recorder::start("wfq", FILE, &["--checkpoint", "200ms"])?;
    stress(&["--fork", "1", "--affinity", "1", "--timeout", "1s"])?;
    Load::hackbench(1, 20)?.end()?;
    let (status, summary, errors) = recorder.end()?;
    check(status.success(), || format!("{status}: {errors}"))?;
    let recording = is_whole(FILE, &summary)?;
    let marks = recording.marks();
    check(
        marks.len() >= 4 && summary["checkpoints"] == marks.len() && marks[0].number > 0,
        || format!("{marks:?} in {summary}"),
    )?;
    replays(&recording, None)?;
    marks
        .into_iter()
        .try_for_each(|mark| replays(&recording, Some(mark)))?;
    is_well("wfq")
}

fn refused() -> Result<(), String> {
    let _ = fs::remove_file(FILE);
    baton(&["load", "fifo", "--all"])?;
    baton_fails(
        &["record", "-o", FILE, "-p", "nobody", "--for", "1s"],
        "is not loaded",
    )?;
    baton_fails(
        &[
            "record",
            "-o",
            FILE,
            "-p",
            "fifo",
            "--for",
            "1s",
            "--checkpoint",
            "1s",
        ],
        "fifo saves no state",
    )?;
    baton_fails(&["fault", "save", FILE, "-p", "fifo"], "has not failed")?;
    check(!fs::exists(FILE).unwrap_or(true), || {
        "a file was left".into()
    })?;
    fs::write(FILE, "kept").map_err(|e| e.to_string())?;
    baton_fails(
        &["record", "-o", FILE, "-p", "nobody", "--for", "1s"],
        "is not loaded",
    )?;
    check(fs::read(FILE).is_ok_and(|text| text == b"kept"), || {
        "what was in the file is gone".into()
    })?;
    is_well("fifo")
}

fn pipe() -> Result<(), String> {
    baton(&["load", "wfq", "--all"])?;
    let load = Load::hackbench(1, 100)?;
    let _ = fs::remove_file(FILE);
    let script = format!(
        "rm -f /tmp/pipe; mkfifo /tmp/pipe; cat /tmp/pipe >{FILE} & \
         baton record -p wfq -o /tmp/pipe --for 300ms --json && wait"
    );
    let text = crate::tool::must("sh", &["-c", &script])?;
    let summary: Value = serde_json::from_str(&text).map_err(|e| format!("{e}: {text}"))?;
    load.end()?;
    let length = fs::metadata(FILE).map_err(|e| e.to_string())?.len();
    check(summary["bytes"] == length, || {
        format!("{length} bytes came through: {summary}")
    })?;
    replays(&is_whole(FILE, &summary)?, None)
}

/// Each version has a file of its own.
fn upgraded() -> Result<(), String> {
    baton(&["load", "wfq", "--all"])?;
    let load = Load::hackbench(1, 400)?;
    let recorder = Recorder::start("wfq", FILE, &[])?;
    for _ in 0..2 {
        sleep(Duration::from_millis(300));
        baton(&["upgrade", "wfq"])?;
    }
    sleep(Duration::from_millis(500));
    let (status, summary, errors) = recorder.end()?;
    check(status.success(), || format!("{status}: {errors}"))?;
    let files = summary["files"].as_array().cloned().unwrap_or_default();
    let ends: Vec<_> = files
        .iter()
        .map(|file| (file["file"].as_str(), file["end"].as_str()))
        .collect();
    let replaced = Some("the policy was replaced");
    let expected = [
        (Some(FILE), replaced),
        (Some("/tmp/recording-2"), replaced),
        (Some("/tmp/recording-3"), Some("stopped")),
    ];
    check(ends == expected, || format!("{summary}"))?;
    for (file, summary) in expected.iter().zip(&files) {
        let recording = is_whole(file.0.unwrap_or_default(), summary)?;
        check(recording.state.is_some(), || {
            format!("it does not begin with a state: {summary}")
        })?;
        replays(&recording, None)?;
    }
    load.end()?;
    is_well("wfq")
}

/// Each recording begins with a new instance.
fn anew() -> Result<(), String> {
    baton(&["load", "fifo", "--all"])?;
    let load = Load::hackbench(1, 300)?;
    for _ in 0..3 {
        let recorder = Recorder::start("fifo", FILE, &[])?;
        sleep(Duration::from_millis(300));
        let (status, summary, errors) = recorder.end()?;
        check(status.success(), || format!("{status}: {errors}"))?;
        let recording = is_whole(FILE, &summary)?;
        check(recording.state.is_none(), || {
            "fifo has no state to be saved".into()
        })?;
    }
    load.end()?;
    is_well("fifo")
}

fn killed() -> Result<(), String> {
    baton(&["load", "wfq", "--all"])?;
    let load = Load::hackbench(1, 400)?;
    let recorder = Recorder::start("wfq", FILE, &[])?;
    sleep(Duration::from_millis(500));
    recorder.signal("-KILL")?;
    let (status, ..) = recorder.wait()?;
    check(!status.success(), || "it was not killed".into())?;
    // The written part can be read, except for the last, incomplete piece.
    read(FILE)?;
    check(!recording("wfq")?, || {
        "the recording outlives its recorder".into()
    })?;
    let recorder = Recorder::start("wfq", FILE, &[])?;
    load.end()?;
    let (_, summary, _) = recorder.end()?;
    is_whole(FILE, &summary)?;
    is_well("wfq")
}

fn disk_full() -> Result<(), String> {
    fs::create_dir_all("/tmp/small").map_err(|e| e.to_string())?;
    crate::tool::must(
        "mount",
        &["-t", "tmpfs", "-o", "size=256k", "small", "/tmp/small"],
    )?;
    let result = (|| {
        baton(&["load", "wfq", "--all"])?;
        let recorder = Recorder::start("wfq", "/tmp/small/recording", &[])?;
        Load::hackbench(1, 400)?.end()?;
        let (status, _, errors) = recorder.end()?;
        check(
            status.code() == Some(3) && errors.contains("writing the recording"),
            || format!("a full disk should be told: {status}: {errors}"),
        )?;
        let (_, events, _) = read("/tmp/small/recording")?;
        check(events > 0, || "nothing can be read of it".into())?;
        is_well("wfq")
    })();
    crate::tool::must("umount", &["/tmp/small"])?;
    result
}

fn ended_by(command: &[&str], why: &str) -> Result<(), String> {
    baton(&["load", "wfq", "--all"])?;
    let load = Load::hackbench(1, 300)?;
    let recorder = Recorder::start("wfq", FILE, &[])?;
    sleep(Duration::from_millis(200));
    baton(command)?;
    let (status, summary, errors) = recorder.wait()?;
    check(status.success() && summary["end"] == why, || {
        format!("{status}, {summary}: {errors}")
    })?;
    is_whole(FILE, &summary)?;
    load.end()
}

/// Recording continues unaffected.
fn refused_upgrade() -> Result<(), String> {
    baton(&["load", "wfq", "--all"])?;
    let recorder = Recorder::start("wfq", FILE, &[])?;
    baton_fails(
        &["upgrade", "wfq", "--options", "no_such=1"],
        "no option no_such; it has period",
    )?;
    baton_fails(&["rollback", "wfq"], "no version before")?;
    Load::hackbench(1, 20)?.end()?;
    let still = recording("wfq")?;
    let (status, summary, errors) = recorder.end()?;
    check(status.success(), || format!("{status}: {errors}"))?;
    is_whole(FILE, &summary)?;
    check(still, || "a refused upgrade ended the recording".into())?;
    is_well("wfq")
}

/// The recorder is stopped for a while.
fn full(lossless: bool) -> Result<(), String> {
    baton(&["load", "wfq", "--all"])?;
    let more: &[&str] = if lossless {
        &["--ring", "1", "--lossless"]
    } else {
        &["--ring", "1"]
    };
    let recorder = Recorder::start("wfq", FILE, more)?;
    recorder.signal("-STOP")?;
    Load::hackbench(2, 1_000)?.end()?;
    recorder.signal("-CONT")?;
    let (status, summary, errors) = if lossless {
        recorder.wait()?
    } else {
        recorder.end()?
    };
    check(status.success(), || format!("{status}: {errors}"))?;
    let (recording, events, _) = read(FILE)?;
    let lost: u64 = recording
        .streams
        .iter()
        .flat_map(|s| s.items())
        .map(|i| {
            if let Item::Gap { lost, .. } = i {
                lost
            } else {
                0
            }
        })
        .sum();
    let expected = if lossless {
        "a ring was full"
    } else {
        "stopped"
    };
    check(
        summary["end"] == expected
            && lost > 0
            && summary["lost"] == lost
            && summary["events"] == events,
        || format!("{lost} were lost, and {events} not: {summary}"),
    )?;
    is_well("wfq")
}

fn fault() -> Result<(), String> {
    baton(&[
        "load",
        "faulty",
        "--all",
        "--options",
        "fault=index,after=200",
    ])?;
    let recorder = Recorder::start("faulty", FILE, &[])?;
    Load::hackbench(1, 20)?.end()?;
    let (status, summary, errors) = recorder.wait()?;
    check(
        status.code() == Some(4) && errors.contains("wrong.rs"),
        || format!("{status}, {summary}: {errors}"),
    )?;
    let recording = is_whole(FILE, &summary)?;
    let abandoned = |item| matches!(item, Item::Event(Event::Abandoned { .. }));
    let count = recording
        .streams
        .iter()
        .flat_map(|stream| stream.items())
        .filter(|&item| abandoned(item))
        .count();
    check(count == 1, || format!("{count} calls were abandoned"))
}

/// The replay comes to its end, with the fault. The loops take locks and ask for nothing, and the
/// recursion asks for nothing.
fn endless() -> Result<(), String> {
    for (fault, kind) in [
        ("forever", "endless loop"),
        ("copies", "endless loop"),
        ("recursion", "stack overflow"),
    ] {
        let options = format!("fault={fault},after=200");
        baton(&["load", "faulty", "--all", "--options", &options])?;
        let recorder = Recorder::start("faulty", FILE, &[])?;
        Load::hackbench(1, 20)?.end()?;
        let (status, summary, errors) = recorder.wait()?;
        check(status.code() == Some(4), || {
            format!("{status}, {summary}: {errors}")
        })?;
        let recording = is_whole(FILE, &summary)?;
        let outcome = replay(&recording, in_user_space("faulty")?, &Options::default())?;
        let faults: Vec<_> = outcome.faults.iter().map(|fault| fault.kind).collect();
        // Both CPUs may have been in such a call.
        let is_same = !faults.is_empty() && faults.iter().all(|found| *found == kind);
        check(outcome.end == End::Whole && is_same, || {
            format!("{fault}: {outcome:?}")
        })?;
        // The same without its mistake.
        let mended = Options {
            policy_options: Some(format!("fault={fault},after=1000000")),
            ..Options::default()
        };
        let outcome = replay(&recording, in_user_space("faulty")?, &mended)?;
        let is_other = matches!(outcome.end, End::Diverged(_)) && outcome.faults.is_empty();
        check(is_other, || format!("{fault}, mended: {outcome:?}"))?;
        baton(&["unload", "faulty"])?;
    }
    Ok(())
}

fn hotplug() -> Result<(), String> {
    baton(&["load", "wfq", "--all"])?;
    let load = Load::hackbench(1, 300)?;
    let recorder = Recorder::start("wfq", FILE, &[])?;
    for online in ["0", "1", "0", "1"] {
        fs::write("/sys/devices/system/cpu/cpu1/online", online).map_err(|e| e.to_string())?;
        sleep(Duration::from_millis(100));
    }
    load.end()?;
    let (status, summary, errors) = recorder.end()?;
    check(status.success(), || format!("{status}: {errors}"))?;
    is_whole(FILE, &summary)?;
    is_well("wfq")
}
