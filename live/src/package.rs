// SPDX-License-Identifier: GPL-2.0-only
//! What comes from the distribution's packages: the kernel with symbols, and the source.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use baton_control::error::{Error, Result};

use crate::process;

/// Fetches the kernel with symbols of a release to the file `vmlinux`. The package and what it is
/// unpacked to are below the directory `scratch`, which is new and removed at the end. Debug
/// information is left out, which is nine tenths of the package.
///
/// # Errors
/// There is no such package, or it cannot be fetched or unpacked.
pub fn fetch_vmlinux(release: &str, vmlinux: &Path, scratch: &Path) -> Result<()> {
    let package = format!("linux-image-{release}-dbg");
    let size = size(&package)?;
    renew(scratch)?;
    eprintln!(
        "baton: fetching {package}, {} MB, once; it has the kernel's symbols",
        size / 1_000_000
    );
    download(&package, size, scratch)?;
    eprintln!("baton: unpacking the kernel of {package}");
    let archive = only_file(scratch, "deb")?;
    let unpack = "dpkg-deb --fsys-tarfile \"$1\" | tar -x -C \"$2\" --wildcards '*/vmlinux*'";
    process::run(
        Command::new("bash")
            .args(["-o", "pipefail", "-c", unpack, "bash"])
            .args([&archive, scratch]),
        "unpacking the kernel",
    )?;
    let kernel = largest_kernel(scratch).ok_or_else(|| {
        Error::environment(
            format!("the package {package} has no kernel"),
            "use a kernel of Debian's archive: baton live prepare --kernel RELEASE",
        )
    })?;
    let slim = scratch.join("slim");
    process::run(
        Command::new("objcopy")
            .args(["--strip-debug", "--keep-file-symbols"])
            .args([&kernel, &slim]),
        "removing debug information",
    )?;
    fs::rename(&slim, vmlinux)
        .map_err(|e| Error::file(format!("writing {}", vmlinux.display()), &e))?;
    remove(scratch)
}

/// The size of a package in bytes, from apt's lists.
fn size(package: &str) -> Result<u64> {
    let unknown = || {
        Error::environment(
            format!("apt does not know the package {package}"),
            "update its lists (vm/enter apt-get update), or use a kernel of the suite that the \
             root is made from",
        )
    };
    let shown = Command::new("apt-cache")
        .args(["show", "--no-all-versions", package])
        .stdin(Stdio::null())
        .output();
    let shown = shown.map_err(|_| unknown())?.stdout;
    let shown = String::from_utf8_lossy(&shown);
    let mut lines = shown.lines();
    let size = lines.find_map(|line| line.strip_prefix("Size: ")?.trim().parse().ok());
    size.ok_or_else(unknown)
}

/// Downloads a package into a directory, and says how far that has come.
fn download(package: &str, size: u64, into: &Path) -> Result<()> {
    let mut command = Command::new("apt-get");
    // apt's own cache is elsewhere: the root's is not ours to change.
    let cache = format!("Dir::Cache={}", into.join("apt").display());
    fs::create_dir_all(into.join("apt/archives/partial"))
        .map_err(|e| Error::file(format!("making {}", into.display()), &e))?;
    command
        .args(["-qq", "-o", "APT::Sandbox::User=root", "-o", &cache])
        .args([
            "-o",
            "Acquire::Check-Valid-Until=false",
            "download",
            package,
        ])
        .current_dir(into)
        .stdin(Stdio::null())
        .stdout(std::io::stderr());
    let lost = |e: &std::io::Error| Error::file(format!("fetching {package}"), e);
    let mut child = command.spawn().map_err(|e| lost(&e))?;
    let mut tenths = 0;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|e| lost(&e))? {
            break status;
        }
        let now = total(into) * 10 / size.max(1);
        if now > tenths && now < 10 {
            eprintln!("baton: fetched {} % of {package}", now * 10);
            tenths = now;
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    if status.success() {
        Ok(())
    } else {
        Err(Error::environment(
            format!("{package} could not be fetched ({status}); apt's messages are above"),
            "check the network and $BATON_DEBIAN_MIRROR, and try again",
        ))
    }
}

/// Unpacks the source of a release into a directory, which must not be there. What no object of the
/// scheduler is made from is left out: drivers, file systems, other machines.
///
/// # Errors
/// There is no source of this version, or it cannot be unpacked.
pub fn unpack_source(release: &str, into: &Path) -> Result<()> {
    let version = release.split(['+', '-']).next().unwrap_or(release);
    let mut numbers = version.split('.');
    let series = [numbers.next(), numbers.next()].map(|number| number.unwrap_or("0"));
    let name = format!("linux-source-{}", series.join("."));
    let archive = PathBuf::from(format!("/usr/src/{name}.tar.xz"));
    if !archive.exists() {
        return Err(Error::environment(
            format!("there is no {}", archive.display()),
            format!("install the package {name} of version {version}"),
        ));
    }
    let scratch = into.with_extension("new");
    renew(&scratch)?;
    eprintln!("baton: unpacking the source of kernel {version}");
    let excluded = LEFT_OUT.map(|pattern| format!("--exclude={name}/{pattern}"));
    process::run(
        Command::new("tar")
            .args(["-x", "-J", "--strip-components=1", "-f"])
            .arg(&archive)
            .arg("-C")
            .arg(&scratch)
            .args(excluded),
        "unpacking the source",
    )?;
    let makefile = scratch.join("Makefile");
    let makefile = fs::read_to_string(&makefile)
        .map_err(|e| Error::file(format!("reading {}", makefile.display()), &e))?;
    let found = version_of(&makefile);
    if found != version {
        return Err(Error::environment(
            format!(
                "{} is the source of kernel {found}, not of {version}",
                archive.display()
            ),
            format!("install the package {name} of version {version}"),
        ));
    }
    fs::rename(&scratch, into).map_err(|e| Error::file(format!("writing {}", into.display()), &e))
}

/// Patterns of files that are not unpacked. Build files and configuration files stay.
const LEFT_OUT: [&str; 10] = [
    "drivers/*.[chS]",
    "sound/*.[chS]",
    "fs/*.[ch]",
    "net/*.[ch]",
    "samples/*.[ch]",
    "Documentation/*.[rsty]*",
    "arch/[!x]*/*.[chS]",
    "arch/[!x]*/*.dts*",
    "arch/xtensa/*.[chS]",
    "tools/testing/*",
];

/// The version of a kernel by its Makefile.
fn version_of(makefile: &str) -> String {
    let value = |name: &str| {
        let mut lines = makefile.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.trim().strip_prefix('='));
        value.map_or("", str::trim)
    };
    ["VERSION", "PATCHLEVEL", "SUBLEVEL"].map(value).join(".")
}

/// Makes the source files below one directory those of another. Files that are equal are not
/// written, so that make takes their objects as current; files that the other lacks are removed.
/// Hidden directories, and what was built, count as nothing.
///
/// # Errors
/// A file cannot be read or written.
pub fn mirror(from: &Path, to: &Path) -> Result<()> {
    let fail = |path: &Path| {
        let path = path.display().to_string();
        move |e: std::io::Error| Error::file(format!("copying {path}"), &e)
    };
    fs::create_dir_all(to).map_err(fail(to))?;
    for path in entries(from).filter(|path| is_source(path)) {
        let Some(name) = path.file_name() else {
            continue;
        };
        let target = to.join(name);
        if path.is_dir() {
            mirror(&path, &target)?;
            continue;
        }
        let bytes = fs::read(&path).map_err(fail(&path))?;
        if fs::read(&target).ok().as_ref() != Some(&bytes) {
            fs::write(&target, bytes).map_err(fail(&target))?;
        }
    }
    for path in entries(to).filter(|path| is_source(path) && path.is_file()) {
        let is_there = path
            .file_name()
            .is_some_and(|name| from.join(name).exists());
        if !is_there {
            fs::remove_file(&path).map_err(fail(&path))?;
        }
    }
    Ok(())
}

/// Is it neither hidden nor something that was built?
fn is_source(path: &Path) -> bool {
    let name = path
        .file_name()
        .map_or_else(Default::default, |name| name.to_string_lossy());
    let is_built = [".o", ".s", ".btf"].iter().any(|end| name.ends_with(end));
    !name.starts_with('.') && !is_built
}

/// Makes an empty directory.
fn renew(dir: &Path) -> Result<()> {
    remove(dir)?;
    fs::create_dir_all(dir).map_err(|e| Error::file(format!("making {}", dir.display()), &e))
}

/// Removes a directory, if it is there.
///
/// # Errors
/// It cannot be removed.
pub fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::file(format!("removing {}", dir.display()), &e))
        }
        _ => Ok(()),
    }
}

fn only_file(dir: &Path, extension: &str) -> Result<PathBuf> {
    let mut found = entries(dir).filter(|path| path.extension().is_some_and(|e| e == extension));
    found
        .next()
        .ok_or_else(|| Error::baton(format!("apt left no .{extension} in {}", dir.display())))
}

/// The largest file below a directory whose name begins with vmlinux.
fn largest_kernel(dir: &Path) -> Option<PathBuf> {
    let is_kernel = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        path.is_file() && name.is_some_and(|name| name.starts_with("vmlinux"))
    };
    let below = entries(dir).filter(|path| path.is_dir() && !path.is_symlink());
    let kernels = entries(dir).filter(is_kernel);
    kernels
        .chain(below.filter_map(|dir| largest_kernel(&dir)))
        .max_by_key(|path| fs::metadata(path).map_or(0, |file| file.len()))
}

/// The bytes of all files below a directory.
fn total(dir: &Path) -> u64 {
    entries(dir)
        .map(|path| {
            if path.is_dir() {
                total(&path)
            } else {
                fs::metadata(&path).map_or(0, |file| file.len())
            }
        })
        .sum()
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_in_a_makefile() {
        let makefile = "# SPDX\nVERSION = 7\nPATCHLEVEL = 2\nSUBLEVEL = 12\nEXTRAVERSION =\n";
        assert_eq!(version_of(makefile), "7.2.12");
        assert_eq!(version_of(""), "..");
    }

    #[test]
    fn a_mirror_has_the_sources_of_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| dir.path().join(name));
        let write = |path: PathBuf, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(from.join("fair.c"), "new");
        write(from.join("ext/sub.c"), "deep");
        write(from.join(".git/HEAD"), "hidden");
        write(to.join("fair.c"), "old");
        write(to.join("gone.c"), "old");
        write(to.join("fair.o"), "built");
        mirror(&from, &to).unwrap();
        let text = |name: &str| fs::read_to_string(to.join(name)).ok();
        assert_eq!(text("fair.c").as_deref(), Some("new"));
        assert_eq!(text("ext/sub.c").as_deref(), Some("deep"));
        assert_eq!(text("fair.o").as_deref(), Some("built"));
        assert_eq!((text("gone.c"), text(".git/HEAD")), (None, None));
        let before = fs::metadata(to.join("fair.c")).unwrap().modified().unwrap();
        mirror(&from, &to).unwrap();
        let after = fs::metadata(to.join("fair.c")).unwrap().modified().unwrap();
        assert_eq!(before, after);
    }

    #[test]
    fn the_kernel_of_a_package_is_its_largest() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("usr/lib/debug");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("vmlinux-7"), "kernel").unwrap();
        fs::write(dir.path().join("vmlinux.txt"), "no").unwrap();
        fs::write(deep.join("other.ko"), "not a kernel").unwrap();
        assert_eq!(largest_kernel(dir.path()), Some(deep.join("vmlinux-7")));
        assert_eq!(total(dir.path()), 20);
    }
}
