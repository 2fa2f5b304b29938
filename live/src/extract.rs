// SPDX-License-Identifier: GPL-2.0-only
//! Makes objects for a module from those of the changed scheduler.
//!
//! Only references are changed; code stays as the compiler made it, so what describes places in it
//! (exceptions, warnings, jump labels) stays valid. A reference to something that must be the
//! kernel's own leads there: to a function that is kept, to the address of any function, so that
//! nothing in the kernel points into the module when that is gone, to shared data. Functions that
//! are kept stay in the module, where nothing calls them.

use std::collections::{BTreeSet, HashMap, HashSet};

use object::elf;

use baton_control::error::{Error, Result};

use crate::boundary;
use crate::elf::{Object, Place, Relocation, Section, SectionId, Symbol, SymbolId};
use crate::graph::{self, Definition, FunctionId, Graph, Objects, Target};
use crate::pairs::Pairs;
use crate::sites::Sites;
use crate::vmlinux::{StockId, Vmlinux};

/// The section with the table of replaced functions. An entry is `struct baton_live_function` of
/// `live/kernel/engine.h`.
pub const TABLE: &str = ".baton_live.functions";

/// The size in bytes of an entry.
pub const ENTRY: usize = 24;

/// What names of the kernel's symbols begin with in the objects, before their position among those
/// of the same name and the name itself.
const STOCK: &str = "__vmlinux";

/// What stands in the name for a dot, which has a meaning for objtool.
const DOT: &str = "_DOT_";

/// Sections that register something when the kernel boots, or that only the kernel may have. What
/// refers to their contents is led to the kernel's.
const DROPPED: &[&str] = &[
    ".BTF_ids",
    ".con_initcall",
    ".comment",
    ".data..percpu",
    ".debug",
    ".discard.addressable",
    ".export_symbol",
    ".init.data",
    ".init.rodata",
    ".init.setup",
    ".initcall",
    ".modinfo",
    ".note",
    ".ref.data",
    ".static_call_tramp_key",
    "__bpf_raw_tp",
    "__event_filter",
    "__param",
    "__patchable_function_entries",
    "__syscalls",
    "__tracepoint",
    "_error_injection",
    "_ftrace_e",
    "_kprobe_blacklist",
];

/// The objects of a module, and what is in them.
#[derive(Debug)]
pub struct Extraction {
    pub objects: Vec<Object>,
    /// Functions of the kernel that are replaced.
    pub replaced: usize,
    /// Functions of them whose first bytes will lead to the new ones.
    pub redirected: usize,
    /// Functions of the changed scheduler that the kernel does not have.
    pub new: Vec<String>,
}

/// The name by which objects refer to a symbol of the kernel, before they are linked.
pub fn stock_name(vmlinux: &Vmlinux, id: StockId) -> String {
    let name = &vmlinux.symbols()[id].name;
    // objtool looks for the two parts of a static call by these names.
    if name.starts_with("__SCT__") || name.starts_with("__SCK__") {
        return name.clone();
    }
    let position = vmlinux.position(id);
    format!("{STOCK}{position}_{}", name.replace('.', DOT))
}

/// The name and position of a symbol of the kernel from the name that [`stock_name`] made.
pub fn stock_of_name(name: &str) -> Option<(String, usize)> {
    let (position, name) = name.strip_prefix(STOCK)?.split_once('_')?;
    Some((name.replace(DOT, "."), position.parse().ok()?))
}

/// Makes the objects. `kept` are the functions that are not replaced, `reached` those of the others
/// that something outside may reach.
///
/// # Errors
/// The change takes the address of a new function, or registers something new with the kernel.
pub fn extract(
    objects: &Objects,
    graph: &Graph,
    classes: &[boundary::Class],
    pairs: &Pairs,
    vmlinux: &Vmlinux,
) -> Result<Extraction> {
    let mut found = Extraction {
        objects: Vec::new(),
        replaced: 0,
        redirected: 0,
        new: Vec::new(),
    };
    for (id, function) in graph.functions.iter().enumerate() {
        let is_new = pairs.get((function.object, function.symbol)).is_none();
        if is_new && classes[id] != boundary::Class::Kept {
            found.new.push(function.name.clone());
        }
    }
    let sites = Sites::of(vmlinux);
    for index in 0..objects.objects.len() {
        let mut rewriting = Rewriting {
            all: objects,
            graph,
            classes,
            pairs,
            vmlinux,
            sites: &sites,
            index,
            object: objects.objects[index].clone(),
            stock: HashMap::new(),
            keys: BTreeSet::new(),
        };
        rewriting.references()?;
        let (replaced, redirected) = rewriting.table();
        found.replaced += replaced;
        found.redirected += redirected;
        found.objects.push(rewriting.finish()?);
    }
    Ok(found)
}

fn is_dropped(section: &str) -> bool {
    DROPPED.iter().any(|start| section.starts_with(start))
}

fn is_of_boot(section: &str) -> bool {
    section.starts_with(".init") || section.starts_with(".exit")
}

struct Rewriting<'a> {
    all: &'a Objects,
    graph: &'a Graph,
    classes: &'a [boundary::Class],
    pairs: &'a Pairs,
    vmlinux: &'a Vmlinux,
    sites: &'a Sites,
    index: usize,
    object: Object,
    /// The symbols by which the object refers to the kernel's.
    stock: HashMap<String, SymbolId>,
    /// Those of them to which only objtool refers.
    keys: BTreeSet<SymbolId>,
}

/// What becomes of a reference.
enum Reference {
    /// It stays.
    Stays,
    /// It leads to a symbol of the kernel.
    Stock(StockId),
    /// What it is in never runs.
    Nothing,
}

impl Rewriting<'_> {
    /// Leads each reference where it must go.
    fn references(&mut self) -> Result<()> {
        for section in 0..self.object.sections.len() {
            if is_dropped(&self.object.sections[section].name) {
                continue;
            }
            for at in 0..self.object.sections[section].relocations.len() {
                let relocation = self.all.objects[self.index].sections[section].relocations[at];
                match self.reference(section, &relocation)? {
                    Reference::Stays => self.mention_key(&relocation),
                    Reference::Stock(id) => {
                        let symbol = self.stock_symbol(id);
                        let offset = self.offset(section, &relocation);
                        let changed = &mut self.object.sections[section].relocations[at];
                        changed.symbol = Some(symbol);
                        changed.addend = offset;
                    }
                    Reference::Nothing => {
                        let changed = &mut self.object.sections[section].relocations[at];
                        changed.kind = elf::R_X86_64_NONE;
                        changed.symbol = None;
                        changed.addend = 0;
                    }
                }
            }
        }
        Ok(())
    }

    /// The addend of a relocation, if its symbol is that of what it refers to, not of a section.
    fn offset(&self, section: SectionId, relocation: &Relocation) -> i64 {
        let of = &self.all.objects[self.index];
        let symbol = relocation.symbol.map(|id| &of.symbols[id]);
        match (
            symbol.filter(|symbol| symbol.kind == elf::STT_SECTION),
            self.all.target(self.index, section, relocation),
        ) {
            (Some(_), Target::Here((_, found), _)) => {
                relocation.addend - of.symbols[found].value as i64
            }
            (Some(_), Target::Nameless(place, _)) => {
                let first = self.all.layout(self.index).symbols(place).first();
                relocation.addend - first.map_or(0, |&first| of.symbols[first].value as i64)
            }
            _ => relocation.addend,
        }
    }

    fn reference(&self, section: SectionId, relocation: &Relocation) -> Result<Reference> {
        let of = &self.all.objects[self.index];
        let from = &of.sections[section];
        match self.all.target(self.index, section, relocation) {
            Target::Outside(_) => Ok(Reference::Stays),
            Target::Nameless(place, _) if is_dropped(&of.sections[place].name) => {
                if is_of_boot(&from.name) {
                    Ok(Reference::Nothing)
                } else {
                    Err(self.registers(section, &of.sections[place].name))
                }
            }
            // It is just before or behind shared data, as the end of an array is.
            Target::Nameless(place, _) if self.is_all_shared(place) => {
                let first = self.all.layout(self.index).symbols(place)[0];
                let pair = self.pairs.get((self.index, first));
                Ok(pair.map_or(Reference::Stays, |pair| Reference::Stock(pair.stock)))
            }
            Target::Nameless(..) => Ok(Reference::Stays),
            Target::Here(definition, _)
                if is_of_boot(&from.name) && self.is_in_dropped(definition) =>
            {
                Ok(Reference::Nothing)
            }
            Target::Here(definition, past) => match self.graph.function(definition) {
                Some(function) => self.to_function(section, relocation, definition, function, past),
                None => self.to_datum(section, definition),
            },
        }
    }

    fn to_function(
        &self,
        section: SectionId,
        relocation: &Relocation,
        definition: Definition,
        function: FunctionId,
        past: i64,
    ) -> Result<Reference> {
        let from = &self.object.sections[section];
        let of = &self.graph.functions[function];
        let is_entry = definition == (of.object, of.symbol) && past == 0;
        if graph::describes_code(&from.name) || !from.is_loaded() || !is_entry {
            return Ok(Reference::Stays);
        }
        let is_call = self.all.is_branch(self.index, section, relocation);
        let is_kept = self.classes[function] == boundary::Class::Kept;
        if is_call && !is_kept {
            return Ok(Reference::Stays);
        }
        match self.pairs.get(definition) {
            Some(pair) => Ok(Reference::Stock(pair.stock)),
            None if is_of_boot(&from.name) => Ok(Reference::Nothing),
            None if is_kept => Ok(Reference::Stays),
            None => Err(self.new_address(section, relocation, &of.name)),
        }
    }

    fn to_datum(&self, section: SectionId, definition: Definition) -> Result<Reference> {
        let object = &self.all.objects[definition.0];
        let symbol = &object.symbols[definition.1];
        let Some(place) = symbol.section().map(|id| &object.sections[id]) else {
            return Ok(Reference::Stays);
        };
        let is_dropped = is_dropped(&place.name);
        let is_place =
            place.is_code() && graph::describes_code(&self.object.sections[section].name);
        if is_place || !is_dropped && !is_shared(place, symbol) {
            return Ok(Reference::Stays);
        }
        match self.pairs.get(definition) {
            Some(pair) => Ok(Reference::Stock(pair.stock)),
            None if is_dropped => Err(self.registers(section, &symbol.name)),
            None => Ok(Reference::Stays),
        }
    }

    fn is_in_dropped(&self, (object, id): Definition) -> bool {
        let object = &self.all.objects[object];
        let section = object.symbols[id].section();
        section.is_some_and(|section| is_dropped(&object.sections[section].name))
    }

    /// What refers to something, for messages: a function or datum, else a section.
    fn owner(&self, section: SectionId, offset: u64) -> &str {
        let of = &self.all.objects[self.index];
        match self.all.layout(self.index).at(of, section, offset) {
            Some(id) => &of.symbols[id].name,
            None => &of.sections[section].name,
        }
    }

    fn new_address(&self, section: SectionId, relocation: &Relocation, of: &str) -> Error {
        Error::user(
            format!(
                "{} in {}: it has the address of {of}, a function that the kernel does not have; \
                 the kernel might keep that address when the change is gone",
                self.owner(section, relocation.offset),
                self.object.source()
            ),
            "call the new function directly, or put its code into a function that the kernel has",
        )
    }

    fn registers(&self, section: SectionId, what: &str) -> Error {
        Error::user(
            format!(
                "{} in {}: it refers to {what}, which the kernel does not have and which only a \
                 boot can add",
                self.owner(section, 0),
                self.object.source()
            ),
            "do without new per-CPU data, tracepoints, parameters, exports and boot functions",
        )
    }

    /// The symbol that stands for one of the kernel's.
    fn stock_symbol(&mut self, id: StockId) -> SymbolId {
        let name = stock_name(self.vmlinux, id);
        let symbol = self.undefined(name);
        self.mention_key_of(symbol);
        symbol
    }

    /// objtool looks for the key of a static call where it finds the call, by its name.
    fn mention_key_of(&mut self, symbol: SymbolId) {
        if let Some(call) = self.object.symbols[symbol].name.strip_prefix("__SCT__") {
            let key = self.undefined(format!("__SCK__{call}"));
            self.keys.insert(key);
        }
    }

    fn mention_key(&mut self, relocation: &Relocation) {
        let symbol = relocation.symbol;
        let is_outside = |&id: &SymbolId| self.object.symbols[id].place == Place::Undefined;
        if let Some(symbol) = symbol.filter(is_outside) {
            self.mention_key_of(symbol);
        }
    }

    fn undefined(&mut self, name: String) -> SymbolId {
        let symbols = &mut self.object.symbols;
        *self.stock.entry(name.clone()).or_insert_with(|| {
            symbols.push(Symbol {
                name,
                binding: elf::STB_GLOBAL,
                kind: elf::STT_NOTYPE,
                other: 0,
                place: Place::Undefined,
                value: 0,
                size: 0,
            });
            symbols.len() - 1
        })
    }

    /// Adds the table of this object's replaced functions. Returns how many there are, and how many
    /// of them are redirected.
    fn table(&mut self) -> (usize, usize) {
        let (mut data, mut relocations) = (Vec::new(), Vec::new());
        let (mut replaced, mut redirected) = (0, 0);
        // A function may have several names.
        let mut seen = HashSet::new();
        for (id, function) in self.graph.functions.iter().enumerate() {
            let is_ours = function.object == self.index;
            if !is_ours || self.classes[id] == boundary::Class::Kept {
                continue;
            }
            let Some(pair) = self.pairs.get((self.index, function.symbol)) else {
                continue;
            };
            if !seen.insert(self.vmlinux.symbols()[pair.stock].address) {
                continue;
            }
            let new = (self.classes[id] == boundary::Class::Interface).then_some(function.symbol);
            replaced += 1;
            redirected += usize::from(new.is_some());
            self.entry(&mut data, &mut relocations, pair.stock, new);
            let cold = format!("{}.cold", self.vmlinux.symbols()[pair.stock].name);
            let of_file = self.vmlinux.symbols()[pair.stock].file;
            let cold = self.vmlinux.named(&cold).iter().copied();
            let mut cold =
                cold.filter(|&id| of_file.is_none() || self.vmlinux.symbols()[id].file == of_file);
            if let Some(cold) = cold.next() {
                self.entry(&mut data, &mut relocations, cold, None);
            }
        }
        let mut keys = self.keys.iter().copied();
        let mut mention = |symbol| Relocation {
            offset: 0,
            kind: elf::R_X86_64_NONE,
            symbol: Some(symbol),
            addend: 0,
        };
        relocations.extend(keys.by_ref().map(&mut mention));
        self.object.sections.push(Section {
            name: TABLE.into(),
            kind: elf::SHT_PROGBITS,
            flags: u64::from(elf::SHF_ALLOC | elf::SHF_WRITE),
            size: data.len() as u64,
            data,
            align: 8,
            entry_size: 0,
            follows: None,
            relocations,
        });
        (replaced, redirected)
    }

    /// Adds an entry: the old function, the new one if the old is redirected, the old one's size,
    /// and the place of the jump in it.
    fn entry(
        &mut self,
        data: &mut Vec<u8>,
        relocations: &mut Vec<Relocation>,
        old: StockId,
        new: Option<SymbolId>,
    ) {
        let offset = data.len() as u64;
        let address = |offset, symbol| Relocation {
            offset,
            kind: elf::R_X86_64_64,
            symbol: Some(symbol),
            addend: 0,
        };
        relocations.push(address(offset, self.stock_symbol(old)));
        relocations.extend(new.map(|new| address(offset + 8, new)));
        data.extend([0; 16]);
        let function = &self.vmlinux.symbols()[old];
        let jump = new.and_then(|_| self.sites.jump(function, self.vmlinux));
        data.extend((function.size as u32).to_le_bytes());
        data.extend(jump.unwrap_or(0).to_le_bytes());
        debug_assert_eq!(data.len() % ENTRY, 0);
    }

    /// Removes what no module has, and hides the names of what is not replaced.
    fn finish(mut self) -> Result<Object> {
        let mut gone: HashSet<SectionId> = HashSet::new();
        for (id, section) in self.object.sections.iter().enumerate() {
            if is_dropped(&section.name) || self.is_all_shared(id) {
                gone.insert(id);
            }
        }
        for (id, symbol) in self.object.symbols.iter_mut().enumerate() {
            let function = self.graph.function((self.index, id));
            let is_replaced =
                function.is_some_and(|function| self.classes[function] != boundary::Class::Kept);
            let is_new = self.pairs.get((self.index, id)).is_none();
            if symbol.section().is_some() && !is_replaced && !is_new {
                symbol.binding = elf::STB_LOCAL;
            }
            // objtool must find the kernel's under this name, not the module's, which is not used.
            if symbol.section().is_some() && symbol.name.starts_with("__SCT__") {
                symbol.name.insert_str("__SCT__".len(), "unused_");
            }
        }
        self.object.remove(|id, _| gone.contains(&id))?;
        Ok(self.object)
    }

    /// Has the section only data of which the kernel's own are used?
    fn is_all_shared(&self, section: SectionId) -> bool {
        let Some(of) = self.all.objects[self.index].sections.get(section) else {
            return false;
        };
        let layout = self.all.layout(self.index);
        let symbols = layout.symbols(section);
        !of.is_code()
            && !symbols.is_empty()
            && symbols.iter().all(|&id| {
                let symbol = &self.all.objects[self.index].symbols[id];
                is_shared(of, symbol) && self.pairs.get((self.index, id)).is_some()
            })
    }
}

/// Is a datum the kernel's own, if the kernel has it? The trampoline of a static call is one, too.
pub fn is_shared(section: &Section, symbol: &Symbol) -> bool {
    if graph::is_trampoline(&section.name) {
        return true;
    }
    let is_label = symbol.name.starts_with("__UNIQUE_ID");
    let is_constant = !section.is_writable() && !boundary::has_identity(&section.name);
    !section.is_code() && !is_constant && !is_label
}
