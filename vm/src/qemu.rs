// SPDX-License-Identifier: GPL-2.0-only
//! QEMU's command line: machine, clock, processors, kernel.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::{error::Doing, monitor, Error, Result};

/// The largest number of CPUs of a guest: the limit of QEMU's default machine.
pub const MAX_CPUS: u32 = 255;

/// The shape of a guest's processors, written `NODESxCORESxTHREADS`: NUMA nodes, cores in each,
/// hardware threads in each core. A node is one socket and shares one last-level cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Topology {
    /// NUMA nodes, at least 1.
    pub nodes: u32,
    /// Cores in each node, at least 1.
    pub cores: u32,
    /// Hardware threads in each core, 1 or 2.
    pub threads: u32,
}

impl Topology {
    /// All CPUs of the machine.
    pub fn cpus(&self) -> u32 {
        self.nodes * self.cores * self.threads
    }
}

impl FromStr for Topology {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |why: &str| {
            Error::User(format!(
                "'{text}' is no topology: {why}; write NUMA nodes x cores x hardware threads, for \
                 example 2x4x2"
            ))
        };
        let numbers: Option<Vec<u32>> = text.split('x').map(|n| n.parse().ok()).collect();
        let Some([nodes, cores, threads]) = numbers.as_deref() else {
            return Err(wrong("it has not three numbers"));
        };
        let (nodes, cores, threads) = (*nodes, *cores, *threads);
        if nodes == 0 || cores == 0 || !(1..=2).contains(&threads) {
            return Err(wrong("nodes and cores are at least 1, threads 1 or 2"));
        }
        if nodes
            .checked_mul(cores)
            .and_then(|n| n.checked_mul(threads))
            .is_none_or(|n| n > MAX_CPUS)
        {
            return Err(wrong(&format!("a guest has at most {MAX_CPUS} CPUs")));
        }
        Ok(Topology {
            nodes,
            cores,
            threads,
        })
    }
}

impl std::fmt::Display for Topology {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}x{}", self.nodes, self.cores, self.threads)
    }
}

/// The means of executing the guest's instructions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accelerator {
    /// Translation on one host thread for all guest CPUs. Fast; guest times have no meaning.
    Fast,
    /// Translation on one thread that counts instructions: each takes 2 to the power of `shift` ns
    /// of guest time. The same guest always gives exactly the same numbers.
    Icount {
        /// 0 for 1 ns per instruction. At most 10.
        shift: u8,
    },
    /// Translation on a thread for each guest CPU, with a plugin that counts the instructions of
    /// each. CPUs run at the same time, so no two runs are alike.
    Counter(PathBuf),
    /// The host's own virtualisation.
    Kvm,
}

/// The parameters of QEMU's command line.
#[derive(Debug, Clone)]
pub struct Machine<'a> {
    /// What executes the instructions.
    pub accelerator: Accelerator,
    /// Number of CPUs, if there is no topology.
    pub cpus: u32,
    /// Shape of the CPUs.
    pub topology: Option<Topology>,
    /// Memory in MiB.
    pub memory_mb: u32,
    /// Kernel image.
    pub kernel: &'a Path,
    /// Arguments appended to the kernel's command line.
    pub kernel_args: &'a [String],
    /// Initramfs.
    pub initrd: &'a Path,
    /// File for the kernel's console. The command's output goes to QEMU's standard output.
    pub console: &'a Path,
    /// File for the control channel.
    pub control: &'a Path,
    /// Makes the control channel a serial port, which any kernel supports without a module.
    /// [`Accelerator::Icount`] always uses a serial port. Otherwise the channel is virtio, which is
    /// faster.
    pub serial_control: bool,
    /// Has NMIs from outside reach all CPUs, and lets the kernel survive one that nobody takes.
    pub watchdog: bool,
    /// Name of the socket for inspecting the guest from outside.
    pub monitor: &'a str,
}

/// The kernel's command line for every guest:
/// - `panic=-1`: a panic ends the guest at once;
/// - `oops=panic`: an oops also ends the guest. Most oopses leave a lock held for which the rest of
///   the kernel would wait;
/// - `loglevel=7`: warnings reach the console, too: its log may be all that remains of the guest;
/// - `mitigations=off`, `nokaslr`, `random.trust_cpu=on`: fewer instructions that differ from run
///   to run;
/// - `tsc=reliable`: on a busy host the clock watchdog would blame the time stamp counter;
/// - `cryptomgr.notests`: saves half a second of boot time;
/// - `panic_sys_info=all_bt`: a panic prints where all CPUs are.
const KERNEL_ARGS: &str =
    "console=ttyS0 panic=-1 oops=panic loglevel=7 mitigations=off nokaslr random.trust_cpu=on \
     tsc=reliable cryptomgr.notests panic_sys_info=all_bt";

/// How the kernel takes NMIs: it panics, so that a hanging guest prints where it is.
const NMI: &str = "unknown_nmi_panic";

/// With a watchdog: on all CPUs, not only on the first.
const NMI_OF_WATCHDOG: &str = "apic_extnmi=all";

/// Builds the arguments of `qemu-system-x86_64` for a machine.
pub fn arguments(m: &Machine) -> Vec<String> {
    let mut args: Vec<String> = Vec::new();
    let mut add = |option: &str, value: String| args.extend([option.to_owned(), value]);
    match &m.accelerator {
        // One thread for all CPUs. With one thread for each, a CPU can hit the breakpoint that
        // another sets while it patches a static key (as sched_ext is attached), and the guest
        // dies.
        Accelerator::Fast => add("-accel", "tcg,thread=single".into()),
        Accelerator::Icount { shift } => {
            add("-accel", "tcg,thread=single".into());
            add("-icount", format!("shift={shift},sleep=off"));
            // Two inputs that would differ from run to run: the time of day, and the result of the
            // processor's rdrand.
            add("-rtc", "base=2026-01-01T00:00:00,clock=vm".into());
            add("-seed", "1".into());
        }
        // CPUs must run at the same time here. That risks the crash described above, but a bench
        // can be repeated.
        Accelerator::Counter(plugin) => {
            add("-accel", "tcg,thread=multi".into());
            add("-plugin", format!("file={}", plugin.display()));
        }
        Accelerator::Kvm => add("-accel", "kvm".into()),
    }
    // Without topoext each CPU would report a last-level cache of its own.
    let cpu = if m.accelerator == Accelerator::Kvm {
        "host"
    } else {
        "max,+topoext"
    };
    add("-cpu", cpu.into());
    add("-m", m.memory_mb.to_string());
    match m.topology {
        None => add(
            "-smp",
            format!("cpus={0},sockets=1,cores={0},threads=1", m.cpus),
        ),
        Some(t) => {
            add(
                "-smp",
                format!(
                    "cpus={},sockets={},cores={},threads={}",
                    t.cpus(),
                    t.nodes,
                    t.cores,
                    t.threads
                ),
            );
            if t.nodes > 1 {
                let per_node = t.cores * t.threads;
                let share = m.memory_mb / t.nodes;
                for node in 0..t.nodes {
                    // The first node also gets the remainder of the division.
                    let size = if node == 0 {
                        m.memory_mb - share * (t.nodes - 1)
                    } else {
                        share
                    };
                    let cpus = format!("{}-{}", node * per_node, (node + 1) * per_node - 1);
                    add(
                        "-object",
                        format!("memory-backend-ram,id=memory{node},size={size}M"),
                    );
                    add(
                        "-numa",
                        format!("node,nodeid={node},cpus={cpus},memdev=memory{node}"),
                    );
                }
            }
        }
    }
    for alone in ["-nodefaults", "-no-user-config", "-no-reboot"] {
        args.push(alone.into());
    }
    let mut add = |option: &str, value: String| args.extend([option.to_owned(), value]);
    add("-display", "none".into());
    add(
        "-chardev",
        format!("file,id=console,path={}", m.console.display()),
    );
    add("-serial", "chardev:console".into());
    add("-chardev", "stdio,id=output,signal=off".into());
    add("-serial", "chardev:output".into());
    add(
        "-chardev",
        format!("file,id=control,path={}", m.control.display()),
    );
    // With -icount, timing must not depend on the host. A virtio device answers when the host
    // schedules it; the slower serial port answers at once.
    if m.serial_control || matches!(m.accelerator, Accelerator::Icount { .. }) {
        add("-serial", "chardev:control".into());
    } else {
        add("-device", "virtio-serial-pci".into());
        add("-device", "virtserialport,chardev=control".into());
    }
    args.extend(monitor::arguments(m.monitor));
    let mut add = |option: &str, value: String| args.extend([option.to_owned(), value]);
    let nmi = if m.watchdog { NMI_OF_WATCHDOG } else { NMI };
    add("-kernel", m.kernel.display().to_string());
    add("-initrd", m.initrd.display().to_string());
    add(
        "-append",
        [KERNEL_ARGS, nmi]
            .into_iter()
            .map(str::to_owned)
            .chain(m.kernel_args.iter().cloned())
            .collect::<Vec<_>>()
            .join(" "),
    );
    args
}

/// Checks whether the host's virtualisation is available for a trial.
pub(crate) fn kvm_device() -> Result<()> {
    let device = "/dev/kvm";
    std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(device)
        .doing(|| format!("opening {device}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_topology(text: &str, expected: Option<(u32, u32, u32)>) {
        let parsed = text.parse::<Topology>();
        match expected {
            Some((nodes, cores, threads)) => {
                assert_eq!(
                    parsed.unwrap(),
                    Topology {
                        nodes,
                        cores,
                        threads
                    },
                    "{text}"
                );
                assert_eq!(
                    Topology {
                        nodes,
                        cores,
                        threads
                    }
                    .to_string(),
                    text
                );
            }
            None => {
                let message = parsed.expect_err(text).to_string();
                assert!(
                    message.contains(&format!("'{text}'")) && message.contains("2x4x2"),
                    "{message}"
                );
            }
        }
    }

    #[test]
    fn topologies() {
        check_topology("2x2x1", Some((2, 2, 1)));
        check_topology("1x1x1", Some((1, 1, 1)));
        check_topology("4x8x2", Some((4, 8, 2)));
        for wrong in [
            "", "2", "2x2", "2x2x1x1", "0x1x1", "1x0x1", "1x1x0", "1x1x3", "ax1x1", "2x2x",
            "-1x1x1", " 1x1x1",
        ] {
            check_topology(wrong, None);
        }
        check_topology("16x16x1", None);
        check_topology("65536x65536x1", None);
    }

    fn line(accelerator: Accelerator, cpus: u32, topology: Option<&str>) -> String {
        let path = Path::new;
        let topology = topology.map(|t| t.parse().unwrap());
        let kernel_args = ["isolcpus=1".to_owned()];
        let machine = Machine {
            accelerator,
            cpus,
            topology,
            memory_mb: 1000,
            kernel: path("/k"),
            kernel_args: &kernel_args,
            initrd: path("/i"),
            console: path("/c"),
            control: path("/x"),
            serial_control: false,
            watchdog: false,
            monitor: "m",
        };
        arguments(&machine).join(" ")
    }

    fn check_line(line: &str, parts: &[&str]) {
        for part in parts {
            assert!(line.contains(part), "no '{part}' in: {line}");
        }
    }

    #[test]
    fn command_lines() {
        let fast = line(Accelerator::Fast, 3, None);
        check_line(
            &fast,
            &[
                "-accel tcg,thread=single",
                "-smp cpus=3,sockets=1,cores=3,threads=1",
                "-m 1000",
                "-kernel /k -initrd /i -append console=ttyS0 panic=-1 oops=panic",
                "cryptomgr.notests panic_sys_info=all_bt unknown_nmi_panic isolcpus=1",
                "-chardev file,id=console,path=/c -serial chardev:console -chardev stdio,id=output",
                "-chardev file,id=control,path=/x",
            ],
        );
        assert!(
            !fast.contains("-icount") && !fast.contains("-numa"),
            "{fast}"
        );
        let icount = line(Accelerator::Icount { shift: 0 }, 1, None);
        check_line(
            &icount,
            &[
                "-accel tcg,thread=single -icount shift=0,sleep=off",
                "-serial chardev:control",
            ],
        );
        assert!(!icount.contains("virtio"), "{icount}");
        check_line(&line(Accelerator::Kvm, 1, None), &["-accel kvm -cpu host"]);
        let counted = line(Accelerator::Counter("/p.so".into()), 2, None);
        check_line(&counted, &["-accel tcg,thread=multi -plugin file=/p.so"]);
        check_line(
            &line(Accelerator::Fast, 1, Some("3x2x2")),
            &[
                "-smp cpus=12,sockets=3,cores=2,threads=2",
                "-object memory-backend-ram,id=memory0,size=334M -numa \
                 node,nodeid=0,cpus=0-3,memdev=memory0",
                "-object memory-backend-ram,id=memory2,size=333M -numa \
                 node,nodeid=2,cpus=8-11,memdev=memory2",
            ],
        );
    }
}
