// SPDX-License-Identifier: GPL-2.0-only
//! `baton fmt`.

use std::fs;
use std::process::ExitCode;

use baton_build::language;
use baton_control::error::{Error, Result};

use crate::cli::Fmt;

pub fn fmt(args: &Fmt) -> Result<ExitCode> {
    let mut is_formatted = true;
    for file in &args.files {
        let text = fs::read_to_string(file)
            .map_err(|e| Error::file(format!("reading {}", file.display()), &e))?;
        let formatted = baton_lang::format(&text)
            .map_err(|mistakes| language::wrong(file, &text, &mistakes))?;
        if formatted == text {
            continue;
        }
        if args.check {
            eprintln!("baton: {} is not formatted", file.display());
            is_formatted = false;
        } else {
            fs::write(file, formatted)
                .map_err(|e| Error::file(format!("writing {}", file.display()), &e))?;
        }
    }
    Ok(if is_formatted {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}
