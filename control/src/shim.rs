// SPDX-License-Identifier: GPL-2.0-only
//! The shim: a BPF object that is adapted to the machine, loaded, attached to sched_ext, and kept
//! by a pin.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;
use std::{fs, io};

use libbpf_rs::btf::{types, Btf};
use libbpf_rs::{
    set_print, AsRawLibbpf, ErrorKind, MapCore, Object, ObjectBuilder, OpenObject, PrintLevel,
};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::kernel;

/// The link is pinned here, so that the shim outlives the command. Removing the file detaches the
/// shim.
pub const PIN: &str = "/sys/fs/bpf/baton/link";

/// How long attaching and detaching may take. sched_ext goes through all tasks of the machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The parameters to which the shim is adapted.
#[derive(Clone, Copy, Debug)]
pub struct Fit {
    /// All normal tasks of the machine, not only those of class SCHED_EXT.
    pub all: bool,
    /// Number of possible CPUs.
    pub nr_cpus: u32,
    /// Task slots of the core.
    pub max_tasks: u32,
}

/// A shim that the kernel has loaded, and that is not attached yet.
pub struct Ready(Object);

/// Loads a shim without attaching it. Another one may be attached meanwhile.
pub fn ready(object: &Path, fit: Fit) -> Result<Ready> {
    quietly(|| open_and_load(object, fit)).map(Ready)
}

impl Ready {
    /// Attaches the shim and pins it. Until it is pinned, it ends with this process.
    pub fn attach(mut self) -> Result<()> {
        prepare_pin()?;
        quietly(|| {
            let mut ops = self.0.maps_mut().find(|m| m.name() == "baton_ops");
            let ops = ops
                .as_mut()
                .ok_or_else(|| malformed("it has no scheduler"))?;
            ops.attach_struct_ops()?.pin(PIN)
        })
    }
}

/// Collects the messages of libbpf for the error.
fn quietly<T>(f: impl FnOnce() -> libbpf_rs::Result<T>) -> Result<T> {
    let quiet = set_print(Some((PrintLevel::Warn, keep)));
    let done = f();
    set_print(quiet);
    done.map_err(|e| not_attached(&e))
}

/// Lets the kernel's verifier check the whole shim, and releases it again without attaching it. The
/// core must be loaded, as the shim calls it. An error contains the kernel's message.
pub fn try_out(object: &Path, fit: Fit) -> std::result::Result<(), String> {
    let quiet = set_print(Some((PrintLevel::Warn, keep)));
    let done = open_and_load(object, fit);
    set_print(quiet);
    let said = SAID
        .lock()
        .map(|mut said| std::mem::take(&mut *said))
        .unwrap_or_default();
    done.map(drop).map_err(|error| match reason(&said) {
        Some(why) => format!("the kernel refuses the shim: {why}"),
        None => format!("the kernel refuses the shim: {error}"),
    })
}

/// The line of libbpf's messages that names the cause: the last line of the verifier before its
/// statistics, else the first line of libbpf.
fn reason(said: &[String]) -> Option<&str> {
    let lines: Vec<_> = said
        .iter()
        .flat_map(|part| part.lines())
        .map(str::trim)
        .collect();
    let statistics = lines.iter().position(|line| line.starts_with("processed "));
    let verifiers =
        statistics.and_then(|at| lines[..at].iter().rev().find(|line| !line.is_empty()));
    let first = verifiers.or_else(|| lines.iter().find(|line| !line.is_empty()));
    first.map(|line| line.strip_prefix("libbpf: ").unwrap_or(line))
}

/// Detaches the shim from sched_ext. When this returns, every task is back in the kernel's own
/// classes.
pub fn detach(device: &Device) -> Result<()> {
    match fs::remove_file(PIN) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(Error::file(format!("removing {PIN}"), &e)),
    }
    let gone =
        || {
            Ok(device.core()?.attached == 0
                && kernel::attached_scheduler().as_deref() != Some("baton"))
        };
    if kernel::wait_until(PATIENCE, gone)? {
        Ok(())
    } else {
        Err(Error::environment(
            "the shim stays attached although its pin is gone: another process holds its link",
            "find it (bpftool link show; bpftool struct_ops show) and end it",
        ))
    }
}

/// Removes the pin of a shim that the kernel has ejected.
pub fn remove_stale_pin() {
    // Without a pin or a BPF file system there is nothing stale.
    let _ = fs::remove_file(PIN);
}

/// Is a link pinned? It may belong to a shim that the kernel has ejected.
pub fn is_pinned() -> bool {
    Path::new(PIN).exists()
}

fn prepare_pin() -> Result<()> {
    remove_stale_pin();
    let dir = Path::new(PIN).parent().expect("the pin is in a directory");
    fs::create_dir_all(dir).map_err(|e| {
        Error::environment(
            format!("{} cannot be made: {e}", dir.display()),
            "mount the BPF file system: mount -t bpf bpf /sys/fs/bpf",
        )
    })
}

/// The value of an enumerator in the kernel's types.
pub fn enum_value(btf: &Btf<'_>, of: &str, name: &str) -> Option<u64> {
    let name = Some(OsStr::new(name));
    if let Some(wide) = btf.type_by_name::<types::Enum64>(of) {
        return wide.iter().find(|m| m.name == name).map(|m| m.value as u64);
    }
    let narrow = btf.type_by_name::<types::Enum>(of)?;
    let found = narrow
        .iter()
        .find(|m| m.name == name)
        .map(|m| m.value as u64);
    found
}

fn open_and_load(object: &Path, fit: Fit) -> libbpf_rs::Result<Object> {
    let mut shim = ObjectBuilder::default().open_file(object)?;
    let places = Places::of(&shim)
        .ok_or_else(|| malformed("it does not have the variables of Baton's shim"))?;
    let mut switch_partial = 0;
    for mut map in shim.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name == "slots" {
            map.set_max_entries(fit.max_tasks)?;
        } else if name.ends_with(".rodata") {
            let data = map
                .initial_value_mut()
                .ok_or_else(|| malformed("its constants have no value"))?;
            places.all_tasks.or(data, fit.all.into())?;
            // The initial value is 1.
            places.nr_cpus.set(data, fit.nr_cpus.into())?;
            switch_partial = places.switch_partial.get(data)?;
        }
    }
    let mut ops = shim.maps_mut().find(|map| map.name() == "baton_ops");
    let ops = ops.as_mut().and_then(|ops| ops.initial_value_mut());
    let ops = ops.ok_or_else(|| malformed("its scheduler has no value"))?;
    if !fit.all {
        places.ops_flags.or(ops, switch_partial)?;
    }
    shim.load()
}

fn malformed(why: &str) -> libbpf_rs::Error {
    io::Error::new(io::ErrorKind::InvalidData, why).into()
}

/// The place of a variable in the value of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    offset: usize,
    size: usize,
}

impl Place {
    fn set(self, data: &mut [u8], value: u64) -> libbpf_rs::Result<()> {
        let bytes = value.to_le_bytes();
        let (place, value) = data
            .get_mut(self.offset..self.offset + self.size)
            .zip(bytes.get(..self.size))
            .ok_or_else(|| malformed("one of its variables is out of place"))?;
        place.copy_from_slice(value);
        Ok(())
    }

    fn get(self, data: &[u8]) -> libbpf_rs::Result<u64> {
        let mut value = [0; 8];
        let there = data
            .get(self.offset..self.offset + self.size)
            .zip(value.get_mut(..self.size));
        let (there, place) =
            there.ok_or_else(|| malformed("one of its variables is out of place"))?;
        place.copy_from_slice(there);
        Ok(u64::from_le_bytes(value))
    }

    /// Sets these bits in addition to the present ones.
    fn or(self, data: &mut [u8], bits: u64) -> libbpf_rs::Result<()> {
        self.set(data, self.get(data)? | bits)
    }
}

/// The places of the variables that the loader sets, or reads.
struct Places {
    all_tasks: Place,
    nr_cpus: Place,
    switch_partial: Place,
    ops_flags: Place,
}

impl Places {
    fn of(shim: &OpenObject) -> Option<Self> {
        // SAFETY: Borrowed-object. The pointer is to the object that `shim` owns, which outlives
        // the types read from it here.
        let raw = unsafe { shim.as_libbpf_object().as_ref() };
        let btf = Btf::from_bpf_object(raw).ok()??;
        let constants = btf.type_by_name::<types::DataSec>(".rodata")?;
        let constant = |name: &str| {
            let found = constants.iter().find(|at| {
                btf.type_by_id::<types::Var>(at.ty)
                    .is_some_and(|var| var.name() == Some(OsStr::new(name)))
            });
            found.map(|at| Place {
                offset: at.offset as usize,
                size: at.size,
            })
        };
        let ops = btf.type_by_name::<types::Struct>("sched_ext_ops")?;
        let flags = ops
            .iter()
            .find(|member| member.name == Some(OsStr::new("flags")))?;
        let types::MemberAttr::Normal { offset } = flags.attr else {
            return None;
        };
        Some(Self {
            all_tasks: constant("all_tasks")?,
            nr_cpus: constant("nr_cpus")?,
            switch_partial: constant("switch_partial")?,
            ops_flags: Place {
                offset: offset as usize / 8,
                size: 8,
            },
        })
    }
}

/// The messages of libbpf since the last [`not_attached`].
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn keep(_: PrintLevel, line: String) {
    if let Ok(mut said) = SAID.lock() {
        said.push(line.trim_end().to_owned());
    }
}

/// Maximum number of lines of libbpf that an error shows. The last ones are about the cause, and
/// the verifier can print thousands.
const MAX_SAID: usize = 30;

fn not_attached(error: &libbpf_rs::Error) -> Error {
    let said = SAID
        .lock()
        .map(|mut said| std::mem::take(&mut *said))
        .unwrap_or_default();
    let said: String = said[said.len().saturating_sub(MAX_SAID)..]
        .iter()
        .map(|line| format!("\n  {line}"))
        .collect();
    let what = |why: &str| format!("the shim could not be attached: {why} ({error}){said}");
    let dmesg =
        "the kernel's log (dmesg | grep sched_ext) and `baton doctor` say more; `baton vm run` \
         works nevertheless";
    if let Some(other) = kernel::attached_scheduler() {
        return Error::environment(
            what(&format!("the scheduler {other} is attached to sched_ext")),
            "end that one first",
        );
    }
    match error.kind() {
        ErrorKind::NotFound => {
            Error::environment(what("the kernel lacks a function that it calls"), dmesg)
        }
        ErrorKind::PermissionDenied => Error::environment(
            what("not permitted"),
            "run this as root; lockdown forbids BPF",
        ),
        ErrorKind::InvalidData => Error::user(
            what("shim.bpf.o is not what it should be"),
            "build it again: baton build",
        ),
        _ => Error::environment(what("the kernel refused it"), dmesg),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_found_in_what_libbpf_says() {
        let check = |said: &[&str], expected: Option<&str>| {
            let said: Vec<_> = said.iter().map(ToString::to_string).collect();
            assert_eq!(reason(&said), expected, "{said:?}");
        };
        check(&[], None);
        // A call to which the types of an old pahole give one argument too many.
        check(
            &[
                "libbpf: prog 'baton_enqueue': BPF program load failed: -EACCES",
                "libbpf: prog 'baton_enqueue': -- BEGIN PROG LOAD LOG --\n0: R1=ctx()\n12: (85) \
                 call x#7\n\
                 R5 !read_ok\nprocessed 12 insns (limit 1000000)\n-- END PROG LOAD LOG --",
                "libbpf: failed to load object 'shim.bpf.o'",
            ],
            Some("R5 !read_ok"),
        );
        check(
            &[
                "libbpf: extern (func ksym) 'scx_bpf_kick_cpu': not found in kernel or module BTFs",
                "libbpf: x",
            ],
            Some("extern (func ksym) 'scx_bpf_kick_cpu': not found in kernel or module BTFs"),
        );
    }

    #[test]
    fn places_are_filled_where_they_are() {
        let check = |place: Place, before: [u8; 8], bits: u64, after: Option<[u8; 8]>| {
            let mut data = before;
            assert_eq!(
                place.or(&mut data, bits).ok().map(|()| data),
                after,
                "{place:?}"
            );
        };
        check(
            Place { offset: 2, size: 4 },
            [0; 8],
            0x0102,
            Some([0, 0, 2, 1, 0, 0, 0, 0]),
        );
        check(
            Place { offset: 0, size: 8 },
            [4, 0, 0, 0, 0, 0, 0, 0],
            1 << 33 | 8,
            Some([12, 0, 0, 0, 2, 0, 0, 0]),
        );
        check(Place { offset: 6, size: 4 }, [0; 8], 1, None);
        check(Place { offset: 0, size: 9 }, [0; 8], 1, None);
        let mut data = [1, 0, 0, 0];
        Place { offset: 0, size: 4 }.set(&mut data, 6).unwrap();
        assert_eq!(data, [6, 0, 0, 0]);
    }
}
