// SPDX-License-Identifier: GPL-2.0-only
//! The last step of a module: its references to symbols of the kernel that are not exported become
//! those of a live patch, which the kernel's loader resolves by name
//! (Documentation/livepatch/module-elf-format.rst).

use std::collections::{BTreeSet, HashSet};

use object::elf;

use baton_control::error::{Error, Result};

use crate::elf::{Object, Place};
use crate::extract::{stock_of_name, ENTRY, TABLE};
use crate::vmlinux::Vmlinux;

/// The names by which the engine knows the beginning and the end of the table.
const BOUNDS: [&str; 2] = ["baton_live_functions", "baton_live_functions_end"];

/// The symbols that a kernel exports to every module, from the text of its `Module.symvers`: lines
/// of checksum, name, module, kind and namespace, with tabs between.
pub fn exported(symvers: &str) -> HashSet<&str> {
    let symbols = symvers.lines().filter_map(|line| {
        let mut fields = line.split('\t').skip(1);
        let (name, module, _kind) = (fields.next()?, fields.next()?, fields.next()?);
        let is_for_all = fields.next().is_none_or(str::is_empty);
        (module == "vmlinux" && is_for_all).then_some(name)
    });
    symbols.collect()
}

/// Completes a module.
///
/// # Errors
/// It refers to a symbol that the kernel does not have, or has several of.
pub fn complete(module: &mut Object, exported: &HashSet<&str>, vmlinux: &Vmlinux) -> Result<()> {
    place_bounds(module)?;
    let mut unknown = BTreeSet::new();
    for symbol in &mut module.symbols {
        if symbol.place != Place::Undefined || symbol.name.is_empty() {
            continue;
        }
        let (name, position) = match stock_of_name(&symbol.name) {
            Some(stock) => stock,
            None if exported.contains(&*symbol.name) => continue,
            None => match vmlinux.global(&symbol.name) {
                Some(id) => (symbol.name.clone(), vmlinux.position(id)),
                None => {
                    unknown.insert(symbol.name.clone());
                    continue;
                }
            },
        };
        symbol.name = format!(".klp.sym.vmlinux.{name},{position}");
        symbol.place = Place::Livepatch;
        symbol.binding = elf::STB_GLOBAL;
    }
    if let Some(name) = unknown.first() {
        return Err(Error::user(
            format!(
                "the change refers to {name}, which the kernel does not have ({} such names)",
                unknown.len()
            ),
            "define it in the scheduler, or use what this kernel has",
        ));
    }
    // Debug information and types are for other tools, and would need relocations of their own.
    module.remove(|_, section| !section.is_loaded() && section.name.starts_with(".debug"))?;
    for section in &mut module.sections {
        let is_livepatch = |id: usize| module.symbols[id].place == Place::Livepatch;
        if !section.is_loaded() {
            section
                .relocations
                .retain(|r| !r.symbol.is_some_and(is_livepatch));
        }
        for relocation in &section.relocations {
            // The loader insists on zeros where it puts an address.
            if relocation.symbol.is_some_and(is_livepatch) {
                let at = relocation.offset as usize;
                section.data[at..at + relocation.width()?].fill(0);
            }
        }
    }
    Ok(())
}

/// Defines the bounds of the table, which the linker has put together from all objects.
fn place_bounds(module: &mut Object) -> Result<()> {
    let table = module.sections.iter().position(|s| s.name == TABLE);
    let Some(table) =
        table.filter(|&table| module.sections[table].size.is_multiple_of(ENTRY as u64))
    else {
        return Err(Error::baton("the module has no table of functions"));
    };
    let ends = [0, module.sections[table].size];
    for symbol in &mut module.symbols {
        if let Some(end) = BOUNDS.iter().position(|name| symbol.name == *name) {
            symbol.place = Place::Section(table);
            symbol.value = ends[end];
            symbol.kind = elf::STT_OBJECT;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_exported_to_every_module() {
        let symvers = "0x0\tkfree\tvmlinux\tEXPORT_SYMBOL\t\n\
            0x0\tdma_buf_get\tvmlinux\tEXPORT_SYMBOL_GPL\tDMA_BUF\n\
            0x0\tof_a_module\tdrivers/net/a\tEXPORT_SYMBOL\t\nbroken\n";
        assert_eq!(exported(symvers), HashSet::from(["kfree"]));
    }
}
