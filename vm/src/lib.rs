// SPDX-License-Identifier: GPL-2.0-only
//! Boots the stock kernel of Baton's Debian root in QEMU, with a few files in an initramfs, and
//! runs one command there.
//!
//! ```no_run
//! let vm = baton_vm::Vm { cpus: 2, command: vec!["uname".into(), "-r".into()], ..Default::default() };
//! let outcome = vm.run(&mut std::io::stdout())?;
//! assert_eq!(outcome.exit_code, 0);
//! # Ok::<(), baton_vm::Error>(())
//! ```
//!
//! The parts: [`cpio`] is the archive format of the initramfs and of the files that come back,
//! [`Initramfs`] collects programs with their libraries, [`qemu`] says how QEMU is called, [`Vm`]
//! runs it, [`kernel_log`] reads what the kernel had to say. `vm/init` is the guest's side.
//!
//! Nothing is written to disk: the initramfs and what comes back live in memory files, and QEMU
//! ends with us.
#![deny(missing_docs)]

pub mod cpio;
mod error;
mod initramfs;
pub mod kernel;
pub mod kernel_log;
mod monitor;
pub mod qemu;
mod systemd;
mod vm;

pub use error::Error;
pub use initramfs::Initramfs;
pub use kernel::Kernel;
pub use qemu::Topology;
pub use vm::{FileIn, Outcome, Vm, DEFAULT_TOOLS};

/// Result of everything here that can fail.
pub type Result<T> = std::result::Result<T, Error>;
