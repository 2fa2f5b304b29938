// SPDX-License-Identifier: GPL-2.0-only
//! `baton fmt`: one style for all policies.
//!
//! Lines stay where the author broke them. Indentation, the spaces between tokens and blank lines
//! are set: four spaces for each open brace (eight for a line that goes on), and at most one blank
//! line, none at the beginning or end of a block.

use crate::diagnostic::Diagnostic;
use crate::parser::parse;
use crate::token::{tokens_and_comments, Token};

/// A policy in the style. The errors of one that cannot be read.
pub fn format(source: &str) -> Result<String, Vec<Diagnostic>> {
    let (_, diagnostics) = parse(source);
    if !diagnostics.is_empty() {
        return Err(diagnostics);
    }
    let mut writer = Writer {
        out: String::new(),
        depth: 0,
        open: 0,
        last: None,
    };
    let mut diagnostics = Vec::new();
    let mut end = 0;
    for (token, span) in tokens_and_comments(source, &mut diagnostics) {
        let breaks = source[end..span.begin].matches('\n').count();
        writer.token(token, &source[span.begin..span.end], breaks);
        end = span.end;
    }
    writer.out.truncate(writer.out.trim_end().len());
    writer.out.push('\n');
    Ok(writer.out)
}

struct Writer {
    out: String,
    /// Open braces.
    depth: usize,
    /// Open parentheses: a line that begins inside some goes on.
    open: usize,
    /// The last token, and whether it stands before a value, as a sign does.
    last: Option<(Token, bool)>,
}

impl Writer {
    fn token(&mut self, token: Token, text: &str, breaks: usize) {
        if token == Token::End {
            return;
        }
        if token == Token::CloseBrace {
            self.depth = self.depth.saturating_sub(1);
        }
        if token == Token::CloseParen {
            self.open = self.open.saturating_sub(1);
        }
        let is_sign = self.is_sign(token);
        match self.last {
            Some((last, _)) if breaks > 0 => {
                let is_edge = last == Token::OpenBrace || token == Token::CloseBrace;
                self.out.push('\n');
                if breaks > 1 && !is_edge {
                    self.out.push('\n');
                }
                let indent = 4 * self.depth + self.deeper(last, token);
                self.out.extend(std::iter::repeat_n(' ', indent));
            }
            Some((last, last_is_sign)) if has_space(last, last_is_sign, token) => {
                self.out.push(' ');
            }
            _ => {}
        }
        // The text of a comment is its author's, but for spaces at the ends of lines.
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        self.out.push_str(&lines.join("\n"));
        match token {
            Token::OpenBrace => self.depth += 1,
            Token::OpenParen => self.open += 1,
            _ => {}
        }
        self.last = Some((token, is_sign));
    }

    /// How much deeper than its block a line begins, with this token behind the last one.
    fn deeper(&self, last: Token, token: Token) -> usize {
        use Token as T;
        match (last, token) {
            (T::Semicolon | T::OpenBrace | T::CloseBrace | T::Comment, _) => 0,
            (_, T::CloseBrace | T::Comment) => 0,
            // The values of an enum are a list.
            (T::Comma, _) if self.open == 0 => 0,
            // The one statement of an `if`.
            (T::CloseParen, T::OpenBrace) => 0,
            (T::CloseParen, _) if self.open == 0 => 4,
            _ => 8,
        }
    }

    /// Is this a sign before a value, and not an operator between two?
    fn is_sign(&self, token: Token) -> bool {
        let is_value = matches!(
            self.last.map(|last| last.0),
            Some(Token::Name | Token::Number | Token::CloseParen)
        );
        token == Token::Not || (token == Token::Minus && !is_value)
    }
}

/// Is there a space between two tokens of a line?
fn has_space(last: Token, last_is_sign: bool, token: Token) -> bool {
    use Token as T;
    if last_is_sign {
        return false;
    }
    match (last, token) {
        (_, T::Semicolon | T::Comma | T::Dot | T::CloseParen | T::PlusPlus | T::MinusMinus) => {
            false
        }
        (T::OpenParen | T::Dot, _) => false,
        // A call, or the parameters of a handler.
        (T::Name, T::OpenParen) => false,
        _ => true,
    }
}
