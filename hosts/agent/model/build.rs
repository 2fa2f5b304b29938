// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the kernel half of an enclave for user space.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Files of the kernel half. The others begin and end sessions, which `c/model.c` does here.
const KERNEL_HALF: [&str; 5] = ["calls.c", "commit.c", "memory.c", "message.c", "pick.c"];

/// The kernel's headers that `c/kernel.h` stands for.
const HEADERS: [&str; 22] = [
    "asm/rqspinlock.h",
    "linux/atomic.h",
    "linux/hrtimer.h",
    "linux/irq_work.h",
    "linux/kref.h",
    "linux/list.h",
    "linux/miscdevice.h",
    "linux/mm.h",
    "linux/mutex.h",
    "linux/overflow.h",
    "linux/preempt.h",
    "linux/rcupdate.h",
    "linux/sched.h",
    "linux/sched/signal.h",
    "linux/slab.h",
    "linux/smp.h",
    "linux/string.h",
    "linux/types.h",
    "linux/uaccess.h",
    "linux/vmalloc.h",
    "linux/workqueue.h",
    "linux/compiler.h",
];

fn main() -> io::Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let headers = out.join("include");
    for header in HEADERS {
        let path = headers.join(header);
        fs::create_dir_all(path.parent().expect("it is in a folder"))?;
        fs::write(path, "#include \"kernel.h\"\n")?;
    }
    let root = Path::new("../../..");
    let kernel = root.join("hosts/agent/kernel");
    let mut build = cc::Build::new();
    build
        .files(KERNEL_HALF.map(|file| kernel.join(file)))
        .file("c/model.c")
        .include("c")
        .include(headers)
        .include(&kernel)
        .include(root.join("hosts/native/c"))
        .include(root.join("hosts/kernel"))
        .include(root.join("policy/c"))
        .std("gnu11")
        // As the kernel's compiler flags have it.
        .flag("-fno-strict-aliasing")
        .flag("-fno-strict-overflow")
        .flag("-Wno-unused-parameter")
        .flag("-Wno-sign-compare")
        .opt_level(2);
    build.compile("baton_enclave");
    for folder in [
        "c",
        "../kernel",
        "../../native/c",
        "../../kernel/interrupt.h",
        "../../kernel/register.h",
        "../../../policy/c",
    ] {
        println!("cargo::rerun-if-changed={folder}");
    }
    Ok(())
}
