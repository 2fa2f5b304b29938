// SPDX-License-Identifier: GPL-2.0-only
//! Changes of a small scheduler: what each gate refuses, and what becomes of the objects.

mod small;

use std::collections::HashSet;
use std::fs;
use std::process::Command;

use baton_control::error::Result;
use baton_live::boundary::{self, Class, Narrow};
use baton_live::btf;
use baton_live::elf::{Object, Place};
use baton_live::extract::{self, Extraction};
use baton_live::gates::{self, Side};
use baton_live::graph::{Graph, Objects};
use baton_live::identity;
use baton_live::klp;
use baton_live::pairs::Pairs;
use baton_live::vmlinux::Vmlinux;

use small::{compile, kernel, object, replaced, SCHED};

/// Passes a change through the gates and extracts it.
fn extracted(change: impl Fn(&str) -> String) -> (Result<Extraction>, Vmlinux) {
    let dir = tempfile::tempdir().unwrap();
    let vmlinux = kernel(dir.path());
    let before = object(&dir.path().join("sched.o"));
    let (_, placed) = identity::compare(&before, &vmlinux).unwrap();
    let after = object(&compile(dir.path(), "sched", &change(SCHED)));
    let found = extract_from(
        Objects::new(vec![after]),
        Objects::new(vec![before]),
        placed,
        &vmlinux,
    );
    (found, vmlinux)
}

fn extract_from(
    changed: Objects,
    unchanged: Objects,
    placed: identity::Placed,
    vmlinux: &Vmlinux,
) -> Result<Extraction> {
    let pairs = Pairs::of(&changed, &unchanged, &[placed], vmlinux)?;
    let graphs = [&changed, &unchanged].map(Graph::of);
    let narrow = Narrow::default();
    let classes = [
        boundary::classes(&changed, &graphs[0], &narrow),
        boundary::classes(&unchanged, &graphs[1], &narrow),
    ];
    let side = |objects, at: usize| Side {
        objects,
        graph: &graphs[at],
        classes: &classes[at],
    };
    gates::pass(&side(&changed, 0), &side(&unchanged, 1), &pairs)?;
    extract::extract(&changed, &graphs[0], &classes[0], &pairs, vmlinux)
}

#[track_caller]
fn refused(from: &str, to: &str, what: &str) {
    let (found, _) = extracted(replaced(from, to));
    let error = found.expect_err("it should be refused");
    assert!(error.what.starts_with(what), "{error}");
    assert!(!error.next.is_empty());
}

#[test]
fn code_that_is_kept_may_not_change() {
    refused(
        "other(1); schedule()",
        "other(2); schedule()",
        "yields in sched.c: its code has changed, and the kernel's own goes on",
    );
    refused(
        "return i + 5;",
        "return i + 6;",
        "booted in sched.c: its code has changed",
    );
    refused(
        "noipa void dozes",
        "noipa void rests(void) { schedule_timeout(9); counter++; } noipa void dozes",
        "rests in sched.c: it is new, and its code cannot be in a module",
    );
}

#[test]
fn shared_data_keep_size_and_value() {
    refused(
        "int policy = 2",
        "int policy = 3",
        "policy in sched.c: its first value has changed",
    );
    refused(
        "int policy = 2",
        "long policy = 2",
        "policy in sched.c: it has 8 bytes, the kernel's own 4",
    );
    refused(
        "ops = { callback }",
        "ops = { switch_stacks }",
        "ops in sched.c: its first value has changed",
    );
}

#[test]
fn a_function_that_is_called_from_outside_stays() {
    refused(
        "noipa int unused(int i)",
        "noipa int unheard(int i)",
        "unused in sched.c: the change has no such function",
    );
}

#[test]
fn a_variant_that_is_called_from_outside_stays_as_it_is() {
    refused(
        "return i * k + counter",
        "return i * k - counter",
        "variant.constprop.0 in sched.c: its code has changed, and the compiler chose",
    );
}

#[test]
fn no_address_of_a_new_function_is_kept() {
    refused(
        "noipa int unused(int i) {",
        "static noipa void fresh(void) { counter += 2; } extern void (*hook_of_rest)(void); \
         noipa int unused(int i) { hook_of_rest = fresh;",
        "unused in sched.c: it has the address of fresh",
    );
}

#[test]
fn layouts_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    let layouts = |source: &str| {
        let o = dir.path().join("types.o");
        fs::write(dir.path().join("types.c"), source).unwrap();
        let run = |command: &mut Command| assert!(command.status().unwrap().success());
        run(Command::new("gcc")
            .args(["-g", "-c", "types.c", "-o"])
            .arg(&o)
            .current_dir(dir.path()));
        let out = dir.path().join("types.btf");
        run(Command::new("pahole")
            .arg(format!("--btf_encode_detached={}", out.display()))
            .arg(&o));
        btf::layouts(&fs::read(out).unwrap()).unwrap()
    };
    let before = layouts("struct rq { int nr; struct rq *next; } rq; struct old { int i; } old;");
    let check = |after: &str, what: Option<&str>| {
        let found = gates::layouts("core.c", &layouts(after), &before);
        match (found, what) {
            (Err(error), Some(what)) => assert!(error.what.starts_with(what), "{error}"),
            (Ok(()), None) => {}
            (found, _) => panic!("{after}: {found:?}"),
        }
    };
    check(
        "struct rq { int nr; struct rq *next; } rq; struct new { int i; } new;",
        None,
    );
    check(
        "struct rq { int nr; int more; struct rq *next; } rq;",
        Some("struct rq in core.c: its layout has changed: more at bit 32: int of 4 bytes is new"),
    );
    check(
        "struct rq { long nr; struct rq *next; } rq;",
        Some("struct rq in core.c: its layout has changed: nr at bit 0: int of 4 bytes is no"),
    );
}

/// The names that a function's relocations have in an object.
fn references(object: &Object, function: &str) -> Vec<String> {
    let symbol = object.symbols.iter().find(|s| s.name == function).unwrap();
    let section = &object.sections[symbol.section().unwrap()];
    let here = section
        .relocations
        .iter()
        .filter(|r| symbol.contains(r.offset));
    here.map(|relocation| {
        let symbol = &object.symbols[relocation.symbol.unwrap()];
        if symbol.name.is_empty() {
            // The compiler names a local function by its section.
            let name = &object.sections[symbol.section().unwrap()].name;
            name.trim_start_matches(".text.").to_owned()
        } else {
            symbol.name.clone()
        }
    })
    .collect()
}

#[test]
fn references_lead_where_they_must() {
    let (found, vmlinux) = extracted(|source| {
        let fresh = "static noipa int fresh(int i) { return i ^ counter; } noipa int entry(int i)";
        source
            .replacen("noipa int entry(int i)", fresh, 1)
            .replacen("internal(i) + 1", "internal(i) + fresh(i)", 1)
    });
    let found = found.unwrap();
    assert_eq!(found.new, ["fresh"]);
    let object = &found.objects[0];
    // Shared data are the kernel's, new functions and replaced ones are called directly.
    let of_entry = references(object, "entry");
    assert_eq!(
        of_entry,
        ["__vmlinux0_counter", "outside_work", "internal", "fresh"]
    );
    assert_eq!(references(object, "fresh"), ["__vmlinux0_counter"]);
    assert_eq!(
        references(object, "uses_hook"),
        ["__vmlinux0_arch_hook", "__vmlinux0_counter"]
    );
    // Constants are the module's; of two static data with one name each function has its own.
    let seen = |function: &str| {
        let names = references(object, function);
        let seen = names.iter().find(|name| name.contains("seen"));
        seen.unwrap().clone()
    };
    assert_ne!(seen("internal"), seen("other"));
    assert!(seen("internal").starts_with("__vmlinux0_seen_DOT_"));
    assert!(references(object, "internal")
        .iter()
        .any(|name| name.ends_with("table")));
    assert!(!object
        .symbols
        .iter()
        .any(|s| s.name == "counter" || s.name == "ops"));

    // The table has each replaced function, and leads to those that are reached from outside.
    let table = object
        .sections
        .iter()
        .find(|s| s.name == extract::TABLE)
        .unwrap();
    let names = table.relocations.iter().map(|relocation| {
        (
            relocation.offset,
            &*object.symbols[relocation.symbol.unwrap()].name,
        )
    });
    let names: HashSet<_> = names.map(|(offset, name)| (offset % 24, name)).collect();
    assert!(names.contains(&(0, "__vmlinux0_internal")) && !names.contains(&(8, "internal")));
    assert!(names.contains(&(0, "__vmlinux0_entry")) && names.contains(&(8, "entry")));
    assert!(!names.contains(&(0, "__vmlinux0_yields")));

    // A written object is the one that was read.
    let again = Object::read(&object.write(), "the object").unwrap();
    assert_eq!(Object::read(&again.write(), "again").unwrap(), again);

    // The last step resolves what is not exported.
    let mut module = again;
    klp::complete(&mut module, &HashSet::from(["outside_work"]), &vmlinux).unwrap();
    let place = |name: &str| {
        module
            .symbols
            .iter()
            .find(|s| s.name == name)
            .map(|s| s.place)
    };
    assert_eq!(place("outside_work"), Some(Place::Undefined));
    assert_eq!(place(".klp.sym.vmlinux.counter,0"), Some(Place::Livepatch));
    let again = Object::read(&module.write(), "the module").unwrap();
    assert_eq!(again.symbols.len(), module.symbols.len());
    let error = klp::complete(&mut object.clone(), &HashSet::new(), &rest_only()).unwrap_err();
    assert!(
        error.what.contains("which the kernel does not have"),
        "{error}"
    );
}

/// A kernel without the scheduler's callees.
fn rest_only() -> Vmlinux {
    let dir = tempfile::tempdir().unwrap();
    let o = compile(dir.path(), "alone", "void alone(void) {}");
    let out = dir.path().join("vmlinux");
    let status = Command::new("ld")
        .args(["--build-id=sha1", "-e", "alone", "-o"])
        .args([&out, &o])
        .status();
    assert!(status.unwrap().success());
    Vmlinux::read(&out).unwrap()
}

#[test]
fn classes_are_those_of_the_boundary() {
    let dir = tempfile::tempdir().unwrap();
    kernel(dir.path());
    let objects = Objects::new(vec![object(&dir.path().join("sched.o"))]);
    let graph = Graph::of(&objects);
    let classes = boundary::classes(&objects, &graph, &Narrow::default());
    let class = |name: &str| {
        let id = graph.functions.iter().position(|f| f.name == name).unwrap();
        classes[id]
    };
    assert_eq!(class("yields"), Class::Kept);
    assert_eq!(class("entry"), Class::Interface);
    assert_eq!(class("internal"), Class::Internal);
}
