// SPDX-License-Identifier: GPL-2.0-only
//! The boundary of the scheduler: which of its functions and data a module can replace, and at
//! which of them the rest of the kernel meets it.
//!
//! A function is
//! - *kept* if the kernel's own must go on, so that a change of it has no effect: a task may always
//!   be asleep inside it, or its code is of a kind that cannot be in a module;
//! - *interface* if it is replaced and something outside the replaced functions may reach it, so
//!   that the kernel's own function must lead to the new one;
//! - *internal* if it is replaced and only replaced functions call it.
//!
//! A datum is *shared* if old and new code use the kernel's own, which keeps its value, and
//! *private* if the new code has its own: constants.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use object::elf;
use serde::Serialize;

use crate::code;
use crate::graph::{self, Definition, FunctionId, Graph, Objects, Target};
use crate::identity::Placed;
use crate::sites::Sites;
use crate::vmlinux::Vmlinux;

/// The functions by which a task waits for a time, outside the scheduler. One that calls them has
/// tasks asleep in it for long, as one that calls `schedule()`.
const WAITS: &[&str] = &[
    "schedule_timeout",
    "schedule_timeout_idle",
    "schedule_timeout_interruptible",
    "schedule_timeout_killable",
    "schedule_timeout_uninterruptible",
    "schedule_hrtimeout",
    "schedule_hrtimeout_range",
    "schedule_hrtimeout_range_clock",
];

/// The function in which a task's stack is left for another's.
const SWITCH: &str = "__schedule";

/// What becomes of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    Kept,
    Interface,
    Internal,
}

/// Why a function is of its class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Kept: it is in this section, whose code no module can have.
    Section(String),
    /// Kept: it reaches `schedule()`, through the function named.
    Sleeps(String),
    /// Kept: another definition may take precedence over it.
    Weak,
    /// Kept: the kernel fills constants in when it boots, and only then.
    RuntimeConstant,
    /// Kept: a jump to another function does not fit into it.
    NoRoom,
    /// Interface: this many functions outside call it; one of them.
    Called(usize, String),
    /// Interface: a function of the scheduler that is kept calls it.
    CalledByKept(String),
    /// Interface: something has its address.
    Taken(String),
    /// Interface: modules and BPF programs may call it by name.
    Exported,
    /// Interface: its name is known in all of the kernel.
    Global,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Section(name) => write!(f, "its code is in {name}"),
            Self::Sleeps(through) if through == SWITCH => f.write_str("tasks sleep in it"),
            Self::Sleeps(through) => write!(f, "tasks sleep in it, through {through}"),
            Self::Weak => f.write_str("it is weak: the kernel may have another one"),
            Self::RuntimeConstant => f.write_str("it has constants that only a boot fills in"),
            Self::NoRoom => f.write_str("it has no room for a jump to another function"),
            Self::Called(1, by) => write!(f, "{by} calls it"),
            Self::Called(count, by) => write!(f, "{count} functions outside call it, as {by}"),
            Self::CalledByKept(by) => write!(f, "{by} calls it, which is kept"),
            Self::Taken(by) => write!(f, "{by} has its address"),
            Self::Exported => f.write_str("it is exported"),
            Self::Global => f.write_str("it is global"),
        }
    }
}

impl Serialize for Reason {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// A function of the scheduler and its class.
#[derive(Debug, Serialize)]
pub struct Function {
    pub name: String,
    /// Source file of the object, without directories.
    pub file: String,
    pub class: Class,
    /// None for an internal function: only replaced functions call it.
    pub reasons: Vec<Reason>,
}

/// A datum of the scheduler.
#[derive(Debug, Serialize)]
pub struct Datum {
    pub name: String,
    /// Source file of the object, without directories.
    pub file: String,
    /// Do old and new code use the kernel's own?
    pub shared: bool,
}

/// A function of the rest of the kernel that the scheduler calls.
#[derive(Debug, Serialize)]
pub struct External {
    pub name: String,
    /// Number of functions that call it.
    pub callers: usize,
}

/// The boundary of the scheduler.
#[derive(Debug, Serialize)]
pub struct Boundary {
    /// By name.
    pub functions: Vec<Function>,
    /// By name.
    pub data: Vec<Datum>,
    /// By name.
    pub external: Vec<External>,
    /// Symbols of the rest of the kernel that are referred to, and not called directly.
    pub external_data: BTreeSet<String>,
}

impl Boundary {
    /// Computes it from the objects of the kernel's own scheduler, and from where they are in the
    /// kernel.
    pub fn of(objects: &Objects, placed: &[Placed], vmlinux: &Vmlinux) -> Self {
        let graph = Graph::of(objects);
        let narrow = Narrow::of(objects, &graph, placed, vmlinux);
        let Known { kept, mut reached } = Known::of(objects, &graph, &narrow);
        let outside = Outside::of(objects, &graph, placed, vmlinux);
        for (id, reasons) in reached.iter_mut().enumerate() {
            if let Some((count, by)) = outside.callers.get(&id) {
                reasons.insert(Reason::Called(*count, by.clone()));
            }
            if let Some(by) = outside.taken_by.get(&id) {
                reasons.insert(Reason::Taken(by.clone()));
            }
        }
        let mut functions: Vec<_> = graph
            .functions
            .iter()
            .enumerate()
            .map(|(id, function)| {
                let reasons = match kept.get(&id) {
                    Some(why) => why,
                    None => &reached[id],
                };
                let class = match (kept.contains_key(&id), reasons.is_empty()) {
                    (true, _) => Class::Kept,
                    (false, false) => Class::Interface,
                    (false, true) => Class::Internal,
                };
                Function {
                    name: function.name.clone(),
                    file: objects.objects[function.object].source().into(),
                    class,
                    reasons: reasons.iter().cloned().collect(),
                }
            })
            .collect();
        functions.sort_by(|a, b| (&a.name, &a.file).cmp(&(&b.name, &b.file)));
        let mut callers: BTreeMap<&str, usize> = BTreeMap::new();
        for name in graph.calls_outside.iter().flatten() {
            *callers.entry(name).or_default() += 1;
        }
        let external_data = graph.outside.iter();
        let external_data = external_data.filter(|name| !callers.contains_key(name.as_str()));
        Self {
            functions,
            data: data(objects, placed, vmlinux),
            external_data: external_data.cloned().collect(),
            external: callers
                .into_iter()
                .map(|(name, callers)| External {
                    name: name.into(),
                    callers,
                })
                .collect(),
        }
    }

    /// The number of functions of a class.
    pub fn count(&self, class: Class) -> usize {
        self.functions.iter().filter(|f| f.class == class).count()
    }
}

/// The class of each function, as far as it is known from the objects alone. Only for a function
/// that is neither global nor has its address taken could the rest of the kernel tell more, and
/// nothing there can reach such a function.
pub fn classes(objects: &Objects, graph: &Graph, narrow: &Narrow) -> Vec<Class> {
    let Known { kept, reached } = Known::of(objects, graph, narrow);
    let class = |(id, reasons): (FunctionId, &BTreeSet<Reason>)| match kept.contains_key(&id) {
        true => Class::Kept,
        false if reasons.is_empty() => Class::Internal,
        false => Class::Interface,
    };
    reached.iter().enumerate().map(class).collect()
}

/// The kernel's functions of the scheduler that have no room for a jump, by the object's index and
/// the name.
#[derive(Debug, Default)]
pub struct Narrow(HashSet<(usize, String)>);

impl Narrow {
    /// Finds them from the objects of the kernel's own scheduler.
    pub fn of(objects: &Objects, graph: &Graph, placed: &[Placed], vmlinux: &Vmlinux) -> Self {
        let sites = Sites::of(vmlinux);
        let is_narrow = |function: &&graph::Function| {
            let symbol = &objects.objects[function.object].symbols[function.symbol];
            let stock = placed[function.object].symbol(symbol, vmlinux);
            stock.is_some_and(|id| sites.jump(&vmlinux.symbols()[id], vmlinux).is_none())
        };
        let narrow = graph.functions.iter().filter(is_narrow);
        Self(narrow.map(|f| (f.object, f.name.clone())).collect())
    }
}

/// What is known from the objects alone.
struct Known {
    /// The functions that are kept, with the reasons.
    kept: HashMap<FunctionId, BTreeSet<Reason>>,
    /// For each function the reasons why something outside the replaced functions may reach it.
    reached: Vec<BTreeSet<Reason>>,
}

impl Known {
    fn of(objects: &Objects, graph: &Graph, narrow: &Narrow) -> Self {
        let kept = kept(objects, graph, narrow);
        let reached = interface(objects, graph, &kept);
        Self { kept, reached }
    }
}

/// The functions that are kept, with the reasons.
fn kept(
    objects: &Objects,
    graph: &Graph,
    narrow: &Narrow,
) -> HashMap<FunctionId, BTreeSet<Reason>> {
    let mut kept: HashMap<FunctionId, BTreeSet<Reason>> = HashMap::new();
    let mut keep = |id, reason| {
        kept.entry(id).or_default().insert(reason);
    };
    for (id, function) in graph.functions.iter().enumerate() {
        let object = &objects.objects[function.object];
        let symbol = &object.symbols[function.symbol];
        let section = symbol.section().map(|id| &*object.sections[id].name);
        if let Some(section) = section.filter(|name| !is_plain_code(name)) {
            keep(id, Reason::Section(section.into()));
        }
        if symbol.is_weak() {
            keep(id, Reason::Weak);
        }
        if narrow.0.contains(&(function.object, function.name.clone())) {
            keep(id, Reason::NoRoom);
        }
    }
    for (index, object) in objects.objects.iter().enumerate() {
        for (id, section) in object.sections.iter().enumerate() {
            if !section.name.starts_with("runtime_") {
                continue;
            }
            for relocation in &section.relocations {
                let target = objects.target(index, id, relocation);
                if let Target::Here(definition, _) = target {
                    if let Some(function) = graph.function(definition) {
                        keep(function, Reason::RuntimeConstant);
                    }
                }
            }
        }
    }
    for (id, through) in sleepers(graph) {
        keep(id, Reason::Sleeps(through));
    }
    kept
}

/// Is it a section that the compiler makes for a function without a section of its own?
fn is_plain_code(section: &str) -> bool {
    section == ".text" || section.starts_with(".text.")
}

/// The functions in which tasks sleep, each with the callee through which it reaches `schedule()`.
fn sleepers(graph: &Graph) -> HashMap<FunctionId, String> {
    let callers = graph.callers();
    let mut found: HashMap<FunctionId, String> = HashMap::new();
    let mut open = Vec::new();
    for (id, function) in graph.functions.iter().enumerate() {
        let waits = graph.calls_outside[id]
            .iter()
            .find(|name| WAITS.contains(&name.as_str()));
        let through = match waits {
            Some(name) => name.clone(),
            None if function.name == SWITCH => SWITCH.into(),
            None => continue,
        };
        found.insert(id, through);
        open.push(id);
    }
    while let Some(callee) = open.pop() {
        for &caller in &callers[callee] {
            found.entry(caller).or_insert_with(|| {
                open.push(caller);
                graph.functions[callee].name.clone()
            });
        }
    }
    found
}

/// For each function the reasons that are known from the objects why something outside the replaced
/// functions may reach it.
fn interface(
    objects: &Objects,
    graph: &Graph,
    kept: &HashMap<FunctionId, BTreeSet<Reason>>,
) -> Vec<BTreeSet<Reason>> {
    let mut reasons: Vec<BTreeSet<Reason>> = vec![BTreeSet::new(); graph.functions.len()];
    for (caller, calls) in graph.calls.iter().enumerate() {
        if kept.contains_key(&caller) {
            for &callee in calls {
                let name = graph.functions[caller].name.clone();
                reasons[callee].insert(Reason::CalledByKept(name));
            }
        }
    }
    for (id, function) in graph.functions.iter().enumerate() {
        for by in &graph.taken_by[id] {
            reasons[id].insert(if by == graph::EXPORTS {
                Reason::Exported
            } else {
                Reason::Taken(by.clone())
            });
        }
        let symbol = &objects.objects[function.object].symbols[function.symbol];
        if !symbol.is_local() {
            reasons[id].insert(Reason::Global);
        }
    }
    reasons
}

/// What the rest of the kernel has of the scheduler's functions.
struct Outside {
    /// How many functions call it directly, and one of them.
    callers: HashMap<FunctionId, (usize, String)>,
    /// A function or datum that has its address.
    taken_by: HashMap<FunctionId, String>,
}

impl Outside {
    fn of(objects: &Objects, graph: &Graph, placed: &[Placed], vmlinux: &Vmlinux) -> Self {
        let address_of = |(object, id): Definition| {
            let symbol = &objects.objects[object].symbols[id];
            placed[object].address(symbol.section()?, symbol.value)
        };
        let mut by_address: HashMap<u64, FunctionId> = HashMap::new();
        // The scheduler's own functions, which the objects tell of.
        let mut ours: HashSet<u64> = HashSet::new();
        for (id, function) in graph.functions.iter().enumerate() {
            if let Some(address) = address_of((function.object, function.symbol)) {
                by_address.insert(address, id);
                ours.insert(address);
            }
            let cold = function.cold.map(|cold| (function.object, cold));
            ours.extend(cold.and_then(address_of));
        }
        let mut found = Self {
            callers: HashMap::new(),
            taken_by: HashMap::new(),
        };
        let mut last = None;
        for stock in vmlinux.symbols().iter().filter(|s| s.is_function) {
            // Several names of one function count once.
            if ours.contains(&stock.address) || last == Some(stock.address) {
                continue;
            }
            last = Some(stock.address);
            let Some(bytes) = vmlinux.bytes(stock.address, stock.size) else {
                continue;
            };
            let mut called: BTreeSet<FunctionId> = BTreeSet::new();
            for instruction in code::decode(bytes, stock.address) {
                let callee = instruction.branch.and_then(|to| by_address.get(&to));
                called.extend(callee);
                let taken = instruction.address.and_then(|to| by_address.get(&to));
                if let Some(&id) = taken {
                    found.taken_by.entry(id).or_insert(stock.name.clone());
                }
            }
            for id in called {
                let (count, _) = found.callers.entry(id).or_insert((0, stock.name.clone()));
                *count += 1;
            }
        }
        found
    }
}

/// The data of the scheduler.
fn data(objects: &Objects, placed: &[Placed], vmlinux: &Vmlinux) -> Vec<Datum> {
    let mut data = Vec::new();
    for (index, object) in objects.objects.iter().enumerate() {
        for symbol in &object.symbols {
            let Some(section) = symbol.section().map(|id| &object.sections[id]) else {
                continue;
            };
            if symbol.kind != elf::STT_OBJECT || !section.is_loaded() {
                continue;
            }
            let is_stock = placed[index].symbol(symbol, vmlinux).is_some();
            data.push(Datum {
                name: symbol.name.clone(),
                file: object.source().into(),
                shared: is_stock && (section.is_writable() || has_identity(&section.name)),
            });
        }
    }
    data.sort_by(|a, b| (&a.name, &a.file).cmp(&(&b.name, &b.file)));
    data
}

/// Does the kernel compare addresses of the section's data? It does so with the classes of the
/// scheduler, which are constants.
pub(crate) fn has_identity(section: &str) -> bool {
    section.starts_with("__") && section.ends_with("_sched_class")
}
