// SPDX-License-Identifier: GPL-2.0-only
//! The build identifier of a kernel that is running or can be booted.

use std::path::Path;
use std::process::Command;

use object::LittleEndian as LE;

use baton_control::error::{Error, Result};

use crate::process;
use crate::vmlinux;

/// The beginning of data that zstd has compressed.
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// The build identifier of the kernel in an image, in hexadecimal.
///
/// # Errors
/// The file is no image of x86-64, or its kernel is compressed in another way than by zstd, as
/// Debian's is.
pub fn build_id(image: &Path) -> Result<String> {
    let bytes = std::fs::read(image)
        .map_err(|e| Error::file(format!("reading {}", image.display()), &e))?;
    let unreadable = |why: &str| {
        Error::environment(
            format!("the kernel in {} cannot be read: {why}", image.display()),
            "use a kernel of Debian: baton live prepare --kernel RELEASE",
        )
    };
    let packed = payload(&bytes).ok_or_else(|| unreadable("it is no image of x86-64"))?;
    if !packed.starts_with(ZSTD) {
        return Err(unreadable("it is not compressed by zstd"));
    }
    let kernel = process::filter(
        Command::new("zstd").args(["-d", "-q", "-c"]),
        packed,
        "unpacking the kernel",
    )?;
    let id = vmlinux::build_id(&kernel).map_err(|e| unreadable(&e.to_string()))?;
    id.ok_or_else(|| unreadable("it has no build identifier"))
}

/// The compressed kernel in an image (Documentation/arch/x86/boot.rst: setup_sects, payload_offset,
/// payload_length). The last four bytes of the payload are the size of what was compressed.
fn payload(image: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| {
        let bytes = image.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    };
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let sectors = usize::from(*image.get(0x1f1)?);
    let start = (sectors + 1) * 512 + number(0x248)?;
    image.get(start..start + number(0x24c)?.checked_sub(4)?)
}

/// The build identifier of the running kernel, in hexadecimal.
///
/// # Errors
/// The kernel does not tell it.
pub fn running_build_id() -> Result<String> {
    let path = "/sys/kernel/notes";
    let notes = std::fs::read(path).map_err(|e| Error::file(format!("reading {path}"), &e))?;
    let unknown = || {
        Error::environment(
            format!("{path} does not tell the build identifier of this kernel"),
            "boot a kernel of Debian",
        )
    };
    let notes =
        object::read::elf::NoteIterator::<object::elf::FileHeader64<LE>>::new(LE, 4, &notes);
    let mut notes = notes.map_err(|_| unknown())?;
    while let Some(note) = notes.next().map_err(|_| unknown())? {
        if let Some(id) = vmlinux::build_id_in(&note) {
            return Ok(id);
        }
    }
    Err(unknown())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_of_an_image() {
        let mut image = vec![0; 0x600];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248] = 0x10;
        image[0x24c] = 8;
        image[0x410..0x418].copy_from_slice(b"kernSIZE");
        assert_eq!(payload(&image), Some(&b"kern"[..]));
        image[0x24c] = 3;
        assert_eq!(payload(&image), None);
        image[0x24c..0x250].fill(0xff);
        assert_eq!(payload(&image), None);
        assert_eq!(payload(&image[..0x202]), None);
    }
}
