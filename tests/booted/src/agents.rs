// SPDX-License-Identifier: GPL-2.0-only
//! Agents: policies in a process, for the tasks of an enclave.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader},
    net::UdpSocket,
    os::unix::fs::FileExt,
    process::{Child, Command, Stdio},
    thread::{self, sleep},
    time::{Duration, Instant},
};

use baton_abi::{BatonAgentCommit, BatonCommit, BATON_PICK_KEEP};
use baton_agent::{Agent, Wishes};
use baton_conformance::{behaves, Host, Needs, Report, Step, BEHAVIOURS};
use baton_replay::{replay, End, Options};
use baton_trace::Recording;
use serde_json::Value;

use crate::{
    hints::A_WHILE,
    several::run_all,
    tool::{baton, check, hackbench, must, run, status, Hog},
    Case,
};

/// The policies that run as agents here: the paper's, those that poll and balance, one that fails
/// if two calls that exclude each other come at once, and one in C.
const POLICIES: [&str; 7] = [
    "fifo", "wfq", "central", "shinjuku", "locality", "witness", "cfs_c",
];

/// Where an agent's policy is recorded.
const RECORDING: &str = "/tmp/agent.rec";

/// The ways to run an agent.
const MODES: [&str; 2] = ["--global", "--per-cpu"];

pub fn cases() -> Vec<Case> {
    let each = POLICIES.iter().flat_map(|policy| {
        MODES.map(|mode| Case {
            name: format!("agent: {policy} {}", mode.trim_start_matches('-')),
            run: Box::new(move || schedules(policy, mode)),
        })
    });
    let others = vec![
        case!(
            "agent: a task comes with the calls that it should",
            behaves(&mut PerCpu)
        ),
        case!("agent: schedulers in Rust, C and Python", native()),
        case!("agent: sol", sol()),
        case!("agent: hints to its policy, and replies", hints()),
        case!("agent: snap, an echo server beside hogs", snap()),
        case!(
            "agent: search",
            serves("search").and_then(|agent| ends_well("search", agent))
        ),
        case!("agent: its policy is replaced under load", upgrades(10)),
        case!("agent: a group of CPUs, all or none", together()),
        case!("agent: a panic of its policy", panics()),
        case!("agent: ended, stopped, and replaced", ends(8)),
        case!("agent: one that writes anything", hostile(3)),
        case!("agent: what is refused", refusals()),
    ];
    each.chain(others).collect()
}

/// An agent that runs in the background.
pub struct Running(pub Child);

impl Running {
    /// Its errors are those of the tests, so that a failed test shows why its agent ended.
    pub fn start(enclave: &str, args: &[&str]) -> Result<Self, String> {
        Self::start_with(enclave, args, Stdio::inherit())
    }

    pub fn start_with(enclave: &str, args: &[&str], errors: Stdio) -> Result<Self, String> {
        let child = Command::new("baton")
            .args(["agent", "run", "--enclave", enclave])
            .args(args)
            .stderr(errors)
            .spawn()
            .map_err(|e| e.to_string())?;
        let running = Self(child);
        running.wait_for(enclave, |enclave| !enclave["agent"].is_null())?;
        Ok(running)
    }

    /// Waits until the enclave is as it should be.
    pub fn wait_for(&self, name: &str, holds: impl Fn(&Value) -> bool) -> Result<(), String> {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(20) {
            if enclave(name).is_ok_and(|enclave| holds(&enclave)) {
                return Ok(());
            }
            sleep(Duration::from_millis(20));
        }
        Err(format!(
            "the enclave is not as it should be: {:?}",
            enclave(name)
        ))
    }

    pub fn signal(&self, signal: &str) -> Result<(), String> {
        must("kill", &[signal, &self.0.id().to_string()]).map(drop)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The arguments of `baton` that run hackbench under a policy, with so many groups and loops.
pub fn load<'a>(policy: &'a str, [groups, loops]: [&'a str; 2]) -> [&'a str; 9] {
    let program = "hackbench";
    [
        "run", "-p", policy, "--", program, "-g", groups, "-l", loops,
    ]
}

/// Begins a load, whose output its end has.
pub fn begin(args: &[&str]) -> Result<Child, String> {
    Command::new("baton")
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| e.to_string())
}

/// An enclave, as the tool lists it.
pub fn enclave(name: &str) -> Result<Value, String> {
    let text = baton(&["enclave", "list", "--json"])?;
    let list: Value = serde_json::from_str(&text).map_err(|e| format!("{e}: {text}"))?;
    list.as_array()
        .and_then(|list| list.iter().find(|enclave| enclave["name"] == name))
        .cloned()
        .ok_or(format!("there is no enclave {name}: {text}"))
}

/// Runs a policy as an agent, and a load under it.
fn schedules(policy: &str, mode: &str) -> Result<(), String> {
    let agent = Running::start(policy, &[mode, policy, "--record", RECORDING])?;
    baton(&load(policy, ["1", "50"]))?;
    let stress = ["stress-ng", "--switch", "1", "--cpu", "1", "--yield", "1"];
    let short = ["--timeout", "1", "--quiet"];
    baton(&[&["run", "-p", policy, "--"], &stress[..], &short].concat())?;
    let enclave = enclave(policy)?;
    check(
        enclave["picks"].as_u64() > Some(200) && enclave["lost"] == 0,
        || format!("too few picks, or messages were lost: {enclave}"),
    )?;
    crate::tool::is_well(policy)?;
    agent.signal("-INT")?;
    ended_well(agent)?;
    replays(policy, 0)
}

/// Replays the recording of an agent that has ended, to its end and with so many faults.
fn replays(policy: &str, faults: usize) -> Result<(), String> {
    let bytes = fs::read(RECORDING).map_err(|e| format!("{RECORDING}: {e}"))?;
    let recording = Recording::parse(&bytes).map_err(|e| format!("{RECORDING}: {e}"))?;
    let policy = crate::record::in_user_space(policy)?;
    for single in [true, false] {
        let options = Options {
            single,
            ..Options::default()
        };
        let outcome = replay(&recording, policy, &options)?;
        check(
            outcome.end == End::Whole
                && outcome.events == outcome.all
                && outcome.events > 100
                && outcome.faults.len() == faults,
            || format!("{}, single {single}: {outcome:?}", policy.name()),
        )?;
    }
    Ok(())
}

/// An agent that is interrupted ends in good order, and removes what it made.
pub fn ended_well(mut agent: Running) -> Result<(), String> {
    let ended = agent.0.wait().map_err(|e| e.to_string())?;
    check(ended.success(), || format!("the agent ended with {ended}"))?;
    let left = baton(&["enclave", "list", "--json"])?;
    check(left.trim() == "[]", || {
        format!("an enclave is left: {left}")
    })
}

/// Agents of CPUs, as a host to be tested.
struct PerCpu;

impl Host for PerCpu {
    fn perform(&mut self, steps: &'static [Step]) -> Result<String, String> {
        let number = BEHAVIOURS
            .iter()
            .position(|behaviour| behaviour.steps == steps)
            .ok_or("the steps are not those of a behaviour")?;
        let _agent = Running::start("witness", &["--per-cpu", "witness"])?;
        // As for the kernel: the task that is looked at is alone on CPU 0.
        let act = ["--", "baton-booted", "--act", &number.to_string()];
        let alone = ["-c", "1", "baton", "run", "-p", "witness"];
        run("taskset", &[&alone[..], &act[..]].concat())?;
        let status = status()?;
        let fault = &status["faults"][0];
        check(fault["method"] == "task_prio_changed", || {
            format!("the witness does not report: {fault}")
        })?;
        Ok(fault["message"].as_str().unwrap_or("").into())
    }

    fn provoke(&mut self, option: &'static str) -> Result<Option<Report>, String> {
        Err(format!("{option}: the policy's faults are another case"))
    }

    fn live(&mut self, policy: &str) -> Result<(), String> {
        schedules(policy, "--per-cpu")
    }

    fn has(&self, _capability: Needs) -> bool {
        true
    }
}

/// A panic ends the policy with its line; the tasks go on.
fn panics() -> Result<(), String> {
    for mode in MODES {
        let options = ["--options", "fault=index,after=100", "--record", RECORDING];
        let load = ["--", "hackbench", "-g", "1", "-l", "50"];
        let ran = run(
            "baton",
            &[&["agent", "run", "faulty", mode], &options[..], &load].concat(),
        )?;
        check(
            ran.code == Some(4)
                && ran.text.contains("faulty/src/wrong.rs:")
                && ran.text.contains("index out of bounds")
                && ran.text.contains("Time:"),
            || format!("{mode} ended with {:?}: {}", ran.code, ran.text),
        )?;
        replays("faulty", 1)?;
    }
    Ok(())
}

/// Agents end in all ways under load, so many times: the load goes on, no task waits longer than
/// the enclave's limit, and the next agent takes over.
pub fn ends(rounds: usize) -> Result<(), String> {
    const LIMIT_MS: u64 = 500;
    let limit = format!("{LIMIT_MS}ms");
    baton(&["enclave", "create", "worn", "--limit", &limit])?;
    let ways = ["-KILL", "-SEGV", "-STOP", "-TERM"];
    let mut latest = 0;
    for (round, way) in ways.iter().cycle().take(rounds).enumerate() {
        let agent = Running::start("worn", &[MODES[round / ways.len() % 2], "wfq"])?;
        let load = begin(&load("worn", ["1", "300"]))?;
        let probe = begin(&["run", "-p", "worn", "--", "baton-booted", "--late", "1500"])?;
        agent.wait_for("worn", |enclave| enclave["picks"].as_u64() > Some(100))?;
        agent.signal(way)?;
        if *way == "-SEGV" {
            // Rust's handler takes the first one for a fault, which would come again.
            sleep(Duration::from_millis(20));
            agent.signal(way)?;
        }
        agent.wait_for("worn", |enclave| enclave["agent"].is_null())?;
        let ended = [load, probe].map(|child| child.wait_with_output().map_err(|e| e.to_string()));
        let [load, probe] = ended;
        let (load, probe) = (load?, probe?);
        // 4: the command says that the policy failed. The load has come to its end.
        let is_good = if *way == "-TERM" { 0 } else { 4 };
        check(load.status.code() == Some(is_good), || {
            let (status, errors) = (load.status, String::from_utf8_lossy(&load.stderr));
            format!("{way}: the load ended with {status}: {errors}")
        })?;
        let text = String::from_utf8_lossy(&probe.stdout);
        let late: u64 = text.trim().parse().map_err(|e| format!("{e}: {text}"))?;
        check(late <= LIMIT_MS, || {
            format!("round {round}, {way}: a task waited for {late} ms")
        })?;
        latest = latest.max(late);
        if (round + 1) % 20 == 0 {
            println!("{} of {rounds} agents have ended", round + 1);
        }
    }
    println!("{rounds} agents ended; the longest that a task waited: {latest} ms of {LIMIT_MS}");
    let kept = enclave("worn")?;
    check(kept["attached"] == rounds, || {
        format!("not {rounds} agents: {kept}")
    })?;
    baton(&["enclave", "destroy", "worn"]).map(drop)
}

/// Versions of a policy replace each other in an agent under load, so many times in each mode: no
/// message is lost, and the agent stays. Prints for how long it answered nothing.
pub fn upgrades(times: usize) -> Result<(), String> {
    for mode in MODES {
        let mut agent = Running::start_with("wfq", &[mode, "wfq"], Stdio::piped())?;
        let errors = agent.0.stderr.take().ok_or("it has no output")?;
        let mut lines = BufReader::new(errors).lines();
        let mut gaps = Vec::new();
        while gaps.len() < times {
            let load = begin(&load("wfq", ["1", "300"]))?;
            for _ in 0..20.min(times - gaps.len()) {
                baton(&["agent", "upgrade", "wfq"])?;
                let line = lines.next().ok_or("the agent has ended")?;
                let line = line.map_err(|e| e.to_string())?;
                let gap = line
                    .strip_suffix(" us")
                    .and_then(|line| line.rsplit(' ').next());
                let gap: u64 = gap
                    .and_then(|gap| gap.parse().ok())
                    .ok_or(format!("{mode}: {line}"))?;
                gaps.push(gap);
            }
            let ended = load.wait_with_output().map_err(|e| e.to_string())?;
            check(ended.status.success(), || {
                format!("{mode}: the load ended with {}", ended.status)
            })?;
        }
        gaps.sort_unstable();
        let at = |percent: usize| gaps[(times * percent / 100).min(times - 1)];
        println!(
            "{times} upgrades, {mode}: the agent answered nothing for {} us (median), {} us (p99), \
             {} us (longest)",
            at(50),
            at(99),
            at(100)
        );
        let found = enclave("wfq")?;
        check(found["lost"] == 0 && found["attached"] == 1, || {
            format!("{mode}: messages were lost, or the agent: {found}")
        })?;
        crate::tool::is_well("wfq")?;
        agent.signal("-INT")?;
        ended_well(agent)?;
    }
    Ok(())
}

/// A program that sleeps for 1 ms at a time, for so long, and prints by how much a sleep was too
/// long at worst, in ms.
pub fn late(ms: u64) -> Result<(), String> {
    const SLEEP: Duration = Duration::from_millis(1);
    let begun = Instant::now();
    let mut worst = Duration::ZERO;
    while begun.elapsed() < Duration::from_millis(ms) {
        let before = Instant::now();
        sleep(SLEEP);
        worst = worst.max(before.elapsed() - SLEEP);
    }
    println!("{}", worst.as_millis());
    Ok(())
}

/// The examples of docs/agents.md.
const EXAMPLES: [&[&str]; 3] = [
    &["/usr/bin/baton-agent-rust"],
    &["/usr/bin/baton-agent-c"],
    &["/usr/bin/python3", "-S", "/usr/lib/baton/fifo.py"],
];

/// Schedulers that are written for agents. The rings are small, so that some messages find no room.
fn native() -> Result<(), String> {
    for words in EXAMPLES {
        let narrow = ["--cpus", "1", "--entries", "64", "--limit", "5s"];
        baton(&[&["enclave", "create", "mine"], &narrow[..]].concat())?;
        let child = Command::new(words[0])
            .args(&words[1..])
            .arg("mine")
            .spawn()
            .map_err(|e| format!("{words:?}: {e}"))?;
        let agent = Running(child);
        agent.wait_for("mine", |enclave| !enclave["agent"].is_null())?;
        baton(&load("mine", ["1", "20"]))?;
        let found = enclave("mine")?;
        check(found["picks"].as_u64() > Some(50), || {
            format!("{words:?}: too few picks: {found}")
        })?;
        // It would not survive the signal.
        let refused = ["agent", "upgrade", "mine"];
        crate::tool::baton_fails(&refused, "is not of baton agent run")?;
        crate::tool::is_well("mine")?;
        drop(agent);
        baton(&["enclave", "destroy", "mine"])?;
    }
    Ok(())
}

/// A scheduler for agents runs a load, with a task that is bound to one CPU.
pub fn serves(name: &str) -> Result<Running, String> {
    let agent = Running::start(name, &[name])?;
    let bound = Hog::of(name, Some("1"))?;
    // It says that it cannot, and goes on.
    baton(&["agent", "upgrade", name])?;
    baton(&load(name, ["1", "50"]))?;
    run_all(&[bound])?;
    let found = enclave(name)?;
    check(found["picks"].as_u64() > Some(200), || {
        format!("too few picks: {found}")
    })?;
    Ok(agent)
}

/// The enclave is well, and its agent ends in good order.
pub fn ends_well(name: &str, agent: Running) -> Result<(), String> {
    crate::tool::is_well(name)?;
    agent.signal("-INT")?;
    ended_well(agent)
}

/// One queue for all CPUs, in part in the standby ring, with tasks that are bound to one CPU.
fn sol() -> Result<(), String> {
    ends_well("sol", serves("sol")?)?;
    let fails = crate::tool::baton_fails;
    fails(&["agent", "run", "sol", "--per-cpu"], "decides for all")?;
    fails(&["agent", "run", "sol", "--options", "a=b"], "no options")
}

/// A policy in an agent hears hints, and replies.
fn hints() -> Result<(), String> {
    for mode in ["--global", "--per-cpu"] {
        let agent = Running::start("echo", &[mode, "echo"])?;
        for program in [
            &["/usr/bin/baton-booted", "--hints", "rounds"][..],
            // More hints than the agent has room for.
            &["sh", "-c", FLOOD],
        ] {
            let run = ["run", "-p", "echo", "--"];
            let ran = baton(&[&run, program].concat());
            ran.map_err(|why| format!("{mode}: {why}"))?;
        }
        crate::tool::is_well("echo")?;
        let found = enclave("echo")?;
        check(found["lost"] == 0 && found["attached"] == 1, || {
            format!("{mode}: not one session without lost messages: {found}")
        })?;
        agent.signal("-INT")?;
        ended_well(agent)?;
    }
    Ok(())
}

/// Without end, and so for a second.
const FLOOD: &str = "timeout -s KILL 1 baton-booted --hints flood; true";

/// This program in a guest.
pub const BOOTED: &str = "/usr/bin/baton-booted";

/// The number that a command of `baton` prints.
pub fn number(args: &[&str]) -> Result<u64, String> {
    let text = baton(args)?;
    text.trim().parse().map_err(|e| format!("{e}: {text}"))
}

/// A server whose threads are workers answers at once, though hogs use all CPUs.
fn snap() -> Result<(), String> {
    let agent = serves("snap")?;
    let hogs = (0..4).map(|_| Hog::of("snap", None));
    let hogs: Vec<Hog> = hogs.collect::<Result<_, _>>()?;
    let echo = |nice: &str| {
        let run = ["run", "-p", "snap", "--", BOOTED, "--echo", nice];
        number(&run)
    };
    let (other, worker) = (echo("0")?, echo("-10")?);
    check(other > 400 && worker < 160, || {
        format!("40 answers took {worker} ms from workers, and {other} ms from others")
    })?;
    run_all(&hogs)?;
    ends_well("snap", agent)
}

/// Sends packets to a server in another thread over the loopback device, and waits for each answer.
/// Both threads have this nice value. Prints the time for all answers, ms.
pub fn echo(nice: i32) -> Result<(), String> {
    const PACKETS: u64 = 40;
    let failed = |e: io::Error| format!("the socket: {e}");
    rustix::process::nice(nice).map_err(|e| format!("the nice value: {e}"))?;
    let server = UdpSocket::bind("127.0.0.1:0").map_err(failed)?;
    let client = UdpSocket::bind("127.0.0.1:0").map_err(failed)?;
    client.set_read_timeout(Some(A_WHILE)).map_err(failed)?;
    client
        .connect(server.local_addr().map_err(failed)?)
        .map_err(failed)?;
    let served = thread::spawn(move || -> io::Result<()> {
        let mut packet = [0; 8];
        for _ in 0..PACKETS {
            let (length, from) = server.recv_from(&mut packet)?;
            server.send_to(&packet[..length], from)?;
        }
        Ok(())
    });
    let mut sum = Duration::ZERO;
    for number in 0..PACKETS {
        let mut packet = number.to_le_bytes();
        let begun = Instant::now();
        client.send(&packet).map_err(failed)?;
        client.recv(&mut packet).map_err(failed)?;
        sum += begun.elapsed();
        check(packet == number.to_le_bytes(), || {
            format!("the answer to {number} is {packet:?}")
        })?;
        sleep(Duration::from_millis(5));
    }
    let ended = served.join().map_err(|_| "the server panicked")?;
    ended.map_err(failed)?;
    println!("{}", sum.as_millis());
    Ok(())
}

/// Transactions of a group: refused as one, and each with its reason. In a thread, which is bound
/// to a CPU.
fn together() -> Result<(), String> {
    let done = thread::scope(|scope| scope.spawn(group).join());
    done.unwrap_or_else(|_| Err("the test panicked".into()))
}

fn group() -> Result<(), String> {
    baton(&["enclave", "create", "group"])?;
    // A CPU on which this loop runs does not idle.
    crate::tool::bind(&[0])?;
    let agent = Agent::attach("group", &Wishes::default()).map_err(|e| e.to_string())?;
    // An idle CPU says so at once, and not only after it has run something: else no commit for it
    // would be seen.
    let begun = Instant::now();
    while !agent.wants(1) {
        check(begun.elapsed() < Duration::from_millis(200), || {
            "CPU 1 does not say that it idles".into()
        })?;
    }
    let commit = |cpu: u16, token: u64| BatonAgentCommit {
        token,
        cpu,
        ..Default::default()
    };
    let outcomes = |commits: &[BatonAgentCommit]| -> Vec<u32> {
        commits.iter().map(|commit| commit.outcome).collect()
    };
    let number = |outcome: BatonCommit| outcome as u32;
    let mut commits = [commit(0, u64::MAX), commit(1, 1 << 32 | 1)];
    agent.commit_all(&mut commits).map_err(|e| e.to_string())?;
    let expected = [BatonCommit::NotFound, BatonCommit::NotFound].map(number);
    check(outcomes(&commits) == expected, || format!("{commits:?}"))?;
    // No CPU has an agent of its own.
    let mut commits = [commit(0, BATON_PICK_KEEP), commit(1, BATON_PICK_KEEP)];
    let accepted = agent.commit_together(&mut commits);
    check(accepted == Ok(false), || format!("{accepted:?}"))?;
    let expected = [BatonCommit::NoAgent, BatonCommit::NoAgent].map(number);
    check(outcomes(&commits) == expected, || format!("{commits:?}"))?;
    let mut commits = [commit(0, BATON_PICK_KEEP), commit(0, BATON_PICK_KEEP)];
    let accepted = agent.commit_together(&mut commits);
    check(accepted == Ok(false), || format!("{accepted:?}"))?;
    let expected = [BatonCommit::NoAgent, BatonCommit::Busy].map(number);
    check(outcomes(&commits) == expected, || format!("{commits:?}"))?;
    let mut commits = [commit(99, 7)];
    let refused = agent.commit_all(&mut commits);
    check(refused.is_err(), || "CPU 99 was accepted".into())?;
    drop(agent);
    baton(&["enclave", "destroy", "group"]).map(drop)
}

/// A program that attaches and then does all that an agent must not do, for so many seconds.
pub fn hostile_agent(seconds: u64) -> Result<(), String> {
    let begun = Instant::now();
    let mut random = begun.elapsed().as_nanos() as u64 | 1;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let wishes = Wishes {
        events: u32::MAX,
        ..Wishes::default()
    };
    while begun.elapsed() < Duration::from_secs(seconds) {
        // Busy while the kernel ends the session before.
        let agent = match Agent::attach("prey", &wishes) {
            Ok(agent) => agent,
            Err(_) => {
                sleep(Duration::from_millis(100));
                continue;
            }
        };
        let memory = Memory::of_agent()?;
        let session = Instant::now();
        while !agent.has_ended() && session.elapsed() < Duration::from_millis(400) {
            let number = next();
            let cpu = number as usize % agent.nr_cpus();
            match number >> 32 & 15 {
                0 | 1 => memory.write(next(), next()),
                2 => drop(agent.commit(cpu, next(), next())),
                3 => {
                    let token = agent.task(next() as u32 % agent.nr_slots()).token;
                    agent.commit(cpu, token, next());
                }
                4 => drop(agent.offer(next())),
                // Any of these may be refused.
                5 => drop(agent.kick(&[next() as u16, next() as u16])),
                6 => drop(agent.serve(next() as usize)),
                // It becomes a task of the enclave, on any CPU, and does the rest as that.
                7 => drop(crate::tool::bind(&[cpu]).map(|()| agent.serve(cpu))),
                8 => drop(agent.leave()),
                _ => {
                    let _ = agent.wait(Some(Duration::from_nanos(next() % 1000)));
                    // So that the session goes on.
                    for cpu in 0..agent.nr_cpus() {
                        let mut ring = agent.ring(cpu);
                        for _ in 0..100 {
                            ring.advance(&Default::default());
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

/// The memory that this process shares with the kernel.
struct Memory {
    file: File,
    begin: u64,
    size: u64,
}

impl Memory {
    fn of_agent() -> Result<Self, String> {
        let maps = fs::read_to_string("/proc/self/maps").map_err(|e| e.to_string())?;
        let line = maps
            .lines()
            .find(|line| line.contains("baton-enclave") && line.contains("rw-s"))
            .ok_or(format!("no shared mapping: {maps}"))?;
        let bound = |text: &str| u64::from_str_radix(text, 16).map_err(|e| e.to_string());
        let (begin, rest) = line.split_once('-').ok_or("no range")?;
        let (end, _) = rest.split_once(' ').ok_or("no range")?;
        let begin = bound(begin)?;
        Ok(Self {
            file: OpenOptions::new()
                .write(true)
                .open("/proc/self/mem")
                .map_err(|e| e.to_string())?,
            begin,
            size: bound(end)? - begin,
        })
    }

    fn write(&self, at: u64, value: u64) {
        let at = self.begin + at % (self.size - 8);
        // Fails when the mapping is gone.
        let _ = self.file.write_at(&value.to_le_bytes(), at);
    }
}

/// Beside a hostile agent, its tasks and those of others go on.
pub fn hostile(seconds: u64) -> Result<(), String> {
    baton(&["enclave", "create", "prey", "--limit", "100ms"])?;
    let mut agent = Command::new("baton-booted")
        .args(["--agent", &seconds.to_string()])
        .spawn()
        .map_err(|e| e.to_string())?;
    let begun = Instant::now();
    let (mut runs, mut minutes) = (0, 0);
    while begun.elapsed() < Duration::from_secs(seconds) {
        let passed = begun.elapsed().as_secs() / 60;
        if passed > minutes {
            minutes = passed;
            println!("{minutes} min: {runs} runs under the hostile agent");
        }
        // The enclave may have no agent, or lose it: the command then says so, after its end.
        let under = run("baton", &load("prey", ["1", "20"]))?;
        runs += u32::from(under.text.contains("Time:"));
        hackbench(1, 20)?;
    }
    let ended = agent.wait().map_err(|e| e.to_string())?;
    check(ended.success() && runs > 0, || {
        format!("{runs} runs; the agent ended with {ended}")
    })?;
    let attached = enclave("prey")?;
    check(attached["attached"].as_u64() > Some(0), || {
        format!("the agent never attached: {attached}")
    })?;
    baton(&["enclave", "destroy", "prey"]).map(drop)
}

fn refusals() -> Result<(), String> {
    let fails = crate::tool::baton_fails;
    fails(&["agent", "run", "nothing"], "there is no baton_nothing.so")?;
    fails(
        &["enclave", "destroy", "nothing"],
        "there is no enclave nothing",
    )?;
    baton(&["enclave", "create", "one"])?;
    fails(&["enclave", "create", "one"], "of that name")?;
    fails(
        &["enclave", "create", "two", "--entries", "100"],
        "power of two",
    )?;
    fails(&["run", "-p", "one", "--", "true"], "has no agent")?;
    fails(
        &["record", "-p", "one", "-o", RECORDING],
        "agent run --record",
    )?;
    fails(
        &[
            "agent",
            "run",
            "wfq",
            "--enclave",
            "one",
            "--options",
            "colour=red",
        ],
        "option",
    )?;
    let agent = Running::start("one", &["--per-cpu", "wfq"])?;
    fails(
        &["agent", "run", "wfq", "--enclave", "one"],
        "has an agent already",
    )?;
    // The policy of an enclave is unloaded with the rest.
    baton(&["unload", "--everything"])?;
    drop(agent);
    Ok(())
}
