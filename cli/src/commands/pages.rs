// SPDX-License-Identifier: GPL-2.0-only
//! `baton man` and `baton completions`, from the definition of the command line.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use super::print;
use crate::cli::{Cli, Man};
use baton_control::error::{Error, Result};

pub fn man(args: &Man) -> Result<ExitCode> {
    let mut command = Cli::command();
    if let Some(dir) = &args.dir {
        std::fs::create_dir_all(dir)
            .and_then(|()| clap_mangen::generate_to(command, dir))
            .map_err(|e| Error::file(format!("writing man pages into {}", dir.display()), &e))?;
        return Ok(ExitCode::SUCCESS);
    }
    print(page(&mut command, &args.command)?)?;
    Ok(ExitCode::SUCCESS)
}

/// The man page of a command below `command`, or of `command` itself.
fn page(command: &mut clap::Command, path: &[String]) -> Result<Vec<u8>> {
    command.build();
    let mut command = &*command;
    for name in path {
        command = command.find_subcommand(name).ok_or_else(|| {
            Error::user(
                format!("there is no command '{}'", path.join(" ")),
                "see which there are: baton --help",
            )
        })?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone())
        .render(&mut page)
        .map_err(|e| Error::baton(format!("the man page cannot be written: {e}")))?;
    Ok(page)
}

pub fn completions(shell: Shell) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "baton", &mut script);
    print(script)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn pages_of_commands() {
        let check = |path: &[&str], word: Option<&str>| {
            let path: Vec<_> = path.iter().map(|s| s.to_string()).collect();
            let page = page(&mut Cli::command(), &path)
                .ok()
                .map(|p| String::from_utf8(p).unwrap());
            match word {
                None => assert!(page.is_none()),
                Some(word) => assert!(
                    page.as_ref().is_some_and(|p| p.contains(word)),
                    "no {word} in {page:?}"
                ),
            }
        };
        check(&[], Some("baton\\-doctor"));
        check(&["load"], Some("max\\-tasks"));
        check(&["vm", "run"], Some("icount"));
        check(&["nothing"], None);
    }
}
