// SPDX-License-Identifier: GPL-2.0-only
//! The theory of `lang/proofs`, which Why3 gives to its provers, goal by goal, from the beginning.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use baton_lang::obligations::{goals, why3_module, Property};
use baton_lang::prover::{decide, Verdict};

use crate::{language, steps::cannot_run, Result};

/// In the order in which they are tried for a goal.
const PROVERS: [&str; 2] = ["Z3,,", "CVC4,,"];

/// The time of a prover for a goal of the theory, s. The slowest takes a third of it.
const LIMIT: u32 = 6;

/// The same for a goal of a policy.
const LIMIT_OF_POLICIES: u32 = 1;

/// Fails if a goal of the theory is not proved.
pub fn check(root: &Path) -> Result {
    let theory = root.join("lang/proofs");
    let entries = fs::read_dir(&theory).map_err(|e| format!("{}: {e}", theory.display()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|it| it == "mlw"))
        .collect();
    files.sort();
    for file in files {
        let begun = Instant::now();
        let goals = prove(&theory, &file, LIMIT)?;
        let name = file.file_name().unwrap_or_default().display();
        println!(
            "   {name}: {goals} goals, {:.1} s",
            begun.elapsed().as_secs_f64()
        );
    }
    policies(root, &theory)
}

/// Gives the goals of the tree's policies to Why3, as what the theory assumes. Fails if a policy is
/// proved by one way and not by the other.
fn policies(root: &Path, theory: &Path) -> Result {
    let dir = tempfile::tempdir().map_err(|e| format!("a temporary directory: {e}"))?;
    for source in language::sources(root)? {
        let shown = source.display();
        let text = fs::read_to_string(&source).map_err(|e| format!("{shown}: {e}"))?;
        let policy = baton_lang::compile(&text).map_err(|_| format!("{shown} has mistakes"))?;
        let Some(module) = why3_module(&policy) else {
            continue;
        };
        let begun = Instant::now();
        let file = dir.path().join(format!("{}.mlw", policy.name));
        fs::write(&file, module).map_err(|e| format!("{}: {e}", file.display()))?;
        let by_why3 = prove(theory, &file, LIMIT_OF_POLICIES);
        let mut holds = true;
        let of_balancing = goals(&policy).into_iter();
        for goal in of_balancing.filter(|goal| goal.property == Property::Balancing) {
            let verdict = decide(&goal).map_err(|e| format!("{shown}: {e}"))?;
            holds &= verdict == Verdict::Holds;
        }
        if holds != by_why3.is_ok() {
            return Err(format!(
                "{shown}: its goals hold: {holds} by z3 alone, and by why3: {by_why3:?}"
            ));
        }
        let what = if holds { "holds" } else { "does not hold" };
        let seconds = begun.elapsed().as_secs_f64();
        println!("   {}: {what} by both ways, {seconds:.1} s", policy.name);
    }
    Ok(())
}

/// Proves the goals of a file, which may use the theory's modules. Returns their number. `limit` is
/// the time of a prover for each, s.
fn prove(theory: &Path, file: &Path, limit: u32) -> Result<usize> {
    // The list of provers: Why3 reads it from a file, and finds them itself.
    let dir = tempfile::tempdir().map_err(|e| format!("a temporary directory: {e}"))?;
    let config = dir.path().join("why3.conf");
    let why3 = |arguments: &[&str]| {
        let mut command = Command::new("why3");
        let command = command.env("WHY3CONFIG", &config).args(arguments);
        command.output().map_err(|e| cannot_run("why3", &e))
    };
    why3(&["config", "detect"])?;
    let (library, path) = (theory.display().to_string(), file.display().to_string());
    let limit = limit.to_string();
    // The goals that no prover has proved yet, with what the last one said.
    let mut left: Option<Vec<(usize, Value)>> = None;
    let mut count = 0;
    for prover in PROVERS {
        let arguments = ["prove", "-L", &library, "-a", "split_vc", "-t", &limit];
        let output = why3(&[&arguments[..], &["--json", "-P", prover, &path]].concat())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let said = String::from_utf8_lossy(&output.stderr);
        let goals = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        let goals: Vec<Value> = goals
            .collect::<std::result::Result<_, _>>()
            .map_err(|e| format!("{path}: why3 prints what is no result ({e}): {text}{said}"))?;
        if goals.is_empty() {
            return Err(format!("{path}: why3 has found no goal: {said}"));
        }
        count = goals.len();
        let open = goals.into_iter().enumerate().filter(|(index, goal)| {
            let was_open = |left: &Vec<(usize, Value)>| left.iter().any(|(it, _)| it == index);
            left.as_ref().is_none_or(was_open) && answer(goal) != "Valid"
        });
        let open: Vec<_> = open.collect();
        if open.is_empty() {
            left = None;
            break;
        }
        left = Some(open);
    }
    match left.iter().flatten().next() {
        None => Ok(count),
        Some((_, goal)) => Err(format!(
            "{path}:{}: the goal {} is not proved: {}",
            goal["term"]["loc"]["start-line"],
            goal["term"]["goal_name"],
            answer(goal)
        )),
    }
}

/// What a prover says of a goal.
fn answer(goal: &Value) -> &Value {
    &goal["prover-result"]["answer"]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proved(text: &str) -> Result<usize> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("test.mlw");
        fs::write(&file, text).unwrap();
        let theory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lang/proofs");
        prove(&theory, &file, 2)
    }

    #[test]
    fn what_does_not_follow_is_not_proved() {
        let uses = "module Test use core.Core\n";
        let right = format!("{uses} goal g: forall c. inv c -> idle c -> c.sum = 0 end\n");
        assert_eq!(proved(&right), Ok(1));
        // A core with a thread that comes shows one more.
        let wrong = format!("{uses} goal g: forall c. inv c -> c.count = c.nr end\n");
        assert!(proved(&wrong)
            .unwrap_err()
            .contains(":2: the goal \"g\" is not proved"));
        assert!(proved("module Test goal end\n").is_err());
    }

    /// The theory's own assumptions do not contradict each other.
    #[test]
    fn nothing_follows_from_nothing() {
        for module in ["balance.Balance", "placement.Placement", "turns.Turns"] {
            let text = format!("module Test use {module}\n goal g: false end\n");
            let refused = proved(&text).unwrap_err();
            assert!(refused.contains("is not proved"), "{module}: {refused}");
        }
    }
}
