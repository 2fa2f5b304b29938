// SPDX-License-Identifier: GPL-2.0-only
//! The compiler on any text: it answers, and does not panic. What it makes of a right policy is
//! made of it again from the text that it was printed from.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

const POLICIES: [&str; 5] = [
    "edf/edf",
    "cfs-cwc-flat/cfs_cwc_flat",
    "cfs-cwc/cfs_cwc",
    "lottery/lottery",
    "ule-cwc/ule_cwc",
];

fn policy(name: &str) -> String {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(tree.join("policies").join(format!("{name}.baton"))).unwrap()
}

/// The words of a text, with what is between them.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut last = ' ';
    for c in text.chars() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        if !(is_word(c) && is_word(last)) {
            words.push(String::new());
        }
        words.last_mut().unwrap().push(c);
        last = c;
    }
    words
}

/// A change of a text: a word is left out, written twice, or put in the place of another.
#[derive(Clone, Debug)]
enum Change {
    Drop(prop::sample::Index),
    Double(prop::sample::Index),
    Swap(prop::sample::Index, prop::sample::Index),
    Copy(prop::sample::Index, prop::sample::Index),
}

fn change() -> impl Strategy<Value = Change> {
    let index = || any::<prop::sample::Index>();
    prop_oneof![
        index().prop_map(Change::Drop),
        index().prop_map(Change::Double),
        (index(), index()).prop_map(|(a, b)| Change::Swap(a, b)),
        (index(), index()).prop_map(|(a, b)| Change::Copy(a, b)),
    ]
}

/// The number of cases: `BATON_FUZZ` for a long run.
fn cases() -> u32 {
    let given = std::env::var("BATON_FUZZ").ok();
    given.map_or(2000, |text| text.parse().expect("BATON_FUZZ is a number"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn changed_policies_are_answered(
        which in 0..POLICIES.len(),
        changes in prop::collection::vec(change(), 1..6),
    ) {
        let mut words = words(&policy(POLICIES[which]));
        for change in changes {
            match change {
                Change::Drop(at) => drop(words.remove(at.index(words.len()))),
                Change::Double(at) => {
                    let at = at.index(words.len());
                    words.insert(at, words[at].clone());
                }
                Change::Swap(a, b) => {
                    let (a, b) = (a.index(words.len()), b.index(words.len()));
                    words.swap(a, b);
                }
                Change::Copy(a, b) => {
                    let (a, b) = (a.index(words.len()), b.index(words.len()));
                    words[a] = words[b].clone();
                }
            }
        }
        answer(&words.concat());
    }

    #[test]
    fn any_text_is_answered(text in ".{0,200}") {
        answer(&text);
    }

    #[test]
    fn any_tokens_are_answered(
        tokens in prop::collection::vec(
            prop::sample::select(vec![
                "scheduler", "x", "{", "}", "(", ")", ";", "=", "=>", "thread", "core", "on", "if",
                "else", "foreach", "in", "first", "order", "lowest", "steal", "1", "2ms", "+", "-",
                "/", "!", "valid", "return", "param", "int", "time", "READY", "queue", "RUNNING",
                ".", ",", "..", "enum", "const", "&&",
            ]),
            0..80,
        ),
    ) {
        answer(&format!("scheduler p {{ {} }}", tokens.join(" ")));
    }
}

/// The compiler's answer; a policy is written as a crate, as goals and as a module for Why3, and a
/// message is drawn.
fn answer(text: &str) {
    match baton_lang::compile(text) {
        Ok(policy) => {
            let made = baton_lang::crate_of(&policy, "p.baton", "..");
            assert!(made.library.contains("impl Rules for"));
            let module = baton_lang::obligations::why3_module(&policy);
            assert_eq!(module.is_some(), policy.steal.is_some());
            let goals = baton_lang::obligations::goals(&policy);
            assert!(goals
                .iter()
                .all(|goal| goal.script.ends_with("(check-sat)\n")));
        }
        Err(diagnostics) => {
            assert!(!diagnostics.is_empty());
            for diagnostic in diagnostics {
                assert!(diagnostic.span.begin <= diagnostic.span.end);
                assert!(diagnostic.span.end <= text.len());
                let _ = diagnostic.render("p.baton", text, false);
            }
        }
    }
}
