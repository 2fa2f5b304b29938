// SPDX-License-Identifier: GPL-2.0-only
//! Which symbol of the kernel a symbol of the changed scheduler stands for.
//!
//! The unchanged scheduler's symbols have known places in the kernel. A changed symbol is found
//! among them by its name. Static data of functions have numbers in their names, which any change
//! may shift; they are found by the functions that refer to them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use object::elf;

use baton_control::error::{Error, Result};

use crate::elf::{Object, SymbolId};
use crate::graph::{Definition, Graph, Objects, Target};
use crate::identity::Placed;
use crate::vmlinux::{StockId, Vmlinux};

/// The kernel's symbols of the changed scheduler's.
pub struct Pairs(HashMap<Definition, Pair>);

/// What a changed symbol stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The symbol in the unchanged object of the same index.
    pub unchanged: SymbolId,
    /// The kernel's symbol.
    pub stock: StockId,
}

/// An object's functions that refer to each of its static data.
type Users = HashMap<SymbolId, BTreeSet<String>>;

impl Pairs {
    /// # Errors
    /// It cannot be told which of several static data a changed one is.
    pub fn of(
        changed: &Objects,
        unchanged: &Objects,
        placed: &[Placed],
        vmlinux: &Vmlinux,
    ) -> Result<Self> {
        let mut pairs = HashMap::new();
        let graphs = [changed, unchanged].map(Graph::of);
        for (index, placed) in placed.iter().enumerate() {
            let objects = [changed, unchanged].map(|all| &all.objects[index]);
            let mut found = by_name(objects);
            found.extend(by_users(
                objects,
                [
                    users(changed, &graphs[0], index),
                    users(unchanged, &graphs[1], index),
                ],
            )?);
            for (ours, unchanged) in found {
                let symbol = &objects[1].symbols[unchanged];
                let stock = if symbol.is_weak() {
                    vmlinux.global(&symbol.name)
                } else {
                    placed.symbol(symbol, vmlinux)
                };
                if let Some(stock) = stock {
                    pairs.insert((index, ours), Pair { unchanged, stock });
                }
            }
        }
        Ok(Self(pairs))
    }

    pub fn get(&self, symbol: Definition) -> Option<Pair> {
        self.0.get(&symbol).copied()
    }
}

/// The symbols whose names are the same in both objects, and each there only once.
fn by_name(objects: [&Object; 2]) -> Vec<(SymbolId, SymbolId)> {
    let [changed, unchanged] = objects.map(|object| {
        let mut names: HashMap<&str, Option<SymbolId>> = HashMap::new();
        for (id, symbol) in object.symbols.iter().enumerate() {
            let is_static = static_base(&symbol.name).is_some() && symbol.kind == elf::STT_OBJECT;
            if symbol.section().is_some() && !symbol.name.is_empty() && !is_static {
                let once = names.entry(&symbol.name).or_insert(Some(id));
                *once = once.filter(|&first| first == id);
            }
        }
        names
    });
    let both = changed.into_iter().filter_map(|(name, ours)| {
        let theirs = unchanged.get(name).copied().flatten()?;
        Some((ours?, theirs))
    });
    both.collect()
}

/// The name of static data without its number.
fn static_base(name: &str) -> Option<&str> {
    let (base, number) = name.rsplit_once('.')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !base.is_empty()).then_some(base)
}

/// The functions that refer to each of an object's static data.
fn users(objects: &Objects, graph: &Graph, index: usize) -> Users {
    let object = &objects.objects[index];
    let mut users: Users = HashMap::new();
    for (id, symbol) in object.symbols.iter().enumerate() {
        let is_static = static_base(&symbol.name).is_some() && symbol.kind == elf::STT_OBJECT;
        if is_static && symbol.section().is_some() {
            users.insert(id, BTreeSet::new());
        }
    }
    for (section, of_section) in object.sections.iter().enumerate() {
        if !of_section.is_loaded() {
            continue;
        }
        for relocation in &of_section.relocations {
            let Target::Here((target, symbol), _) = objects.target(index, section, relocation)
            else {
                continue;
            };
            let owner = objects.layout(index).at(object, section, relocation.offset);
            if let (true, Some(owner), Some(users)) =
                (target == index, owner, users.get_mut(&symbol))
            {
                let function = graph.function((index, owner));
                let name = match function {
                    Some(function) => &graph.functions[function].name,
                    None => &object.symbols[owner].name,
                };
                // The name of static data that refers to it may have another number, too.
                users.insert(static_base(name).unwrap_or(name).to_owned());
            }
        }
    }
    users
}

/// The static data of the same name, number aside, and the same users. If users changed, the only
/// datum of a name that is left is taken.
fn by_users(objects: [&Object; 2], users: [Users; 2]) -> Result<Vec<(SymbolId, SymbolId)>> {
    let [changed, unchanged] = objects;
    let mut groups: BTreeMap<&str, [Vec<SymbolId>; 2]> = BTreeMap::new();
    for (side, (object, users)) in objects.into_iter().zip(&users).enumerate() {
        let mut ids: Vec<_> = users.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let base = static_base(&object.symbols[id].name).unwrap_or_default();
            groups.entry(base).or_default()[side].push(id);
        }
    }
    let mut pairs = Vec::new();
    for (base, [mut ours, mut theirs]) in groups {
        ours.retain(|&id| {
            let same = |&other: &SymbolId| {
                users[0][&id] == users[1][&other]
                    && changed.symbols[id].size == unchanged.symbols[other].size
            };
            // Several with the same users, as of one macro that is used twice, are paired in order.
            match theirs.iter().position(same) {
                Some(at) => {
                    pairs.push((id, theirs.remove(at)));
                    false
                }
                None => true,
            }
        });
        match (&ours[..], &theirs[..]) {
            ([], _) | (_, []) => {}
            (&[id], &[other]) => pairs.push((id, other)),
            _ => {
                let name = &changed.symbols[ours[0]].name;
                let of = users[0][&ours[0]].first().map_or("no function", |s| s);
                return Err(Error::user(
                    format!(
                        "it cannot be told which of the kernel's data {base} is that of {of} in \
                         {} ({name})",
                        changed.source()
                    ),
                    "keep the functions that use it as they were, or give it another name: then \
                     it is new",
                ));
            }
        }
    }
    Ok(pairs)
}
