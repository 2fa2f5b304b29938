// SPDX-License-Identifier: GPL-2.0-only
//! The kernel as it was linked: code, data and symbols, from the distribution's debug package.

use std::collections::HashMap;
use std::path::Path;

use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, Note, SectionHeader, Sym};
use object::LittleEndian as LE;

use baton_control::error::{Error, Result};

use crate::elf::{Object, Symbol};

/// The index of a symbol in [`Vmlinux::symbols`].
pub type StockId = usize;

/// A linked kernel.
pub struct Vmlinux {
    bytes: Vec<u8>,
    parts: Vec<Part>,
    symbols: Vec<StockSymbol>,
    /// For each name its symbols, by address.
    by_name: HashMap<String, Vec<StockId>>,
    /// The identifier of the link, in hexadecimal.
    pub build_id: String,
}

/// A loaded section.
#[derive(Debug)]
pub struct Part {
    pub name: String,
    pub address: u64,
    /// In bytes.
    pub size: u64,
    pub is_code: bool,
    /// Place of its contents in the file; none of a section without contents.
    at: Option<usize>,
}

/// A symbol of the kernel.
#[derive(Debug)]
pub struct StockSymbol {
    pub name: String,
    pub address: u64,
    /// In bytes.
    pub size: u64,
    pub is_function: bool,
    /// Of a local symbol, the source file that it is from, as the number of that file's symbol in
    /// the table. Several files have the same name.
    pub file: Option<usize>,
}

impl Vmlinux {
    /// Reads a kernel from a file.
    ///
    /// # Errors
    /// The file cannot be read, or is no linked kernel with symbols and a build identifier.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path)
            .map_err(|e| Error::file(format!("reading {}", path.display()), &e))?;
        Self::parse(bytes).map_err(|why| {
            Error::environment(
                format!("{} is no kernel with symbols: {why}", path.display()),
                "make it again: remove it, then baton live prepare",
            )
        })
    }

    fn parse(bytes: Vec<u8>) -> std::result::Result<Self, String> {
        let text = |e: object::read::Error| e.to_string();
        let data = &bytes[..];
        let header = FileHeader64::<LE>::parse(data).map_err(text)?;
        if header.e_type.get(LE) == elf::ET_REL {
            return Err("it is not linked".into());
        }
        let sections = header.sections(LE, data).map_err(text)?;
        let mut parts = Vec::new();
        for section in sections.iter() {
            let flags = section.sh_flags(LE);
            if flags & u64::from(elf::SHF_ALLOC) != 0 {
                let name = sections.section_name(LE, section).map_err(text)?;
                let range = section.file_range(LE);
                if range.is_some_and(|(at, size)| at.saturating_add(size) > data.len() as u64) {
                    return Err("a section goes beyond its end".into());
                }
                parts.push(Part {
                    name: String::from_utf8_lossy(name).into_owned(),
                    address: section.sh_addr(LE),
                    size: section.sh_size(LE),
                    is_code: flags & u64::from(elf::SHF_EXECINSTR) != 0,
                    at: range.map(|(at, _)| at as usize),
                });
            }
        }
        let table = sections.symbols(LE, data, elf::SHT_SYMTAB).map_err(text)?;
        let mut symbols = Vec::with_capacity(table.len());
        let mut file = None;
        for (index, symbol) in table.enumerate() {
            if symbol.st_type() == elf::STT_FILE {
                file = Some(index.0);
            }
            // The kernel knows none of these by name.
            let is_nameless = matches!(symbol.st_type(), elf::STT_FILE | elf::STT_SECTION)
                || matches!(symbol.st_shndx(LE), elf::SHN_UNDEF | elf::SHN_ABS);
            let name = symbol.name(LE, table.strings()).map_err(text)?;
            if is_nameless || name.is_empty() {
                continue;
            }
            symbols.push(StockSymbol {
                name: String::from_utf8_lossy(name).into_owned(),
                address: symbol.st_value(LE),
                size: symbol.st_size(LE),
                is_function: symbol.st_type() == elf::STT_FUNC,
                file: file.filter(|_| symbol.st_bind() == elf::STB_LOCAL),
            });
        }
        symbols.sort_by_key(|symbol| symbol.address);
        let mut by_name: HashMap<String, Vec<StockId>> = HashMap::new();
        for (id, symbol) in symbols.iter().enumerate() {
            by_name.entry(symbol.name.clone()).or_default().push(id);
        }
        Ok(Self {
            parts,
            symbols,
            by_name,
            build_id: build_id(data)
                .map_err(text)?
                .ok_or("it has no build identifier")?,
            bytes,
        })
    }

    /// All symbols, by address.
    pub fn symbols(&self) -> &[StockSymbol] {
        &self.symbols
    }

    /// The loaded sections.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The contents of a section; none of one without contents.
    pub fn contents(&self, part: &Part) -> &[u8] {
        part.at
            .map_or(&[], |at| &self.bytes[at..at + part.size as usize])
    }

    /// The bytes from an address on, if they have contents in the file.
    pub fn bytes(&self, address: u64, size: u64) -> Option<&[u8]> {
        let part = self
            .parts
            .iter()
            .find(|part| (part.address..part.address + part.size).contains(&address))?;
        let from = usize::try_from(address - part.address).ok()?;
        self.contents(part).get(from..from + size as usize)
    }

    /// The symbols of a name, by address.
    pub fn named(&self, name: &str) -> &[StockId] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    /// The symbol of a name that other files can refer to.
    pub fn global(&self, name: &str) -> Option<StockId> {
        let of_name = self.named(name).iter().copied();
        let mut found = of_name.filter(|&id| self.symbols[id].file.is_none());
        found.next()
    }

    /// The symbols at an address.
    pub fn at(&self, address: u64) -> std::ops::Range<StockId> {
        let from = self.symbols.partition_point(|s| s.address < address);
        let to = self.symbols.partition_point(|s| s.address <= address);
        from..to
    }

    /// The position of a symbol among those of its name, as the kernel's loader counts: 0 for the
    /// only one, else from 1 by address.
    pub fn position(&self, id: StockId) -> usize {
        match self.named(&self.symbols[id].name) {
            [_] => 0,
            several => several.partition_point(|&other| other <= id),
        }
    }

    /// The source file of this kernel from which an object was compiled: that of its name with most
    /// of its local functions, as the number in [`StockSymbol::file`].
    ///
    /// # Errors
    /// No file of that name has a function of the object.
    pub fn file_of(&self, object: &Object) -> Result<usize> {
        let mut votes: HashMap<usize, usize> = HashMap::new();
        let local = |symbol: &&Symbol| symbol.is_local() && symbol.is_function();
        for symbol in object.symbols.iter().filter(local) {
            for &id in self.named(&symbol.name) {
                if let Some(file) = self.symbols[id].file {
                    *votes.entry(file).or_default() += 1;
                }
            }
        }
        let most = votes.into_iter().max_by_key(|&(file, votes)| (votes, file));
        most.map(|(file, _)| file).ok_or_else(|| {
            Error::environment(
                format!("the kernel has no function of {}", object.source()),
                "check that source and debug package are those of this kernel: baton live prepare",
            )
        })
    }
}

/// The identifier of the link in a file of ELF, in hexadecimal.
///
/// # Errors
/// The bytes are no such file.
pub fn build_id(bytes: &[u8]) -> object::read::Result<Option<String>> {
    let header = FileHeader64::<LE>::parse(bytes)?;
    for section in header.sections(LE, bytes)?.iter() {
        let Some(mut notes) = section.notes(LE, bytes)? else {
            continue;
        };
        while let Some(note) = notes.next()? {
            if let Some(id) = build_id_in(&note) {
                return Ok(Some(id));
            }
        }
    }
    Ok(None)
}

/// The identifier of the link, if the note is that.
pub fn build_id_in(note: &Note<'_, FileHeader64<LE>>) -> Option<String> {
    let is_id = note.name() == elf::ELF_NOTE_GNU && note.n_type(LE) == elf::NT_GNU_BUILD_ID;
    let hex = note.desc().iter().map(|byte| format!("{byte:02x}"));
    is_id.then(|| hex.collect())
}
