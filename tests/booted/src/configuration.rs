// SPDX-License-Identifier: GPL-2.0-only
//! The configuration file: in a guest with four CPUs, and, as a unit of systemd, in a guest that
//! systemd has booted.

use crate::{
    enclaves::{as_user, users_agent},
    tool::{
        baton, baton_fails, check, hackbench, must, policy, run, status, unload_everything, Hog,
    },
    Case,
};
use std::{
    fs,
    process::{Command, Stdio},
    thread::sleep,
    time::Duration,
};

pub fn cases() -> Vec<Case> {
    vec![
        case!(
            "apply: from nothing, twice, exported, and to something else",
            applied()
        ),
        case!("apply: an enclave beside a policy", enclave()),
        case!("apply: a bad file changes nothing", bad_files()),
        case!("apply: a step that fails is undone", undone()),
        case!("apply: kill -9 at any point", killed()),
    ]
}

pub fn of_systemd() -> Vec<Case> {
    vec![
        case!("systemd: the unit applies the file at boot", at_boot()),
        case!("systemd: restarted, reloaded and stopped", restarted()),
    ]
}

const FILE: &str = "/tmp/baton.toml";

fn apply(text: &str) -> Result<String, String> {
    fs::write(FILE, text).map_err(|e| e.to_string())?;
    baton(&["apply", FILE])
}

fn apply_fails(text: &str, expected: &str) -> Result<(), String> {
    fs::write(FILE, text).map_err(|e| e.to_string())?;
    baton_fails(&["apply", FILE], expected)
}

const FULL: &str = r#"
all = true
stall_ms = 20000

[[policy]]
name = "template"
share = 20
flight = 1
cgroups = ["apply"]

[[policy]]
name = "wfq"
options = "period=8ms"
default = true

[[policy]]
name = "fifo"

[[partition]]
name = "fast"
cpus = "2-3"
policies = ["fifo"]
"#;

fn make_cgroup() -> Result<(), String> {
    fs::create_dir_all("/sys/fs/cgroup/apply").map_err(|e| e.to_string())
}

const ENCLAVE: &str = r#"
[[policy]]
name = "theirs"
share = 20
cgroups = ["apply"]
enclave = { user = 65534, limit_ms = 2000, entries = 256 }

[[policy]]
name = "fifo"

[[partition]]
name = "part"
cpus = "2-3"
policies = ["theirs"]
"#;

/// The file makes an enclave, which an agent of the user's then has.
fn enclave() -> Result<(), String> {
    make_cgroup()?;
    apply(ENCLAVE)?;
    let exported = export()?;
    for part in [
        "user = 65534",
        "limit_ms = 2000",
        "entries = 256",
        "cpus = \"2-3\"",
    ] {
        check(exported.contains(part), || format!("no {part}: {exported}"))?;
    }
    let user = |id: &str| {
        let node = "/dev/baton-enclave-theirs";
        let owner = must("stat", &["-c", "%u", node])?;
        check(owner.trim() == id, || format!("{node} is of user {owner}"))
    };
    user("65534")?;
    let mut agent = users_agent("theirs", "wfq")?;
    // Otherwise the work may be over before it has an agent.
    agent.wait_for("theirs", |enclave| !enclave["agent"].is_null())?;
    // In the control group, and so in the enclave.
    let work = "echo $$ >/sys/fs/cgroup/apply/cgroup.procs && exec hackbench -g 1 -l 20";
    must("sh", &["-c", work])?;
    agent.wait_for("theirs", |enclave| enclave["picks"].as_u64() > Some(50))?;
    let again = apply(&exported)?;
    check(again.starts_with("nothing to do"), || {
        format!("with an agent: {again}")
    })?;
    let shown = baton(&["enclave", "status", "theirs"])?;
    for part in [
        "enclave theirs, running",
        "root and user 65534",
        "CPUs      2-3",
        "2000 ms",
    ] {
        check(shown.contains(part), || format!("no {part}: {shown}"))?;
    }
    apply_fails(
        &ENCLAVE.replace("2000", "3000"),
        "the enclave theirs has another limit_ms",
    )?;
    // Without the user, it ends.
    apply(&ENCLAVE.replace("65534", "0"))?;
    user("0")?;
    agent.0.wait().map_err(|e| e.to_string())?;
    let run = ["agent", "run", "--enclave", "theirs", "--per-cpu", "wfq"];
    let (code, text) = as_user("baton", &run)?;
    check(
        code != Some(0) && text.contains("may not be the agent"),
        || format!("another one ended with {code:?}: {text}"),
    )?;
    apply("[[policy]]\nname = \"fifo\"\n")?;
    let left = baton(&["enclave", "list", "--json"])?;
    check(left.trim() == "[]", || {
        format!("an enclave is left: {left}")
    })?;
    baton_fails(
        &["enclave", "status", "theirs"],
        "there is no enclave theirs",
    )
}

fn export() -> Result<String, String> {
    baton(&["export"])
}

fn applied() -> Result<(), String> {
    make_cgroup()?;
    fs::write(FILE, FULL).map_err(|e| e.to_string())?;
    let plan = baton(&["apply", FILE, "--dry-run"])?;
    check(
        plan.contains("would load wfq with period=8ms") && plan.contains("partition fast"),
        || plan.clone(),
    )?;
    check(!fs::exists("/dev/baton").unwrap_or(true), || {
        "the dry run has loaded the core".into()
    })?;
    baton(&["apply", FILE])?;
    let is = status()?;
    check(
        is["core"]["default_policy"] == "wfq" && is["core"]["stall_ms"] == 20_000,
        || is.to_string(),
    )?;
    check(
        is["policies"][0]["name"] == "template"
            && is["policies"][0]["share"] == 20
            && is["policies"][0]["flight_mib"] == 1,
        || is.to_string(),
    )?;
    check(
        is["partitions"][0]["cpus"] == "2-3" && is["cgroups"][0]["cgroup"] == "apply",
        || is.to_string(),
    )?;
    hackbench(1, 50)?;
    let (exported, again) = (export()?, baton(&["apply", FILE])?);
    check(again.starts_with("nothing to do"), || {
        format!("the second time: {again}")
    })?;
    // The exported configuration gives the same state again, starting from nothing.
    unload_everything()?;
    apply(&exported)?;
    check(export()? == exported, || {
        format!("{exported}\nbecame\n{}", export().unwrap_or_default())
    })?;
    // To another configuration while tasks run: other options with and without state, moved
    // members, a smaller partition.
    let hogs = [Hog::plain()?, Hog::of("fifo", None)?, Hog::plain()?];
    let other = FULL
        .replace("period=8ms", "period=6ms")
        .replace(
            "name = \"fifo\"",
            "name = \"fifo\"\noptions = \"slice=2ms\"\ncgroups = [\"apply\"]",
        )
        .replace(
            "\ncgroups = [\"apply\"]\n\n[[policy]]\nname = \"wfq\"",
            "\n\n[[policy]]\nname = \"wfq\"",
        )
        .replace("share = 20", "share = 10")
        .replace("2-3", "3");
    apply(&other)?;
    let is = status()?;
    check(
        policy(&is, "wfq")?["options"] == "period=6ms"
            && policy(&is, "fifo")?["options"] == "slice=2ms",
        || is.to_string(),
    )?;
    check(
        is["partitions"][0]["cpus"] == "3" && is["cgroups"][0]["policy"] == "fifo",
        || is.to_string(),
    )?;
    let begin: Vec<f64> = hogs.iter().map(Hog::ran).collect::<Result<_, _>>()?;
    sleep(Duration::from_secs(1));
    for (hog, begin) in hogs.iter().zip(begin) {
        check(hog.ran()? > begin, || {
            format!("task {} does not run", hog.pid())
        })?;
    }
    check(
        baton(&["apply", FILE])?.starts_with("nothing to do"),
        || "there is something to do a second time".into(),
    )?;
    // To an empty configuration.
    apply("")?;
    check(!fs::exists("/dev/baton").unwrap_or(true), || {
        "an empty file leaves the core loaded".into()
    })
}

fn bad_files() -> Result<(), String> {
    make_cgroup()?;
    apply(FULL)?;
    let before = export()?;
    let line = |text: &str, word: &str| {
        FULL.lines()
            .position(|line| line.contains(text))
            .map(|at| format!("line {}: {word}", at + 1))
    };
    let bad = |old: &str, new: &str, word: &str| {
        let expected = line(old, word).ok_or("no such line")?;
        apply_fails(&FULL.replacen(old, new, 1), &expected)
    };
    bad("stall_ms", "stall", "unknown field")?;
    bad(
        "share = 20",
        "share = 101",
        "with this the shares are 101 %",
    )?;
    bad(
        "name = \"fifo\"",
        "name = \"wfq\"",
        "the policy wfq is there twice",
    )?;
    bad(
        "cpus = \"2-3\"",
        "cpus = \"0-3\"",
        "no CPU that is online is left",
    )?;
    bad("cpus = \"2-3\"", "cpus = \"2-9\"", "there is no CPU")?;
    bad(
        "policies = [\"fifo\"]",
        "policies = [\"nobody\"]",
        "there is no [[policy]] nobody",
    )?;
    bad(
        "cgroups = [\"apply\"]",
        "cgroups = [\"nowhere\"]",
        "there is no cgroup nowhere",
    )?;
    apply_fails(
        &FULL
            .replace("name = \"fifo\"", "name = \"nobody\"")
            .replace("[\"fifo\"]", "[\"nobody\"]"),
        "baton_nobody.ko",
    )?;
    apply_fails(
        &FULL.replacen("all = true", "all = true\nmax_tasks = 1000", 1),
        "cannot change to 1000",
    )?;
    check(export()? == before, || {
        format!("{before}\nbecame\n{}", export().unwrap_or_default())
    })?;
    baton_fails(&["apply", "/nowhere.toml"], "/nowhere.toml")
}

fn undone() -> Result<(), String> {
    make_cgroup()?;
    // From nothing: the last policy does not know its option.
    let bad = FULL.replacen(
        "name = \"fifo\"",
        "name = \"fifo\"\noptions = \"colour=red\"",
        1,
    );
    apply_fails(&bad, "the machine is as it was before")?;
    check(!fs::exists("/dev/baton").unwrap_or(true), || {
        "what failed has left the core loaded".into()
    })?;
    // From an existing configuration: earlier changes are reverted.
    let small =
        "all = true\n[[policy]]\nname = \"wfq\"\noptions = \"period=6ms\"\ndefault = true\n";
    apply(small)?;
    let hog = Hog::plain()?;
    let before = export()?;
    apply_fails(&bad, "the machine is as it was before")?;
    check(export()? == before, || {
        format!("{before}\nbecame\n{}", export().unwrap_or_default())
    })?;
    let begin = hog.ran()?;
    sleep(Duration::from_secs(1));
    check(hog.ran()? > begin, || "the hog does not run".into())?;
    // A faulted policy is left for the administrator to examine.
    baton(&["load", "faulty", "--options", "fault=index,after=5"])?;
    let _ = run(
        "baton",
        &[
            "run",
            "-p",
            "faulty",
            "--",
            "hackbench",
            "-g",
            "1",
            "-l",
            "20",
        ],
    )?;
    apply_fails(
        &format!("{small}[[policy]]\nname = \"faulty\"\n"),
        "the policy faulty was stopped by a fault",
    )
}

fn killed() -> Result<(), String> {
    make_cgroup()?;
    fs::write(FILE, FULL).map_err(|e| e.to_string())?;
    for step in 0..10 {
        let mut tool = Command::new("baton")
            .args(["apply", FILE])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| e.to_string())?;
        sleep(Duration::from_millis(step * 60));
        tool.kill()
            .and_then(|()| tool.wait())
            .map_err(|e| e.to_string())?;
        hackbench(1, 2)?;
        baton(&["apply", FILE])?;
        check(
            baton(&["apply", FILE])?.starts_with("nothing to do"),
            || format!("not complete after step {step}"),
        )?;
        baton(&["unload", "--everything"])?;
    }
    Ok(())
}

fn is_as_applied() -> Result<(), String> {
    let is = status()?;
    check(
        is["core"]["all"] == true && is["core"]["default_policy"] == "wfq",
        || is.to_string(),
    )?;
    check(
        policy(&is, "fifo")?["share"] == 30 && policy(&is, "wfq")?["options"] == "period=8ms",
        || is.to_string(),
    )?;
    // The test runs in a service, whose cgroup is below system.slice.
    check(policy(&is, "fifo")?["tasks"].as_u64() > Some(0), || {
        format!("nothing is fifo's: {is}")
    })
}

/// On the first run the boot has started the unit; a repeated case starts it.
fn at_boot() -> Result<(), String> {
    const SEEN: &str = "/run/baton-boot-seen";
    if fs::exists(SEEN).unwrap_or(false) {
        must("systemctl", &["restart", "baton"])?;
    }
    fs::write(SEEN, "").map_err(|e| e.to_string())?;
    must("systemctl", &["is-active", "baton"])?;
    is_as_applied()?;
    hackbench(1, 50)
}

fn restarted() -> Result<(), String> {
    const PATH: &str = "/etc/baton.toml";
    must("systemctl", &["restart", "baton"])?;
    is_as_applied()?;
    let ids = || {
        Ok::<_, String>((
            policy(&status()?, "wfq")?["id"].clone(),
            policy(&status()?, "fifo")?["id"].clone(),
        ))
    };
    let enabled = || fs::read_to_string("/sys/kernel/sched_ext/enable_seq").unwrap_or_default();
    let (before, sequence) = (ids()?, enabled());
    for _ in 0..3 {
        must("systemctl", &["restart", "baton"])?;
    }
    check(ids()? == before && enabled() == sequence, || {
        "a restart of the unit has touched the policies".into()
    })?;
    let good = fs::read_to_string(PATH).map_err(|e| e.to_string())?;
    let change = |text: &str| fs::write(PATH, text).map_err(|e| e.to_string());
    change(&good.replace("share = 30", "share = 40"))?;
    must("systemctl", &["reload", "baton"])?;
    let share = policy(&status()?, "fifo")?["share"].clone();
    change(&good.replace("share = 30", "share = many"))?;
    let failed = run("systemctl", &["reload", "baton"])?;
    change(&good)?;
    check(share == 40, || {
        format!("the share is {share} after the reload, not 40")
    })?;
    check(failed.code != Some(0), || "a bad file was applied".into())?;
    check(ids()? == before, || {
        "a bad file has touched the policies".into()
    })?;
    must("systemctl", &["reload", "baton"])?;
    is_as_applied()?;
    must("systemctl", &["stop", "baton"])?;
    check(ids()? == before && enabled() == sequence, || {
        "stopping the unit has touched the policies".into()
    })?;
    hackbench(1, 20)
}
