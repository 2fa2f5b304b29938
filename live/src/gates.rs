// SPDX-License-Identifier: GPL-2.0-only
//! What a change may not do. Each gate compares the changed scheduler with the unchanged one, and
//! refuses what would have no effect or would break the running kernel's state.

use std::collections::HashMap;

use object::elf;

use baton_control::error::{Error, Result};

use crate::boundary::Class;
use crate::btf::Layouts;
use crate::elf::{Object, SectionId, Symbol};
use crate::extract::is_shared;
use crate::graph::{Definition, Graph, Objects, Target};
use crate::pairs::Pairs;

/// A scheduler with its functions and their classes.
pub struct Side<'a> {
    pub objects: &'a Objects,
    pub graph: &'a Graph,
    /// Of each function of the graph.
    pub classes: &'a [Class],
}

/// Refuses a change that a gate forbids.
///
/// # Errors
/// A kept function has other code; a shared datum has another size or first value; a function that
/// the kernel reaches is gone; the compiler made another variant of a function that the kernel
/// reaches, with arguments that may differ.
pub fn pass(changed: &Side, unchanged: &Side, pairs: &Pairs) -> Result<()> {
    kept_code(changed, unchanged, pairs)?;
    shared_data(changed, unchanged, pairs)?;
    interface(changed, unchanged)
}

fn kept_code(changed: &Side, unchanged: &Side, pairs: &Pairs) -> Result<()> {
    for (id, function) in changed.graph.functions.iter().enumerate() {
        if changed.classes[id] != Class::Kept {
            continue;
        }
        let index = function.object;
        let file = changed.objects.objects[index].source();
        let Some(pair) = pairs.get((index, function.symbol)) else {
            return Err(Error::user(
                format!(
                    "{} in {file}: it is new, and its code cannot be in a module",
                    function.name
                ),
                "baton live boundary says which code that is; put it into plain functions that do \
                 not sleep",
            ));
        };
        let ours = body(changed.objects, (index, function.symbol));
        let theirs = body(unchanged.objects, (index, pair.unchanged));
        if ours != theirs {
            return Err(Error::user(
                format!(
                    "{} in {file}: its code has changed, and the kernel's own goes on",
                    function.name
                ),
                format!(
                    "see why it is kept: baton live boundary {}; if the change is in a function \
                     that it calls inline, call that one out of line",
                    function.name
                ),
            ));
        }
    }
    Ok(())
}

fn shared_data(changed: &Side, unchanged: &Side, pairs: &Pairs) -> Result<()> {
    for (index, object) in changed.objects.objects.iter().enumerate() {
        for (id, symbol) in object.symbols.iter().enumerate() {
            let Some(section) = symbol.section().map(|id| &object.sections[id]) else {
                continue;
            };
            let is_datum = symbol.kind == elf::STT_OBJECT && is_shared(section, symbol);
            let pair = pairs.get((index, id)).filter(|_| is_datum);
            let Some(pair) = pair else {
                continue;
            };
            let before = &unchanged.objects.objects[index].symbols[pair.unchanged];
            let way = "give the new datum another name: then it is the change's own";
            if before.size != symbol.size {
                return Err(Error::user(
                    format!(
                        "{} in {}: it has {} bytes, the kernel's own {}",
                        symbol.name,
                        object.source(),
                        symbol.size,
                        before.size
                    ),
                    way,
                ));
            }
            let ours = body(changed.objects, (index, id));
            let theirs = body(unchanged.objects, (index, pair.unchanged));
            if ours != theirs {
                return Err(Error::user(
                    format!(
                        "{} in {}: its first value has changed, but the kernel's own datum keeps \
                         the value that it has",
                        symbol.name,
                        object.source()
                    ),
                    way,
                ));
            }
        }
    }
    Ok(())
}

/// Refuses a change of the layout of a structure or union that an object of the unchanged scheduler
/// has; `file` is the object's source file. One that is new may have any layout.
///
/// # Errors
/// A layout has changed.
pub fn layouts(file: &str, changed: &Layouts, unchanged: &Layouts) -> Result<()> {
    for (name, before) in unchanged {
        let Some(after) = changed.get(name).filter(|after| *after != before) else {
            continue;
        };
        let without = |lines: &[String], others: &[String]| {
            let mut found = lines.iter().rev().filter(|line| !others.contains(line));
            found.next().cloned()
        };
        let differs = match (without(before, after), without(after, before)) {
            (Some(line), _) => format!("{line} is no longer so"),
            (None, line) => format!("{} is new", line.unwrap_or_default()),
        };
        return Err(Error::user(
            format!(
                "{name} in {file}: its layout has changed: {differs}; the kernel has data of the \
                 old layout"
            ),
            "keep its members where they are, and keep new data apart: in a table of the change's \
             own, by CPU or by task",
        ));
    }
    Ok(())
}

/// The marks that a compiler puts into the names of a function's variants.
const VARIANTS: &[&str] = &[".isra.", ".constprop.", ".part."];

fn interface(changed: &Side, unchanged: &Side) -> Result<()> {
    let mut ours = HashMap::new();
    for (id, function) in changed.graph.functions.iter().enumerate() {
        ours.insert((function.object, &*function.name), id);
    }
    for (id, function) in unchanged.graph.functions.iter().enumerate() {
        if unchanged.classes[id] != Class::Interface {
            continue;
        }
        let index = function.object;
        let file = unchanged.objects.objects[index].source();
        let Some(&other) = ours.get(&(index, &*function.name)) else {
            return Err(Error::user(
                format!(
                    "{} in {file}: the change has no such function, and the kernel may call it",
                    function.name
                ),
                "keep it as a function of its own; noinline prevents that its code becomes part of \
                 its callers",
            ));
        };
        let is_variant = VARIANTS.iter().any(|mark| function.name.contains(mark));
        let symbol = changed.graph.functions[other].symbol;
        let same = || {
            body(changed.objects, (index, symbol))
                == body(unchanged.objects, (index, function.symbol))
        };
        if is_variant && !same() {
            return Err(Error::user(
                format!(
                    "{} in {file}: its code has changed, and the compiler chose how it takes its \
                     arguments, which may differ from the kernel's",
                    function.name
                ),
                "leave that function unchanged, or call a new one from its callers",
            ));
        }
    }
    Ok(())
}

/// The bytes of a function or datum, and what they refer to. Two are equal if they do the same.
#[derive(Debug, PartialEq, Eq)]
struct Body {
    bytes: Vec<u8>,
    references: Vec<(u64, u32, String, i64)>,
}

fn body(objects: &Objects, (index, id): Definition) -> Body {
    let object = &objects.objects[index];
    let symbol = &object.symbols[id];
    let Some(section) = symbol.section() else {
        return Body {
            bytes: Vec::new(),
            references: Vec::new(),
        };
    };
    let of = &object.sections[section];
    let (from, to) = (symbol.value, symbol.value + symbol.size);
    let bytes = of.data.get(from as usize..to as usize);
    let here = of
        .relocations
        .iter()
        .filter(|relocation| (from..to).contains(&relocation.offset));
    let references = here.map(|relocation| {
        let (name, past) = match objects.target(index, section, relocation) {
            Target::Here((other, target), past) => {
                let target = &objects.objects[other].symbols[target];
                (without_number(target).to_owned(), past)
            }
            Target::Outside(name) => (name.to_owned(), relocation.addend),
            Target::Nameless(place, offset) => nameless(object, place, offset),
        };
        (relocation.offset - from, relocation.kind, name, past)
    });
    Body {
        bytes: bytes.unwrap_or_default().to_vec(),
        references: references.collect(),
    }
}

/// The name of a symbol; of static data without the number that the compiler gives it.
fn without_number(symbol: &Symbol) -> &str {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match symbol.name.rsplit_once('.') {
        Some((name, number)) if symbol.kind == elf::STT_OBJECT && is_number(number) => name,
        _ => &symbol.name,
    }
}

/// What a reference to a nameless place means: the text or the constant there, if the section is
/// one of such, whose places any change may shift.
fn nameless(object: &Object, section: SectionId, offset: i64) -> (String, i64) {
    let of = &object.sections[section];
    let has = |flag: u32| of.flags & u64::from(flag) != 0;
    let at = usize::try_from(offset).ok().filter(|_| has(elf::SHF_MERGE));
    match at.and_then(|at| of.data.get(at..)) {
        Some(rest) if has(elf::SHF_STRINGS) => {
            let text = rest.split(|&byte| byte == 0).next().unwrap_or_default();
            (String::from_utf8_lossy(text).into_owned(), 0)
        }
        Some(rest) => {
            let size = rest.len().min(of.entry_size as usize);
            (format!("{:x?}", &rest[..size]), 0)
        }
        None => (of.name.clone(), offset),
    }
}
