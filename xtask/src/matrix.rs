// SPDX-License-Identifier: GPL-2.0-only
//! The matrix of faults (tests/booted/src/matrix.rs): methods, kinds of faults, and what else
//! happens.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

use crate::{
    booted::{judged, side_by_side, tested, Built, Job, Shown, ICOUNT, PROGRAM},
    Result,
};

pub const POLICIES: [&str; 5] = ["faulty", "faulty_c", "relay_v1", "relay_v2", "wfq"];

/// The number of guests that try the whole beside each other.
const PARTS: &str = "2";

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

/// The same. Its lines are added to `lines`.
fn part<'a>(built: &'a Built<'_>, lines: &'a Mutex<String>, index: &str) -> Job<'a> {
    let command = command(built, "1", PARTS, index);
    let name = format!("matrix of faults, {index} of {PARTS}");
    Job {
        name: name.clone(),
        run: Box::new(move || {
            let shown = Shown::of(&name, command)?;
            lines
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push_str(&shown.output);
            let counted = shown.counted().unwrap_or_default().to_owned();
            if shown.status.success() {
                Ok(counted)
            } else {
                Err(format!(
                    "{counted} ({})\n{}",
                    shown.status,
                    shown.findings()
                ))
            }
        }),
    }
}

/// What `cargo xtask test` tries: one cell of forty, others each time. The program prints the seed.
pub fn some<'a>(built: &'a Built<'_>) -> Job<'a> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = now.unwrap_or_default().as_secs().to_string();
    let command = command(built, &seed, "40", "0");
    Job {
        name: "matrix of faults".into(),
        run: Box::new(move || tested("matrix of faults", command)),
    }
}

/// `cargo xtask matrix`: the whole, in two guests, and its table.
pub fn whole(root: &Path) -> Result {
    let built = Built::new(root)?;
    let lines = Mutex::default();
    let jobs = ["0", "1"].map(|index| part(&built, &lines, index));
    let done = side_by_side(jobs.into());
    let lines = lines.into_inner().unwrap_or_else(PoisonError::into_inner);
    // A guest that ended early leaves the page as it is.
    if lines.matches(" passed, ").count() == done.len() {
        write(root, &table(&lines))?;
    }
    judged(&done)
}

/// Puts the table into its page.
fn write(root: &Path, table: &str) -> Result {
    let page = root.join(PAGE);
    let failed = |e: std::io::Error| format!("{PAGE}: {e}");
    let text = fs::read_to_string(&page).map_err(failed)?;
    let place = text.find(BEGIN).zip(text.find(END));
    let (begin, end) = place.ok_or(format!("{PAGE} has no place for the matrix"))?;
    let new = text[..begin + BEGIN.len()].to_owned() + table + &text[end..];
    fs::write(&page, new).map_err(failed)
}

/// How many cells ended as expected, which did not, and the number of moments in which each fault
/// was contained in each method.
fn table(lines: &str) -> String {
    let mut cells: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    let mut others = Vec::new();
    for line in lines.lines() {
        let parts: Vec<&str> = line.trim_end().split(" | ").collect();
        match parts[..] {
            ["cell ok", method, fault, ..] => *cells.entry((method, fault)).or_default() += 1,
            ["FAILED  cell", method, fault, rest, ..] => {
                let moment = rest.split(':').next().unwrap_or_default();
                others.push(format!("`{method}` | {fault} | {moment}"));
            }
            _ => {}
        }
    }
    let as_expected: u32 = cells.values().sum();
    let all = as_expected as usize + others.len();
    let mut text = format!("\n{as_expected} of {all} cells ended as expected.\n\n");
    if !others.is_empty() {
        text += "| method | fault | moment in which it did not end as expected |\n";
        text += "| --- | --- | --- |\n";
        text.extend(others.iter().map(|cell| format!("| {cell} |\n")));
        text += "\n";
    }
    text += "| method | faults, and the moments in which each was contained |\n| --- | --- |\n";
    let methods: BTreeSet<&str> = cells.keys().map(|(method, _)| *method).collect();
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
        let table = super::table(lines);
        assert!(table.contains("2 of 3 cells"));
        assert!(table.contains("| `timer` | forever | Alone |\n"));
        assert!(table.contains("| `timer` | index 2 |\n"));
    }
}
