// SPDX-License-Identifier: GPL-2.0-only
//! A BPF object that measures while a [`Probe`] exists, and the results in its maps.

use std::path::Path;

use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, ProgramInput, ProgramType};

use crate::error::{Error, Result};

/// An object that is loaded and attached. The measurement ends when this is dropped.
pub struct Probe {
    object: Object,
    _links: Vec<Link>,
}

impl Probe {
    /// Loads all programs of an object and attaches them, then runs those that are attached to
    /// nothing. `help` is what the user can do if the kernel refuses that.
    pub fn start(object: &Path, help: &str) -> Result<Self> {
        let failed = |e: libbpf_rs::Error| {
            let what = format!("the kernel does not load {}: {e}", object.display());
            Error::environment(what, help)
        };
        let object = ObjectBuilder::default()
            .open_file(object)
            .and_then(|open| open.load())
            .map_err(failed)?;
        let is_run = |kind: ProgramType| kind == ProgramType::Syscall;
        let links = object
            .progs_mut()
            .filter(|prog| !is_run(prog.prog_type()))
            .map(|prog| prog.attach())
            .collect::<libbpf_rs::Result<Vec<_>>>()
            .map_err(failed)?;
        for prog in object.progs_mut().filter(|prog| is_run(prog.prog_type())) {
            prog.test_run(ProgramInput::default()).map_err(failed)?;
        }
        Ok(Self {
            object,
            _links: links,
        })
    }

    pub fn map(&self, name: &str) -> Result<libbpf_rs::Map<'_>> {
        let map = self.object.maps().find(|map| map.name() == name);
        map.ok_or_else(|| Error::baton(format!("the BPF object has no {name} in it")))
    }

    /// The values of an entry of a map, one for each CPU.
    pub fn per_cpu(&self, map: &str, key: u32) -> Result<Vec<Vec<u8>>> {
        let values = self
            .map(map)?
            .lookup_percpu(&key.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| not_read(map, e))?;
        Ok(values.unwrap_or_default())
    }

    /// The value of an entry of an array.
    pub fn entry(&self, map: &str, key: u32) -> Result<Vec<u8>> {
        let value = self
            .map(map)?
            .lookup(&key.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| not_read(map, e))?;
        Ok(value.unwrap_or_default())
    }
}

fn not_read(map: &str, e: libbpf_rs::Error) -> Error {
    Error::environment(format!("the {map} cannot be read: {e}"), "try again")
}

/// A u64 of a structure of the BPF program, by its place.
pub fn word(value: &[u8], at: usize) -> u64 {
    value
        .chunks_exact(8)
        .nth(at)
        .and_then(|word| word.try_into().ok())
        .map_or(0, u64::from_ne_bytes)
}
