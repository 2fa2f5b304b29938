// SPDX-License-Identifier: GPL-2.0-only
//! Tokens.

use std::fmt;

use logos::Logos;

use crate::diagnostic::{Diagnostic, Span};

/// A token. Words are told apart from names by the parser, as most are words in one place only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Logos)]
#[logos(skip r"[ \t\r\n]+")]
pub enum Token {
    #[regex(r"//[^\n]*", allow_greedy = true)]
    #[regex(r"/\*([^*]|\*+[^*/])*\*+/")]
    Comment,
    /// A word behind which a parenthesis does not belong to a call, and a minus is a sign.
    #[token("if")]
    #[token("foreach")]
    #[token("return")]
    Word,
    #[regex(r"[A-Za-z_][A-Za-z0-9_]*")]
    Name,
    #[regex(r"[0-9][0-9_]*(ns|us|ms|s)?")]
    Number,
    #[token("{")]
    OpenBrace,
    #[token("}")]
    CloseBrace,
    #[token("(")]
    OpenParen,
    #[token(")")]
    CloseParen,
    #[token(";")]
    Semicolon,
    #[token(",")]
    Comma,
    #[token("..")]
    Dots,
    #[token(".")]
    Dot,
    #[token("=>")]
    Arrow,
    #[token("=")]
    Equals,
    #[token("+=")]
    PlusEquals,
    #[token("-=")]
    MinusEquals,
    #[token("++")]
    PlusPlus,
    #[token("--")]
    MinusMinus,
    #[token("==")]
    Same,
    #[token("!=")]
    Other,
    #[token("<=")]
    AtMost,
    #[token(">=")]
    AtLeast,
    #[token("<")]
    Less,
    #[token(">")]
    More,
    #[token("&&")]
    And,
    #[token("||")]
    Or,
    #[token("!")]
    Not,
    #[token("+")]
    Plus,
    #[token("-")]
    Minus,
    #[token("*")]
    Star,
    #[token("/")]
    Slash,
    #[token("%")]
    Percent,
    /// After the last token.
    End,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Comment => "a comment",
            Self::Word => "a word",
            Self::Name => "a name",
            Self::Number => "a number",
            Self::OpenBrace => "`{`",
            Self::CloseBrace => "`}`",
            Self::OpenParen => "`(`",
            Self::CloseParen => "`)`",
            Self::Semicolon => "`;`",
            Self::Comma => "`,`",
            Self::Dots => "`..`",
            Self::Dot => "`.`",
            Self::Arrow => "`=>`",
            Self::Equals => "`=`",
            Self::PlusEquals => "`+=`",
            Self::MinusEquals => "`-=`",
            Self::PlusPlus => "`++`",
            Self::MinusMinus => "`--`",
            Self::Same => "`==`",
            Self::Other => "`!=`",
            Self::AtMost => "`<=`",
            Self::AtLeast => "`>=`",
            Self::Less => "`<`",
            Self::More => "`>`",
            Self::And => "`&&`",
            Self::Or => "`||`",
            Self::Not => "`!`",
            Self::Plus => "`+`",
            Self::Minus => "`-`",
            Self::Star => "`*`",
            Self::Slash => "`/`",
            Self::Percent => "`%`",
            Self::End => "the end of the file",
        })
    }
}

/// The tokens of a source, the last of which is [`Token::End`]. Characters that begin no token are
/// reported, and left out.
pub fn tokens(source: &str, diagnostics: &mut Vec<Diagnostic>) -> Vec<(Token, Span)> {
    let mut tokens = tokens_and_comments(source, diagnostics);
    tokens.retain(|(token, _)| *token != Token::Comment);
    tokens
}

/// The same, with comments.
pub fn tokens_and_comments(source: &str, diagnostics: &mut Vec<Diagnostic>) -> Vec<(Token, Span)> {
    let mut tokens = Vec::new();
    for (token, range) in Token::lexer(source).spanned() {
        let span = Span::new(range.start, range.end);
        match token {
            Ok(token) => tokens.push((token, span)),
            Err(()) => diagnostics.push(
                Diagnostic::error(span, "this character has no meaning here")
                    .help("remove it; text that is not part of the policy goes after `//`"),
            ),
        }
    }
    tokens.push((Token::End, Span::new(source.len(), source.len())));
    tokens
}
