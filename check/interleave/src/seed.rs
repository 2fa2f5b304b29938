// SPDX-License-Identifier: GPL-2.0-only
//! All that decides a schedule, in a word that can be typed.
//!
//! ```text
//!   seed    = way "-" cpus "c" tasks "t" events "e-0x" number [ ":" moves ]
//!   way     = "rnd" | "pct" depth | "all" count
//!   moves   = move *( "." move )        of "all" only: where another CPU goes on than the usual one
//!   move    = decision ">" thread
//! ```

use std::fmt;
use std::str::FromStr;

/// How the CPU that goes on is chosen at each scheduling point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// At random, with a bias towards the CPU that runs already; the strength of the bias is
    /// random, too.
    Random,
    /// By priorities that change at a few points (probabilistic concurrency testing, Burckhardt et
    /// al., ASPLOS 2010): a bug that needs `depth` orderings is found with a known probability.
    Pct(u8),
    /// All schedules, one after another, that differ from the default order in at most so many
    /// decisions; by default the CPU that ran before goes on (delay bounding, Emmi, Qadeer and
    /// Rakamarić, POPL 2011).
    All(u8),
}

/// A schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed {
    /// How the CPU is chosen.
    pub way: Way,
    /// CPUs, 1 to 4.
    pub cpus: usize,
    /// Tasks at the beginning, 1 to 6.
    pub tasks: usize,
    /// Events that each CPU begins.
    pub events: usize,
    /// The seed of all random choices.
    pub number: u64,
    /// For [`Way::All`]: the decisions at which a thread other than the default goes on, and that
    /// thread.
    pub moves: Vec<(u32, u8)>,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random => f.write_str("rnd"),
            Self::Pct(depth) => write!(f, "pct{depth}"),
            Self::All(count) => write!(f, "all{count}"),
        }
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}-{}c{}t{}e-{:#x}",
            self.way, self.cpus, self.tasks, self.events, self.number
        )?;
        for (index, (decision, thread)) in self.moves.iter().enumerate() {
            write!(
                f,
                "{}{decision}>{thread}",
                if index == 0 { ":" } else { "." }
            )?;
        }
        Ok(())
    }
}

impl FromStr for Seed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text)
            .filter(|seed| {
                (1..=4).contains(&seed.cpus) && (1..=6).contains(&seed.tasks) && seed.events <= 99
            })
            .ok_or_else(|| format!("'{text}' is no seed: they look like pct3-2c4t8e-0x1f"))
    }
}

fn parse(text: &str) -> Option<Seed> {
    let (text, moves) = text
        .split_once(':')
        .map_or((text, None), |(text, moves)| (text, Some(moves)));
    let mut parts = text.splitn(3, '-');
    let (way, size, number) = (parts.next()?, parts.next()?, parts.next()?);
    let way = match way.split_at_checked(3)? {
        ("rnd", "") => Way::Random,
        ("pct", depth) => Way::Pct(depth.parse().ok()?),
        ("all", count) => Way::All(count.parse().ok()?),
        _ => return None,
    };
    let (cpus, rest) = size.split_once('c')?;
    let (tasks, rest) = rest.split_once('t')?;
    let events = rest.strip_suffix('e')?;
    let one = |text: &str| {
        let (decision, thread) = text.split_once('>')?;
        Some((decision.parse().ok()?, thread.parse().ok()?))
    };
    Some(Seed {
        way,
        cpus: cpus.parse().ok()?,
        tasks: tasks.parse().ok()?,
        events: events.parse().ok()?,
        number: u64::from_str_radix(number.strip_prefix("0x")?, 16).ok()?,
        moves: moves.map_or(Some(Vec::new()), |moves| {
            moves.split('.').map(one).collect()
        })?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for text in [
            "rnd-2c4t8e-0x1f",
            "pct3-4c6t12e-0xffffffffffffffff",
            "all2-1c1t1e-0x0",
            "all1-2c2t3e-0x7:12>1.40>2",
        ] {
            assert_eq!(text.parse::<Seed>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_seed_is_refused() {
        for text in [
            "",
            "rnd",
            "rnd-2c4t8e-31",
            "pct-2c4t8e-0x1",
            "rnd-9c4t8e-0x1",
            "rnd-2c4t8e-0x1:5",
            "é-2c4t8e-0x1",
        ] {
            assert!(text.parse::<Seed>().is_err(), "{text}");
        }
    }
}
