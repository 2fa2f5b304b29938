// SPDX-License-Identifier: GPL-2.0-only
//! Generates `policy/c/baton.h` and `policy/python/baton_abi.py` from the crate `policy/abi`, and
//! `hosts/native/c/table.h` from `policy/seam`, so that all languages share one definition.

use crate::{python, steps::cannot_run, Result};
use baton_abi::{baton_methods, BatonMethod, BATON_FAULT_NAMES, BATON_METHOD_NAMES, REQUESTS};
use std::{fmt::Write, fs, path::Path, process::Command};

const SOURCE: &str = "policy/abi/src/lib.rs";
const CONFIGURATION: &str = "policy/abi/cbindgen.toml";
const TABLE_SOURCE: &str = "policy/seam/src/host_native.rs";
const TABLE_CONFIGURATION: &str = "policy/seam/cbindgen.toml";

/// Writes the text of a file, given the root of the tree.
type Generate = fn(&Path) -> Result<String>;

/// The headers, and what makes the text of each.
const HEADERS: &[(&str, Generate)] = &[
    ("policy/c/baton.h", interface),
    ("policy/python/baton_abi.py", |root| {
        interface(root).map(|header| python::module(&header))
    }),
    ("hosts/native/c/table.h", table),
];

/// `cargo xtask header`.
pub fn write(root: &Path) -> Result {
    for (header, text) in HEADERS {
        let text = text(root)?;
        fs::write(root.join(header), text).map_err(|e| format!("cannot write {header}: {e}"))?;
        println!("{header} written");
    }
    Ok(())
}

/// Fails when a header in the tree differs from the generated one.
pub fn check(root: &Path) -> Result {
    for (header, text) in HEADERS {
        let found = fs::read_to_string(root.join(header))
            .map_err(|e| format!("cannot read {header}: {e}; run `cargo xtask header`"))?;
        if found != text(root)? {
            return Err(format!(
                "{header} is not what its source makes: run `cargo xtask header`"
            ));
        }
    }
    Ok(())
}

/// The configuration of cbindgen in a file.
fn configuration(root: &Path, file: &str) -> Result<cbindgen::Config> {
    cbindgen::Config::from_file(root.join(file))
        .map_err(|e| format!("cbindgen does not take {file}: {e}"))
}

/// The text of a header that cbindgen makes.
fn bound(source: &str, config: cbindgen::Config, file: &Path) -> Result<String> {
    let builder = cbindgen::Builder::new().with_config(config);
    let bindings = builder
        .with_src(file)
        .generate()
        .map_err(|e| format!("cbindgen does not take {source}: {e}"))?;
    let mut header = Vec::new();
    bindings.write(&mut header);
    String::from_utf8(header).map_err(|e| format!("cbindgen wrote a header that is not UTF-8: {e}"))
}

/// The functions that a host in user space provides, as a structure in C.
fn table(root: &Path) -> Result<String> {
    let config = configuration(root, TABLE_CONFIGURATION)?;
    let header = bound(TABLE_SOURCE, config, &root.join(TABLE_SOURCE))?;
    Ok(in_c_terms(&header, &[]))
}

/// The interface of policies.
fn interface(root: &Path) -> Result<String> {
    let mut config = configuration(root, CONFIGURATION)?;
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
    let header = bound(SOURCE, config, &file);
    // A file left in a temporary directory does no harm.
    let _ = fs::remove_file(&file);
    let header = in_c_terms(&header?, &names);
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

/// The methods that take the context of a call: variant, name, types of the arguments, and whether
/// there is an answer.
fn calls() -> Vec<(&'static str, &'static str, Vec<&'static str>, bool)> {
    macro_rules! row {
        (call $variant:ident $name:ident ($($type:ty),*) $($answer:ty)?) => {
            Some((
                stringify!($variant),
                stringify!($name),
                vec![$(stringify!($type)),*],
                !stringify!($($answer)?).is_empty(),
            ))
        };
        ($form:ident $($rest:tt)*) => {
            None
        };
    }
    macro_rules! rows {
        ($(
            $(#[$doc:meta])*
            $variant:ident $name:ident: $need:ident $context:ident
                $form:ident($($argument:ident: $type:ty),*) $(-> $answer:ty)?;
        )*) => {
            [$(row!($form $variant $name ($($type),*) $($answer)?)),*]
        };
    }
    baton_methods!(rows).into_iter().flatten().collect()
}

/// A type of an argument, in C.
fn in_c(rust: &str) -> String {
    match rust {
        "u64" => "uint64_t".into(),
        "i32" => "int32_t".into(),
        "BatonToken" => "baton_token".into(),
        "BatonRefusal" => "enum baton_refusal".into(),
        _ => {
            let name = rust.strip_prefix("* const ");
            let name = name.unwrap_or_else(|| panic!("{rust} has no name in C"));
            format!("const struct {} *", snake_case(name))
        }
    }
}

/// Tables of the crate that cbindgen cannot convert: the numbers of requests, names as initializers
/// of arrays, `X` for each method that a policy must have, and `gives` or `does` for each that
/// takes the context of a call.
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
    writeln!(text, "#define BATON_NEEDED_METHODS(X){needed}\n").expect("a string takes all");
    let calls: String = calls()
        .into_iter()
        .map(|(variant, name, types, has_answer)| {
            let row = if has_answer { "gives" } else { "does" };
            let upper = snake_case(variant).to_uppercase();
            let arguments: String = types
                .iter()
                .zip(["a", "b"])
                .map(|(rust, word)| format!(", ({})({word})", in_c(rust)))
                .collect();
            format!(" \\\n\t{row}({upper}, {name}{arguments})")
        })
        .collect();
    writeln!(
        text,
        "// For each method that takes the context of a call: gives() if it answers, else does(),\n\
         // with its number, its name, and its arguments from the words a and b.\n\
         #define BATON_CALLS(gives, does, a, b){calls}"
    )
    .expect("a string takes all");
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
}
