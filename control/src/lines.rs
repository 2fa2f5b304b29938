// SPDX-License-Identifier: GPL-2.0-only
//! The source line of an instruction in a loaded module, from the module's file.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use addr2line::{gimli, Context};
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionIndex};

use crate::modules::Search;

/// Where the kernel shows its modules.
const MODULES: &str = "/sys/module";

/// The place in the source, `FILE:LINE`, of the instruction at this address. `None` if it is in none
/// of the module's sections, or if the module's file is not in the search path, or has no lines.
/// What is inlined from a library is where the policy calls it.
pub fn place(module: &str, ip: u64) -> Option<String> {
    let dir = Path::new(MODULES).join(module);
    let sections = sections(&dir);
    let id = fs::read(dir.join("notes/.note.gnu.build-id")).ok()?;
    let files = Search::new(None).modules();
    let file = files.iter().find_map(|path| {
        let bytes = fs::read(path).ok()?;
        (note(&bytes)? == id).then_some(bytes)
    })?;
    place_in(&file, &sections, ip)
}

/// The addresses of a loaded module's sections.
fn sections(dir: &Path) -> HashMap<String, u64> {
    let entries = fs::read_dir(dir.join("sections")).into_iter().flatten();
    let section = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path()).ok()?;
        let address = u64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()?;
        Some((entry.file_name().into_string().ok()?, address))
    };
    entries.flatten().filter_map(section).collect()
}

/// The note that identifies a file.
fn note(file: &[u8]) -> Option<Vec<u8>> {
    let file = object::File::parse(file).ok()?;
    let section = file.section_by_name(".note.gnu.build-id")?;
    section.data().ok().map(<[u8]>::to_vec)
}

/// The relocations of a section: by offset, the value that belongs there.
#[derive(Debug, Default)]
struct Relocated(HashMap<usize, u64>);

impl gimli::Relocate for &Relocated {
    fn relocate_address(&self, offset: usize, value: u64) -> gimli::Result<u64> {
        Ok(self.0.get(&offset).copied().unwrap_or(value))
    }

    fn relocate_offset(&self, offset: usize, value: usize) -> gimli::Result<usize> {
        let found = self.0.get(&offset).copied();
        Ok(found.map_or(value, |found| found as usize))
    }
}

/// The relocations of a section, where the sections of code are at these addresses.
fn relocated(
    file: &object::File<'_>,
    section: &object::Section<'_, '_>,
    addresses: &HashMap<String, u64>,
) -> Relocated {
    let base = |index: SectionIndex| {
        let section = file.section_by_index(index).ok();
        let name = section.and_then(|section| section.name().ok().map(str::to_owned));
        name.and_then(|name| addresses.get(&name).copied())
            .unwrap_or(0)
    };
    let value = |(offset, relocation): (u64, object::Relocation)| {
        let RelocationTarget::Symbol(symbol) = relocation.target() else {
            return None;
        };
        let symbol = file.symbol_by_index(symbol).ok()?;
        let at = symbol.section_index().map_or(0, base) + symbol.address();
        Some((offset as usize, at.wrapping_add_signed(relocation.addend())))
    };
    Relocated(section.relocations().filter_map(value).collect())
}

fn place_in(file: &[u8], addresses: &HashMap<String, u64>, ip: u64) -> Option<String> {
    let file = object::File::parse(file).ok()?;
    let parts: HashMap<&str, (&[u8], Relocated)> = file
        .sections()
        .filter_map(|section| {
            let name = section
                .name()
                .ok()
                .filter(|name| name.starts_with(".debug"))?;
            let relocated = relocated(&file, &section, addresses);
            Some((name, (section.data().ok()?, relocated)))
        })
        .collect();
    let none = (&[][..], Relocated::default());
    let reader = |id: gimli::SectionId| {
        let (bytes, relocated) = parts.get(id.name()).unwrap_or(&none);
        let slice = gimli::EndianSlice::new(bytes, gimli::LittleEndian);
        Ok::<_, gimli::Error>(gimli::RelocateReader::new(slice, relocated))
    };
    let context = Context::from_dwarf(gimli::Dwarf::load(reader).ok()?).ok()?;
    // The compiler gives no line to some instructions, as a jump at the end of a loop's turn.
    (ip..ip + 32).find_map(|ip| line(&context, ip))
}

fn line<R: gimli::Reader>(context: &Context<R>, ip: u64) -> Option<String> {
    let mut frames = context.find_frames(ip).skip_all_loads().ok()?;
    let mut places = Vec::new();
    while let Ok(Some(frame)) = frames.next() {
        let location = frame.location;
        let place = location.and_then(|at| Some((at.file?, at.line.filter(|&line| line > 0)?)));
        if let Some((file, line)) = place {
            places.push((file.to_owned(), line));
        }
    }
    // Innermost first.
    let is_own = |(file, _): &&(String, u32)| !is_library(file);
    let (file, line) = places.iter().find(is_own).or(places.first())?;
    Some(format!("{}:{line}", shown(file)))
}

/// Is this a file of a library? For a policy in C, that is one of the headers that are beside it
/// where it is built (policy/c).
fn is_library(file: &str) -> bool {
    if file.ends_with(".rs") {
        let file = shown(file);
        let libraries = ["/library/", "/registry/"];
        let own = ["policy/", "hosts/", "lang/"];
        return libraries.iter().any(|part| file.contains(part))
            || own.iter().any(|part| file.starts_with(part));
    }
    let name = Path::new(file).file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("events") || name == "host.h" || name == "baton.h")
}

/// The file as it is shown. That of a policy in Rust is as in the message of a panic: relative to
/// Baton's source, if it is there. Rust names it relative to the crate, which is named likewise, so
/// that the crate's path comes twice. The files of a policy in C are copied before they are built.
fn shown(file: &str) -> &str {
    if !file.ends_with(".rs") {
        let name = Path::new(file).file_name().and_then(|name| name.to_str());
        return name.unwrap_or(file);
    }
    let twice = |at: usize| {
        let rest = file[at + 1..].strip_prefix(&file[..at])?;
        rest.starts_with('/').then_some(&file[at + 1..])
    };
    file.match_indices('/')
        .find_map(|(at, _)| twice(at))
        .unwrap_or(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_shown_as_in_panics() {
        for (file, expected) in [
            (
                "policies/wfq/policies/wfq/src/lib.rs",
                "policies/wfq/src/lib.rs",
            ),
            ("/home/me/mine/src/lib.rs", "/home/me/mine/src/lib.rs"),
            ("/var/build/policy-fifo_c/fifo-c.c", "fifo-c.c"),
        ] {
            assert_eq!(shown(file), expected);
        }
        assert!(is_library("policy/api/policy/api/src/runqueue/fifo.rs"));
        assert!(is_library(
            "/usr/lib/rustlib/src/rust/library/core/src/iter.rs"
        ));
        assert!(!is_library("policies/wfq/policies/wfq/src/lib.rs"));
        assert!(is_library("/var/build/policy-fifo_c/events-call.h"));
    }
}
