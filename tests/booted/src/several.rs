// SPDX-License-Identifier: GPL-2.0-only
//! Several policies at once: order, shares, membership, partitions. In a guest with four CPUs.

use crate::{
    tool::{baton, baton_fails, check, hackbench, is_well, policy, run, status, Hog},
    Case,
};
use std::{
    fs,
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

pub fn cases() -> Vec<Case> {
    vec![
        case!("several: one policy before the other", ordered()),
        case!("several: a share for the later policy", shares()),
        case!("several: a cgroup's tasks, now and later", by_cgroup()),
        case!("partition: made, changed, ended", partitions()),
        case!("partition: CPU hotplug", partition_hotplug()),
        case!("partition: tasks that cannot be in it", misfits()),
        case!("partition: refused", refused()),
        case!("partition: a switch and an upgrade in it", exchanged()),
        case!(
            "three policies and two partitions, and a fault in one",
            together()
        ),
    ]
}

/// CPU time of all reaped children, including that of their own, s.
fn children_ran() -> Result<f64, String> {
    let stat = fs::read_to_string("/proc/self/stat").map_err(|e| e.to_string())?;
    let behind_name = stat.rsplit(')').next().unwrap_or_default();
    // Fields 16 and 17, in ticks; the first here is field 3.
    let ticks = behind_name
        .split_whitespace()
        .skip(13)
        .take(2)
        .map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>().map_err(|e| e.to_string())? / 100.0)
}

/// Elapsed time of a command for each second of its CPU time, s. On one CPU, the part above 1 is
/// its wait.
fn stretch(args: &[&str]) -> Result<f64, String> {
    let (begin, had) = (Instant::now(), children_ran()?);
    baton(args)?;
    Ok(begin.elapsed().as_secs_f64() / (children_ran()? - had).max(0.01))
}

/// The tasks of the first policy run as if those of the second did not exist, although these want
/// all CPUs.
fn ordered() -> Result<(), String> {
    baton(&["load", "fifo"])?;
    baton(&["load", "wfq", "--stall", "60000"])?;
    let order = baton(&["order", "fifo", "wfq"])?;
    check(order == "fifo\nwfq\n", || format!("the order is {order}"))?;
    let work = [
        "run",
        "-p",
        "fifo",
        "--",
        "hackbench",
        "-g",
        "1",
        "-l",
        "200",
    ];
    let alone = stretch(&work)?;
    let mut hogs = Command::new("baton")
        .args([
            "run",
            "-p",
            "wfq",
            "--",
            "stress-ng",
            "--cpu",
            "4",
            "--timeout",
            "10",
            "--quiet",
        ])
        .spawn()
        .map_err(|e| e.to_string())?;
    sleep(Duration::from_millis(500));
    let before = stretch(&work)?;
    let ended = hogs.wait().map_err(|e| e.to_string())?;
    check(ended.success(), || format!("the hogs ended with {ended}"))?;
    is_well("fifo")?;
    is_well("wfq")?;
    baton_fails(&["order", "nobody"], "no policy nobody is loaded")?;
    // The elapsed time is not sufficient. Busy CPUs of the guest share one stream of instructions,
    // so three more CPUs that are never idle take three quarters of it, which also increases the
    // command's CPU time.
    check(before < 1.5 * alone, || {
        format!(
            "{before:.2} s for each of CPU time beside hogs of a later policy, {alone:.2} s alone"
        )
    })
}

/// The second's share of the CPU time of both, in per cent.
fn share_of(second: &Hog, first: &Hog) -> Result<f64, String> {
    let (a, b) = (first.ran()?, second.ran()?);
    sleep(Duration::from_secs(4));
    let (a, b) = (first.ran()? - a, second.ran()? - b);
    Ok(100.0 * b / (a + b).max(0.01))
}

fn shares() -> Result<(), String> {
    // A hog that never runs must not count as a stall here.
    baton(&["load", "fifo", "--stall", "60000"])?;
    baton(&["load", "wfq"])?;
    baton(&["order", "fifo", "wfq"])?;
    let (first, second) = (Hog::of("fifo", Some("1"))?, Hog::of("wfq", Some("1"))?);
    let none = share_of(&second, &first)?;
    // A slice every second prevents starvation.
    check((0.1..4.0).contains(&none), || {
        format!("{none:.1} % for the later policy, without a share")
    })?;
    for share in [20_u32, 60] {
        baton(&["share", "wfq", &share.to_string()])?;
        let got = share_of(&second, &first)?;
        check((got - f64::from(share)).abs() < 3.0, || {
            format!("{got:.1} % for the later policy, not {share}")
        })?;
    }
    baton_fails(&["share", "fifo", "41"], "more than 100 %")?;
    baton(&["share", "wfq", "0"])?;
    drop(first);
    // No other task wants the CPU: a share is not a limit.
    let begin = second.ran()?;
    sleep(Duration::from_secs(1));
    let ran = second.ran()? - begin;
    check(ran > 0.9, || format!("alone it ran for {ran:.2} s of 1"))?;
    is_well("wfq")
}

fn write(path: &str, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("{path} is not written: {e}"))
}

/// The number of tasks that belong to a policy.
fn members(name: &str) -> Result<u64, String> {
    policy(&status()?, name)?["tasks"]
        .as_u64()
        .ok_or_else(|| "no count of tasks".into())
}

/// Waits for a condition: the kernel's side handles moved tasks in a work item.
fn soon(what: &str, mut holds: impl FnMut() -> Result<bool, String>) -> Result<(), String> {
    for _ in 0..50 {
        if holds()? {
            return Ok(());
        }
        sleep(Duration::from_millis(20));
    }
    Err(format!("{what}: {}", status()?))
}

fn by_cgroup() -> Result<(), String> {
    const OUTER: &str = "/sys/fs/cgroup/outer";
    const INNER: &str = "/sys/fs/cgroup/outer/inner";
    // A repeated case finds the cgroup there.
    fs::create_dir_all(INNER).map_err(|e| e.to_string())?;
    baton(&["load", "wfq"])?;
    baton(&["load", "fifo"])?;
    let (early, late) = (Hog::plain()?, Hog::plain()?);
    write(&format!("{INNER}/cgroup.procs"), &early.pid())?;
    baton(&["attach", "wfq", "--cgroup", "outer"])?;
    check(members("wfq")? == 1, || {
        "what was in the cgroup is not its policy's".into()
    })?;
    write(&format!("{OUTER}/cgroup.procs"), &late.pid())?;
    soon("what came later is not its policy's", || {
        Ok(members("wfq")? == 2)
    })?;
    // The innermost cgroup counts, and a thread's own assignment precedes its cgroup's.
    baton(&["attach", "fifo", "--cgroup", "outer/inner"])?;
    soon("the inner cgroup's task is not the inner policy's", || {
        Ok(members("wfq")? == 1 && members("fifo")? == 1)
    })?;
    baton(&["attach", "wfq", "--pid", &early.pid()])?;
    write(&format!("{OUTER}/cgroup.procs"), &early.pid())?;
    write(&format!("{INNER}/cgroup.procs"), &early.pid())?;
    soon("the thread is not where it was told to be", || {
        Ok(members("wfq")? == 2)
    })?;
    // Tasks that fork in a cgroup, and tasks that leave it.
    let script = format!("echo $$ >{INNER}/cgroup.procs; for i in 1 2 3; do sleep 5 & done; wait");
    let mut parent = Command::new("sh")
        .args(["-c", &script])
        .spawn()
        .map_err(|e| e.to_string())?;
    soon("children are not their cgroup's policy's", || {
        Ok(members("fifo")? >= 3)
    })?;
    write("/sys/fs/cgroup/cgroup.procs", &late.pid())?;
    soon("what left the cgroup is still its policy's", || {
        Ok(members("wfq")? == 1)
    })?;
    let cgroups = status()?["cgroups"].clone();
    check(
        cgroups.as_array().is_some_and(|list| list.len() == 2),
        || format!("not two cgroups: {cgroups}"),
    )?;
    baton(&["detach", "--cgroup", "outer/inner"])?;
    baton(&["unload", "fifo"])?;
    hackbench(1, 5)?;
    baton_fails(&["attach", "wfq", "--cgroup", "nowhere"], "no cgroup")?;
    parent
        .kill()
        .and_then(|()| parent.wait())
        .map_err(|e| e.to_string())?;
    is_well("wfq")?;
    // From policy to policy, including tasks that sleep meanwhile, and tasks attached to the first
    // by name.
    let script = format!("echo $$ >{OUTER}/cgroup.procs; sleep 1; while :; do :; done");
    let mut sleeper = Command::new("sh")
        .args(["-c", &script])
        .spawn()
        .map_err(|e| e.to_string())?;
    baton(&["load", "template"])?;
    baton(&["attach", "template", "--cgroup", "outer"])?;
    baton(&["unload", "wfq"])?;
    sleep(Duration::from_secs(1));
    let all_there = soon("not all are the second policy's", || {
        Ok(members("template")? == 2)
    });
    sleeper
        .kill()
        .and_then(|()| sleeper.wait())
        .map_err(|e| e.to_string())?;
    all_there?;
    drop(early);
    is_well("template")
}

/// Checks 20 times in a row that each hog is on one of these CPUs.
pub fn stay(hogs: &[Hog], cpus: &[u32]) -> Result<(), String> {
    for _ in 0..20 {
        for hog in hogs {
            let cpu = hog.cpu()?;
            check(cpus.contains(&cpu), || {
                format!("task {} is on CPU {cpu}, not of {cpus:?}", hog.pid())
            })?;
        }
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Starts hogs of a policy.
fn hogs(policy: &str, count: usize) -> Result<Vec<Hog>, String> {
    (0..count).map(|_| Hog::of(policy, None)).collect()
}

/// Checks that all hogs run.
pub fn run_all(hogs: &[Hog]) -> Result<(), String> {
    let before: Vec<f64> = hogs.iter().map(Hog::ran).collect::<Result<_, _>>()?;
    sleep(Duration::from_secs(2));
    for (hog, before) in hogs.iter().zip(before) {
        let ran = hog.ran()? - before;
        check(ran > 0.05, || {
            format!("task {} ran for {ran:.2} s of 2", hog.pid())
        })?;
    }
    Ok(())
}

fn partitions() -> Result<(), String> {
    baton(&["load", "wfq"])?;
    baton(&["load", "template"])?;
    baton(&[
        "partition",
        "create",
        "fast",
        "--cpus",
        "0-1",
        "--policy",
        "wfq",
    ])?;
    let (inside, outside) = (hogs("wfq", 3)?, hogs("template", 3)?);
    let stay_and_run = |cpus: &[u32], others: &[u32]| {
        // The last of them leaves its CPU within a tick.
        sleep(Duration::from_millis(50));
        stay(&inside, cpus)?;
        stay(&outside, others)?;
        run_all(&inside)?;
        run_all(&outside)
    };
    baton(&["partition", "resize", "fast", "--cpus", "2-3"])?;
    stay_and_run(&[2, 3], &[0, 1])?;
    baton(&["partition", "resize", "fast", "--cpus", "3"])?;
    stay_and_run(&[3], &[0, 1, 2])?;
    baton(&["partition", "resize", "fast", "--cpus", "0,1"])?;
    stay_and_run(&[0, 1], &[2, 3])?;
    let shown = status()?["partitions"].clone();
    check(
        shown[0]["name"] == "fast" && shown[0]["cpus"] == "0-1" && shown[0]["policies"][0] == "wfq",
        || format!("shown is {shown}"),
    )?;
    // The later policy's hogs would not even get the CPU to exit beside hogs of the first policy on
    // the same CPU.
    drop(outside);
    baton(&["partition", "destroy", "fast"])?;
    // Both other CPUs are theirs again.
    let more = hogs("wfq", 3)?;
    run_all(&inside)?;
    run_all(&more)?;
    is_well("wfq")?;
    is_well("template")
}

pub fn set_online(cpu: u32, online: bool) -> Result<(), String> {
    write(
        &format!("/sys/devices/system/cpu/cpu{cpu}/online"),
        if online { "1" } else { "0" },
    )
}

fn partition_hotplug() -> Result<(), String> {
    let result = partition_and_hotplug();
    set_online(2, true)?;
    set_online(3, true)?;
    result
}

fn partition_and_hotplug() -> Result<(), String> {
    baton(&["load", "wfq"])?;
    baton(&["load", "template"])?;
    baton(&[
        "partition",
        "create",
        "fast",
        "--cpus",
        "2-3",
        "--policy",
        "wfq",
    ])?;
    let (inside, outside) = (hogs("wfq", 3)?, hogs("template", 3)?);
    for _ in 0..2 {
        set_online(3, false)?;
        run_all(&inside)?;
        stay(&inside, &[2])?;
        set_online(2, false)?;
        // The partition has no CPU. Its tasks still run, without their policy.
        run_all(&inside)?;
        stay(&inside, &[0, 1])?;
        set_online(2, true)?;
        set_online(3, true)?;
        run_all(&inside)?;
        // Each task comes back at its next turn.
        soon("they are not back in the partition", || {
            Ok(stay(&inside, &[2, 3]).is_ok())
        })?;
        stay(&outside, &[0, 1])?;
    }
    is_well("wfq")?;
    is_well("template")
}

fn misfits() -> Result<(), String> {
    baton(&["load", "wfq", "--all"])?;
    baton(&["load", "template"])?;
    // Every kernel thread that is bound to a CPU belongs to wfq, too.
    baton(&[
        "partition",
        "create",
        "fast",
        "--cpus",
        "1-3",
        "--policy",
        "wfq",
    ])?;
    let bound: Vec<Hog> = ["0", "1", "2"]
        .into_iter()
        .map(|cpu| Hog::of("wfq", Some(cpu)))
        .collect::<Result<_, _>>()?;
    run_all(&bound)?;
    let foreign: Vec<Hog> = ["0", "1"]
        .into_iter()
        .map(|cpu| Hog::of("template", Some(cpu)))
        .collect::<Result<_, _>>()?;
    run_all(&foreign)?;
    run_all(&bound)?;
    hackbench(1, 20)?;
    // A task whose affinity allows only another partition moves there.
    crate::tool::must("taskset", &["-p", "8", &foreign[0].pid()])?;
    run_all(&foreign)?;
    is_well("wfq")?;
    is_well("template")
}

fn refused() -> Result<(), String> {
    baton(&["load", "wfq"])?;
    baton(&["load", "template"])?;
    baton(&[
        "partition",
        "create",
        "fast",
        "--cpus",
        "2-3",
        "--policy",
        "wfq",
    ])?;
    let before = baton(&["partition", "list", "--json"])?;
    let create = |name, cpus, policy, why| {
        baton_fails(
            &[
                "partition",
                "create",
                name,
                "--cpus",
                cpus,
                "--policy",
                policy,
            ],
            why,
        )
    };
    create("other", "3", "template", "CPU 3 is in partition fast")?;
    create("other", "1", "wfq", "policy wfq is in partition fast")?;
    create(
        "other",
        "0-1",
        "template",
        "no CPU that is online would be left",
    )?;
    create("other", "900", "template", "there is no CPU 900")?;
    create("other", "1", "nobody", "no policy nobody is loaded")?;
    create(
        "Other!",
        "1",
        "template",
        "partition's name has small letters",
    )?;
    create("fast", "1", "template", "there is a partition fast already")?;
    baton_fails(
        &["partition", "resize", "nowhere", "--cpus", "1"],
        "there is no partition nowhere",
    )?;
    baton_fails(
        &["partition", "destroy", "nowhere"],
        "there is no partition nowhere",
    )?;
    let ran = run(
        "baton",
        &[
            "partition",
            "create",
            "other",
            "--cpus",
            "1-",
            "--policy",
            "template",
        ],
    )?;
    check(ran.code == Some(2), || {
        format!("a wrong list of CPUs: {:?}, {}", ran.code, ran.text)
    })?;
    let after = baton(&["partition", "list", "--json"])?;
    check(before == after, || format!("{before} became {after}"))?;
    // The partition is removed with its last policy.
    baton(&["unload", "wfq"])?;
    check(
        baton(&["partition", "list", "--json"])?.trim() == "[]",
        || "the partition has outlived its policy".into(),
    )
}

fn exchanged() -> Result<(), String> {
    baton(&["load", "wfq"])?;
    baton(&["load", "template"])?;
    baton(&["order", "wfq", "template"])?;
    baton(&["share", "wfq", "30"])?;
    baton(&[
        "partition",
        "create",
        "fast",
        "--cpus",
        "2-3",
        "--policy",
        "wfq",
    ])?;
    let inside = hogs("wfq", 3)?;
    baton(&["upgrade", "wfq"])?;
    stay(&inside, &[2, 3])?;
    baton(&["switch", "wfq", "fifo"])?;
    stay(&inside, &[2, 3])?;
    run_all(&inside)?;
    let status = status()?;
    let entry = policy(&status, "fifo")?;
    check(entry["share"] == 30 && entry["partition"] == "fast", || {
        format!("fifo has not wfq's place: {status}")
    })?;
    check(baton(&["order"])? == "fifo\ntemplate\n", || {
        "fifo is not in wfq's place in the order".into()
    })?;
    is_well("fifo")
}

/// A partition of its own for a policy that fails, one for two policies with an order and a share,
/// and one CPU for all other tasks.
fn together() -> Result<(), String> {
    baton(&[
        "load",
        "faulty",
        "--options",
        "fault=index,after=3000",
        "--stall",
        "60000",
    ])?;
    for name in ["fifo", "wfq"] {
        baton(&["load", name])?;
    }
    baton(&["order", "fifo", "wfq"])?;
    baton(&["share", "wfq", "25"])?;
    baton(&[
        "partition",
        "create",
        "shaky",
        "--cpus",
        "1",
        "--policy",
        "faulty",
    ])?;
    baton(&[
        "partition",
        "create",
        "sound",
        "--cpus",
        "2-3",
        "--policy",
        "fifo",
        "--policy",
        "wfq",
    ])?;
    let failing = hogs("faulty", 2)?;
    // One hog of each policy on each CPU.
    let pairs: Vec<(Hog, Hog)> = ["2", "3"]
        .into_iter()
        .map(|cpu| Ok((Hog::of("fifo", Some(cpu))?, Hog::of("wfq", Some(cpu))?)))
        .collect::<Result<_, String>>()?;
    let sound = || {
        for (first, second) in &pairs {
            let got = share_of(second, first)?;
            check((got - 25.0).abs() < 3.0, || {
                format!("{got:.1} % for the later policy, not 25")
            })?;
        }
        is_well("fifo")?;
        is_well("wfq")
    };
    sound()?;
    stay(&failing, &[1])?;
    let is_faulted = || Ok(policy(&status()?, "faulty")?["state"] == "faulted");
    check(!is_faulted()?, || {
        "the fault was too early to see what comes before it".into()
    })?;
    // The fault comes after a number of calls, which loads make. The hogs alone do not make as many
    // in the time until here.
    let load = ["run", "-p", "faulty", "--", "hackbench", "-g", "1", "-l"];
    let mut loads = 0;
    while !is_faulted()? && loads < 10 {
        run("baton", &[&load[..], &["200"]].concat())?;
        loads += 1;
    }
    soon("the fault did not come", is_faulted)?;
    sound()?;
    run_all(&failing)?;
    // Its partition has no running policy, so its tasks may use the partition, and the CPU that all
    // others share.
    stay(&failing, &[0, 1])?;
    baton(&["unload", "faulty"])?;
    sound()
}
