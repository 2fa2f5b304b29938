// SPDX-License-Identifier: GPL-2.0-only
//! The comparison of a small scheduler with a kernel, and its boundary.

mod small;

use std::fs;

use baton_live::boundary::{Boundary, Class};
use baton_live::elf::Object;
use baton_live::graph::{Graph, Objects};

use small::{compared, compile, kernel, object, replaced};

#[test]
fn the_kernels_own_scheduler_is_equal() {
    let (identity, placed, object, vmlinux) = compared(str::to_owned);
    assert_eq!(identity.different, []);
    assert_eq!(identity.equal + 1, identity.functions);
    assert_eq!(identity.excused.len(), 1);
    assert_eq!(identity.excused[0].function, "arch_hook");
    assert!(identity.references > 10);
    identity.demand("7.2").unwrap();
    // Static data of one name in two functions are told apart.
    let seen = object
        .symbols
        .iter()
        .filter(|s| s.name.starts_with("seen."));
    let at: Vec<_> = seen
        .map(|symbol| placed.symbol(symbol, &vmlinux).unwrap())
        .collect();
    assert_eq!(at.len(), 2);
    assert_ne!(at[0], at[1]);
}

#[test]
fn each_difference_is_found() {
    let check = |from: &str, to: &str, function: &str, why: &str| {
        let (identity, ..) = compared(replaced(from, to));
        let found: Vec<_> = identity.different.iter().collect();
        assert!(
            found
                .iter()
                .any(|d| d.function == function && d.why.contains(why)),
            "{from} -> {to}: {found:?}"
        );
        let error = identity.demand("7.2").unwrap_err();
        assert!(error.what.contains("sched.c"), "{error}");
    };
    check(
        "dozes(void) { schedule_timeout(4)",
        "dozes(void) { schedule_timeout(5)",
        "dozes",
        "its code differs at +0x",
    );
    check(
        "internal(i) + 1",
        "other(i) + 1",
        "entry",
        "it refers to .text.other",
    );
    check(
        "schedule_timeout(4); counter++",
        "schedule_timeout(4); policy++",
        "dozes",
        "it refers to policy",
    );
    check(
        "noipa int unused(int i)",
        "noipa int unheard(int i)",
        "unheard",
        "no function of that name",
    );
    check(
        "internal(i + 1) + policy",
        "internal(i + 1) + policy * 5",
        "unused",
        "its size is",
    );
}

#[test]
fn every_function_has_its_class() {
    let (_, placed, object, vmlinux) = compared(str::to_owned);
    let objects = Objects::new(vec![object]);
    let boundary = Boundary::of(&objects, &[placed], &vmlinux);
    let check = |name: &str, class: Class, reasons: &[&str]| {
        let found = boundary.functions.iter().find(|f| f.name == name).unwrap();
        let texts: Vec<_> = found.reasons.iter().map(ToString::to_string).collect();
        assert_eq!(
            (found.class, &texts[..]),
            (class, &reasons.map_owned()[..]),
            "{name}"
        );
    };
    check("internal", Class::Internal, &[]);
    check(
        "other",
        Class::Interface,
        &["yields calls it, which is kept"],
    );
    check("callback", Class::Interface, &["ops has its address"]);
    check(
        "entry",
        Class::Interface,
        &[
            "2 functions outside call it, as outside_work",
            "it is global",
        ],
    );
    check(
        "unused",
        Class::Interface,
        &["hook has its address", "it is global"],
    );
    check(
        "__schedule",
        Class::Kept,
        &["its code is in .sched.text", "tasks sleep in it"],
    );
    check(
        "yields",
        Class::Kept,
        &["tasks sleep in it, through schedule"],
    );
    check(
        "dozes",
        Class::Kept,
        &["tasks sleep in it, through schedule_timeout"],
    );
    check(
        "arch_hook",
        Class::Kept,
        &["it is weak: the kernel may have another one"],
    );
    check(
        "booted",
        Class::Kept,
        &[
            "it has constants that only a boot fills in",
            "it has no room for a jump to another function",
        ],
    );
    check(
        "variant.constprop.0",
        Class::Interface,
        &["sleeps calls it, which is kept"],
    );
    let shared = |name: &str| {
        let mut found = boundary.data.iter().filter(|d| d.name.starts_with(name));
        found.next().unwrap().shared
    };
    assert!(shared("counter") && shared("policy") && shared("ops") && shared("seen."));
    assert!(!shared("table"));
    let external: Vec<_> = boundary
        .external
        .iter()
        .map(|e| (&*e.name, e.callers))
        .collect();
    assert_eq!(
        external,
        [
            ("outside_work", 1),
            ("schedule_timeout", 1),
            ("switch_stacks", 1)
        ]
    );
}

trait Owned {
    fn map_owned(&self) -> Vec<String>;
}

impl Owned for [&str] {
    fn map_owned(&self) -> Vec<String> {
        self.iter().map(|&text| text.to_owned()).collect()
    }
}

#[test]
fn calls_inside_a_section_need_no_relocation() {
    let dir = tempfile::tempdir().unwrap();
    let source = r#"
        #define text __attribute__((noipa, section(".noinstr.text")))
        static text int first(int i) { return i * 3; }
        text int second(int i) { return first(i) + 1; }
        int (*taken)(int) = first;
    "#;
    let objects = Objects::new(vec![object(&compile(dir.path(), "inside", source))]);
    let graph = Graph::of(&objects);
    let id = |name: &str| {
        let found = graph.functions.iter().position(|f| f.name == name);
        found.unwrap()
    };
    assert!(graph.calls[id("second")].contains(&id("first")));
    assert!(graph.calls[id("first")].is_empty());
    let taken: Vec<_> = graph.taken_by[id("first")].iter().collect();
    assert_eq!(taken, ["taken"]);
}

#[test]
fn what_is_no_object_is_refused() {
    let check = |bytes: &[u8]| {
        let error = Object::read(bytes, "a file").unwrap_err();
        assert!(error.what.starts_with("a file is no object"), "{error}");
    };
    check(b"");
    check(b"\x7fELF");
    let dir = tempfile::tempdir().unwrap();
    kernel(dir.path());
    check(&fs::read(dir.path().join("vmlinux")).unwrap());
    let whole = fs::read(dir.path().join("sched.o")).unwrap();
    for length in (0..whole.len()).step_by(97) {
        // Any prefix is refused or read, and neither panics.
        let _ = Object::read(&whole[..length], "a part");
    }
}
