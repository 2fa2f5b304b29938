// SPDX-License-Identifier: GPL-2.0-only
//! What the compiler says of wrong policies: each `tests/messages/NAME.baton` gives the text of
//! `NAME.txt`. With `BATON_BLESS=1`, the texts are written anew.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = entries
        .filter(|path| path.extension().is_some_and(|it| it == "baton"))
        .collect();
    found.sort();
    found
}

fn said(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let name = path.file_name().unwrap().to_string_lossy();
    match baton_lang::compile(&text) {
        Ok(_) => panic!("{name} has no mistake"),
        Err(diagnostics) => {
            let shown = diagnostics.iter().map(|it| it.render(&name, &text, false));
            shown.collect()
        }
    }
}

#[test]
fn mistakes_are_explained() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/messages");
    let mut wrong = Vec::new();
    for path in sources(&dir) {
        let expected = path.with_extension("txt");
        let said = format!("# SPDX-License-Identifier: GPL-2.0-only\n{}", said(&path));
        if std::env::var_os("BATON_BLESS").is_some() {
            fs::write(&expected, &said).unwrap();
        }
        if fs::read_to_string(&expected).unwrap_or_default() != said {
            wrong.push(format!("{}:\n{said}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Five mistakes in five places give five messages.
#[test]
fn each_mistake_has_one_message() {
    let source = "scheduler five {
        param int n;
        core { RUNNING thread current; READY queue ready; }
        on new(thread t) { t => raedy; }
        on unblock(thread t) { int x = 1ms; t => ready; }
        on preempt(thread t) { if (t.nice > 0) t => ready; }
        on schedule(core c) { first(ready) => current for 5; }
    }";
    let diagnostics = baton_lang::compile(source).unwrap_err();
    let messages: Vec<&str> = diagnostics.iter().map(|it| it.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "the parameter `n` has no default",
            "there is no `raedy` here",
            "this is a time, not a number",
            "the thread is lost on a path through `preempt`",
            "this is a number, not a time",
        ]
    );
}
