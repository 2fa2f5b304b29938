// SPDX-License-Identifier: GPL-2.0-only
//! A language server for Baton's language, on standard input and output (`baton lsp`).
//!
//! It shows the compiler's messages while a policy is written. When it is opened or saved, its goals
//! are proved, and those that do not hold are shown as warnings. It explains words, shows
//! declarations, and formats.
#![forbid(unsafe_code)]

mod text;

use std::collections::HashMap;
use std::error::Error;

use baton_lang::diagnostic::Span;
use baton_lang::obligations::goals;
use baton_lang::prover::{decide, explained, ProverError};
use baton_lang::Diagnostic;
use lsp_server::{Connection, Message, Notification, Request, Response};
use serde_json::{json, Value};

/// Values of the protocol for how bad a diagnostic or a message is.
const ERROR: u8 = 1;
const WARNING: u8 = 2;

/// Serves until the editor ends it. The error is about the connection.
pub fn serve() -> Result<(), Box<dyn Error + Send + Sync>> {
    let (connection, threads) = Connection::stdio();
    let mut server = Server {
        connection,
        open: HashMap::new(),
        lacks_prover: false,
    };
    server.run()?;
    drop(server);
    threads.join()?;
    Ok(())
}

struct Server {
    connection: Connection,
    /// The texts of the open policies, by their addresses.
    open: HashMap<String, String>,
    /// The user has been told that there is no prover.
    lacks_prover: bool,
}

impl Server {
    fn run(&mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.connection.initialize(json!({
            // Each change comes as the whole text.
            "textDocumentSync": {"openClose": true, "change": 1, "save": true},
            "hoverProvider": true,
            "documentFormattingProvider": true,
        }))?;
        while let Ok(message) = self.connection.receiver.recv() {
            match message {
                Message::Request(request) => {
                    if self.connection.handle_shutdown(&request)? {
                        return Ok(());
                    }
                    let response = self.answer(request);
                    self.connection.sender.send(Message::Response(response))?;
                }
                Message::Notification(notification) => self.notice(&notification)?,
                Message::Response(_) => {}
            }
        }
        Ok(())
    }

    fn answer(&self, request: Request) -> Response {
        let text = self.open.get(address(&request.params));
        let result = match (request.method.as_str(), text) {
            ("textDocument/hover", Some(text)) => hover(text, &request.params["position"]),
            ("textDocument/formatting", Some(text)) => formatted(text),
            ("textDocument/hover" | "textDocument/formatting", None) => Value::Null,
            (method, _) => {
                let message = format!("Baton's language server does not know {method}");
                let code = lsp_server::ErrorCode::MethodNotFound as i32;
                return Response::new_err(request.id, code, message);
            }
        };
        Response::new_ok(request.id, result)
    }

    fn notice(&mut self, notification: &Notification) -> Result<(), Box<dyn Error + Send + Sync>> {
        let params = &notification.params;
        let uri = address(params);
        match notification.method.as_str() {
            "textDocument/didOpen" => {
                let text = params["textDocument"]["text"].as_str().unwrap_or_default();
                self.open.insert(uri.to_owned(), text.to_owned());
                self.publish(uri, true)
            }
            "textDocument/didChange" => {
                let changes = params["contentChanges"].as_array();
                let last = changes.and_then(|changes| changes.last());
                if let Some(text) = last.and_then(|change| change["text"].as_str()) {
                    self.open.insert(uri.to_owned(), text.to_owned());
                }
                self.publish(uri, false)
            }
            "textDocument/didSave" => self.publish(uri, true),
            "textDocument/didClose" => {
                self.open.remove(uri);
                self.send(uri, &[])
            }
            _ => Ok(()),
        }
    }

    /// Sends what is wrong with a policy.
    fn publish(&mut self, uri: &str, proves: bool) -> Result<(), Box<dyn Error + Send + Sync>> {
        let Some(text) = self.open.get(uri) else {
            return Ok(());
        };
        let mut unproved = None;
        let shown: Vec<Value> = match baton_lang::compile(text) {
            Err(mistakes) => {
                let mistakes = mistakes.iter();
                mistakes
                    .map(|it| diagnostic(uri, text, it, ERROR))
                    .collect()
            }
            Ok(policy) if proves => {
                let failed = goals(&policy)
                    .into_iter()
                    .filter_map(|goal| match decide(&goal) {
                        Ok(verdict) => explained(&goal, &verdict),
                        Err(why @ ProverError::Missing(_)) => {
                            unproved = Some(why.to_string());
                            None
                        }
                        Err(why) => Some(Diagnostic::error(goal.span, why.to_string())),
                    });
                failed
                    .map(|it| diagnostic(uri, text, &it, WARNING))
                    .collect()
            }
            Ok(_) => Vec::new(),
        };
        self.send(uri, &shown)?;
        match unproved {
            Some(why) if !self.lacks_prover => {
                self.lacks_prover = true;
                self.warn(&format!(
                    "{why}. Mistakes are shown, but nothing is proved; install it (Debian: z3)"
                ))
            }
            _ => Ok(()),
        }
    }

    /// Has the editor show a line.
    fn warn(&self, line: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
        let params = json!({"type": WARNING, "message": line});
        let notification = Notification::new("window/showMessage".into(), params);
        Ok(self
            .connection
            .sender
            .send(Message::Notification(notification))?)
    }

    fn send(&self, uri: &str, shown: &[Value]) -> Result<(), Box<dyn Error + Send + Sync>> {
        let notification = Notification::new(
            "textDocument/publishDiagnostics".into(),
            json!({"uri": uri, "diagnostics": shown}),
        );
        let message = Message::Notification(notification);
        Ok(self.connection.sender.send(message)?)
    }
}

/// The address of the policy that a message is about.
fn address(params: &Value) -> &str {
    params["textDocument"]["uri"].as_str().unwrap_or_default()
}

fn diagnostic(uri: &str, source: &str, of: &Diagnostic, severity: u8) -> Value {
    let message = match &of.help {
        Some(help) => format!("{}\n{help}", of.message),
        None => of.message.clone(),
    };
    let related = of.notes.iter().map(|(span, note)| {
        json!({
            "location": {"uri": uri, "range": text::range(source, *span)},
            "message": note,
        })
    });
    json!({
        "range": text::range(source, of.span),
        "severity": severity,
        "source": "baton",
        "message": message,
        "relatedInformation": related.collect::<Vec<_>>(),
    })
}

fn hover(source: &str, position: &Value) -> Value {
    let known = text::byte(source, position).and_then(|at| baton_lang::hover(source, at));
    match known {
        Some((span, known)) => json!({
            "contents": {"kind": "markdown", "value": known},
            "range": text::range(source, span),
        }),
        None => Value::Null,
    }
}

/// One change of the whole text, or none if it cannot be read.
fn formatted(source: &str) -> Value {
    match baton_lang::format(source) {
        Ok(formatted) => json!([{
            "range": text::range(source, Span::new(0, source.len())),
            "newText": formatted,
        }]),
        Err(_) => Value::Null,
    }
}
