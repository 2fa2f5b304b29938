// SPDX-License-Identifier: GPL-2.0-only
//! Tests of the rules from outside: events that a kernel could send on one side, answers that a
//! policy could give on the other.
//!
//! `script` has the language of most tests; `host` has the machine and the policies below it.

mod conforms;
mod contexts;
mod cpus;
mod crowds;
mod faults;
mod hints;
mod host;
mod kernel;
mod membership;
mod order;
mod partitions;
mod property;
mod refusals;
mod script;
mod shares;
mod threads;
mod transitions;
mod versions;
