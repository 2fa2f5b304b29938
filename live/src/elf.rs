// SPDX-License-Identifier: GPL-2.0-only
//! Relocatable objects of x86-64, as sections and symbols with each relocation at the section that
//! it changes.

use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, Rela, SectionHeader, Sym};
use object::write::elf::{
    FileHeader as NewHeader, Rel, SectionHeader as NewSection, Sym as NewSymbol, Writer,
};
use object::{Endianness, LittleEndian as LE};

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
    /// The kernel's loader finds it by its name, `.klp.sym.vmlinux.NAME,POSITION`
    /// (Documentation/livepatch/module-elf-format.rst). Relocations that refer to it are in
    /// sections `.klp.rela.vmlinux.SECTION` of the file.
    Livepatch,
    Section(SectionId),
}

/// `SHN_LIVEPATCH` of the kernel.
const LIVEPATCH_INDEX: u16 = 0xff20;
/// `SHF_RELA_LIVEPATCH` of the kernel.
const LIVEPATCH_FLAG: u64 = 0x0010_0000;

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
            Place::Undefined | Place::Absolute | Place::Livepatch => None,
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

impl Object {
    /// The file.
    pub fn write(&self) -> Vec<u8> {
        let names = self.table_names();
        let mut bytes = Vec::new();
        let mut writer = Writer::new(Endianness::Little, true, &mut bytes);
        writer.reserve_file_header();
        writer.reserve_null_section_index();
        let mut headers = Vec::new();
        for section in &self.sections {
            let name = writer.add_section_name(section.name.as_bytes());
            headers.push((name, writer.reserve_section_index()));
        }
        let mut tables = Vec::new();
        for (id, names) in names.iter().enumerate() {
            for (is_livepatch, name) in [false, true].into_iter().zip(names) {
                let relocations: Vec<_> = self.relocations_of(id, is_livepatch).collect();
                if !relocations.is_empty() {
                    let name = writer.add_section_name(name.as_bytes());
                    writer.reserve_section_index();
                    tables.push((id, is_livepatch, name, relocations));
                }
            }
        }
        let symtab = writer.reserve_symtab_section_index();
        writer.reserve_strtab_section_index();
        writer.reserve_shstrtab_section_index();

        // Local symbols come first.
        let mut order: Vec<SymbolId> = (0..self.symbols.len()).collect();
        order.sort_by_key(|&id| !self.symbols[id].is_local());
        let locals = order
            .iter()
            .filter(|&&id| self.symbols[id].is_local())
            .count();
        writer.reserve_null_symbol_index();
        let mut numbers = vec![0; self.symbols.len()];
        let mut strings = vec![None; self.symbols.len()];
        for &id in &order {
            let symbol = &self.symbols[id];
            let section = symbol.section().map(|section| headers[section].1);
            numbers[id] = writer.reserve_symbol_index(section).0;
            if !symbol.name.is_empty() {
                strings[id] = Some(writer.add_string(symbol.name.as_bytes()));
            }
        }

        let places: Vec<_> = self
            .sections
            .iter()
            .map(|section| writer.reserve(section.data.len(), section.align.max(1) as usize))
            .collect();
        let table_places: Vec<_> = tables
            .iter()
            .map(|(.., relocations)| writer.reserve_relocations(relocations.len(), true))
            .collect();
        writer.reserve_symtab();
        writer.reserve_strtab();
        writer.reserve_shstrtab();
        writer.reserve_section_headers();

        writer
            .write_file_header(&NewHeader {
                os_abi: elf::ELFOSABI_NONE,
                abi_version: 0,
                e_type: elf::ET_REL,
                e_machine: elf::EM_X86_64,
                e_entry: 0,
                e_flags: 0,
            })
            .expect("a vector has room");
        for (section, &place) in self.sections.iter().zip(&places) {
            writer.pad_until(place);
            writer.write(&section.data);
        }
        for ((.., relocations), &place) in tables.iter().zip(&table_places) {
            writer.pad_until(place);
            for relocation in relocations {
                writer.write_relocation(
                    true,
                    &Rel {
                        r_offset: relocation.offset,
                        r_sym: relocation.symbol.map_or(0, |id| numbers[id]),
                        r_type: relocation.kind,
                        r_addend: relocation.addend,
                    },
                );
            }
        }
        writer.write_null_symbol();
        for &id in &order {
            let symbol = &self.symbols[id];
            writer.write_symbol(&NewSymbol {
                name: strings[id],
                section: symbol.section().map(|section| headers[section].1),
                st_info: (symbol.binding << 4) | symbol.kind,
                st_other: symbol.other,
                st_shndx: match symbol.place {
                    Place::Undefined | Place::Section(_) => elf::SHN_UNDEF,
                    Place::Absolute => elf::SHN_ABS,
                    Place::Livepatch => LIVEPATCH_INDEX,
                },
                st_value: symbol.value,
                st_size: symbol.size,
            });
        }
        writer.write_strtab();
        writer.write_shstrtab();
        writer.write_null_section_header();
        for ((section, &(name, _)), &place) in self.sections.iter().zip(&headers).zip(&places) {
            writer.write_section_header(&NewSection {
                name: Some(name),
                sh_type: section.kind,
                sh_flags: section.flags,
                sh_addr: 0,
                sh_offset: place as u64,
                sh_size: section.size,
                sh_link: section.follows.map_or(0, |followed| headers[followed].1 .0),
                sh_info: 0,
                sh_addralign: section.align,
                sh_entsize: section.entry_size,
            });
        }
        for ((id, is_livepatch, name, relocations), &place) in tables.iter().zip(&table_places) {
            let of_loader = u64::from(elf::SHF_ALLOC) | LIVEPATCH_FLAG;
            writer.write_section_header(&NewSection {
                name: Some(*name),
                sh_type: elf::SHT_RELA,
                sh_flags: u64::from(elf::SHF_INFO_LINK) | if *is_livepatch { of_loader } else { 0 },
                sh_addr: 0,
                sh_offset: place as u64,
                sh_size: (relocations.len() * RELOCATION_SIZE) as u64,
                sh_link: symtab.0,
                sh_info: headers[*id].1 .0,
                sh_addralign: 8,
                sh_entsize: RELOCATION_SIZE as u64,
            });
        }
        writer.write_symtab_section_header(locals as u32 + 1);
        writer.write_strtab_section_header();
        writer.write_shstrtab_section_header();
        bytes
    }

    /// Removes sections, with the symbols in them, and with the relocations that refer to those.
    /// Undefined symbols that nothing refers to any more are removed, too.
    ///
    /// # Errors
    /// A section of the program that stays refers to one that is removed.
    pub fn remove(&mut self, is_removed: impl Fn(SectionId, &Section) -> bool) -> Result<()> {
        let mut sections = Vec::new();
        let mut count = 0;
        for (id, section) in self.sections.iter().enumerate() {
            let stays = !is_removed(id, section);
            sections.push(stays.then_some(count));
            count += usize::from(stays);
        }
        let lost = |relocation: &Relocation| {
            let symbol = &self.symbols[relocation.symbol?];
            let section = symbol.section()?;
            let name = [&self.sections[section].name, &symbol.name];
            sections[section]
                .is_none()
                .then(|| name.map(String::as_str).join(": "))
        };
        for (section, stays) in self.sections.iter().zip(&sections) {
            if stays.is_none() || !section.is_loaded() {
                continue;
            }
            if let Some(lost) = section.relocations.iter().find_map(lost) {
                return Err(Error::baton(format!(
                    "{} refers to {lost}, which has been removed",
                    section.name
                )));
            }
        }
        let mut is_used = vec![false; self.symbols.len()];
        for (section, _) in self
            .sections
            .iter()
            .zip(&sections)
            .filter(|(_, s)| s.is_some())
        {
            let symbols = section.relocations.iter().filter_map(|r| r.symbol);
            symbols.for_each(|id| is_used[id] = true);
        }
        let mut symbols = Vec::new();
        let mut count = 0;
        for (symbol, is_used) in self.symbols.iter_mut().zip(is_used) {
            let stays = match symbol.place {
                Place::Section(section) => sections[section].is_some(),
                Place::Undefined => is_used,
                Place::Absolute | Place::Livepatch => true,
            };
            if let Place::Section(section) = symbol.place {
                symbol.place = sections[section].map_or(Place::Undefined, Place::Section);
            }
            symbols.push(stays.then_some(count));
            count += usize::from(stays);
        }
        let mut stays = symbols.iter().map(Option::is_some);
        self.symbols.retain(|_| stays.next().unwrap_or(false));
        let mut stays = sections.iter().map(Option::is_some);
        self.sections.retain(|_| stays.next().unwrap_or(false));
        for section in &mut self.sections {
            section.follows = section.follows.and_then(|id| sections[id]);
            section
                .relocations
                .retain(|r| r.symbol.is_none_or(|id| symbols[id].is_some()));
            for relocation in &mut section.relocations {
                relocation.symbol = relocation.symbol.and_then(|id| symbols[id]);
            }
        }
        Ok(())
    }

    /// For each section the names that sections with its relocations have.
    fn table_names(&self) -> Vec<[String; 2]> {
        let names = self.sections.iter().map(|section| {
            let name = &section.name;
            [format!(".rela{name}"), format!(".klp.rela.vmlinux.{name}")]
        });
        names.collect()
    }

    /// The relocations of a section that the kernel's loader does for live patches, or the others.
    fn relocations_of(
        &self,
        section: SectionId,
        livepatch: bool,
    ) -> impl Iterator<Item = &Relocation> {
        let is_livepatch = |relocation: &Relocation| {
            relocation
                .symbol
                .is_some_and(|id| self.symbols[id].place == Place::Livepatch)
        };
        let relocations = self.sections[section].relocations.iter();
        relocations.filter(move |relocation| is_livepatch(relocation) == livepatch)
    }
}

/// The size in bytes of a relocation in a file.
const RELOCATION_SIZE: usize = 24;

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
            LIVEPATCH_INDEX => Place::Livepatch,
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
