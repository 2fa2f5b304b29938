// SPDX-License-Identifier: GPL-2.0-only
//! `baton lsp`, with an editor's messages.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{json, Value};

struct Editor {
    server: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

const URI: &str = "file:///tmp/mine.baton";

impl Editor {
    fn start() -> Self {
        Self::with(&mut Command::new(env!("CARGO_BIN_EXE_baton")))
    }

    fn with(baton: &mut Command) -> Self {
        let mut server = baton
            .arg("lsp")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("baton runs");
        let to = server.stdin.take().unwrap();
        let from = BufReader::new(server.stdout.take().unwrap());
        let mut editor = Self { server, to, from };
        let capabilities = editor.ask(1, "initialize", json!({"capabilities": {}}));
        assert_eq!(capabilities["capabilities"]["hoverProvider"], true);
        editor.tell("initialized", json!({}));
        editor
    }

    fn send(&mut self, message: &Value) {
        let text = message.to_string();
        write!(self.to, "Content-Length: {}\r\n\r\n{text}", text.len()).unwrap();
        self.to.flush().unwrap();
    }

    fn tell(&mut self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// The result of a request.
    fn ask(&mut self, id: u32, method: &str, params: Value) -> Value {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let answer = self.next();
        assert_eq!(answer["id"], id, "{answer}");
        answer["result"].clone()
    }

    fn next(&mut self) -> Value {
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.from.read_line(&mut line).unwrap();
            match line.trim().strip_prefix("Content-Length: ") {
                Some(number) => length = number.parse().unwrap(),
                None if line.trim().is_empty() => break,
                None => {}
            }
        }
        let mut text = vec![0; length];
        self.from.read_exact(&mut text).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    /// The diagnostics that come next.
    fn shown(&mut self) -> Vec<Value> {
        let message = self.next();
        assert_eq!(message["method"], "textDocument/publishDiagnostics");
        assert_eq!(message["params"]["uri"], URI);
        message["params"]["diagnostics"].as_array().unwrap().clone()
    }

    fn change(&mut self, text: &str) -> Vec<Value> {
        let document = json!({"uri": URI, "version": 2});
        let changes = json!([{"text": text}]);
        self.tell(
            "textDocument/didChange",
            json!({"textDocument": document, "contentChanges": changes}),
        );
        self.shown()
    }
}

const POLICY: &str = "scheduler mine {
    core { RUNNING thread current; READY queue ready; }
    on new(thread t) { t => ready; }
    on unblock(thread t) { t => ready; }
    on preempt(thread t) { t => ready; }
    on schedule(core c) { first(ready) => current; }
}
";

#[test]
fn without_a_prover_the_user_hears_of_it_once() {
    let mut editor = Editor::with(Command::new(env!("CARGO_BIN_EXE_baton")).env("PATH", ""));
    let document = json!({"uri": URI, "languageId": "baton", "version": 1, "text": POLICY});
    editor.tell("textDocument/didOpen", json!({"textDocument": document}));
    assert!(editor.shown().is_empty());
    let message = editor.next();
    assert_eq!(message["method"], "window/showMessage", "{message}");
    let line = message["params"]["message"].as_str().unwrap();
    assert!(line.starts_with("z3 cannot be run"), "{line}");
    editor.tell(
        "textDocument/didSave",
        json!({"textDocument": {"uri": URI}}),
    );
    assert!(editor.shown().is_empty());
    assert!(editor.change("scheduler").len() == 1);
    editor.server.kill().unwrap();
    editor.server.wait().unwrap();
}

#[test]
fn an_editor_is_served() {
    let mut editor = Editor::start();
    let document = json!({"uri": URI, "languageId": "baton", "version": 1, "text": POLICY});
    editor.tell("textDocument/didOpen", json!({"textDocument": document}));
    // What cannot be proved is a warning at its place.
    let warnings = editor.shown();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert_eq!(warnings[0]["severity"], 2);
    assert_eq!(
        warnings[0]["range"]["start"],
        json!({"line": 2, "character": 23})
    );
    assert!(warnings[0]["message"]
        .as_str()
        .unwrap()
        .contains("does not hold"));

    let errors =
        editor.change(&POLICY.replace("ready; }\n    on unblock", "redy; }\n    on unblock"));
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0]["severity"], 1);
    assert_eq!(
        errors[0]["range"]["start"],
        json!({"line": 2, "character": 28})
    );
    assert!(errors[0]["message"]
        .as_str()
        .unwrap()
        .contains("is it `ready`?"));

    let wide = POLICY.replace("    on new", "on new");
    assert!(editor.change(&wide).is_empty());
    let about = json!({"uri": URI});
    let place = json!({"line": 5, "character": 8});
    let hover = json!({"textDocument": about, "position": place});
    let known = editor.ask(2, "textDocument/hover", hover);
    let said = known["contents"]["value"].as_str().unwrap();
    assert!(said.starts_with("The core needs a thread"), "{said}");
    let formatting = json!({"textDocument": about, "options": {}});
    let edits = editor.ask(3, "textDocument/formatting", formatting);
    assert_eq!(edits[0]["newText"], POLICY);
    assert_eq!(edits[0]["range"]["end"], json!({"line": 7, "character": 0}));

    editor.send(&json!({"jsonrpc": "2.0", "id": 4, "method": "textDocument/rename", "params": {}}));
    let refused = editor.next();
    assert_eq!(refused["error"]["code"], -32601, "{refused}");

    editor.tell("textDocument/didSave", json!({"textDocument": about}));
    assert_eq!(editor.shown().len(), 2);
    editor.tell("textDocument/didClose", json!({"textDocument": about}));
    assert!(editor.shown().is_empty());
    assert_eq!(editor.ask(5, "shutdown", Value::Null), Value::Null);
    editor.tell("exit", Value::Null);
    assert!(editor.server.wait().unwrap().success());
}

#[test]
fn what_is_no_message_is_refused() {
    let mut server = Command::new(env!("CARGO_BIN_EXE_baton"))
        .arg("lsp")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // It may have ended before it is written to.
    let _ = server.stdin.take().unwrap().write_all(b"hello\r\n\r\n");
    let output = server.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("start `baton lsp` from an editor"), "{said}");
}
