// SPDX-License-Identifier: GPL-2.0-only
//! Inspects a hanging guest from outside. QEMU's machine protocol reports the state of its CPUs,
//! and an NMI makes its kernel print where they are.

use std::io::{BufRead, BufReader, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

/// Number of samples of the CPUs, and the time between two. A CPU that takes no interrupts in all
/// of them is stuck.
const LOOKS: u32 = 10;
const APART: Duration = Duration::from_millis(100);

/// How long QEMU may take for an answer: a machine that runs other guests as well is slow.
const PATIENCE: Duration = Duration::from_secs(20);

/// Start of the address range of modules, which contains nothing else that runs for long
/// (arch/x86/include/asm/pgtable_64_types.h).
const MODULES: u64 = 0xffff_ffff_c000_0000;

/// The interrupt flag in a CPU's flags register.
const INTERRUPTS: u64 = 1 << 9;

/// QEMU's arguments for listening on a socket of this name. The socket is in the abstract
/// namespace, so no file is left behind.
pub fn arguments(name: &str) -> [String; 4] {
    [
        "-chardev".into(),
        format!("socket,id=monitor,path={name},abstract=on,server=on,wait=off"),
        "-mon".into(),
        "chardev=monitor,mode=control".into(),
    ]
}

/// What the CPUs of a guest do that has not ended in time.
#[derive(Debug, PartialEq, Eq)]
pub enum Cpus {
    /// One is stuck in a module or with interrupts off. The guest's kernel was made to print where
    /// all CPUs are, and to end. Only the first CPU takes the NMI. If it waits for another one that
    /// is in a loop, the kernel may not come so far.
    Stuck,
    /// All take interrupts now and then.
    Free,
    /// QEMU did not say, for this reason.
    Unknown(String),
}

impl std::fmt::Display for Cpus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stuck => f.write_str("a CPU is stuck"),
            Self::Free => f.write_str("no CPU is stuck"),
            Self::Unknown(why) => write!(f, "QEMU does not say whether a CPU is stuck: {why}"),
        }
    }
}

/// Asks what the CPUs do, and ends the guest if one is stuck.
pub fn ask_where(name: &str) -> Cpus {
    match Monitor::open(name).and_then(|mut monitor| monitor.ask_where()) {
        Ok(true) => Cpus::Stuck,
        Ok(false) => Cpus::Free,
        Err(why) => Cpus::Unknown(why.to_string()),
    }
}

/// Sends NMIs to a guest while a CPU executes a module with interrupts off and does not end that,
/// as a watchdog of a machine does.
pub struct Watchdog<'a> {
    name: &'a str,
    monitor: Option<Monitor>,
    /// The CPUs that did so at the last look.
    before: Vec<bool>,
}

impl<'a> Watchdog<'a> {
    /// A watchdog for the guest with this socket.
    pub fn new(name: &'a str) -> Self {
        Self {
            name,
            monitor: None,
            before: Vec::new(),
        }
    }

    /// Looks at the CPUs. Each look stops the guest for some ms. A guest that does not answer, as
    /// one that ends, is left alone.
    pub fn look(&mut self) {
        if self.try_look().is_err() {
            self.monitor = None;
            self.before.clear();
        }
    }

    fn try_look(&mut self) -> std::io::Result<()> {
        let monitor = match &mut self.monitor {
            Some(monitor) => monitor,
            none => none.insert(Monitor::open(self.name)?),
        };
        let now: Vec<bool> = monitor
            .states()?
            .into_iter()
            .map(|state| state.in_module && state.closed)
            .collect();
        if now
            .iter()
            .zip(&self.before)
            .any(|(now, before)| *now && *before)
        {
            monitor.say(r#"{"execute":"inject-nmi"}"#)?;
        }
        self.before = now;
        Ok(())
    }
}

struct Monitor(BufReader<UnixStream>);

impl Monitor {
    fn open(name: &str) -> std::io::Result<Self> {
        let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut monitor = Self(BufReader::new(stream));
        monitor.say(r#"{"execute":"qmp_capabilities"}"#)?;
        Ok(monitor)
    }

    /// Sends a command and returns the raw answer.
    fn say(&mut self, command: &str) -> std::io::Result<String> {
        writeln!(self.0.get_mut(), "{command}")?;
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            if line.contains("\"return\"") || line.contains("\"error\"") {
                return Ok(line);
            }
        }
    }

    fn states(&mut self) -> std::io::Result<Vec<State>> {
        let text =
            self.say(r#"{"execute":"human-monitor-command","arguments":{"command-line":"info registers -a"}}"#)?;
        Ok(states(&text))
    }

    fn ask_where(&mut self) -> std::io::Result<bool> {
        let mut stuck: Option<Vec<bool>> = None;
        for _ in 0..LOOKS {
            let states = self.states()?;
            let now: Vec<bool> = states
                .iter()
                .map(|one| one.in_module || one.closed)
                .collect();
            let both = |before: Vec<bool>| before.iter().zip(&now).map(|(a, b)| *a && *b).collect();
            stuck = Some(stuck.map_or(now.clone(), both));
            std::thread::sleep(APART);
        }
        let is_stuck = stuck.is_some_and(|cpus| cpus.contains(&true));
        if is_stuck {
            self.say(r#"{"execute":"inject-nmi"}"#)?;
        }
        Ok(is_stuck)
    }
}

/// What a CPU does that does not sleep. One that sleeps does neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    /// It executes a module.
    in_module: bool,
    /// It has interrupts off.
    closed: bool,
}

/// The states of the CPUs. The input is QEMU's list of registers.
fn states(registers: &str) -> Vec<State> {
    let number = |text: &str, name: &str| {
        let at = text.find(name)? + name.len();
        let digits = text[at..].split(|c: char| !c.is_ascii_hexdigit()).next()?;
        u64::from_str_radix(digits, 16).ok()
    };
    let cpus = registers.split("RAX=").skip(1);
    cpus.map(|text| {
        let (place, flags, sleeps) = (
            number(text, "RIP="),
            number(text, "RFL="),
            number(text, "HLT="),
        );
        let is_awake = sleeps == Some(0);
        State {
            in_module: is_awake && place.is_some_and(|place| place >= MODULES),
            closed: is_awake && flags.is_some_and(|flags| flags & INTERRUPTS == 0),
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers() {
        let cpu = |place: &str, flags: &str, halted: u32| {
            format!(
                "CPU#0\\r\\nRAX=0 RBX=1\\r\\nRIP={place} RFL={flags} [---] CPL=0 II=0 A20=1 SMM=0 \
                 HLT={halted}\\r\\n"
            )
        };
        let in_kernel = |flags| cpu("ffffffff81000000", flags, 0);
        let state = |in_module, closed| State { in_module, closed };
        assert_eq!(
            states(&(in_kernel("00000246") + &in_kernel("00000046"))),
            [state(false, false), state(false, true)]
        );
        let in_module = cpu("ffffffffc0401000", "00000246", 0);
        assert_eq!(states(&in_module), [state(true, false)]);
        assert_eq!(
            states(&cpu("ffffffff81000000", "00000046", 1)),
            [state(false, false)],
            "it is offline"
        );
        assert_eq!(states("nothing"), []);
    }
}
