// SPDX-License-Identifier: GPL-2.0-only
//! Policies in Baton's language (`NAME.baton`): each is compiled to a crate in Rust, in the cache,
//! which is built as any other policy.

use std::ffi::OsStr;
use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use baton_control::error::{Error, Result};
use baton_control::modules::cache;

use crate::Policy;

/// The source in this language that a path is, or that a policy's directory has.
pub fn source_of(path: &Path) -> Option<PathBuf> {
    let is_source = |path: &Path| path.extension() == Some(OsStr::new("baton")) && path.is_file();
    if is_source(path) {
        return Some(path.to_owned());
    }
    let entries = fs::read_dir(path).ok()?.flatten();
    let mut sources = entries.map(|entry| entry.path()).filter(|it| is_source(it));
    sources.next()
}

/// The source of a policy in this language, by the path of the source or of its directory, or by
/// the policy's name.
pub fn source(text: &str) -> Result<PathBuf> {
    if text.ends_with(".baton") {
        return Ok(PathBuf::from(text));
    }
    source_of(&crate::directory(text)?).ok_or_else(|| {
        Error::user(
            format!("the policy {text} is not written in Baton's language"),
            "give a policy that is: docs/language/README.md says how they look",
        )
    })
}

/// Reads and checks a policy. Its mistakes are shown on standard error.
pub fn compile(file: &Path) -> Result<baton_lang::hir::Policy> {
    let text = fs::read_to_string(file)
        .map_err(|e| Error::file(format!("reading {}", file.display()), &e))?;
    let name = file.file_stem().and_then(OsStr::to_str).unwrap_or_default();
    let shown = shown(file);
    let policy = baton_lang::compile(&text).map_err(|mistakes| wrong(file, &text, &mistakes))?;
    if policy.name != name {
        return Err(Error::policy(
            name,
            format!("{shown} has the policy {}", policy.name),
            format!("name the file {}.baton, or the policy {name}", policy.name),
        ));
    }
    Ok(policy)
}

/// Shows the mistakes of a policy on standard error, and returns the error of the command.
pub fn wrong(file: &Path, text: &str, mistakes: &[baton_lang::Diagnostic]) -> Error {
    let shown = shown(file);
    for mistake in mistakes {
        let with_color = std::io::stderr().is_terminal();
        eprint!("{}", mistake.render(&shown, text, with_color));
    }
    let count = match mistakes.len() {
        1 => "a mistake".to_owned(),
        count => format!("{count} mistakes"),
    };
    Error::policy(
        file.file_stem().and_then(OsStr::to_str).unwrap_or_default(),
        format!("{shown} has {count}, shown above"),
        "mend the first one, and run the same command again",
    )
}

/// A path as the user would write it here.
pub fn shown(file: &Path) -> String {
    let here = std::env::current_dir().ok();
    let inside = here.and_then(|here| file.strip_prefix(here).ok().map(Path::to_owned));
    inside
        .unwrap_or_else(|| file.to_owned())
        .display()
        .to_string()
}

/// The policy of a source, as a crate in the cache. Its files are written only if they change.
pub(crate) fn find(file: &Path) -> Result<Policy> {
    let file = fs::canonicalize(file)
        .map_err(|e| Error::file(format!("reading {}", file.display()), &e))?;
    let policy = compile(&file)?;
    let tree = crate::source()?;
    let base = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let made = baton_lang::crate_of(&policy, base, &tree.display().to_string());
    let dir = cache().join("language").join(&policy.name);
    write(&dir.join("Cargo.toml"), &made.manifest)?;
    write(&dir.join("src/lib.rs"), &made.library)?;
    Ok(Policy {
        name: policy.name,
        dir,
    })
}

/// Writes a file, if its text differs.
fn write(path: &Path, text: &str) -> Result<()> {
    if fs::read_to_string(path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    let failed = |e: std::io::Error| Error::file(format!("writing {}", path.display()), &e);
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(failed)?;
    }
    // Another command may read it meanwhile.
    let new = path.with_extension("new");
    fs::write(&new, text).map_err(failed)?;
    fs::rename(&new, path).map_err(failed)
}
