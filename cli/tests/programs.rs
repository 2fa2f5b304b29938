// SPDX-License-Identifier: GPL-2.0-only
//! The programs of benches, on this machine. Builds them: runs inside Baton's Debian root, which
//! has their dependencies.

use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command};

fn run(program: &Path, arguments: &[&str]) -> (bool, String) {
    let out = Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|e| panic!("{}: {e}", program.display()));
    let text = if out.status.success() {
        out.stdout
    } else {
        out.stderr
    };
    (
        out.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

/// Runs a program. It prints plausible answers, and has sent about this many requests.
fn answers(program: &Path, arguments: &[&str], about: f64) {
    let (ended_well, text) = run(program, arguments);
    assert!(ended_well, "{}: {text}", program.display());
    let ran: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
    let number = |name: &str| {
        ran.pointer(name)
            .and_then(Value::as_f64)
            .unwrap_or_else(|| panic!("no {name}: {text}"))
    };
    // A busy machine answers fewer requests in the time.
    assert!(
        number("/answered") > 0.0 && number("/answered") < 1.5 * about,
        "{text}"
    );
    assert!(number("/gets/count") <= number("/answered"), "{text}");
    assert!(
        number("/gets/p50") > 0.0 && number("/gets/p50") <= number("/gets/p99"),
        "{text}"
    );
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn real_programs_answer() {
    let dir = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/programs/build.sh");
    let (built, why) = run(&script, &[dir.path().to_str().unwrap()]);
    assert!(built, "{why}");
    let program = |name| dir.path().join(name);
    answers(
        &program("rocksdb"),
        &[
            "--duration",
            "300000000",
            "--gap",
            "1000000",
            "--long",
            "1000000",
        ],
        300.0,
    );
    let port = (20_000 + std::process::id() % 10_000).to_string();
    let server = Command::new("memcached")
        .args(["-u", "nobody", "-l", "127.0.0.1", "-U", "0", "-p", &port])
        .spawn();
    let _server = Server(server.expect("memcached is installed"));
    answers(
        &program("etc"),
        &[
            "--priority",
            "0",
            "--port",
            &port,
            "--duration",
            "300000000",
            "--gap",
            "1000000",
        ],
        300.0,
    );

    let (ended_well, text) = run(&program("schbench"), &["-w", "100", "-r", "300", "-u", "0"]);
    assert!(ended_well, "{text}");
    let waits: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
    let number = |name: &str| {
        waits[name]
            .as_f64()
            .unwrap_or_else(|| panic!("no {name}: {text}"))
    };
    assert!(
        number("wakeups") > 0.0 && number("p50_ns") > 0.0 && number("p50_ns") <= number("p99_ns"),
        "{text}"
    );
    assert_eq!(
        waits["homes"],
        serde_json::json!([-1, -1]),
        "without hints there are no groups"
    );
    let (ended_well, why) = run(&program("schbench"), &["-H"]);
    assert!(
        !ended_well && why.contains("the policy locality does not accept hints from this process"),
        "{why}"
    );

    let (ended_well, why) = run(&program("rocksdb"), &["--workers", "many"]);
    assert!(
        !ended_well && why.contains("--workers is a number from 1 to 1000, not 'many'"),
        "{why}"
    );
    let (ended_well, why) = run(&program("etc"), &["--what"]);
    assert!(
        !ended_well && why.contains("what is '--what'?") && why.contains("--records"),
        "{why}"
    );
}

#[test]
fn the_module_with_idle_states_is_for_the_roots_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/idle/build.sh");
    let (built, why) = run(&script, &[dir.path().to_str().unwrap()]);
    assert!(built, "{why}");
    let module = dir.path().join("baton_idle.ko");
    let (read, text) = run(Path::new("modinfo"), &[module.to_str().unwrap()]);
    assert!(read && text.contains("cloud-amd64"), "{text}");
    for parameter in ["name:", "exit_us:", "residency_us:"] {
        assert!(
            text.lines()
                .any(|line| line.starts_with("parm:") && line.contains(parameter)),
            "{parameter} {text}"
        );
    }
}
