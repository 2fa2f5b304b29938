// SPDX-License-Identifier: GPL-2.0-only
//! The steps of `docs/language/tutorial.md`: what the page says of each is so.

use std::fs;
use std::path::Path;

use baton_lang::obligations::goals;
use baton_lang::prover::{decide, Verdict};

/// The first block of the page with this text.
fn block<'p>(page: &'p str, text: &str) -> &'p str {
    let blocks = page.split("```").skip(1).step_by(2);
    let mut found = blocks.filter(|block| block.contains(text));
    found.next().expect("the page has this block")
}

/// The names of the goals that do not hold.
fn fails_at(text: &str) -> Vec<&'static str> {
    let policy = baton_lang::compile(text).expect("it compiles");
    let goals = goals(&policy);
    let fails = |verdict| matches!(verdict, Verdict::Fails(_));
    let failed = goals
        .iter()
        .filter(|it| fails(decide(it).expect("z3 runs")));
    failed.map(|goal| goal.name).collect()
}

#[test]
fn each_step_is_as_the_page_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/language/tutorial.md");
    let page = fs::read_to_string(page).unwrap();
    let first = block(&page, "scheduler turns");
    let placements = ["placement of new", "placement of unblock"];
    assert_eq!(fails_at(first), placements);
    assert!(baton_lang::compile(&first.replacen("t => ready;", "", 1)).is_err());

    let replaced =
        "    on new(thread t) { t => ready; }\n\n    on unblock(thread t) { t => ready; }\n";
    assert!(first.contains(replaced));
    let second = first.replace(replaced, block(&page, "core choose_core"));
    assert!(fails_at(&second).is_empty());

    let steal = block(&page, "steal {");
    let third = format!("{}\n{steal}}}\n", second.trim_end().trim_end_matches('}'));
    assert_eq!(fails_at(&third), ["keep one"]);

    let fourth = third.replace("src.cload > dst.cload", "src.cload - dst.cload >= 2");
    assert!(page.contains("`src.cload - dst.cload >= 2`") && fourth != third);
    assert!(fails_at(&fourth).is_empty());
    assert!(
        fourth
            .lines()
            .filter(|line| !line.trim().is_empty())
            .count()
            <= 40
    );
}
