// SPDX-License-Identifier: GPL-2.0-only
//! The theory of `lang/proofs`, which Why3 gives to its provers, goal by goal, from the beginning.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use crate::{steps::cannot_run, Result};

/// In the order in which they are tried for a goal.
const PROVERS: [&str; 2] = ["Z3,,", "CVC4,,"];

/// The time of a prover for a goal, s. None takes a tenth of it.
const LIMIT: &str = "10";

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
        let goals = prove(&theory, &file)?;
        let name = file.file_name().unwrap_or_default().display();
        println!(
            "   {name}: {goals} goals, {:.1} s",
            begun.elapsed().as_secs_f64()
        );
    }
    Ok(())
}

/// Proves the goals of a file, which may use the theory's modules. Returns their number.
fn prove(theory: &Path, file: &Path) -> Result<usize> {
    // The list of provers: Why3 reads it from a file, and finds them itself.
    let config = std::env::temp_dir().join(format!("baton-why3-{}.conf", std::process::id()));
    let why3 = |arguments: &[&str]| {
        let mut command = Command::new("why3");
        let command = command.env("WHY3CONFIG", &config).args(arguments);
        command.output().map_err(|e| cannot_run("why3", &e))
    };
    why3(&["config", "detect"])?;
    let (library, path) = (theory.display().to_string(), file.display().to_string());
    // The goals that no prover has proved yet, with what the last one said.
    let mut left: Option<Vec<(usize, Value)>> = None;
    let mut count = 0;
    for prover in PROVERS {
        let arguments = ["prove", "-L", &library, "-a", "split_vc", "-t", LIMIT];
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
    let _ = fs::remove_file(&config);
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
        prove(&theory, &file)
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
        for module in ["balance.Balance", "placement.Placement"] {
            let text = format!("module Test use {module}\n goal g: false end\n");
            assert!(proved(&text).is_err(), "{module}");
        }
    }
}
