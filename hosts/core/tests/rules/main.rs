// SPDX-License-Identifier: GPL-2.0-only
//! The rules, tried from outside: what a kernel could do on one side, what a policy could answer on
//! the other.
//!
//! `script` has the language in which most tests are written; `host` has the machine and the
//! policies under it.

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
