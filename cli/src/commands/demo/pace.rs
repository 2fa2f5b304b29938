// SPDX-License-Identifier: GPL-2.0-only
//! When a step begins: at once, or at Enter.

use std::io::{BufRead, Result, Write};

/// The first word of a line with which a step begins.
pub const HEADING: &str = "step ";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    Straight,
    /// Each step waits for Enter.
    AtEnter,
}

impl Pace {
    pub fn new(step: bool) -> Self {
        if step {
            Self::AtEnter
        } else {
            Self::Straight
        }
    }

    /// Waits until the next step may begin.
    pub fn wait(self) -> Result<()> {
        if self == Self::AtEnter {
            eprint!("baton demo: Enter begins the next step ");
            std::io::stdin().lock().read_line(&mut String::new())?;
        }
        Ok(())
    }
}

/// Passes on the lines of a guest, which gets no key: a step that began there is shown when it may
/// begin here.
pub struct Paced<W, F> {
    output: W,
    /// Called before each heading.
    wait: F,
    line: Vec<u8>,
}

impl<W: Write, F: FnMut() -> Result<()>> Paced<W, F> {
    pub fn new(output: W, wait: F) -> Self {
        Self {
            output,
            wait,
            line: Vec::new(),
        }
    }

    fn pass_on(&mut self) -> Result<()> {
        if self.line.starts_with(HEADING.as_bytes()) {
            (self.wait)()?;
        }
        self.output.write_all(&self.line)?;
        self.line.clear();
        Ok(())
    }

    /// Passes on a last line without an end.
    pub fn finish(mut self) -> Result<()> {
        self.pass_on()?;
        self.output.flush()
    }
}

impl<W: Write, F: FnMut() -> Result<()>> Write for Paced<W, F> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.pass_on()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        self.output.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_headings_wait() {
        let (mut shown, mut waits) = (Vec::new(), 0);
        let mut paced = Paced::new(&mut shown, || {
            waits += 1;
            Ok(())
        });
        for part in ["a step 1\nst", "ep 3 of 6: x\n", "y\nstep 4 of 6\nend"] {
            paced.write_all(part.as_bytes()).unwrap();
        }
        paced.finish().unwrap();
        assert_eq!(
            String::from_utf8(shown).unwrap(),
            "a step 1\nstep 3 of 6: x\ny\nstep 4 of 6\nend"
        );
        assert_eq!(waits, 2);
    }
}
