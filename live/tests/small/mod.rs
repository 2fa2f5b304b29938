// SPDX-License-Identifier: GPL-2.0-only
//! A scheduler of a few functions, and a kernel that is linked from it.
// Each program of tests uses a part of it.
#![allow(dead_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use baton_live::elf::Object;
use baton_live::identity::{self, Identity, Placed};
use baton_live::vmlinux::Vmlinux;

/// The scheduler, whose names the tests refer to.
pub const SCHED: &str = r#"
    #define noipa __attribute__((noipa))
    void outside_work(int *);
    void switch_stacks(void);
    void schedule_timeout(long);
    static int counter;
    static const int table[4] = { 3, 1, 4, 1 };
    int policy = 2;
    static noipa int internal(int i) { static int seen; return ++seen + table[i & 3]; }
    static noipa int other(int i) { static int seen; return (seen += i) + counter; }
    static noipa void callback(void) { counter++; }
    struct ops { void (*call)(void); } ops = { callback };
    noipa void __attribute__((section(".sched.text"))) __schedule(void) { switch_stacks(); }
    noipa void __attribute__((section(".sched.text"))) schedule(void) { __schedule(); counter++; }
    noipa void yields(void) { other(1); schedule(); counter++; }
    noipa void dozes(void) { schedule_timeout(4); counter++; }
    noipa int entry(int i) { outside_work(&counter); return internal(i) + 1; }
    noipa int unused(int i) { return internal(i + 1) + policy; }
    void __attribute__((weak)) arch_hook(void) { counter = 7; }
    static __attribute__((noinline)) int variant(int i, int k) { return i * k + counter; }
    noipa int __attribute__((section(".sched.text"))) sleeps(void)
    {
        __schedule();
        return variant(2, 3);
    }
    noipa int varies(int i) { return variant(i, 3); }
    noipa int booted(int i) {
        asm(".pushsection runtime_ptr_test, \"a\"; .long 1f - .; .popsection; 1:");
        return i + 5;
    }
    noipa void uses_hook(void) { arch_hook(); counter++; }
"#;

/// The rest of the kernel.
const REST: &str = r#"
    int entry(int), unused(int);
    void yields(void);
    void outside_work(int *i) { *i += entry(1); }
    void switch_stacks(void) {}
    void schedule_timeout(long l) { yields(); }
    void arch_hook(void) { entry(2); entry(3); }
    int (*hook(void))(int) { return unused; }
"#;

/// What GCC is told. The addresses are those of a kernel.
const FLAGS: &[&str] = &[
    "-O2",
    "-fno-pic",
    "-fcf-protection=none",
    "-mcmodel=kernel",
    "-ffunction-sections",
    "-fdata-sections",
    "-fno-asynchronous-unwind-tables",
    "-c",
];

fn run(command: &mut Command) {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {done:?}");
}

pub fn compile(dir: &Path, name: &str, source: &str) -> PathBuf {
    let (c, o) = (dir.join(format!("{name}.c")), dir.join(format!("{name}.o")));
    fs::write(&c, source).unwrap();
    // The name of the file is that in the object.
    let file = format!("{name}.c");
    run(Command::new("gcc")
        .current_dir(dir)
        .args(FLAGS)
        .args([&file, "-o"])
        .arg(&o));
    o
}

pub fn object(path: &Path) -> Object {
    Object::read(&fs::read(path).unwrap(), "the test's object").unwrap()
}

/// A kernel with this scheduler.
pub fn kernel(dir: &Path) -> Vmlinux {
    let parts = [compile(dir, "sched", SCHED), compile(dir, "rest", REST)];
    let out = dir.join("vmlinux");
    let options = [
        "--build-id=sha1",
        "-Ttext=0xffffffff81000000",
        "-e",
        "entry",
    ];
    run(Command::new("ld")
        .args(options)
        .args(parts)
        .arg("-o")
        .arg(&out));
    Vmlinux::read(&out).unwrap()
}

/// Compares a changed scheduler with the kernel of the unchanged one.
pub fn compared(change: impl Fn(&str) -> String) -> (Identity, Placed, Object, Vmlinux) {
    let dir = tempfile::tempdir().unwrap();
    let vmlinux = kernel(dir.path());
    let changed = change(SCHED);
    let object = object(&compile(dir.path(), "sched", &changed));
    let (identity, placed) = identity::compare(&object, &vmlinux).unwrap();
    (identity, placed, object, vmlinux)
}

/// A change of a text that occurs in it.
pub fn replaced<'a>(from: &'a str, to: &'a str) -> impl Fn(&str) -> String + 'a {
    move |source| {
        assert!(source.contains(from), "{from}");
        source.replacen(from, to, 1)
    }
}
