// SPDX-License-Identifier: GPL-2.0-only
//! The kernels that can be booted: that of Baton's Debian root, others installed beside it, and any
//! image.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// A kernel image that can be booted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// The bzImage.
    pub image: PathBuf,
    /// The output of `uname -r` in the guest; modules must be built for it.
    pub release: String,
}

impl Kernel {
    /// The kernel of Baton's Debian root, seen from inside or outside the root.
    ///
    /// # Errors
    /// [`Error::Environment`] when there is no root, or no complete one.
    pub fn of_root() -> Result<Self> {
        let kernels = places().iter().find_map(|place| {
            let kernels = Self::below(&place.join("usr/lib/modules"));
            let usual = fs::read_to_string(place.join("default")).unwrap_or_default();
            let is_usual = |kernel: &&Self| kernel.release == usual.trim();
            kernels.iter().find(is_usual).or(kernels.last()).cloned()
        });
        kernels.ok_or_else(|| {
            Error::Environment(
                "there is no kernel to boot: Baton's Debian root has not been made; make it with \
                 vm/root.sh"
                    .into(),
            )
        })
    }

    /// Finds a kernel by its release, as `uname -r` prints it, or by its image's path, which has a
    /// slash.
    ///
    /// # Errors
    /// [`Error::User`] when there is no such kernel, or the file is not a kernel image.
    pub fn find(which: &str) -> Result<Self> {
        if which.contains('/') {
            let image = PathBuf::from(which);
            let release = release_of(&image).ok_or_else(|| {
                Error::User(format!(
                    "{which} is no kernel image of x86-64 (a bzImage, as in /boot/vmlinuz-RELEASE)"
                ))
            })?;
            return Ok(Kernel { image, release });
        }
        let mut kernels = Self::all();
        let found = kernels.iter().position(|kernel| kernel.release == which);
        found.map(|at| kernels.swap_remove(at)).ok_or_else(|| {
            let there: Vec<_> = kernels.into_iter().map(|kernel| kernel.release).collect();
            Error::User(format!(
                "there is no kernel {which} here; there are: {}",
                there.join(", ")
            ))
        })
    }

    /// All kernels in the root or installed on this machine, oldest first.
    pub fn all() -> Vec<Self> {
        let mut kernels: Vec<_> = places()
            .iter()
            .flat_map(|place| Self::below(&place.join("usr/lib/modules")))
            .collect();
        kernels.extend(Self::below(Path::new("/lib/modules")));
        let installed = files("/boot".as_ref()).into_iter().filter_map(|image| {
            let release = image
                .file_name()?
                .to_str()?
                .strip_prefix("vmlinuz-")?
                .to_owned();
            Some(Kernel { image, release })
        });
        kernels.extend(installed);
        kernels.sort_by_cached_key(|kernel| (version_key(&kernel.release), kernel.release.clone()));
        kernels.dedup_by(|a, b| a.release == b.release);
        kernels
    }

    /// The kernels in a directory of the form `DIR/RELEASE/vmlinuz*`, oldest first.
    fn below(modules: &Path) -> Vec<Self> {
        let is_image = |f: &PathBuf| {
            f.file_name()
                .is_some_and(|n| n.as_encoded_bytes().starts_with(b"vmlinuz"))
        };
        let kernels = files(modules).into_iter().filter_map(|dir| {
            let release = dir.file_name()?.to_str()?.to_owned();
            Some(Kernel {
                image: files(&dir).into_iter().find(is_image)?,
                release,
            })
        });
        let mut kernels: Vec<_> = kernels.collect();
        kernels.sort_by_cached_key(|kernel| (version_key(&kernel.release), kernel.release.clone()));
        kernels
    }
}

/// The directories of the root's kernels, as seen from inside and from outside.
fn places() -> [PathBuf; 2] {
    let cache = std::env::var_os("BATON_CACHE")
        .map_or_else(|| PathBuf::from("/var/cache/baton"), PathBuf::from);
    [PathBuf::from("/kernel"), cache.join("root/kernel")]
}

fn files(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect()
}

/// The release recorded in an image (Documentation/arch/x86/boot.rst: kernel_version).
fn release_of(image: &Path) -> Option<String> {
    let bytes = fs::read(image).ok()?;
    let header = bytes.get(0x202..0x210)?;
    let is_bzimage = header.starts_with(b"HdrS");
    let at = 0x200 + usize::from(u16::from_le_bytes([*bytes.get(0x20e)?, *bytes.get(0x20f)?]));
    let text = bytes
        .get(at..)?
        .split(|byte| b" \0".contains(byte))
        .next()?;
    String::from_utf8(text.to_vec())
        .ok()
        .filter(|release| is_bzimage && !release.is_empty())
}

/// A key that orders releases by their numbers; a release candidate comes before its release.
pub fn version_key(release: &str) -> Vec<i64> {
    let words = release.split(|c: char| !c.is_ascii_alphanumeric());
    let key = words.flat_map(|word| match word.strip_prefix("rc").map(str::parse) {
        Some(Ok(number)) => vec![-1, number],
        _ => word.parse().into_iter().collect(),
    });
    // Sorts the release after its candidates.
    key.chain([0]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_versions_come_later() {
        let check = |older: &str, newer: &str| {
            assert!(version_key(older) < version_key(newer), "{older} {newer}")
        };
        check("7.2.9+deb14-cloud-amd64", "7.2.12+deb14-cloud-amd64");
        check("6.18.1-cloud-amd64", "7.1-cloud-amd64");
        check("7.3-rc7-amd64", "7.3-amd64");
        check("7.3-rc7-amd64", "7.3.1-amd64");
        check("7.3~rc7-rt-amd64", "7.3~rc10-rt-amd64");
    }

    #[test]
    fn images_say_what_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("vmlinuz");
        let mut bytes = vec![0; 0x400];
        bytes[0x202..0x206].copy_from_slice(b"HdrS");
        bytes[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
        bytes[0x300..0x30f].copy_from_slice(b"7.3.4-x (me) #1");
        fs::write(&image, &bytes).unwrap();
        assert_eq!(release_of(&image).as_deref(), Some("7.3.4-x"));
        assert_eq!(
            Kernel::find(image.to_str().unwrap()).unwrap().release,
            "7.3.4-x"
        );
        fs::write(&image, &bytes[..0x300]).unwrap();
        assert_eq!(release_of(&image), None);
        fs::write(&image, "no kernel").unwrap();
        assert!(matches!(
            Kernel::find(image.to_str().unwrap()),
            Err(Error::User(_))
        ));
    }
}
