// SPDX-License-Identifier: GPL-2.0-only
//! The identity gate: are rebuilt objects those from which the kernel was linked?
//!
//! Every function of an object is compared with the kernel's of that name, byte for byte. Three
//! kinds of bytes differ rightly. A relocation's bytes have no value in the object; so what the
//! kernel has there must lead to the symbol that the relocation names. The call at a function's
//! entry, for tracers, is a no-op in the kernel. So may be a jump label.
//!
//! What is compared also tells where each section of the object is in the kernel, the nameless ones
//! too ([`Placed`]).

use std::collections::HashMap;

use object::elf;
use serde::{Deserialize, Serialize};

use baton_control::error::{Error, Result};

use crate::code;
use crate::elf::{Object, Place, Relocation, SectionId, Symbol};
use crate::vmlinux::{StockId, StockSymbol, Vmlinux};

/// The no-ops of two and of five bytes that the kernel uses.
const NOP2: &[u8] = &[0x66, 0x90];
const NOP5: &[u8] = &[0x0f, 0x1f, 0x44, 0, 0];

/// What a comparison found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Functions compared.
    pub functions: usize,
    /// Those that are equal.
    pub equal: usize,
    /// References that were found to lead to the same symbol.
    pub references: usize,
    /// Functions that may be unequal.
    pub excused: Vec<Unequal>,
    /// Functions that may not.
    pub different: Vec<Unequal>,
}

/// A function that is not equal to the kernel's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unequal {
    /// Source file of the object, without directories.
    pub file: String,
    pub function: String,
    pub why: String,
}

impl Identity {
    /// Adds the result of another object.
    pub fn add(&mut self, other: Self) {
        self.functions += other.functions;
        self.equal += other.equal;
        self.references += other.references;
        self.excused.extend(other.excused);
        self.different.extend(other.different);
    }

    /// The error that refuses a kernel whose functions differ.
    ///
    /// # Errors
    /// A function differs.
    pub fn demand(&self, release: &str) -> Result<()> {
        let Some(first) = self.different.first() else {
            return Ok(());
        };
        let Unequal {
            file,
            function,
            why,
        } = first;
        Err(Error::environment(
            format!(
                "{} of {} functions of the rebuilt scheduler are not those of kernel {release}; \
                 the first: {function} in {file}: {why}",
                self.different.len(),
                self.functions
            ),
            "use the source package, the debug package and the compiler of exactly this kernel; \
             with them, remove the directory of the prepared kernel and prepare it again",
        ))
    }
}

/// The address of each section of an object in the kernel, as far as it is known. Sections of
/// strings and constants that the linker merges have none.
#[derive(Clone, Debug, Default)]
pub struct Placed(HashMap<SectionId, u64>);

impl Placed {
    /// The address in the kernel of a place in a section.
    pub fn address(&self, section: SectionId, offset: u64) -> Option<u64> {
        Some(self.0.get(&section)?.wrapping_add(offset))
    }

    /// The kernel's symbol that is an object's symbol, by place and name.
    pub fn symbol(&self, symbol: &Symbol, vmlinux: &Vmlinux) -> Option<StockId> {
        let address = self.address(symbol.section()?, symbol.value)?;
        let is_it = |id: &StockId| vmlinux.symbols()[*id].name == symbol.name;
        vmlinux.at(address).find(is_it)
    }
}

/// Compares an object with the kernel.
///
/// # Errors
/// The object is not one of this kernel at all, or has relocations that are unknown here.
pub fn compare(object: &Object, vmlinux: &Vmlinux) -> Result<(Identity, Placed)> {
    let file = vmlinux.file_of(object)?;
    let mut comparison = Comparison {
        object,
        vmlinux,
        labels: jump_labels(object),
        placed: place_by_name(object, vmlinux, file),
        references: 0,
    };
    let mut identity = Identity::default();
    for symbol in object.symbols.iter().filter(|s| s.is_function()) {
        identity.functions += 1;
        let unequal = |why: String| Unequal {
            file: object.source().into(),
            function: symbol.name.clone(),
            why,
        };
        match comparison.function(symbol, stock_of(symbol, vmlinux, file))? {
            None => identity.equal += 1,
            Some(_) if symbol.is_weak() => identity.excused.push(unequal(
                "weak: the kernel has another function of that name".into(),
            )),
            Some(why) => identity.different.push(unequal(why)),
        }
    }
    identity.references = comparison.references;
    Ok((identity, comparison.placed))
}

/// The kernel's symbol of an object's name; `file` is the object's source file.
fn stock_of<'a>(symbol: &Symbol, vmlinux: &'a Vmlinux, file: usize) -> Option<&'a StockSymbol> {
    if !symbol.is_local() {
        return vmlinux
            .global(&symbol.name)
            .map(|id| &vmlinux.symbols()[id]);
    }
    let of_name = vmlinux.named(&symbol.name).iter();
    let mut here = of_name
        .map(|&id| &vmlinux.symbols()[id])
        .filter(|stock| stock.file == Some(file));
    let found = here.next();
    found.filter(|_| here.next().is_none())
}

/// The sections with a symbol that the kernel has under the same name.
fn place_by_name(object: &Object, vmlinux: &Vmlinux, file: usize) -> Placed {
    let mut placed = HashMap::new();
    for symbol in &object.symbols {
        let is_named = matches!(symbol.kind, elf::STT_FUNC | elf::STT_OBJECT) && !symbol.is_weak();
        let (Some(section), true) = (symbol.section(), is_named) else {
            continue;
        };
        if let Some(stock) = stock_of(symbol, vmlinux, file) {
            placed
                .entry(section)
                .or_insert(stock.address.wrapping_sub(symbol.value));
        }
    }
    Placed(placed)
}

/// The jump labels of an object's code, by section and offset. An entry of the table is 16 bytes;
/// its first field has the distance to the label.
fn jump_labels(object: &Object) -> HashMap<SectionId, Vec<u64>> {
    let mut labels: HashMap<SectionId, Vec<u64>> = HashMap::new();
    let tables = object.sections.iter().filter(|s| s.name == "__jump_table");
    for relocation in tables.flat_map(|table| &table.relocations) {
        let symbol = relocation.symbol.map(|id| &object.symbols[id]);
        let section = symbol.and_then(Symbol::section);
        if let (Some(symbol), Some(section), 0) = (symbol, section, relocation.offset % 16) {
            let at = symbol.value.wrapping_add_signed(relocation.addend);
            labels.entry(section).or_default().push(at);
        }
    }
    labels
}

struct Comparison<'a> {
    object: &'a Object,
    vmlinux: &'a Vmlinux,
    labels: HashMap<SectionId, Vec<u64>>,
    placed: Placed,
    references: usize,
}

impl Comparison<'_> {
    /// Compares a function. Returns what differs.
    fn function(&mut self, symbol: &Symbol, stock: Option<&StockSymbol>) -> Result<Option<String>> {
        let Some(stock) = stock else {
            return Ok(Some("the kernel has no function of that name".into()));
        };
        if stock.size != symbol.size {
            return Ok(Some(format!(
                "its size is {}, in the kernel {}",
                symbol.size, stock.size
            )));
        }
        let Some(theirs) = self.vmlinux.bytes(stock.address, stock.size) else {
            return Ok(Some("its bytes are not in the kernel's file".into()));
        };
        let Some(section) = symbol.section() else {
            return Ok(Some("it is not defined".into()));
        };
        let range = symbol.value as usize..(symbol.value + symbol.size) as usize;
        let code = &self.object.sections[section];
        let Some(ours) = code.data.get(range.clone()) else {
            return Ok(Some("it goes beyond its section".into()));
        };
        // The bytes that were compared otherwise.
        let mut seen = vec![false; ours.len()];
        let in_range =
            |r: &&Relocation| range.contains(&(r.offset as usize)) && r.kind != elf::R_X86_64_NONE;
        for relocation in code.relocations.iter().filter(in_range) {
            let from = relocation.offset as usize - range.start;
            let to = from + relocation.width()?;
            let name = relocation.symbol.map(|id| &*self.object.symbols[id].name);
            if name == Some("__fentry__") && from > 0 && theirs[from - 1..to] == *NOP5 {
                seen[from - 1..to].fill(true);
                continue;
            }
            seen[from..to].fill(true);
            let place = stock.address + from as u64;
            if let Some(why) = self.reference(relocation, &theirs[from..to], place) {
                return Ok(Some(format!("at +{from:#x} {why}")));
            }
        }
        for &label in self.labels.get(&section).into_iter().flatten() {
            if !range.contains(&(label as usize)) {
                continue;
            }
            let from = label as usize - range.start;
            let to = from + code::length(&ours[from..]).unwrap_or(0);
            if [NOP2, NOP5].contains(&&theirs[from..to]) {
                seen[from..to].fill(true);
            }
        }
        let mut both = ours.iter().zip(theirs).zip(&seen);
        let differs = both.position(|((ours, theirs), seen)| !seen && ours != theirs);
        Ok(differs.map(|at| format!("its code differs at +{at:#x}")))
    }

    /// Compares what a relocation names with what the kernel's bytes at its place lead to. Returns
    /// what differs.
    fn reference(&mut self, relocation: &Relocation, bytes: &[u8], place: u64) -> Option<String> {
        let symbol = &self.object.symbols[relocation.symbol?];
        let value = match *bytes {
            [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])) as u64,
            _ => u64::from_le_bytes(bytes.try_into().ok()?),
        };
        let origin = if relocation.is_relative() { place } else { 0 };
        let found = value
            .wrapping_add(origin)
            .wrapping_sub(relocation.addend as u64);
        let expected = match symbol.place {
            Place::Section(section) if !symbol.is_weak() => {
                if self.object.sections[section].flags & u64::from(elf::SHF_MERGE) != 0 {
                    return None;
                }
                // The first reference to a nameless section tells where it is.
                let base = found.wrapping_sub(symbol.value);
                let base = *self.placed.0.entry(section).or_insert(base);
                base.wrapping_add(symbol.value)
            }
            _ => {
                let stock = self.vmlinux.global(&symbol.name)?;
                self.vmlinux.symbols()[stock].address
            }
        };
        if found == expected {
            self.references += 1;
            return None;
        }
        let name = match symbol.section() {
            Some(section) if symbol.name.is_empty() => &self.object.sections[section].name,
            _ => &symbol.name,
        };
        Some(format!(
            "it refers to {name}, which is at {expected:#x}; the kernel's to {found:#x}"
        ))
    }
}
