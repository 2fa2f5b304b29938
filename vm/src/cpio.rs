// SPDX-License-Identifier: GPL-2.0-only
//! The "newc" cpio format, which the kernel reads as initramfs and busybox writes.
//!
//! ```text
//! archive := entry* entry("TRAILER!!!")
//! entry   := "070701" field{13} name NUL pad data pad
//! field   := 8 hexadecimal digits: ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor
//!            namesize check
//! pad     := NUL bytes up to a multiple of 4 from the start of the archive
//! ```
//! The magic is the format's version. Written entries belong to root and have time 0, so that the
//! same input gives the same bytes. Hard links, devices and checksums are not supported.

use std::io::{self, Write};

const MAGIC: &str = "070701";
const TRAILER: &str = "TRAILER!!!";
const HEADER: usize = MAGIC.len() + 13 * 8;

/// The type bits of a mode.
pub const S_IFMT: u32 = 0o170_000;
/// A regular file.
pub const S_IFREG: u32 = 0o100_000;
/// A directory.
pub const S_IFDIR: u32 = 0o040_000;
/// A symbolic link; its data is the target.
pub const S_IFLNK: u32 = 0o120_000;

/// One member of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Path without a leading slash.
    pub name: String,
    /// Type and permission bits, as in `stat`.
    pub mode: u32,
    /// Contents, or a link's target.
    pub data: Vec<u8>,
}

/// Writes an archive, member by member. A directory must be written before what lies in it.
pub struct Writer<W: Write> {
    out: W,
    offset: usize,
    inode: u32,
}

impl<W: Write> Writer<W> {
    /// Starts an empty archive that is written to `out`.
    pub fn new(out: W) -> Self {
        Writer {
            out,
            offset: 0,
            inode: 0,
        }
    }

    /// Appends a member. `name` has no leading slash; `data` must be smaller than 4 GiB.
    pub fn entry(&mut self, name: &str, mode: u32, data: &[u8]) -> io::Result<()> {
        self.inode += 1;
        let size = u32::try_from(data.len()).map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{name} has 4 GiB or more"),
            )
        })?;
        let links = if mode & S_IFMT == S_IFDIR { 2 } else { 1 };
        let fields = [
            self.inode,
            mode,
            0,
            0,
            links,
            0,
            size,
            0,
            0,
            0,
            0,
            name.len() as u32 + 1,
            0,
        ];
        let mut header = String::from(MAGIC);
        for field in fields {
            header += &format!("{field:08x}");
        }
        self.write(header.as_bytes())?;
        self.write(name.as_bytes())?;
        self.write(&[0])?;
        self.pad()?;
        self.write(data)?;
        self.pad()
    }

    /// Ends the archive and returns the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.entry(TRAILER, 0, &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn pad(&mut self) -> io::Result<()> {
        let missing = self.offset.next_multiple_of(4) - self.offset;
        self.write(&[0; 3][..missing])
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.offset += bytes.len();
        self.out.write_all(bytes)
    }
}

/// Reads a whole archive. Data after the trailer is ignored.
///
/// # Errors
/// A sentence about the first deviation from the grammar; an archive that was cut short is one.
pub fn read(archive: &[u8]) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    let mut at = 0;
    let take = |at: &mut usize, n: usize| -> Result<&[u8], String> {
        let end = at.checked_add(n).filter(|&end| end <= archive.len());
        let end =
            end.ok_or_else(|| format!("the archive ends early, in the member at byte {at}"))?;
        let bytes = &archive[*at..end];
        *at = end;
        Ok(bytes)
    };
    loop {
        let start = at;
        let header = take(&mut at, HEADER)?;
        if !header.starts_with(MAGIC.as_bytes()) {
            return Err(format!("no member of a newc archive at byte {start}"));
        }
        let field = |i: usize| -> Result<usize, String> {
            let digits = &header[MAGIC.len() + i * 8..][..8];
            let text = std::str::from_utf8(digits)
                .ok()
                .filter(|t| t.bytes().all(|b| b.is_ascii_hexdigit()));
            text.and_then(|t| usize::from_str_radix(t, 16).ok())
                .ok_or_else(|| {
                    format!("field {i} of the member at byte {start} is not hexadecimal")
                })
        };
        let (mode, size, name_size) = (field(1)? as u32, field(6)?, field(11)?);
        let name = take(&mut at, name_size)?;
        let name = name
            .strip_suffix(&[0])
            .and_then(|n| std::str::from_utf8(n).ok());
        let name = name
            .ok_or_else(|| format!("the name of the member at byte {start} is not text"))?
            .to_owned();
        if name == TRAILER {
            return Ok(entries);
        }
        let padding = at.next_multiple_of(4) - at;
        take(&mut at, padding)?;
        let data = take(&mut at, size)?.to_vec();
        let padding = at.next_multiple_of(4) - at;
        take(&mut at, padding)?;
        entries.push(Entry { name, mode, data });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(entries: &[Entry]) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new());
        for e in entries {
            writer.entry(&e.name, e.mode, &e.data).unwrap();
        }
        writer.finish().unwrap()
    }

    /// Names and contents of every length modulo 4, so that all paddings occur.
    fn sample() -> Vec<Entry> {
        let mut entries = vec![Entry {
            name: "d".into(),
            mode: S_IFDIR | 0o755,
            data: vec![],
        }];
        for i in 0..32usize {
            let data = (0..i * 7 % 23).map(|b| (b * 31 + i) as u8).collect();
            entries.push(Entry {
                name: format!("d/{}", "x".repeat(i + 1)),
                mode: S_IFREG | 0o600 | i as u32,
                data,
            });
        }
        entries.push(Entry {
            name: "link".into(),
            mode: S_IFLNK | 0o777,
            data: b"d/x".to_vec(),
        });
        entries
    }

    #[test]
    fn round_trip() {
        assert_eq!(read(&write(&sample())).unwrap(), sample());
        assert_eq!(read(&write(&[])).unwrap(), []);
    }

    #[test]
    fn first_member_byte_by_byte() {
        let archive = write(&[Entry {
            name: "ab".into(),
            mode: S_IFREG | 0o644,
            data: b"hello".to_vec(),
        }]);
        let header = "070701000000010000\
                      81a400000000000000000000000100000000000000050000000000000000000000000000000000000003\
                      00000000";
        assert_eq!(&archive[..HEADER], header.as_bytes());
        assert_eq!(&archive[HEADER..HEADER + 3], b"ab\0");
        assert_eq!(&archive[116..124], b"hello\0\0\0");
    }

    #[test]
    fn every_cut_is_an_error_and_never_a_panic() {
        let archive = write(&sample());
        let end = archive.len();
        for n in 0..end - 1 {
            // The padding after the trailer may be missing: it carries no data.
            if n + 4 < end {
                assert!(read(&archive[..n]).is_err(), "cut at {n} of {end}");
            }
        }
    }

    #[test]
    fn damage_is_an_error_or_other_data_but_never_a_panic() {
        let archive = write(&sample());
        for i in 0..archive.len() {
            for value in [0, b'0', b'f', b'g', 0xff] {
                let mut damaged = archive.clone();
                damaged[i] = value;
                if let Ok(entries) = read(&damaged) {
                    assert!(entries.len() <= sample().len(), "byte {i}");
                }
            }
        }
    }
}
