// SPDX-License-Identifier: GPL-2.0-only
//! Errors. Each says what happened, who is at fault, and what to do.

use std::fmt;
use std::process::ExitCode;

/// The result of every fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The party at fault. Exit code 3 is the environment's, 4 a policy's; all others have 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The user who gave the command.
    User,
    /// The machine: its kernel, its programs, its permissions.
    Environment,
    /// The policy of this name.
    Policy(String),
    /// Baton itself. Exit code 1.
    Baton,
}

/// An error that is ready to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub blame: Blame,
    /// What happened: a sentence without a full stop.
    pub what: String,
    /// What to do about it.
    pub next: String,
}

impl Error {
    pub fn user(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self {
            blame: Blame::User,
            what: what.into(),
            next: next.into(),
        }
    }

    pub fn environment(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self {
            blame: Blame::Environment,
            what: what.into(),
            next: next.into(),
        }
    }

    pub fn policy(policy: &str, what: impl Into<String>, next: impl Into<String>) -> Self {
        Self {
            blame: Blame::Policy(policy.into()),
            what: what.into(),
            next: next.into(),
        }
    }

    pub fn baton(what: impl Into<String>) -> Self {
        let next = "this should not happen: report it, with the end of the kernel's log (dmesg)";
        Self {
            blame: Blame::Baton,
            what: what.into(),
            next: next.into(),
        }
    }

    /// An error of a failed file operation. "Not found" is the user's fault, all else that of the
    /// machine.
    pub fn file(doing: impl fmt::Display, error: &std::io::Error) -> Self {
        let what = format!("{doing}: {error}");
        match error.kind() {
            std::io::ErrorKind::NotFound => Self::user(what, "check the path"),
            std::io::ErrorKind::AlreadyExists => {
                Self::user(what, "choose another name, or remove what is there")
            }
            _ => Self::environment(what, "check rights and free space of that place"),
        }
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self.blame {
            Blame::User | Blame::Baton => 1,
            Blame::Environment => 3,
            Blame::Policy(_) => 4,
        })
    }
}

impl fmt::Display for Blame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User => f.write_str("the command given"),
            Self::Environment => f.write_str("this machine"),
            Self::Policy(name) => write!(f, "the policy {name}"),
            Self::Baton => f.write_str("Baton itself"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { blame, what, next } = self;
        write!(f, "{what}\n  at fault: {blame}\n  to do:    {next}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(error: Error, text: &str, code: u8) {
        assert_eq!(error.to_string(), text);
        assert_eq!(
            format!("{:?}", error.exit_code()),
            format!("{:?}", ExitCode::from(code))
        );
    }

    #[test]
    fn errors_name_the_guilty() {
        check(
            Error::user("a", "b"),
            "a\n  at fault: the command given\n  to do:    b",
            1,
        );
        check(
            Error::environment("a", "b"),
            "a\n  at fault: this machine\n  to do:    b",
            3,
        );
        check(
            Error::policy("wfq", "a", "b"),
            "a\n  at fault: the policy wfq\n  to do:    b",
            4,
        );
    }
}
