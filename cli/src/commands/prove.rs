// SPDX-License-Identifier: GPL-2.0-only
//! `baton prove`.

use std::fs;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use baton_build::language;
use baton_control::error::{Error, Result};
use baton_control::output::{print, print_json};
use baton_lang::hir::Policy;
use baton_lang::obligations::{goals, has_unit_loads, why3_module, Property};
use baton_lang::prover::{decide, explained, ProverError, Verdict};
use serde::Serialize;

use crate::cli::Prove;

/// What was found of a policy.
#[derive(Serialize)]
struct Report {
    policy: String,
    properties: Vec<Row>,
}

/// A property, as the table has it.
#[derive(Serialize)]
struct Row {
    property: &'static str,
    /// `proved`, `fails`, `open`, `by construction` or `not claimed`.
    result: &'static str,
    by: String,
}

pub fn prove(args: &Prove) -> Result<ExitCode> {
    let mut all_hold = true;
    let mut reports = Vec::new();
    for text in &args.policies {
        let source = language::source(text)?;
        let policy = language::compile(&source)?;
        if let Some(dir) = &args.why3 {
            write_module(&policy, dir)?;
        }
        let (report, holds) = one(policy, &source)?;
        all_hold &= holds;
        reports.push(report);
    }
    if args.output.json {
        print_json(&reports)?;
    } else {
        reports.iter().try_for_each(|report| print(table(report)))?;
    }
    Ok(if all_hold {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

/// Writes a policy's goals for Why3.
fn write_module(policy: &Policy, dir: &Path) -> Result<()> {
    let Some(module) = why3_module(policy) else {
        let what = format!("{} does not balance: it has no goals for Why3", policy.name);
        return Err(Error::user(what, "give a policy with a steal block"));
    };
    let file = dir.join(format!("{}.mlw", policy.name));
    fs::write(&file, module).map_err(|e| Error::file(format!("writing {}", file.display()), &e))?;
    eprintln!("baton: {} written", file.display());
    Ok(())
}

fn one(policy: Policy, file: &Path) -> Result<(Report, bool)> {
    let text = fs::read_to_string(file)
        .map_err(|e| Error::file(format!("reading {}", file.display()), &e))?;
    let shown = language::shown(file);
    let goals = goals(&policy);
    let mut found = Vec::new();
    for (number, goal) in (1..).zip(&goals) {
        let begun = Instant::now();
        let verdict = decide(goal).map_err(|why| unproved(&policy.name, &why))?;
        eprintln!(
            "baton: {}: goal {number} of {}, {}: {} ({} ms)",
            policy.name,
            goals.len(),
            goal.name,
            word(&verdict),
            begun.elapsed().as_millis()
        );
        if let Some(diagnostic) = explained(goal, &verdict) {
            eprint!(
                "{}",
                diagnostic.render(&shown, &text, std::io::stderr().is_terminal())
            );
        }
        found.push(verdict);
    }
    let mut properties = vec![
        Row {
            property: "no thread is lost, or runs twice",
            result: "by construction",
            by: "each handler moves its thread once on each path; the host checks tokens".into(),
        },
        Row {
            property: "no deadlock, and no endless loop",
            result: "by construction",
            by: "one lock at a time; loops are over sets and queues; no recursion".into(),
        },
    ];
    let loads = if has_unit_loads(&policy) {
        "each load is 1"
    } else {
        "any loads"
    };
    for property in Property::ALL {
        let of: Vec<&Verdict> = goals
            .iter()
            .zip(&found)
            .filter(|(goal, _)| goal.property == property)
            .map(|(_, verdict)| verdict)
            .collect();
        let (result, by) = if of.is_empty() {
            ("not claimed", property.why_not().to_owned())
        } else if of.iter().all(|verdict| **verdict == Verdict::Holds) {
            let wakers = if goals
                .iter()
                .any(|it| it.property == property && it.trusts_wakers())
            {
                "; assumes that a waker with is_sync() sleeps next"
            } else {
                ""
            };
            let loads = match property {
                Property::Turns => "while balancing moves no thread to or from the core",
                Property::Balancing | Property::Placement => loads,
            };
            ("proved", format!("{} goals, z3; {loads}{wakers}", of.len()))
        } else if of
            .iter()
            .any(|verdict| matches!(verdict, Verdict::Fails(_)))
        {
            ("fails", "see above".to_owned())
        } else {
            ("open", "see above; no violation is known".to_owned())
        };
        properties.push(Row {
            property: property.text(),
            result,
            by,
        });
        if (property, result) == (Property::Balancing, "proved") {
            properties.push(Row {
                property: "one balancing is enough if no thread comes or sleeps meanwhile",
                result: "follows",
                by: "from balancing".into(),
            });
            properties.push(Row {
                property: "no group of cores lacks threads beside an overloaded one",
                result: "follows",
                by: "from balancing".into(),
            });
        }
    }
    let holds = found.iter().all(|verdict| *verdict == Verdict::Holds);
    let report = Report {
        policy: policy.name,
        properties,
    };
    Ok((report, holds))
}

fn unproved(policy: &str, why: &ProverError) -> Error {
    match why {
        ProverError::Missing(_) => Error::environment(
            why.to_string(),
            "install it (Debian: z3), or run baton inside Baton's Debian root: vm/enter baton ...",
        ),
        ProverError::Refused(_) => Error::baton(format!("proving {policy}: {why}")),
    }
}

const fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::Fails(_) => "FAILS",
        Verdict::Open { .. } => "OPEN",
    }
}

fn table(report: &Report) -> String {
    let width = |f: fn(&Row) -> usize| report.properties.iter().map(f).max().unwrap_or(0);
    let (first, second) = (
        width(|row| row.property.len()),
        width(|row| row.result.len()),
    );
    let mut text = format!("{}\n", report.policy);
    for row in &report.properties {
        text += &format!(
            "  {:first$}  {:second$}  {}\n",
            row.property, row.result, row.by
        );
    }
    text
}
