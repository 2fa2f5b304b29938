// SPDX-License-Identifier: GPL-2.0-only
//! Who refers to whom in the scheduler's objects. They are compiled with a section for each
//! function and each datum, so their relocations are the graph of calls as it is after inlining.

use std::collections::{BTreeSet, HashMap};

use object::elf;

use crate::code::Code;
use crate::elf::{Layout, Object, Place, Relocation, SectionId, SymbolId};

/// The index of a function in [`Graph::functions`].
pub type FunctionId = usize;

/// A symbol of one of the objects: the object's index and the symbol's.
pub type Definition = (usize, SymbolId);

/// A function of the scheduler. Its rarely executed part, which the compiler puts elsewhere under
/// the name `NAME.cold`, belongs to it.
#[derive(Debug)]
pub struct Function {
    /// Index of the object.
    pub object: usize,
    pub symbol: SymbolId,
    pub name: String,
    /// The symbol of the rarely executed part.
    pub cold: Option<SymbolId>,
}

/// Functions and the references between them.
pub struct Graph {
    pub functions: Vec<Function>,
    /// For each function those that it calls or jumps to directly.
    pub calls: Vec<BTreeSet<FunctionId>>,
    /// For each function the names of code and data that have its address.
    pub taken_by: Vec<BTreeSet<String>>,
    /// For each function the names of the kernel's other functions that it calls directly.
    pub calls_outside: Vec<BTreeSet<String>>,
    /// The names of the kernel's other symbols that something refers to, called or not.
    pub outside: BTreeSet<String>,
    ids: HashMap<Definition, FunctionId>,
}

/// What a relocation refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// A symbol of an object, and the offset of the reference from the symbol's start.
    Here(Definition, i64),
    /// A symbol that no object defines.
    Outside(&'a str),
    /// A place of a section of the same object, at this offset, at which no symbol is.
    Nameless(SectionId, i64),
}

/// The objects with what searches of them need.
pub struct Objects {
    pub objects: Vec<Object>,
    layouts: Vec<Layout>,
    /// For each object the instructions of each section of code.
    codes: Vec<HashMap<SectionId, Code>>,
    /// The symbols that other objects may refer to.
    globals: HashMap<String, Definition>,
}

impl Objects {
    pub fn new(objects: Vec<Object>) -> Self {
        let layouts: Vec<_> = objects.iter().map(Layout::of).collect();
        let codes = objects
            .iter()
            .zip(&layouts)
            .map(|(object, layout)| {
                let code = |id: SectionId| (id, decoded(object, layout, id));
                let sections = 0..object.sections.len();
                let sections = sections.filter(|&id| object.sections[id].is_code());
                sections.map(code).collect()
            })
            .collect();
        let mut globals = HashMap::new();
        for (index, object) in objects.iter().enumerate() {
            for (id, symbol) in object.symbols.iter().enumerate() {
                if !symbol.is_local() && symbol.section().is_some() {
                    globals.insert(symbol.name.clone(), (index, id));
                }
            }
        }
        Self {
            objects,
            layouts,
            codes,
            globals,
        }
    }

    /// The symbols of an object, for searches by offset.
    pub fn layout(&self, object: usize) -> &Layout {
        &self.layouts[object]
    }

    /// What a relocation of a section refers to.
    pub fn target(&self, object: usize, section: SectionId, relocation: &Relocation) -> Target<'_> {
        let of = &self.objects[object];
        let Some(id) = relocation.symbol else {
            return Target::Outside("");
        };
        let symbol = &of.symbols[id];
        let Place::Section(place) = symbol.place else {
            return match self.globals.get(&symbol.name) {
                Some(&definition) => {
                    Target::Here(definition, self.past(object, section, relocation))
                }
                None => Target::Outside(&symbol.name),
            };
        };
        let offset = self.past(object, section, relocation);
        if symbol.kind != elf::STT_SECTION {
            return Target::Here((object, id), offset);
        }
        let at = u64::try_from(offset).ok();
        match at.and_then(|at| self.layouts[object].at(of, place, at)) {
            Some(found) => {
                let start = of.symbols[found].value as i64;
                Target::Here((object, found), offset - start)
            }
            None => Target::Nameless(place, offset),
        }
    }

    /// How far beyond its symbol a relocation refers. One that is relative to the instruction has
    /// an addend that is less, by the distance from its place to the instruction's end.
    fn past(&self, object: usize, section: SectionId, relocation: &Relocation) -> i64 {
        let code = self.codes[object].get(&section);
        let around = code.and_then(|code| code.around(relocation.offset));
        match around.filter(|_| relocation.is_relative()) {
            Some(instruction) => relocation.addend + (instruction.end - relocation.offset) as i64,
            None => relocation.addend,
        }
    }

    /// Is the relocation's place the target of a direct call or jump?
    pub fn is_branch(&self, object: usize, section: SectionId, relocation: &Relocation) -> bool {
        let code = self.codes[object].get(&section);
        code.and_then(|code| code.around(relocation.offset))
            .is_some_and(|i| i.branch.is_some() && i.end == relocation.offset + 4)
    }
}

fn decoded(object: &Object, layout: &Layout, section: SectionId) -> Code {
    let functions = layout.symbols(section).iter();
    let functions = functions.filter(|&&id| object.symbols[id].kind == elf::STT_FUNC);
    let mut starts: Vec<_> = functions.map(|&id| object.symbols[id].value).collect();
    if starts.is_empty() {
        starts.push(0);
    }
    starts.dedup();
    Code::of(&object.sections[section].data, &starts)
}

/// Sections whose entries refer to code without taking a function's address: they describe places
/// in it.
const DESCRIBES_CODE: &[&str] = &[
    "__jump_table",
    "__bug_table",
    "__ex_table",
    "__mcount_loc",
    "__patchable_function_entries",
    ".altinstructions",
    ".discard",
    ".smp_locks",
    ".retpoline_sites",
    ".return_sites",
    ".call_sites",
    ".ibt_endbr_seal",
    ".static_call_sites",
    "runtime_",
    ".orc_",
];

/// The section, of the file only, that has the addresses of what is exported.
pub const EXPORTS: &str = ".export_symbol";

/// Does the section describe places in code?
pub fn describes_code(name: &str) -> bool {
    DESCRIBES_CODE.iter().any(|start| name.starts_with(start))
}

/// Is it the section of a static call's trampoline? The kernel rewrites that while it runs, so it
/// counts as data.
pub fn is_trampoline(name: &str) -> bool {
    name.starts_with(".static_call.text")
}

/// The name of the function to which a rarely executed part belongs.
fn whole(name: &str) -> &str {
    match name.rsplit_once(".cold") {
        Some((whole, rest))
            if rest
                .trim_start_matches('.')
                .chars()
                .all(|c| c.is_ascii_digit()) =>
        {
            whole
        }
        _ => name,
    }
}

impl Graph {
    pub fn of(objects: &Objects) -> Self {
        let (functions, ids) = functions(objects);
        let count = functions.len();
        let mut graph = Self {
            functions,
            calls: vec![BTreeSet::new(); count],
            taken_by: vec![BTreeSet::new(); count],
            calls_outside: vec![BTreeSet::new(); count],
            outside: BTreeSet::new(),
            ids,
        };
        for (index, object) in objects.objects.iter().enumerate() {
            for (id, section) in object.sections.iter().enumerate() {
                let counts = section.is_loaded() || section.name == EXPORTS;
                if !counts || describes_code(&section.name) {
                    continue;
                }
                for relocation in &section.relocations {
                    graph.reference(objects, index, id, relocation);
                }
                if section.is_code() {
                    graph.branches_inside(objects, index, id);
                }
            }
        }
        graph
    }

    /// The function to which a symbol belongs.
    pub fn function(&self, definition: Definition) -> Option<FunctionId> {
        self.ids.get(&definition).copied()
    }

    /// For each function those that call it.
    pub fn callers(&self) -> Vec<Vec<FunctionId>> {
        let mut callers = vec![Vec::new(); self.functions.len()];
        for (caller, calls) in self.calls.iter().enumerate() {
            for &callee in calls {
                callers[callee].push(caller);
            }
        }
        callers
    }

    fn reference(
        &mut self,
        objects: &Objects,
        object: usize,
        section: SectionId,
        relocation: &Relocation,
    ) {
        let of = &objects.objects[object];
        let owner = objects.layout(object).at(of, section, relocation.offset);
        let caller = owner.and_then(|owner| self.function((object, owner)));
        let is_branch = objects.is_branch(object, section, relocation);
        match objects.target(object, section, relocation) {
            Target::Here(definition, _) => {
                let Some(callee) = self.function(definition) else {
                    return;
                };
                match caller {
                    Some(caller) if caller == callee => {}
                    Some(caller) if is_branch => {
                        self.calls[caller].insert(callee);
                    }
                    _ => {
                        let by = owner
                            .map_or(&of.sections[section].name, |owner| &of.symbols[owner].name);
                        self.taken_by[callee].insert(by.clone());
                    }
                }
            }
            Target::Outside(name) if !name.is_empty() => {
                self.outside.insert(name.to_owned());
                if let (Some(caller), true) = (caller, is_branch) {
                    self.calls_outside[caller].insert(name.to_owned());
                }
            }
            Target::Outside(_) | Target::Nameless(..) => {}
        }
    }

    /// Adds the calls from one function of a section to another, which need no relocation.
    fn branches_inside(&mut self, objects: &Objects, object: usize, section: SectionId) {
        let of = &objects.objects[object];
        let relocations = of.sections[section].relocations.iter();
        let relocated: BTreeSet<u64> = relocations.map(|relocation| relocation.offset).collect();
        let Some(code) = objects.codes[object].get(&section) else {
            return;
        };
        let function_at = |graph: &Self, at| {
            let symbol = objects.layout(object).at(of, section, at)?;
            graph.function((object, symbol))
        };
        for instruction in code.instructions() {
            let Some(target) = instruction.branch else {
                continue;
            };
            if relocated
                .range(instruction.at..instruction.end)
                .next()
                .is_some()
            {
                continue;
            }
            if let (Some(caller), Some(callee)) =
                (function_at(self, instruction.at), function_at(self, target))
            {
                if caller != callee {
                    self.calls[caller].insert(callee);
                }
            }
        }
    }
}

/// The functions of all objects, and for each symbol of theirs which one it is.
fn functions(objects: &Objects) -> (Vec<Function>, HashMap<Definition, FunctionId>) {
    let mut functions: Vec<Function> = Vec::new();
    let mut ids = HashMap::new();
    let mut cold = Vec::new();
    for (index, object) in objects.objects.iter().enumerate() {
        for (id, symbol) in object.symbols.iter().enumerate() {
            let Some(section) = symbol.section().filter(|_| symbol.is_function()) else {
                continue;
            };
            if is_trampoline(&object.sections[section].name) {
                continue;
            }
            if whole(&symbol.name) != symbol.name {
                cold.push((index, id));
                continue;
            }
            ids.insert((index, id), functions.len());
            functions.push(Function {
                object: index,
                symbol: id,
                name: symbol.name.clone(),
                cold: None,
            });
        }
    }
    for (index, id) in cold {
        let name = whole(&objects.objects[index].symbols[id].name);
        let owner = functions
            .iter()
            .position(|function| function.object == index && function.name == name);
        if let Some(owner) = owner {
            functions[owner].cold = Some(id);
            ids.insert((index, id), owner);
        }
    }
    (functions, ids)
}
