// SPDX-License-Identifier: GPL-2.0-only
//! Relocatable objects of x86-64, as sections and symbols with each relocation at the section that
//! it changes.

use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, Rela, SectionHeader, Sym};
use object::LittleEndian as LE;

use baton_control::error::{Error, Result};

/// The index of a section in [`Object::sections`].
pub type SectionId = usize;
/// The index of a symbol in [`Object::symbols`].
pub type SymbolId = usize;

/// A relocatable object. Its tables of names, symbols and relocations are no sections here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub sections: Vec<Section>,
    pub symbols: Vec<Symbol>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    pub name: String,
    /// `sh_type`.
    pub kind: u32,
    /// `sh_flags`.
    pub flags: u64,
    /// Bytes; of a section without contents (`.bss`) none.
    pub data: Vec<u8>,
    /// In bytes, also of a section without contents.
    pub size: u64,
    /// In bytes.
    pub align: u64,
    /// `sh_entsize`, in bytes.
    pub entry_size: u64,
    /// The section whose order this one follows (`SHF_LINK_ORDER`).
    pub follows: Option<SectionId>,
    /// By offset.
    pub relocations: Vec<Relocation>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    pub name: String,
    /// `STB_LOCAL`, `STB_GLOBAL` or `STB_WEAK`.
    pub binding: u8,
    /// `STT_FUNC`, `STT_OBJECT` and so on.
    pub kind: u8,
    /// `st_other`.
    pub other: u8,
    pub place: Place,
    /// Offset in its section.
    pub value: u64,
    /// In bytes.
    pub size: u64,
}

/// Where a symbol is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Undefined,
    /// Its value is no offset in a section.
    Absolute,
    Section(SectionId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// Offset in the section.
    pub offset: u64,
    /// `R_X86_64_...`.
    pub kind: u32,
    /// None of a relocation that does nothing.
    pub symbol: Option<SymbolId>,
    pub addend: i64,
}

impl Relocation {
    /// The number of bytes that it fills in.
    ///
    /// # Errors
    /// It is of a kind that the kernel's code does not have.
    pub fn width(&self) -> Result<usize> {
        match self.kind {
            elf::R_X86_64_NONE => Ok(0),
            elf::R_X86_64_64 | elf::R_X86_64_PC64 => Ok(8),
            elf::R_X86_64_PC32
            | elf::R_X86_64_PLT32
            | elf::R_X86_64_32
            | elf::R_X86_64_32S
            | elf::R_X86_64_GOTPCREL
            | elf::R_X86_64_GOTPCRELX
            | elf::R_X86_64_REX_GOTPCRELX => Ok(4),
            other => Err(Error::baton(format!(
                "a relocation of type {other} is unknown to baton live"
            ))),
        }
    }

    /// Is the distance from the place filled in, not the address itself?
    pub fn is_relative(&self) -> bool {
        !matches!(
            self.kind,
            elf::R_X86_64_64 | elf::R_X86_64_32 | elf::R_X86_64_32S
        )
    }
}

impl Section {
    pub fn is_code(&self) -> bool {
        self.flags & u64::from(elf::SHF_EXECINSTR) != 0
    }

    pub fn is_writable(&self) -> bool {
        self.flags & u64::from(elf::SHF_WRITE) != 0
    }

    /// Is it part of the program, and not only of the file?
    pub fn is_loaded(&self) -> bool {
        self.flags & u64::from(elf::SHF_ALLOC) != 0
    }
}

impl Symbol {
    pub fn is_local(&self) -> bool {
        self.binding == elf::STB_LOCAL
    }

    pub fn is_weak(&self) -> bool {
        self.binding == elf::STB_WEAK
    }

    /// The section in which it is defined.
    pub fn section(&self) -> Option<SectionId> {
        match self.place {
            Place::Section(id) => Some(id),
            Place::Undefined | Place::Absolute => None,
        }
    }

    /// Is it a function that is defined here?
    pub fn is_function(&self) -> bool {
        self.kind == elf::STT_FUNC && self.section().is_some()
    }

    /// Does the offset lie in it? A symbol without a size has its first byte only.
    pub fn contains(&self, offset: u64) -> bool {
        (self.value..self.value + self.size.max(1)).contains(&offset)
    }
}

impl Object {
    /// Reads an object; `what` names it in errors.
    ///
    /// # Errors
    /// The bytes are no relocatable object of x86-64, or one with section groups or with more than
    /// 65,279 sections, which the kernel's objects do not have.
    pub fn read(bytes: &[u8], what: &str) -> Result<Self> {
        let unreadable = |why: &dyn std::fmt::Display| {
            Error::environment(
                format!("{what} is no object that can be read: {why}"),
                "make it again: baton live prepare",
            )
        };
        read(bytes).map_err(|why| unreadable(&why))
    }

    /// The name of the source file from which it was compiled, without directories.
    pub fn source(&self) -> &str {
        let file = self.symbols.iter().find(|s| s.kind == elf::STT_FILE);
        file.map_or("", |file| &file.name)
    }
}

/// Which symbols a section has, for searches by offset.
pub struct Layout {
    /// For each section its functions and data, by offset.
    of_section: Vec<Vec<SymbolId>>,
}

impl Layout {
    pub fn of(object: &Object) -> Self {
        let mut of_section = vec![Vec::new(); object.sections.len()];
        for (id, symbol) in object.symbols.iter().enumerate() {
            let is_named = !symbol.name.is_empty()
                && matches!(
                    symbol.kind,
                    elf::STT_FUNC | elf::STT_OBJECT | elf::STT_NOTYPE
                );
            if let (Some(section), true) = (symbol.section(), is_named) {
                of_section[section].push(id);
            }
        }
        for symbols in &mut of_section {
            symbols.sort_by_key(|&id| object.symbols[id].value);
        }
        Self { of_section }
    }

    /// The functions and data of a section, by offset.
    pub fn symbols(&self, section: SectionId) -> &[SymbolId] {
        &self.of_section[section]
    }

    /// The symbol of a section that contains the offset. If several do, a function or a datum
    /// comes before a label, and a global name before a local one.
    pub fn at(&self, object: &Object, section: SectionId, offset: u64) -> Option<SymbolId> {
        let symbols = &self.of_section[section];
        let end = symbols.partition_point(|&id| object.symbols[id].value <= offset);
        let found = symbols[..end].iter().rev().copied();
        found
            .filter(|&id| object.symbols[id].contains(offset))
            .min_by_key(|&id| {
                let symbol = &object.symbols[id];
                (symbol.kind == elf::STT_NOTYPE, symbol.is_local())
            })
    }
}

fn read(bytes: &[u8]) -> std::result::Result<Object, String> {
    let text = |e: object::read::Error| e.to_string();
    let header = FileHeader64::<LE>::parse(bytes).map_err(text)?;
    if header.e_type.get(LE) != elf::ET_REL || header.e_machine.get(LE) != elf::EM_X86_64 {
        return Err("it is not relocatable, or of another machine".into());
    }
    let table = header.sections(LE, bytes).map_err(text)?;
    if table.len() >= usize::from(elf::SHN_LORESERVE) {
        return Err("it has too many sections".into());
    }
    // Which of the file's sections are ours, and under which index.
    let mut ours: Vec<Option<SectionId>> = vec![None; table.len()];
    let mut sections = Vec::new();
    for (index, header) in table.enumerate() {
        let kind = header.sh_type(LE);
        match kind {
            elf::SHT_NULL | elf::SHT_SYMTAB | elf::SHT_STRTAB | elf::SHT_RELA => continue,
            elf::SHT_GROUP | elf::SHT_REL | elf::SHT_SYMTAB_SHNDX => {
                return Err(format!("it has a section of type {kind}"));
            }
            _ => {}
        }
        let name = table.section_name(LE, header).map_err(text)?;
        ours[index.0] = Some(sections.len());
        sections.push(Section {
            name: String::from_utf8_lossy(name).into_owned(),
            kind,
            flags: header.sh_flags(LE),
            data: header.data(LE, bytes).map_err(text)?.to_vec(),
            size: header.sh_size(LE),
            align: header.sh_addralign(LE),
            entry_size: header.sh_entsize(LE),
            follows: None,
            relocations: Vec::new(),
        });
    }
    let section_of = |index: usize| ours.get(index).copied().flatten();
    let symbols = table.symbols(LE, bytes, elf::SHT_SYMTAB).map_err(text)?;
    let mut read_symbols = Vec::new();
    for symbol in symbols.iter().skip(1) {
        let name = symbol.name(LE, symbols.strings()).map_err(text)?;
        let place = match symbol.st_shndx(LE) {
            elf::SHN_UNDEF => Place::Undefined,
            elf::SHN_ABS => Place::Absolute,
            index => Place::Section(
                section_of(index.into()).ok_or("a symbol is in a section that is not there")?,
            ),
        };
        read_symbols.push(Symbol {
            name: String::from_utf8_lossy(name).into_owned(),
            binding: symbol.st_bind(),
            kind: symbol.st_type(),
            other: symbol.st_other(),
            place,
            value: symbol.st_value(LE),
            size: symbol.st_size(LE),
        });
    }
    for (index, header) in table.enumerate() {
        if let (Some(section), true) = (
            section_of(index.0),
            header.sh_flags(LE) & u64::from(elf::SHF_LINK_ORDER) != 0,
        ) {
            sections[section].follows = section_of(header.sh_link(LE) as usize);
        }
        let Some((entries, _)) = header.rela(LE, bytes).map_err(text)? else {
            continue;
        };
        let target = section_of(header.sh_info(LE) as usize)
            .ok_or("relocations of a section that is not there")?;
        let relocations = entries.iter().map(|entry| Relocation {
            offset: entry.r_offset(LE),
            kind: entry.r_type(LE, false),
            symbol: entry.symbol(LE, false).map(|symbol| symbol.0 - 1),
            addend: entry.r_addend(LE),
        });
        let of_target = &mut sections[target].relocations;
        of_target.extend(relocations);
        of_target.sort_by_key(|relocation| relocation.offset);
        if of_target
            .iter()
            .any(|r| r.symbol.is_some_and(|s| s >= read_symbols.len()))
        {
            return Err("a relocation refers to a symbol that is not there".into());
        }
    }
    Ok(Object {
        sections,
        symbols: read_symbols,
    })
}
