// SPDX-License-Identifier: GPL-2.0-only
//! What is wrong with a policy, where, and what to do about it.

use ariadne::{Config, IndexType, Label, Report, ReportKind, Source};

/// A part of the source, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Span {
    pub begin: usize,
    pub end: usize,
}

impl Span {
    pub const fn new(begin: usize, end: usize) -> Self {
        Self { begin, end }
    }

    /// From the beginning of this one to the end of another.
    #[must_use]
    pub fn to(self, other: Self) -> Self {
        Self::new(self.begin, other.end.max(self.end))
    }
}

/// An error in a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub span: Span,
    /// What is wrong: a sentence without a full stop.
    pub message: String,
    /// Other places that have to do with it.
    pub notes: Vec<(Span, String)>,
    /// What to do.
    pub help: Option<String>,
}

impl Diagnostic {
    pub fn error(span: Span, message: impl Into<String>) -> Self {
        Self {
            span,
            message: message.into(),
            notes: Vec::new(),
            help: None,
        }
    }

    #[must_use]
    pub fn note(mut self, span: Span, text: impl Into<String>) -> Self {
        self.notes.push((span, text.into()));
        self
    }

    #[must_use]
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }

    /// The error as a compiler shows it, with the lines of the source. `file` is the name to show.
    pub fn render(&self, file: &str, source: &str, with_color: bool) -> String {
        let config = Config::default()
            .with_color(with_color)
            .with_index_type(IndexType::Byte);
        let place = |span: Span| (file, span.begin..span.end);
        let mut report = Report::build(ReportKind::Error, place(self.span))
            .with_config(config)
            .with_message(&self.message)
            .with_label(Label::new(place(self.span)).with_message("here"));
        for (span, text) in &self.notes {
            report = report.with_label(Label::new(place(*span)).with_message(text));
        }
        if let Some(help) = &self.help {
            report = report.with_help(help);
        }
        let mut out = Vec::new();
        // Writing to memory does not fail.
        let _ = report
            .finish()
            .write((file, Source::from(source)), &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    /// Line and column, from 1.
    pub fn place(&self, source: &str) -> (usize, usize) {
        let before = &source[..self.span.begin.min(source.len())];
        let line_begin = before.rfind('\n').map_or(0, |at| at + 1);
        let line = before.matches('\n').count() + 1;
        (line, before[line_begin..].chars().count() + 1)
    }
}
