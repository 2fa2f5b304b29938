// SPDX-License-Identifier: GPL-2.0-only
//! `baton new`: a policy that builds, copied from policies/template or, in C, policies/fifo-c.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::print;
use crate::cli::{Language, New};
use baton_control::error::{Error, Result};

pub fn new(args: &New) -> Result<ExitCode> {
    let (name, source) = (&args.name, baton_build::source()?);
    let parent = fs::canonicalize(&args.dir)
        .map_err(|e| Error::file(format!("looking for {}", args.dir.display()), &e))?;
    let dir = parent.join(name);
    fs::create_dir(&dir).map_err(|e| Error::file(format!("making {}", dir.display()), &e))?;
    let (file, how) = match args.lang {
        Language::Rust => {
            copy(&source.join("policies/template"), &dir, name)?;
            let api = path_to(&dir, &source.join("policy/api"), &source);
            write(&dir.join("Cargo.toml"), &manifest(name, &api))?;
            (String::new(), "src/lib.rs says how it works")
        }
        Language::C => {
            let template = source.join("policies/fifo-c/fifo-c.c");
            let text = fs::read_to_string(&template)
                .map_err(|e| Error::file(format!("reading {}", template.display()), &e))?;
            write(&dir.join(format!("{name}.c")), &renamed_c(&text, name))?;
            (format!("{name}.c"), "docs/c.md says how it works")
        }
    };
    let shown = args.dir.join(name);
    let shown = shown.strip_prefix(".").unwrap_or(&shown);
    let in_ = match args.lang {
        Language::Rust => shown.to_path_buf(),
        Language::C => shown.join(file),
    };
    // Such a policy can be found by its name only from the directory that contains it.
    let policy = if args.dir == Path::new(".") {
        name.clone()
    } else {
        shown.display().to_string()
    };
    print(format!(
        "The policy {name} is in {}; {how}.\n\n\
         build it:       baton build {policy}\n\
         try it out:     baton vm run -p {policy} -- hackbench\n\
         and here:       baton run -p {name} -- hackbench       (where `baton doctor` says that \
         this kernel can)\n",
        in_.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Replaces the name of `fifo_c`, also in the names of its functions, and leaves out the remark
/// that compares it with another policy.
fn renamed_c(text: &str, name: &str) -> String {
    let text = match (
        text.find(" *\n * These are the rules of"),
        text.find("\n */\n"),
    ) {
        (Some(remark), Some(end)) => format!("{}{}", text[..remark].trim_end(), &text[end..]),
        _ => text.to_owned(),
    };
    // The names of types and functions, and `fifo_c` itself.
    let text = text.replace("fifo_core", "fifo_CORE");
    text.replace("fifo_c", name)
        .replace("fifo_CORE", &format!("{name}_core"))
        .replace("fifo_", &format!("{name}_"))
}

/// The manifest of a package that belongs to no workspace, wherever it is.
fn manifest(name: &str, api: &Path) -> String {
    format!(
        "# SPDX-License-Identifier: GPL-2.0-only\n\
         [package]\n\
         name = \"{name}\"\n\
         version = \"0.1.0\"\n\
         edition = \"2021\"\n\
         license = \"GPL-2.0-only\"\n\
         publish = false\n\n\
         [dependencies]\n\
         # The interface of policies. A policy needs nothing else of Baton.\n\
         baton = {{ path = {:?} }}\n\n\
         [workspace]\n",
        api.display().to_string()
    )
}

/// A relative path inside the source tree, so that the whole tree can be moved; from elsewhere an
/// absolute path.
fn path_to(from: &Path, to: &Path, source: &Path) -> PathBuf {
    let source = fs::canonicalize(source).unwrap_or_else(|_| source.to_path_buf());
    match (from.strip_prefix(&source), to.strip_prefix(&source)) {
        (Ok(from), Ok(to)) => from
            .components()
            .map(|_| Path::new(".."))
            .collect::<PathBuf>()
            .join(to),
        _ => to.to_path_buf(),
    }
}

/// Copies all files of the template except its manifest, and replaces the old name by the new one.
fn copy(template: &Path, dir: &Path, name: &str) -> Result<()> {
    let entries = fs::read_dir(template)
        .map_err(|e| Error::file(format!("reading {}", template.display()), &e))?;
    for entry in entries.flatten() {
        let (from, to) = (entry.path(), dir.join(entry.file_name()));
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            if entry.file_name() == "target" {
                continue;
            }
            fs::create_dir(&to).map_err(|e| Error::file(format!("making {}", to.display()), &e))?;
            copy(&from, &to, name)?;
        } else if !["Cargo.toml", "Cargo.lock"].contains(&entry.file_name().to_str().unwrap_or(""))
        {
            let text = fs::read_to_string(&from)
                .map_err(|e| Error::file(format!("reading {}", from.display()), &e))?;
            write(&to, &renamed(&text, name))?;
        }
    }
    Ok(())
}

/// Replaces the word where it is the template's name: in quotes, in a path of Rust, in its own
/// constant.
fn renamed(text: &str, name: &str) -> String {
    let text = text
        .replace("`template`", &format!("`{name}`"))
        .replace("template::", &format!("{name}::"));
    let lines = text.split_inclusive('\n').map(|line| {
        match line.split_once("const NAME: &'static str = \"") {
            Some((before, after)) => {
                let rest = after.split_once('"').map_or("", |(_, rest)| rest);
                format!("{before}const NAME: &'static str = \"{name}\"{rest}")
            }
            None => line.to_owned(),
        }
    });
    lines.collect()
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|e| Error::file(format!("writing {}", path.display()), &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_where_they_are_names() {
        let check = |text: &str, expected: &str| assert_eq!(renamed(text, "mine"), expected);
        check(
            "    const NAME: &'static str = \"template\";\n// x\n",
            "    const NAME: &'static str = \"mine\";\n// x\n",
        );
        check(
            "//! `template`: a template of a policy",
            "//! `mine`: a template of a policy",
        );
        check("use template::Policy;", "use mine::Policy;");
    }

    #[test]
    fn a_new_policy_in_c_is_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let args = New {
            name: "mine".into(),
            lang: Language::C,
            dir: dir.path().to_path_buf(),
        };
        new(&args).unwrap();
        let policy = baton_build::Policy::find(dir.path().join("mine").to_str().unwrap()).unwrap();
        assert_eq!(policy.name, "mine");
        let source = fs::read_to_string(policy.dir.join("mine.c")).unwrap();
        assert!(source.contains("BATON_POLICY(mine);"), "{source}");
        assert!(source.contains("static void mine_schedule("), "{source}");
        assert!(source.contains("struct mine_core {"), "{source}");
        assert!(!source.contains("fifo_"), "{source}");
        assert!(!source.contains("These are the rules"), "{source}");
    }

    #[test]
    fn the_api_is_found_from_where_the_policy_is() {
        let check = |from: &str, expected: &str| {
            let path = path_to(
                Path::new(from),
                Path::new("/no/baton/policy/api"),
                Path::new("/no/baton"),
            );
            assert_eq!(path, Path::new(expected));
        };
        check("/no/baton/policies/mine", "../../policy/api");
        check("/home/me/mine", "/no/baton/policy/api");
    }

    #[test]
    fn a_new_policy_is_a_whole_package() {
        let dir = tempfile::tempdir().unwrap();
        let args = New {
            name: "mine".into(),
            lang: Language::Rust,
            dir: dir.path().to_path_buf(),
        };
        assert_eq!(
            format!("{:?}", new(&args).unwrap()),
            format!("{:?}", ExitCode::SUCCESS)
        );
        let policy = baton_build::Policy::find(dir.path().join("mine").to_str().unwrap()).unwrap();
        assert_eq!(policy.name, "mine");
        let source = fs::read_to_string(policy.dir.join("src/lib.rs")).unwrap();
        assert!(
            source.contains("const NAME: &'static str = \"mine\";"),
            "{source}"
        );
        assert!(new(&args)
            .unwrap_err()
            .to_string()
            .contains("choose another name"));
    }
}
