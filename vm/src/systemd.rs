// SPDX-License-Identifier: GPL-2.0-only
//! systemd as a guest's first process: the programs and units installed on this machine, and a unit
//! for the guest's command.

use std::io::Write;
use std::path::Path;

use crate::{Error, Initramfs, Result};

const PROGRAMS: [&str; 3] = ["systemd", "systemd-executor", "systemd-shutdown"];
const TOOLS: [&str; 3] = ["systemctl", "systemd-analyze", "systemd-run"];

/// The default dependencies of units.
const UNITS: [&str; 14] = [
    "basic.target",
    "final.target",
    "local-fs.target",
    "local-fs-pre.target",
    "multi-user.target",
    "paths.target",
    "poweroff.target",
    "shutdown.target",
    "slices.target",
    "sockets.target",
    "swap.target",
    "sysinit.target",
    "timers.target",
    "umount.target",
];

/// Runs the command when the boot is over; the guest ends with it.
const COMMAND: &str = "[Unit]
Description=The guest's command
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/init command
";

/// systemd kills running processes when the machine is powered off. The command reports its own
/// end.
const DEFAULT: &str = "[Unit]
Description=The guest
Requires=multi-user.target
Wants=baton-guest.service
AllowIsolate=yes
";

pub fn add<W: Write>(guest: &mut Initramfs<W>) -> Result<()> {
    let dir = Path::new("/usr/lib/systemd");
    if !dir.join("systemd").exists() {
        return Err(Error::Environment(
            "systemd, which the guest is to have, is not installed here".into(),
        ));
    }
    for program in PROGRAMS {
        let path = dir.join(program);
        guest.host_path(&path, &path.display().to_string())?;
    }
    for tool in TOOLS {
        guest.tool(tool)?;
    }
    for unit in UNITS {
        let path = dir.join("system").join(unit);
        guest.host_path(&path, &path.display().to_string())?;
    }
    guest.file(
        "/etc/systemd/system/baton-guest.service",
        0o644,
        COMMAND.as_bytes(),
    )?;
    guest.file(
        "/etc/systemd/system/default.target",
        0o644,
        DEFAULT.as_bytes(),
    )?;
    guest.file("/etc/os-release", 0o644, b"ID=guest\nNAME=Guest\n")?;
    guest.file(
        "/etc/machine-id",
        0o644,
        b"00000000000000000000000000000001\n",
    )?;
    guest.file("/etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\n")?;
    guest.file("/etc/group", 0o644, b"root:x:0:\n")?;
    guest.file("/run/baton/systemd", 0o644, b"")
}
