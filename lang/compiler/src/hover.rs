// SPDX-License-Identifier: GPL-2.0-only
//! What an editor shows of a word: what it means in the language, or where it is declared.

use crate::diagnostic::Span;
use crate::token::{tokens_and_comments, Token};

/// Words of the language, each with what it is. Those of events and functions have a parenthesis.
const WORDS: &[(&str, &str)] = &[
    ("const", "A constant: `const int MOST = 4;`"),
    (
        "param",
        "An option of `baton load`, with its default and range: `param time slice = 10ms \
         in 1ms .. 1s;`",
    ),
    (
        "hint",
        "What a program can say of a thread: `hint deadline(thread t, time within in 0ms .. 10s) \
         {..}`. It changes attributes of the thread.",
    ),
    (
        "READY",
        "A queue of ready threads, first in, first out, or with an order: `READY queue q \
         order lowest used;`",
    ),
    (
        "rank",
        "Of a queue: what each turn of a thread elsewhere lowers, while a thread waits here. So \
         each thread's turn comes: `READY queue q rank turns - taken;`",
    ),
    (
        "RUNNING",
        "The thread that runs on the core: `RUNNING thread current;`",
    ),
    (
        "BLOCKED",
        "Says that the kernel has put the thread to sleep. It has no effect.",
    ),
    (
        "TERMINATED",
        "Says that the thread has ended. It has no effect.",
    ),
    ("self", "The core whose lock is held."),
    ("int", "Whole numbers of 64 bits."),
    ("time", "Times: `10ms`, `500us`, `1s`, `3ns`."),
    ("bool", "`true` or `false`."),
    (
        "thread",
        "A thread. A value of `first` may be none: test it with `valid(x)`.",
    ),
    (
        "core",
        "A core. A value of `first` may be none: test it with `valid(x)`.",
    ),
    ("cores", "A set of cores."),
    (
        "steal",
        "The three phases of load balancing, and when it has taken enough.",
    ),
    (
        "foreach",
        "A loop over a queue or a set of cores: `foreach (c in llc(last)) ..`",
    ),
    ("new(", "The thread comes to the policy. Must move it."),
    ("unblock(", "The thread wakes up. Must move it."),
    (
        "preempt(",
        "The thread's turn is over, and it could go on. Must move it, to a queue of its \
         core.",
    ),
    (
        "yield(",
        "The thread gives way. Must move it; without this handler, as `preempt`.",
    ),
    ("block(", "The thread went to sleep."),
    ("terminate(", "The thread is dead."),
    ("tick(", "The kernel's tick, while the thread runs."),
    (
        "depart(",
        "The thread leaves a core for another, stolen or moved by the kernel.",
    ),
    (
        "arrive(",
        "The thread comes to its new core, stolen or moved by the kernel.",
    ),
    (
        "schedule(",
        "The core needs a thread to run. Must give the running one a thread of a queue, \
         or none.",
    ),
    ("newly_idle(", "The core has no thread to run."),
    (
        "balancing(",
        "At a tick of a busy core, while it has several threads and another core idles; \
         and at each 16th tick.",
    ),
    ("entry(", "The core comes online."),
    ("exit(", "The core goes offline."),
    ("timer(", "The time of `set_timer` has passed."),
    (
        "can_steal_core(",
        "Phase 1, without a lock: is `src` a core to take threads from, for \
         `dst`?",
    ),
    (
        "select_core(",
        "Phase 2, without a lock: the core to take from next. It must be one of the \
         set.",
    ),
    (
        "steal_thread(",
        "Phase 3, with the lock of `src`: moves the thread to a queue of `dst`, or \
         leaves it.",
    ),
    ("until(", "Has `dst` enough?"),
    (
        "first(",
        "The first thread of a queue, or the first core of a set by an order; or none.",
    ),
    (
        "valid(",
        "Is a thread or a core there? It is, in the rest of the condition and under it.",
    ),
    (
        "count(",
        "The number of runnable threads of a core, which may be old without its lock; or \
         of a queue.",
    ),
    ("now(", "The time."),
    ("random(", "A random number from 0 to below this one."),
    ("min(", "The lower one."),
    ("max(", "The higher one."),
    (
        "system_cores(",
        "All cores, the nearest first. Of a thread that is placed, those on which it may \
         run.",
    ),
    (
        "idle_cores(",
        "The cores without a runnable thread, the nearest first.",
    ),
    (
        "llc(",
        "The cores under the same last-level cache, the nearest first.",
    ),
    ("node(", "The cores of the same node, the nearest first."),
    ("siblings(", "The SMT siblings of a core, with itself."),
    (
        "domains(",
        "The domains of a core, from the smallest to the largest: its SMT siblings, the cores \
         under its last-level cache, those of its node, all.",
    ),
    ("waker(", "The core of the waker, while a thread is placed."),
    (
        "is_sync(",
        "Is the waker about to sleep? While a thread is placed.",
    ),
    (
        "resched(",
        "The running thread's turn is over: `schedule` follows.",
    ),
    (
        "set_timer(",
        "`on timer` follows after this time, on this core. It replaces the time set before.",
    ),
    (
        "steal_for(",
        "Takes threads from other cores, by the steal block: from all, or from those of a domain.",
    ),
    (
        ".cload",
        "The load of the core, which may be old without its lock.",
    ),
    (".nice", "The nice value, -20 to 19."),
    (
        ".weight",
        "The kernel's load weight for the nice value: 1024 at nice 0.",
    ),
    (
        ".runtime",
        "The CPU time that the thread has used, as of its last event.",
    ),
    (".core", "Where the thread ran last, while it is placed."),
];

/// Words behind which a name is declared, beside the names of enums.
const KINDS: &[&str] = &[
    "bool",
    "core",
    "cores",
    "domain",
    "enum",
    "hint",
    "int",
    "queue",
    "scheduler",
    "thread",
    "time",
    "void",
];

/// What is known of the word at this byte, in Markdown, and where the word is.
pub fn hover(source: &str, at: usize) -> Option<(Span, String)> {
    let tokens = tokens_and_comments(source, &mut Vec::new());
    let tokens: Vec<(Token, Span)> = tokens
        .into_iter()
        .filter(|(token, _)| *token != Token::Comment)
        .collect();
    let is_word = |token: Token| matches!(token, Token::Name | Token::Word);
    let index = tokens
        .iter()
        .position(|(token, span)| is_word(*token) && span.begin <= at && at <= span.end)?;
    let span = tokens[index].1;
    let word = &source[span.begin..span.end];
    let before = index.checked_sub(1).map(|index| tokens[index].0);
    let is_called = tokens[index + 1].0 == Token::OpenParen;
    let known = |word: String| {
        let found = WORDS.iter().find(|(known, _)| *known == word);
        found.map(|(_, text)| (*text).to_owned())
    };
    let meaning = if before == Some(Token::Dot) {
        known(format!(".{word}"))
    } else if is_called {
        known(format!("{word}("))
    } else {
        None
    };
    let text = meaning
        .or_else(|| declared(source, &tokens, index))
        .or_else(|| known(word.to_owned()))?;
    Some((span, text))
}

/// The declaration of the word with this index, with the comment above it: the last one before the
/// word, or else the first.
fn declared(source: &str, tokens: &[(Token, Span)], index: usize) -> Option<String> {
    let text = |index: usize| &source[tokens[index].1.begin..tokens[index].1.end];
    let word = text(index);
    let enums: Vec<&str> = (1..tokens.len())
        .filter(|at| text(at - 1) == "enum")
        .map(text)
        .collect();
    let declares = |at: usize| {
        let before = at.checked_sub(1).map_or("", text);
        text(at) == word
            && tokens[at].0 == Token::Name
            && (KINDS.contains(&before)
                || enums.contains(&before)
                || (before == "(" && at > 1 && text(at - 2) == "foreach")
                || is_value(tokens, text, at))
    };
    let found: Vec<usize> = (0..tokens.len()).filter(|at| declares(*at)).collect();
    let last = found.iter().rev().find(|at| **at <= index);
    let at = *last.or(found.first())?;
    Some(shown(source, tokens[at].1))
}

/// Is this token a value of an enum, where it is declared?
fn is_value<'s>(tokens: &[(Token, Span)], text: impl Fn(usize) -> &'s str, at: usize) -> bool {
    let listed = |at: &usize| matches!(tokens[*at].0, Token::Name | Token::Comma);
    let Some(open) = (0..at).rev().find(|at| !listed(at)) else {
        return false;
    };
    tokens[open].0 == Token::OpenBrace && open > 1 && text(open - 2) == "enum"
}

/// The line of a declaration, and the comment above it.
fn shown(source: &str, span: Span) -> String {
    let begin = source[..span.begin].rfind('\n').map_or(0, |at| at + 1);
    let line = source[begin..].lines().next().unwrap_or_default().trim();
    let mut comment: Vec<&str> = source[..begin]
        .lines()
        .rev()
        .map(str::trim)
        .take_while(|line| line.starts_with("//"))
        .map(|line| line.trim_start_matches('/').trim_start())
        .collect();
    comment.reverse();
    let mut text = format!("```baton\n{line}\n```");
    if !comment.is_empty() {
        text = format!("{text}\n{}", comment.join("\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = "scheduler p {
    enum level { LOW, HIGH }
    // How long a thread runs.
    param time slice = 10ms in 1ms .. 1s;
    thread { level prio = HIGH; }
    core { RUNNING thread current; READY queue ready; }
    on new(thread t) { t => ready; }
    on schedule(core c) { first(ready) => current for slice; }
}
";

    /// What is shown of the last place of this text.
    fn of(text: &str) -> Option<String> {
        hover(POLICY, POLICY.rfind(text)?).map(|(_, text)| text)
    }

    #[test]
    fn declarations_are_shown_with_their_comments() {
        let slice = of("slice").unwrap();
        assert!(slice.contains("param time slice = 10ms"), "{slice}");
        assert!(slice.ends_with("\nHow long a thread runs."), "{slice}");
        assert!(of("ready").unwrap().contains("READY queue ready;"));
        assert!(of("HIGH").unwrap().contains("enum level"));
        assert!(of("t => ready").unwrap().contains("on new(thread t)"));
    }

    #[test]
    fn words_of_the_language_are_explained() {
        assert!(of("schedule(").unwrap().starts_with("The core needs"));
        assert!(of("first(").unwrap().starts_with("The first thread"));
        assert!(of("READY").unwrap().starts_with("A queue"));
        assert_eq!(of("=>"), None);
    }

    /// The table has each event, and each function of the language.
    #[test]
    fn each_word_of_the_language_is_in_the_table() {
        let has = |word: &str| WORDS.iter().any(|(known, _)| *known == word);
        for (event, _) in crate::check::handlers::EVENTS {
            assert!(has(&format!("{event}(")), "{event}");
        }
        for word in crate::check::TAKEN {
            assert!(has(&format!("{word}(")) || has(word), "{word}");
        }
    }
}
