// SPDX-License-Identifier: GPL-2.0-only
//! Writes random programs, and what the compiler makes of them, as modules of the crate.
//!
//! `BATON_PROGRAMS=FIRST..END` are the seeds; the default is a short form.

mod generate;

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-env-changed=BATON_PROGRAMS");
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=src/timer.baton");
    let range = env::var("BATON_PROGRAMS").unwrap_or("0..60".into());
    let (first, end) = range
        .split_once("..")
        .expect("BATON_PROGRAMS is FIRST..END");
    let [first, end] = [first, end].map(|it| it.parse::<u64>().expect("a seed is a number"));
    let out = env::var("OUT_DIR").expect("cargo gives the directory");
    let out = Path::new(&out);
    let write = |name: String, text: &str| {
        fs::write(out.join(name), text).expect("the directory can be written");
    };
    let mut modules = String::new();
    let mut list = String::new();
    // The module of a program. Attributes of a crate, and its documentation, do not go into one.
    let mut module = |name: &str, text: &str| {
        let policy = baton_lang::compile(text).unwrap_or_else(|mistakes| {
            let shown = mistakes.iter().map(|it| it.render(name, text, false));
            panic!("{}{text}", shown.collect::<String>());
        });
        let library = baton_lang::crate_of(&policy, "it", "").library;
        let lines = library
            .lines()
            .filter(|it| !it.starts_with("#![") && !it.starts_with("//!"));
        let body: String = lines.map(|line| format!("{line}\n")).collect();
        write(format!("{name}.rs"), &body);
        writeln!(
            modules,
            "#[allow(warnings, clippy::all)]\nmod {name} {{\n    include!(concat!(env!(\"OUT_DIR\"), \
             \"/{name}.rs\"));\n}}"
        )
        .unwrap();
    };
    let timer = fs::read_to_string("src/timer.baton").expect("it is in the tree");
    module("timer", &timer);
    for seed in first..end {
        let (name, text) = (format!("p{seed}"), generate::program(seed));
        module(&name, &text);
        write(format!("{name}.baton"), &text);
        writeln!(
            list,
            "    Program {{\n        seed: {seed},\n        text: include_str!(concat!(env!(\"OUT_DIR\"), \
             \"/{name}.baton\")),\n        compiled: \
             Policy::linked(baton_native::module!({name}::BatonPolicy)),\n    }},"
        )
        .unwrap();
    }
    let text = format!(
        "{modules}\n/// The programs of this build.\npub const PROGRAMS: &[Program] = \
         &[\n{list}];\n"
    );
    write("programs.rs".into(), &text);
}
