// SPDX-License-Identifier: GPL-2.0-only
//! The matrix of faults (tests/booted/src/matrix.rs): methods, kinds of faults, and what else
//! happens.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use crate::{
    booted::{judged, side_by_side, tested, Built, Done, Job, Shown, ICOUNT, PROGRAM},
    Result,
};

pub const POLICIES: [&str; 5] = ["faulty", "faulty_c", "relay_v1", "relay_v2", "wfq"];

/// Where the table is written.
const PAGE: &str = "docs/faults.md";
const BEGIN: &str = "<!-- cargo xtask matrix -->\n";
const END: &str = "<!-- end of the matrix -->\n";

/// Tries a part of the cells in a guest.
fn command(built: &Built<'_>, seed: &str, parts: &str, index: &str) -> Command {
    let machine = [ICOUNT, "--timeout", "10800", "--cpus", "2"];
    let command = [PROGRAM, "--matrix", seed, parts, index];
    built.guest(&machine, &POLICIES, &command)
}

/// The same. All its lines are returned.
fn part<'a>(built: &'a Built<'_>, seed: &str, parts: &str, index: &str) -> Job<'a> {
    let command = command(built, seed, parts, index);
    let name = format!("matrix of faults, {index} of {parts}");
    Job {
        name: name.clone(),
        run: Box::new(move || {
            let shown = Shown::of(&name, command)?;
            match shown.status.success() {
                true => Ok(shown.output),
                false => Err(format!(
                    "the matrix failed ({})\n{}",
                    shown.status,
                    shown.findings()
                )),
            }
        }),
    }
}

/// What `cargo xtask test` tries: one cell of forty, the same each time.
pub fn some<'a>(built: &'a Built<'_>) -> Job<'a> {
    let command = command(built, "3", "40", "0");
    Job {
        name: "matrix of faults".into(),
        run: Box::new(move || tested("matrix of faults", command)),
    }
}

/// `cargo xtask matrix`: the whole, in two guests, and its table.
pub fn whole(root: &Path) -> Result {
    let built = Built::new(root)?;
    let jobs = ["0", "1"].map(|index| part(&built, "1", "2", index));
    let done = side_by_side(jobs.into());
    let lines: Vec<String> = done.iter().filter_map(|one| one.end.clone().ok()).collect();
    let counted = |text: &str| {
        let line = text.lines().find(|line| line.contains(" passed, "));
        line.unwrap_or_default().to_owned()
    };
    let short: Vec<Done> = done
        .into_iter()
        .map(|one| Done {
            end: one.end.map(|text| counted(&text)),
            ..one
        })
        .collect();
    judged(&short)?;
    let page = root.join(PAGE);
    let failed = |e: std::io::Error| format!("{PAGE}: {e}");
    let text = fs::read_to_string(&page).map_err(failed)?;
    let place = text.find(BEGIN).zip(text.find(END));
    let (begin, end) = place.ok_or(format!("{PAGE} has no place for the matrix"))?;
    let new = text[..begin + BEGIN.len()].to_owned() + &table(&lines.concat()) + &text[end..];
    fs::write(&page, new).map_err(failed)
}

/// The number of moments in which each fault was contained in each method.
fn table(lines: &str) -> String {
    let mut cells: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    for line in lines.lines() {
        let parts: Vec<&str> = line.trim_end().split(" | ").collect();
        if let ["cell ok", method, fault, ..] = parts[..] {
            *cells.entry((method, fault)).or_default() += 1;
        }
    }
    let methods: BTreeSet<&str> = cells.keys().map(|(method, _)| *method).collect();
    let mut text =
        String::from("\n| method | faults, and the moments in which each was contained |\n");
    text += "| --- | --- |\n";
    for method in methods {
        let of_method = cells.iter().filter(|((of, _), _)| *of == method);
        let faults: Vec<String> = of_method
            .map(|((_, fault), count)| format!("{fault} {count}"))
            .collect();
        text += &format!("| `{method}` | {} |\n", faults.join(", "));
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_table_of_two_moments() {
        let lines = "seed 1: 3 of 9 cells\n\
            cell ok | timer | index | Alone | 0.50 s\r\n\
            FAILED  cell | timer | forever | Alone: why\n\
            cell ok | timer | index | Recorded | 1.25 s\n";
        assert!(super::table(lines).contains("| `timer` | index 2 |\n"));
        assert!(!super::table(lines).contains("forever"));
    }
}
