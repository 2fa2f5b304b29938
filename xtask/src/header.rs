// SPDX-License-Identifier: GPL-2.0-only
//! Generates `policy/c/baton.h` from the crate `policy/abi`, so that Rust and C share one
//! definition.

use crate::{steps::cannot_run, Result};
use baton_abi::{BatonMethod, BATON_FAULT_NAMES, BATON_METHOD_NAMES, REQUESTS};
use std::{fmt::Write, fs, path::Path, process::Command};

const SOURCE: &str = "policy/abi/src/lib.rs";
const CONFIGURATION: &str = "policy/abi/cbindgen.toml";
const HEADER: &str = "policy/c/baton.h";

/// `cargo xtask header`.
pub fn write(root: &Path) -> Result {
    let text = generate(root)?;
    fs::write(root.join(HEADER), text).map_err(|e| format!("cannot write {HEADER}: {e}"))?;
    println!("{HEADER} written");
    Ok(())
}

/// Fails when the header in the tree differs from the generated one.
pub fn check(root: &Path) -> Result {
    match fs::read_to_string(root.join(HEADER)) {
        Ok(text) if text == generate(root)? => Ok(()),
        Ok(_) => Err(format!(
            "{HEADER} is not what policy/abi makes: run `cargo xtask header`"
        )),
        Err(e) => Err(format!(
            "cannot read {HEADER}: {e}; run `cargo xtask header`"
        )),
    }
}

/// Generates the header's text.
fn generate(root: &Path) -> Result<String> {
    let mut config = cbindgen::Config::from_file(root.join(CONFIGURATION))
        .map_err(|e| format!("cbindgen does not take {CONFIGURATION}: {e}"))?;
    let source = expanded(root)?;
    let names = types(&source);
    config.export.include = names.iter().map(|(rust, _)| (*rust).into()).collect();
    config.export.rename = names
        .iter()
        .map(|(rust, c)| ((*rust).into(), c.clone()))
        .collect();
    // cbindgen reads files only.
    let file = std::env::temp_dir().join(format!("baton-abi-{}.rs", std::process::id()));
    fs::write(&file, &source).map_err(|e| format!("cannot write {}: {e}", file.display()))?;
    let builder = cbindgen::Builder::new().with_config(config);
    let bindings = builder.with_src(&file).generate();
    // A file left in a temporary directory does no harm.
    let _ = fs::remove_file(&file);
    let bindings = bindings.map_err(|e| format!("cbindgen does not take {SOURCE}: {e}"))?;
    let mut header = Vec::new();
    bindings.write(&mut header);
    let header = String::from_utf8(header)
        .map_err(|e| format!("cbindgen wrote a header that is not UTF-8: {e}"))?;
    let header = in_c_terms(&header, &names);
    let (before, guard) = header
        .rsplit_once("#endif")
        .ok_or("cbindgen wrote a header without its guard")?;
    Ok(format!("{before}{}\n#endif{guard}", lists()))
}

/// The crate as one file, without macros: cbindgen does not expand them.
fn expanded(root: &Path) -> Result<String> {
    let mut compiler = Command::new("rustc");
    compiler.args([
        "--edition",
        "2021",
        "--crate-type",
        "lib",
        "-Zunpretty=expanded",
        SOURCE,
    ]);
    // The option is for compilers in development.
    compiler.env("RUSTC_BOOTSTRAP", "1").current_dir(root);
    let output = compiler.output().map_err(|e| cannot_run("rustc", &e))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!("rustc does not take {SOURCE}:\n{why}"));
    }
    String::from_utf8(output.stdout).map_err(|e| format!("{SOURCE}, expanded, is not UTF-8: {e}"))
}

/// Tables of the crate that cbindgen cannot convert: the numbers of requests, names as initializers
/// of arrays, and `X` for each method that a policy must have.
fn lists() -> String {
    let mut text =
        String::from("// Requests (ioctls); a number holds the size of its structure.\n");
    for (name, number) in REQUESTS {
        writeln!(text, "#define {name} {number:#010x}U").expect("a string takes all");
    }
    text.push('\n');
    for (name, words) in [
        ("BATON_METHOD_NAMES", BATON_METHOD_NAMES),
        ("BATON_FAULT_NAMES", BATON_FAULT_NAMES),
    ] {
        let words: String = words
            .iter()
            .map(|word| format!(" \\\n\t\"{word}\","))
            .collect();
        writeln!(text, "#define {name} {{{words} \\\n}}\n").expect("a string takes all");
    }
    let needed = BatonMethod::ALL.iter().filter(|method| method.is_needed());
    let needed: String = needed
        .map(|method| format!(" \\\n\tX({})", method.name()))
        .collect();
    writeln!(text, "#define BATON_NEEDED_METHODS(X){needed}").expect("a string takes all");
    text
}

/// The public types of a source that C sees, with their C names.
fn types(source: &str) -> Vec<(&str, String)> {
    let declared = source.lines().filter_map(|line| {
        let rest = ["struct", "enum", "type"]
            .iter()
            .find_map(|kind| line.trim_start().strip_prefix(&format!("pub {kind} ")))?;
        rest.split(|c: char| !c.is_alphanumeric()).next()
    });
    let seen = declared.filter(|name| name.starts_with("Baton"));
    seen.map(|name| (name, snake_case(name))).collect()
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}

/// Converts the comments, which cbindgen copies from Rust: types get their C names, links and
/// fences are removed. Indents with tabs, as in the kernel.
fn in_c_terms(header: &str, names: &[(&str, String)]) -> String {
    let mut text = header
        .replace("[`", "`")
        .replace("`]", "`")
        .replace("`crate::", "`");
    for (rust, c) in names {
        text = text.replace(&format!("`{rust}`"), &format!("`{c}`"));
    }
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("// ```"));
    let with_tabs = |line: &str| {
        let code = line.trim_start();
        let columns = line.len() - code.len();
        "\t".repeat(columns / 8) + &" ".repeat(columns % 8) + code.trim_end() + "\n"
    };
    lines.map(with_tabs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_their_c_names() {
        let source =
            "/// Doc.\npub struct BatonCtx {\n    pub now: u64,\n}\npub type BatonToken = \
            u64;\npub enum Arg {\n}\n#[repr(C)]\npub enum BatonFaultKind {";
        let expected = [
            ("BatonCtx", "baton_ctx"),
            ("BatonToken", "baton_token"),
            ("BatonFaultKind", "baton_fault_kind"),
        ];
        assert_eq!(
            types(source),
            expected.map(|(rust, c)| (rust, c.to_owned()))
        );
    }

    #[test]
    fn comments_name_things_as_c_does() {
        let names = [("BatonCtx", "baton_ctx".to_owned())];
        let rust = "        // See [`crate::BATON_ABI`] and [`BatonCtx`]. \n// ```text\n";
        assert_eq!(
            in_c_terms(rust, &names),
            "\t// See `BATON_ABI` and `baton_ctx`.\n"
        );
    }

    /// The Python client has no header from which to take them.
    #[test]
    fn python_has_the_same_requests() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../policy/python/baton_hints.py");
        let client = fs::read_to_string(file).unwrap();
        for (name, number) in REQUESTS {
            if let Some(short) = name.strip_prefix("BATON_HINTS_IOC_") {
                let expected = format!("\n_{short} = {number:#010x}\n");
                assert!(client.contains(&expected), "no line{expected}");
            }
        }
    }
}
