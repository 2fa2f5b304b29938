// SPDX-License-Identifier: GPL-2.0-only
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cpio::{self, S_IFDIR, S_IFLNK, S_IFREG};
use crate::{error::Doing, Error, Result};

/// Collects a guest's files into an archive that the kernel unpacks as its root: busybox with all
/// its applets, programs with the shared libraries they need, any other files.
///
/// The archive is made anew for each guest and is not compressed: collecting takes a fraction of a
/// second, and a translated guest copies memory faster than it decompresses.
pub struct Initramfs<W: Write> {
    archive: cpio::Writer<W>,
    /// Paths that are in the archive, without leading slash.
    present: BTreeSet<String>,
}

impl<W: Write> Initramfs<W> {
    /// Starts an archive that is written to `out`. It contains directories, `init` as first
    /// process, and busybox.
    pub fn new(out: W, init: &str) -> Result<Self> {
        let mut this = Initramfs {
            archive: cpio::Writer::new(out),
            present: BTreeSet::new(),
        };
        for dir in [
            "dev",
            "proc",
            "root",
            "run",
            "sys",
            "tmp",
            "usr/bin",
            "usr/sbin",
            "usr/lib",
            "usr/lib64",
        ] {
            this.directory(dir)?;
        }
        for dir in ["bin", "sbin", "lib", "lib64"] {
            this.entry(dir, S_IFLNK | 0o777, format!("usr/{dir}").as_bytes())?;
        }
        this.file("/init", 0o755, init.as_bytes())?;
        this.tool("busybox")?;
        Ok(this)
    }

    /// Adds a program that is found on the PATH, under the path where it was found.
    pub fn tool(&mut self, name: &str) -> Result<()> {
        let path = which(name).ok_or_else(|| {
            Error::Environment(format!(
                "the program '{name}', which the guest needs, is not installed here; \
                 run inside Baton's Debian root (vm/enter), which has it, or install it"
            ))
        })?;
        let guest = path.display().to_string();
        self.host_path(&path, &guest)
    }

    /// Adds a file of this machine, with its shared libraries if it is a program, or a directory
    /// with everything below it. `guest` is its absolute path in the guest. Symbolic links are
    /// followed.
    pub fn host_path(&mut self, host: &Path, guest: &str) -> Result<()> {
        let meta = fs::metadata(host).map_err(|e| {
            Error::User(format!(
                "{}, which the guest needs, cannot be read: {e}",
                host.display()
            ))
        })?;
        if meta.is_dir() {
            self.directory(&inside(guest)?)?;
            let entries = fs::read_dir(host).and_then(|d| d.collect::<std::io::Result<Vec<_>>>());
            let mut names: Vec<_> = entries.doing(|| format!("listing {}", host.display()))?;
            names.sort_by_key(|e| e.file_name());
            for entry in names {
                let name = entry.file_name().into_string().map_err(|n| {
                    Error::User(format!(
                        "the file name {n:?} in {} is not valid UTF-8: rename it",
                        host.display()
                    ))
                })?;
                self.host_path(&entry.path(), &format!("{guest}/{name}"))?;
            }
            return Ok(());
        }
        if self.copy(host, guest)? {
            for library in libraries(host)? {
                let guest = library.display().to_string();
                self.copy(&library, &guest)?;
            }
        }
        Ok(())
    }

    /// Adds a copy of one file, unless its path in the guest is taken. Returns whether it added a
    /// program.
    fn copy(&mut self, host: &Path, guest: &str) -> Result<bool> {
        if self.present.contains(&inside(guest)?) {
            return Ok(false);
        }
        let reading = || format!("reading {}", host.display());
        let data = fs::read(host).doing(reading)?;
        let permissions = fs::metadata(host).doing(reading)?.permissions().mode() & 0o7777;
        self.file(guest, permissions, &data)?;
        Ok(is_program(&data))
    }

    /// Adds a file with the given contents at an absolute path of the guest.
    pub fn file(&mut self, guest: &str, permissions: u32, data: &[u8]) -> Result<()> {
        let name = inside(guest)?;
        if let Some((parent, _)) = name.rsplit_once('/') {
            self.directory(parent)?;
        }
        self.entry(&name, S_IFREG | permissions, data)
    }

    /// Adds those applets of busybox that are not present as programs, and ends the archive.
    pub fn finish(mut self) -> Result<W> {
        let list = output_of("busybox", &["--list"])?;
        for applet in list.lines() {
            let taken = ["usr/bin", "usr/sbin"]
                .iter()
                .any(|dir| self.present.contains(&format!("{dir}/{applet}")));
            if !taken {
                self.entry(&format!("usr/bin/{applet}"), S_IFLNK | 0o777, b"busybox")?;
            }
        }
        self.archive
            .finish()
            .doing(|| "writing the guest's initramfs".into())
    }

    /// Adds a directory and its parents.
    fn directory(&mut self, name: &str) -> Result<()> {
        if name.is_empty() || self.present.contains(name) {
            return Ok(());
        }
        if let Some((parent, _)) = name.rsplit_once('/') {
            self.directory(parent)?;
        }
        self.entry(name, S_IFDIR | 0o755, &[])
    }

    fn entry(&mut self, name: &str, mode: u32, data: &[u8]) -> Result<()> {
        self.present.insert(name.to_owned());
        self.archive
            .entry(name, mode, data)
            .doing(|| format!("writing {name} to the guest's initramfs"))
    }
}

/// Converts an absolute path to the name in the archive: without a leading slash, and with `bin`,
/// `sbin`, `lib`, `lib64` under `usr`, where the links in the guest's root point.
fn inside(guest: &str) -> Result<String> {
    let parts: Vec<_> = guest
        .split('/')
        .filter(|p| !p.is_empty() && *p != ".")
        .collect();
    if !guest.starts_with('/') || parts.is_empty() || parts.contains(&"..") {
        return Err(Error::User(format!(
            "'{guest}' is no path for a file in the guest: it must be absolute, without .."
        )));
    }
    let merged = matches!(parts[0], "bin" | "sbin" | "lib" | "lib64");
    Ok(if merged {
        format!("usr/{}", parts.join("/"))
    } else {
        parts.join("/")
    })
}

/// The file that a shell would run for `name`.
pub(crate) fn which(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| {
            fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
        })
}

/// Whether these are the contents of an ELF program or library, as opposed to an object file such
/// as a kernel module.
fn is_program(data: &[u8]) -> bool {
    const EXECUTABLE: u8 = 2;
    const SHARED: u8 = 3;
    data.starts_with(b"\x7fELF")
        && data
            .get(16)
            .is_some_and(|kind| matches!(*kind, EXECUTABLE | SHARED))
}

/// The shared libraries of a program, direct and indirect, and its loader. None for a static one.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let name = program.display().to_string();
    let output = Command::new("ldd")
        .arg(program)
        .env("LC_ALL", "C")
        .output()
        .doing(|| "running ldd".into())?;
    parse_ldd(&name, &String::from_utf8_lossy(&output.stdout))
}

/// Parses the output of ldd. Lines are `NAME => PATH (ADDRESS)`, `PATH (ADDRESS)` for the loader,
/// `NAME => not found`, or concern no library.
fn parse_ldd(program: &str, listing: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for line in listing.lines() {
        let (name, place) = line.split_once("=>").unwrap_or(("", line));
        let place = place.trim();
        if place == "not found" {
            return Err(Error::Environment(format!(
                "{program} needs the library {}, which is not installed here: install it, or build \
                 the program inside \
                 Baton's Debian root (vm/enter)",
                name.trim()
            )));
        }
        if let Some((path, _)) = place
            .split_once(" (")
            .filter(|(path, _)| path.starts_with('/'))
        {
            found.push(PathBuf::from(path));
        }
    }
    Ok(found)
}

fn output_of(program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(args)
        .output()
        .doing(|| format!("running {program}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_paths() {
        let check = |guest: &str, expected: Option<&str>| {
            assert_eq!(inside(guest).ok().as_deref(), expected, "{guest}")
        };
        check("/bin/sh", Some("usr/bin/sh"));
        check(
            "/lib64/ld-linux-x86-64.so.2",
            Some("usr/lib64/ld-linux-x86-64.so.2"),
        );
        check("/usr/lib/x", Some("usr/lib/x"));
        check("//root/./a", Some("root/a"));
        check("/binary", Some("binary"));
        for wrong in ["relative", "/", "", "/a/../../etc/passwd"] {
            check(wrong, None);
        }
    }

    #[test]
    fn ldd_listings() {
        let listing =
            "\tlinux-vdso.so.1 (0x00007f71)\n\tlibm.so.6 => /usr/lib/x/libm.so.6 (0x00007f72)\n\
                       \t/lib64/ld-linux-x86-64.so.2 (0x00007f73)\n";
        let expected = [
            PathBuf::from("/usr/lib/x/libm.so.6"),
            PathBuf::from("/lib64/ld-linux-x86-64.so.2"),
        ];
        assert_eq!(parse_ldd("p", listing).unwrap(), expected);
        assert!(parse_ldd("p", "\tstatically linked\n").unwrap().is_empty());
        let missing = parse_ldd("p", "\tlibq.so.1 => not found\n")
            .unwrap_err()
            .to_string();
        assert!(
            missing.contains("p needs the library libq.so.1"),
            "{missing}"
        );
    }

    #[test]
    fn only_programs_have_libraries() {
        let elf = |kind: u8| [b"\x7fELF".as_slice(), &[0; 12], &[kind, 0]].concat();
        assert!(is_program(&elf(2)) && is_program(&elf(3)));
        assert!(!is_program(&elf(1)) && !is_program(b"#!/bin/sh") && !is_program(b"\x7fELF"));
    }
}
