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

/// The place in the source, `FILE:LINE` without folders, of the instruction at this address. `None`
/// if it is in none of the module's sections, or if the module's file is not in the search path, or
/// has no lines. What is inlined from the library of policies in C is where the policy calls it.
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
    let mut frames = context.find_frames(ip).skip_all_loads().ok()?;
    let mut places = Vec::new();
    while let Ok(Some(frame)) = frames.next() {
        let location = frame.location;
        if let Some((file, line)) = location.and_then(|at| Some((at.file?, at.line?))) {
            places.push((file.to_owned(), line));
        }
    }
    // Innermost first.
    let is_own = |(file, _): &&(String, u32)| !is_library(file);
    let (file, line) = places.iter().find(is_own).or(places.first())?;
    // The files of a policy in C are copied before they are built.
    let file = Path::new(file).file_name()?.to_str()?;
    Some(format!("{file}:{line}"))
}

/// Is this one of the headers that are beside a policy where it is built (policy/c)?
fn is_library(file: &str) -> bool {
    let name = Path::new(file).file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("events") || name == "host.h" || name == "baton.h")
}
