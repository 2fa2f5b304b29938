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
//! The parts: [`cpio`] is the archive format of the initramfs and of the returned files,
//! [`Initramfs`] collects programs with their libraries, [`qemu`] builds QEMU's command line,
//! [`Vm`] runs it, and [`kernel_log`] checks the kernel's log. `vm/init` is the guest's side.
//!
//! Nothing is written to disk: the initramfs and the returned files are memory files, and QEMU ends
//! with the calling process.
#![deny(missing_docs)]

pub mod cpio;
mod error;
mod initramfs;
pub mod kernel;
pub mod kernel_log;
mod monitor;
pub mod qemu;
mod systemd;
pub mod tested;
mod vm;

pub use error::Error;
pub use initramfs::Initramfs;
pub use kernel::Kernel;
pub use qemu::Topology;
pub use vm::{FileIn, Outcome, Vm, DEFAULT_TOOLS};

/// Result of every function here that can fail.
pub type Result<T> = std::result::Result<T, Error>;
