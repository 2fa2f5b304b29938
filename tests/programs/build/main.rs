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
    for seed in first..end {
        let text = generate::program(seed);
        let policy = baton_lang::compile(&text).unwrap_or_else(|mistakes| {
            let name = format!("seed {seed}");
            let shown = mistakes.iter().map(|it| it.render(&name, &text, false));
            panic!("{}{text}", shown.collect::<String>());
        });
        let library = baton_lang::crate_of(&policy, "it", "").library;
        // Attributes of a crate, and its documentation, do not go into a module.
        let lines = library
            .lines()
            .filter(|it| !it.starts_with("#![") && !it.starts_with("//!"));
        let module: String = lines.map(|line| format!("{line}\n")).collect();
        write(format!("p{seed}.rs"), &module);
        write(format!("p{seed}.baton"), &text);
        writeln!(
            modules,
            "#[allow(warnings, clippy::all)]\nmod p{seed} {{\n    include!(concat!(env!(\"OUT_DIR\"), \
             \"/p{seed}.rs\"));\n}}"
        )
        .unwrap();
        writeln!(
            list,
            "    Program {{\n        seed: {seed},\n        text: include_str!(concat!(env!(\"OUT_DIR\"), \
             \"/p{seed}.baton\")),\n        compiled: \
             Policy::linked(baton_native::module!(p{seed}::BatonPolicy)),\n    }},"
        )
        .unwrap();
    }
    let text = format!(
        "{modules}\n/// The programs of this build.\npub const PROGRAMS: &[Program] = \
         &[\n{list}];\n"
    );
    write("programs.rs".into(), &text);
}
