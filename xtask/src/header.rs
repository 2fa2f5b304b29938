// SPDX-License-Identifier: GPL-2.0-only
//! `policy/c/baton.h`, made from the crate `policy/abi` so that Rust and C have one definition.

use crate::Result;
use std::{fs, path::Path};

const SOURCE: &str = "policy/abi/src";
const CONFIGURATION: &str = "policy/abi/cbindgen.toml";
const HEADER: &str = "policy/c/baton.h";

/// `cargo xtask header`.
pub fn write(root: &Path) -> Result {
    let text = generate(root)?;
    fs::write(root.join(HEADER), text).map_err(|e| format!("cannot write {HEADER}: {e}"))?;
    println!("{HEADER} written");
    Ok(())
}

/// Fails when the header in the tree is not what its source makes.
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

/// The header's text.
fn generate(root: &Path) -> Result<String> {
    let mut config = cbindgen::Config::from_file(root.join(CONFIGURATION))
        .map_err(|e| format!("cbindgen does not take {CONFIGURATION}: {e}"))?;
    let sources = sources(root)?;
    let names: Vec<(&str, String)> = sources.iter().flat_map(|(_, text)| types(text)).collect();
    config.export.include = names.iter().map(|(rust, _)| (*rust).into()).collect();
    config.export.rename = names
        .iter()
        .map(|(rust, c)| ((*rust).into(), c.clone()))
        .collect();
    let builder = sources.iter().fold(
        cbindgen::Builder::new().with_config(config),
        |builder, (path, _)| builder.with_src(path),
    );
    let bindings = builder
        .generate()
        .map_err(|e| format!("cbindgen does not take {SOURCE}: {e}"))?;
    let mut header = Vec::new();
    bindings.write(&mut header);
    let header = String::from_utf8(header)
        .map_err(|e| format!("cbindgen wrote a header that is not UTF-8: {e}"))?;
    Ok(in_c_terms(&header, &names))
}

/// The files of the crate, the root first, and their texts.
fn sources(root: &Path) -> Result<Vec<(std::path::PathBuf, String)>> {
    let directory =
        fs::read_dir(root.join(SOURCE)).map_err(|e| format!("cannot read {SOURCE}: {e}"))?;
    let mut paths: Vec<_> = directory
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort_by_key(|path| (!path.ends_with("lib.rs"), path.clone()));
    let read = |path: std::path::PathBuf| match fs::read_to_string(&path) {
        Ok(text) => Ok((path, text)),
        Err(e) => Err(format!("cannot read {}: {e}", path.display())),
    };
    paths.into_iter().map(read).collect()
}

/// The public types of a source, with their C names.
fn types(source: &str) -> Vec<(&str, String)> {
    let declared = source.lines().filter_map(|line| {
        let rest = ["struct", "enum", "type"]
            .iter()
            .find_map(|kind| line.strip_prefix(&format!("pub {kind} ")))?;
        rest.split(|c: char| !c.is_alphanumeric()).next()
    });
    declared.map(|name| (name, snake_case(name))).collect()
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

/// Comments come over as they are in Rust: C names for those of types, and neither links nor
/// fences. Tabs, as in the kernel.
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
            u64;\n#[repr(C)]\npub enum BatonFaultKind {";
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
