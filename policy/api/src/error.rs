// SPDX-License-Identifier: GPL-2.0-only
//! The error type of policies.

use alloc::{borrow::Cow, string::String};
use core::fmt;

/// The reason why a policy cannot be created, as one line for the user. It names the problem and
/// the option. The host shows at most 159 bytes.
///
/// Created from a string literal or, if the line contains a value, from `alloc::format!`:
/// `Err("no CPU is left".into())`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Cow<'static, str>);

impl Error {
    /// The line.
    pub fn message(&self) -> &str {
        &self.0
    }
}

impl From<&'static str> for Error {
    fn from(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl From<String> for Error {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for Error {}
