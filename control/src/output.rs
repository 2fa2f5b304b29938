// SPDX-License-Identifier: GPL-2.0-only
//! Standard output, which a reader may close.

use std::io::Write;

use serde::Serialize;

use crate::error::{Error, Result};

/// Prints on standard output. A closed pipe is no error.
pub fn print(text: impl AsRef<[u8]>) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::file("writing to standard output", &e))
        }
        _ => Ok(()),
    }
}

/// Prints as JSON.
pub fn print_json(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Error::baton(format!("the result cannot be written as JSON: {e}")))?;
    print(format!("{text}\n"))
}
