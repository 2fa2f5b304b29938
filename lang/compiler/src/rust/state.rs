// SPDX-License-Identifier: GPL-2.0-only
//! What a version of a policy passes on to the next, in Rust.

use super::names::safe;
use super::Writer;
use crate::hir::*;

impl Writer<'_> {
    /// What a version of the policy passes on to the next.
    pub(super) fn state(&mut self, name: &str) {
        let policy = self.policy;
        for (of, attributes) in [("OfThread", &policy.thread), ("OfCore", &policy.core)] {
            let names: Vec<String> = attributes.iter().map(|it| safe(&it.name)).collect();
            self.line(format!(
                "baton_machine::state!({of}, version 1 {{ {} }});",
                names.join(", ")
            ));
        }
        self.line("");
        self.open(format!("impl Upgradable for {name} {{"));
        let declared = declared(policy);
        self.line(format!(
            "const DECLARED: &'static [&'static str] = &{declared:?};"
        ));
        self.close("}");
        self.line("");
    }
}

/// What determines the meaning of a policy's state, beside the names of its attributes.
fn declared(policy: &Policy) -> Vec<String> {
    let kind = |of: Type| match of {
        Type::Int => "int",
        Type::Time => "time",
        Type::Bool => "bool",
        Type::Enum(index) => &policy.enums[index].name,
        _ => "core",
    };
    let enums = policy
        .enums
        .iter()
        .map(|of| format!("enum {} {{{}}}", of.name, of.values.join(", ")));
    let attributes = policy
        .thread
        .iter()
        .chain(&policy.core)
        .map(|of| format!("{} {}", kind(of.kind), of.name));
    let queues = policy.queues.iter().map(|of| match of.order {
        Some(Order {
            is_lowest,
            by: Key::Attribute(index),
        }) => {
            let which = if is_lowest { "lowest" } else { "highest" };
            let by = &policy.thread[index].name;
            format!("queue {} order {which} {by}", of.name)
        }
        _ => format!("queue {}", of.name),
    });
    enums.chain(attributes).chain(queues).collect()
}
