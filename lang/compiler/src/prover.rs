// SPDX-License-Identifier: GPL-2.0-only
//! Goals are decided by Z3, a process of its own.

use std::fmt;
use std::io::{self, Write};
use std::process::{Command, Stdio};

use crate::diagnostic::Diagnostic;
use crate::obligations::{Goal, SMALL};

/// How long Z3 may take for a goal, s. None takes a tenth of that on any policy of the tree.
const LIMIT: u32 = 10;

/// What became of a goal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Holds,
    /// A counterexample: what has which value.
    Fails(Vec<(String, String)>),
    /// Neither was found in time.
    Open {
        /// It holds in a small machine, with up to [`SMALL`] threads on a core.
        holds_if_small: bool,
    },
}

/// Why a goal was not decided.
#[derive(Debug)]
pub enum ProverError {
    /// There is no Z3.
    Missing(io::Error),
    /// It does not take the script, with what it says.
    Refused(String),
}

impl fmt::Display for ProverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(why) => write!(f, "z3 cannot be run: {why}"),
            Self::Refused(text) => write!(f, "z3 does not take the goal: {text}"),
        }
    }
}

impl std::error::Error for ProverError {}

/// Decides a goal.
pub fn decide(goal: &Goal) -> Result<Verdict, ProverError> {
    decide_within(goal, LIMIT)
}

/// The same, if Z3 may take so many seconds.
pub fn decide_within(goal: &Goal, limit: u32) -> Result<Verdict, ProverError> {
    let verdict = ask(goal, Extent::Whole, limit)?;
    match verdict {
        Verdict::Holds => Ok(verdict),
        // The smallest counterexample tells most, if it is found.
        Verdict::Fails(_) => match ask(goal, Extent::Smallest, limit) {
            Ok(smallest @ Verdict::Fails(_)) => Ok(smallest),
            _ => Ok(verdict),
        },
        // Without products of unknown numbers, most goals can be decided.
        Verdict::Open { .. } => match ask(goal, Extent::Small, limit)? {
            Verdict::Holds => Ok(Verdict::Open {
                holds_if_small: true,
            }),
            verdict => Ok(verdict),
        },
    }
}

/// A goal that does not hold, in the policy's terms.
pub fn explained(goal: &Goal, verdict: &Verdict) -> Option<Diagnostic> {
    let error = |what: &str| Diagnostic::error(goal.span, format!("{what}: {}", goal.must));
    match verdict {
        Verdict::Holds => None,
        Verdict::Open { holds_if_small } => {
            let found = if *holds_if_small {
                format!(
                    "it holds for up to {SMALL} threads on a core, with weight 1024 and the \
                     defaults of all parameters"
                )
            } else {
                "it is not known for small numbers of threads, either".to_owned()
            };
            let help = format!(
                "{found}; `baton check` looks for a violation on whole machines; the solver \
                 decides sooner without products and quotients of attributes"
            );
            Some(error("this was neither proved nor refuted").help(help))
        }
        Verdict::Fails(values) => {
            let steps = (1..).zip(goal.story(values));
            let steps = steps.map(|(number, step)| format!("\n{number}. {step}"));
            let help = format!("for example:{}", steps.collect::<String>());
            Some(error("this does not hold").help(help))
        }
    }
}

/// Of which machines a goal is asked.
enum Extent {
    Whole,
    /// The one with the smallest numbers for which it does not hold.
    Smallest,
    Small,
}

fn ask(goal: &Goal, of: Extent, limit: u32) -> Result<Verdict, ProverError> {
    let before = match of {
        Extent::Whole => String::new(),
        Extent::Smallest => {
            let names: Vec<&str> = goal.shown.iter().map(|(name, _)| name.as_str()).collect();
            format!("(minimize (+ 0 {}))\n", names.join(" "))
        }
        Extent::Small => {
            let small = goal.small.iter();
            small.map(|it| format!("(assert {it})\n")).collect()
        }
    };
    let asked = format!("{before}(check-sat)\n");
    let mut script = goal.script.replace("(check-sat)\n", &asked);
    if !goal.shown.is_empty() {
        let names: Vec<&str> = goal.shown.iter().map(|(name, _)| name.as_str()).collect();
        script.push_str(&format!("(get-value ({}))\n", names.join(" ")));
    }
    let limit = format!("-T:{limit}");
    let mut z3 = Command::new("z3")
        .args(["-in", &limit])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(ProverError::Missing)?;
    if let Some(mut stdin) = z3.stdin.take() {
        // A solver that ends early says why on its output.
        let _ = stdin.write_all(script.as_bytes());
    }
    let output = z3.wait_with_output().map_err(ProverError::Missing)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (answer, rest) = text.split_once('\n').unwrap_or((&text, ""));
    match answer.trim() {
        "unsat" => Ok(Verdict::Holds),
        "sat" => Ok(Verdict::Fails(values(goal, rest))),
        "unknown" | "timeout" => Ok(Verdict::Open {
            holds_if_small: false,
        }),
        other => Err(ProverError::Refused(other.into())),
    }
}

/// The values of what is shown, from `((name value) ..)`. Several reads of one thing have the value
/// of the first.
fn values(goal: &Goal, text: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for (name, what) in &goal.shown {
        let begin = format!("({name} ");
        let Some(at) = text.find(&begin) else {
            continue;
        };
        let rest = &text[at + begin.len()..];
        let value = match rest.strip_prefix("(- ") {
            Some(rest) => rest.split(')').next().map(|value| format!("-{value}")),
            None => rest.split(')').next().map(str::to_owned),
        };
        if let Some(value) = value.filter(|_| !found.iter().any(|(known, _)| known == what)) {
            found.push((what.clone(), value));
        }
    }
    found
}
