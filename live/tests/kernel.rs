// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler of the kernel that guests boot. The first run fetches that kernel's debug package
//! into the cache, which takes some minutes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use baton_live::boundary::Class;
use baton_live::Prepared;
use baton_vm::{FileIn, Kernel, Vm};

#[test]
fn the_scheduler_is_the_kernels_and_is_taken_apart() {
    let prepared = Prepared::make(&Kernel::of_root().unwrap()).unwrap();
    let identity = &prepared.identity;
    assert_eq!(identity.different, []);
    assert!(identity.functions > 1000, "{}", identity.functions);
    assert_eq!(identity.equal + identity.excused.len(), identity.functions);
    assert!(identity.references > 10_000, "{}", identity.references);

    let boundary = prepared.boundary().unwrap();
    let check = |name: &str, class: Class, reason: &str| {
        let found = boundary.functions.iter().find(|f| f.name == name);
        let found = found.unwrap_or_else(|| panic!("there is no {name}"));
        let reasons: Vec<_> = found.reasons.iter().map(ToString::to_string).collect();
        assert_eq!(found.class, class, "{name}: {reasons:?}");
        let has = reasons.iter().any(|text| text.contains(reason));
        assert!(has || reason.is_empty(), "{name}: {reasons:?}");
    };
    check("__schedule", Class::Kept, "tasks sleep in it");
    check("schedule", Class::Kept, "tasks sleep in it");
    check("switching_to_idle", Class::Kept, "no room for a jump");
    check("arch_cpu_idle", Class::Kept, "weak");
    check("default_idle_call", Class::Kept, ".cpuidle.text");
    check(
        "__do_sys_sched_getattr",
        Class::Kept,
        "constants that only a boot fills in",
    );
    check("wake_up_process", Class::Interface, "it is exported");
    check(
        "enqueue_task_fair",
        Class::Interface,
        "fair_sched_class has its address",
    );
    check("place_entity", Class::Internal, "");
    let is_shared = |name: &str| {
        let found = boundary.data.iter().find(|datum| datum.name == name);
        found.unwrap_or_else(|| panic!("there is no {name}")).shared
    };
    assert!(is_shared("runqueues") && is_shared("fair_sched_class"));
    assert!(!is_shared("sched_prio_to_weight"));
    let calls = |name: &str| boundary.external.iter().any(|e| e.name == name);
    assert!(calls("hrtimer_start_range_ns"));
}

/// A tree of the kernel's own scheduler, in a directory.
fn tree(prepared: &Prepared, dir: &Path) -> PathBuf {
    let tree = dir.join("tree");
    let git = |arguments: &[&str]| {
        let done = Command::new("git").args(arguments).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    let at = tree.to_str().unwrap();
    git(&["clone", "--quiet", prepared.tree().to_str().unwrap(), at]);
    let first = git(&["-C", at, "rev-list", "--max-parents=0", "HEAD"]);
    git(&["-C", at, "checkout", "--quiet", first.trim()]);
    tree
}

/// Changes a file of a tree.
fn change(tree: &Path, file: &str, from: &str, to: &str) {
    let path = tree.join(file);
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches(from).count(), 1, "{from}");
    fs::write(path, text.replace(from, to)).unwrap();
}

/// Compiles the program that prints a sum of the kernel's code.
fn sum_of_code(dir: &Path) -> PathBuf {
    let program = dir.join("sum");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sum.c");
    let done = Command::new("gcc")
        .args(["-O2", "-static", "-o"])
        .args([&program, &source])
        .status();
    assert!(done.unwrap().success());
    program
}

/// Boots a guest with a module, runs a script there, and returns its output.
fn run(kernel: Kernel, module: &Path, script: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let vm = Vm {
        kernel: Some(kernel),
        command: vec!["sh".into(), "-ec".into(), format!("{PARAMETERS}\n{script}")],
        tools: ["hackbench", "nice", "taskset"].map(String::from).into(),
        files_in: vec![
            FileIn {
                host: module.into(),
                guest: "/baton_live.ko".into(),
            },
            FileIn {
                host: sum_of_code(dir.path()),
                guest: "/sum".into(),
            },
        ],
        timeout: Duration::from_secs(400),
        ..Default::default()
    };
    let outcome = vm.run(&mut std::io::stdout()).unwrap();
    let output = String::from_utf8_lossy(&outcome.output).into_owned();
    assert_eq!(outcome.exit_code, 0, "{output}\n{}", outcome.kernel_log);
    output
}

const PARAMETERS: &str = "live=/sys/module/baton_live/parameters";

/// Switches back and forth under load. A module that runs cannot be removed. Afterwards each byte
/// of the kernel's code is as before.
const SWITCHES: &str = r#"
    range=$(awk '$3 == "_stext" || $3 == "_etext" { print $1 }' /proc/kallsyms)
    code() { /sum $range; }
    hackbench -g 1 -l 100 >/dev/null
    before=$(code)
    insmod /baton_live.ko
    hackbench -g 4 -l 1000 >/dev/null &
    load=$!
    sleep 1
    for i in 1 2 3; do
        echo Y >$live/enabled
        cat $live/report
        sleep 0.3
        if rmmod baton_live 2>/dev/null; then exit 9; fi
        echo N >$live/enabled
        cat $live/report
        sleep 0.3
    done
    wait $load
    echo Y >$live/enabled
    [ "$(code)" != "$before" ]
    echo N >$live/enabled
    rmmod baton_live
    [ "$(code)" = "$before" ]
    echo through
"#;

#[test]
fn the_unchanged_scheduler_takes_over_and_leaves() {
    let kernel = Kernel::of_root().unwrap();
    let prepared = Prepared::make(&kernel).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let built = prepared.build(&tree(&prepared, dir.path())).unwrap();
    assert_eq!(built.new, Vec::<String>::new());
    assert!(built.replaced > 1000 && built.redirected > 500, "{built:?}");
    let output = run(kernel, &built.module, SWITCHES);
    assert!(output.ends_with("through\n"), "{output}");
    let tasks = output
        .lines()
        .filter_map(|line| line.strip_prefix("tasks "));
    let most = tasks.map(|count| count.parse().unwrap()).max();
    assert!(most > Some(150), "there was no load: {output}");
}

/// A busy task of nice 0 and one of nice 19 share CPU 0, before, while and after a change runs that
/// ignores nice levels. Prints the ticks that each got.
const SHARES: &str = r#"
    spin() { exec taskset 1 sh -c 'while :; do :; done'; }
    spin &
    normal=$!
    nice -n 19 taskset 1 sh -c 'while :; do :; done' &
    nice=$!
    ticks() { awk '{ print $14 + $15 }' /proc/$1/stat; }
    measure() {
        a=$(ticks $normal) b=$(ticks $nice)
        sleep 4
        echo "shares $(($(ticks $normal) - a)) $(($(ticks $nice) - b))"
    }
    insmod /baton_live.ko
    measure
    echo Y >$live/enabled
    measure
    echo N >$live/enabled
    measure
    kill -9 $normal $nice
    rmmod baton_live
"#;

#[test]
fn a_change_has_its_effect_and_ends() {
    let kernel = Kernel::of_root().unwrap();
    let prepared = Prepared::make(&kernel).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(&prepared, dir.path());
    change(
        &tree,
        "fair.c",
        "if (unlikely(se->load.weight != NICE_0_LOAD))",
        "if (false)",
    );
    let built = prepared.build(&tree).unwrap();
    let output = run(kernel, &built.module, SHARES);
    let shares: Vec<Vec<f64>> = output
        .lines()
        .filter_map(|line| line.strip_prefix("shares "))
        .map(|line| line.split(' ').map(|n| n.parse().unwrap()).collect())
        .collect();
    let ratio = |at: usize| shares[at][0] / shares[at][1].max(1.0);
    assert!(ratio(0) > 10.0 && ratio(2) > 10.0, "{shares:?}");
    assert!(ratio(1) < 2.0, "{shares:?}");
}

/// While a task is inside the change, that is not taken out; afterwards it is.
const BUSY: &str = r#"
    insmod /baton_live.ko
    echo Y >$live/enabled
    taskset -p 1 &
    inside=$!
    sleep 1
    if echo N >$live/enabled; then exit 9; fi
    [ "$(cat $live/enabled)" = Y ]
    grep "^attempts 200" $live/report
    grep "^busy $inside .*baton_live. taskset" $live/report
    wait $inside
    echo N >$live/enabled
    [ "$(cat $live/enabled)" = N ]
    rmmod baton_live
    echo through
"#;

#[test]
fn a_task_inside_the_change_keeps_it_in() {
    let kernel = Kernel::of_root().unwrap();
    let prepared = Prepared::make(&kernel).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(&prepared, dir.path());
    change(
        &tree,
        "syscalls.c",
        "long sched_getaffinity(pid_t pid, struct cpumask *mask)\n{\n",
        "void msleep(unsigned int ms);\n\
         long sched_getaffinity(pid_t pid, struct cpumask *mask)\n{\n\tmsleep(20000);\n",
    );
    let built = prepared.build(&tree).unwrap();
    let output = run(kernel, &built.module, BUSY);
    assert!(output.ends_with("through\n"), "{output}");
}

#[test]
fn the_gates_know_the_kernels_own_scheduler() {
    let kernel = Kernel::of_root().unwrap();
    let prepared = Prepared::make(&kernel).unwrap();
    let check = |file: &str, from: &str, to: &str, what: &str| {
        let dir = tempfile::tempdir().unwrap();
        let tree = tree(&prepared, dir.path());
        change(&tree, file, from, to);
        let error = prepared.build(&tree).unwrap_err();
        assert!(error.what.starts_with(what), "{error}");
    };
    check(
        "fair.c",
        "unsigned int sysctl_sched_base_slice\t\t\t= 700000ULL;",
        "unsigned int sysctl_sched_base_slice\t\t\t= 900000ULL;",
        "sysctl_sched_base_slice in fair.c: its first value has changed",
    );
    check(
        "sched.h",
        "struct cfs_rq {\n",
        "struct cfs_rq {\n\tunsigned long\t\tmore;\n",
        "struct cfs_rq in ",
    );
}
