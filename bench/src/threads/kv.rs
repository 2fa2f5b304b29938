// SPDX-License-Identifier: GPL-2.0-only
//! A key-value server with a user-level thread for each connection. It speaks memcached's text
//! protocol (its doc/protocol.txt): get, gets (without the unique numbers), set, delete, version
//! and quit. No value expires or is evicted: a value for which there is no memory is refused.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use baton_runtime::{sleep, spawn, watch, yield_now, Options, Runtime, Watched};
use rustix::io::Errno;

use super::{start, On};
use baton_control::error::{Error, Result};

#[derive(clap::Args, Debug)]
pub struct Kv {
    /// The cores that the threads run on.
    #[command(flatten)]
    pub on: On,
    /// The port at 127.0.0.1.
    #[arg(long)]
    pub port: u16,
    /// The limit of keys and values, MiB.
    #[arg(long, default_value_t = 64)]
    pub memory: usize,
}

/// Limits in bytes, as in memcached.
const MAX_KEY: usize = 250;
const MAX_VALUE: usize = 1 << 20;
const MAX_LINE: usize = 2048;
/// The limit of the answers that one call of `answer_all` may produce.
const MAX_OUTPUT: usize = 8 << 20;
const BUFFER: usize = 16 << 10;
const SHARDS: usize = 64;
/// The memory that an entry takes besides its key and value, approximately.
const EACH: usize = 96;
/// The time before the server accepts again after it ran out of files or memory.
const PAUSE: Duration = Duration::from_millis(10);

/// Serves until the listener fails.
pub fn serve(args: &Kv) -> Result<()> {
    let failed =
        |what, e: std::io::Error| Error::file(format!("{what} 127.0.0.1:{}", args.port), &e);
    let listener =
        TcpListener::bind(("127.0.0.1", args.port)).map_err(|e| failed("listening at", e))?;
    let options = match args.on.arbiter() {
        Some(arbiter) => Options::of(arbiter, args.on.most),
        None => Options::fixed(args.on.most),
    };
    let runtime = start(options)?;
    let store = Arc::new(Store::new(args.memory << 20));
    accept(&runtime, listener, &store).map_err(|e| failed("accepting at", e))
}

/// Starts a user-level thread for each connection, until the listener fails.
fn accept(runtime: &Runtime, listener: TcpListener, store: &Arc<Store>) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = runtime.watch(listener)?;
    let store = Arc::clone(store);
    let acceptor = runtime.spawn(move || loop {
        let accepted = listener.until_ready(TcpListener::accept);
        let peer = match accepted {
            Ok((peer, _)) => peer,
            // Concerns only this connection.
            Err(why) if why.kind() == ErrorKind::ConnectionAborted => continue,
            // Out of files or memory; some may be released soon.
            Err(why)
                if [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS]
                    .map(Some)
                    .contains(&Errno::from_io_error(&why)) =>
            {
                sleep(PAUSE);
                continue;
            }
            Err(why) => return why,
        };
        let store = Arc::clone(&store);
        drop(spawn(move || {
            // The client notices a failed connection itself.
            let _ = attend(peer, &store);
        }));
        yield_now();
    });
    acceptor.join().map_or(Ok(()), Err)
}

fn attend(peer: TcpStream, store: &Store) -> std::io::Result<()> {
    peer.set_nodelay(true)?;
    peer.set_nonblocking(true)?;
    let peer = watch(peer)?;
    let (mut some, mut input, mut output) = (vec![0; BUFFER], Vec::new(), Vec::new());
    loop {
        let count = peer.until_ready(|mut peer| peer.read(&mut some))?;
        if count == 0 {
            return Ok(());
        }
        input.extend_from_slice(&some[..count]);
        let goes_on = store.answer_all(&mut input, &mut output);
        send(&peer, &output)?;
        output.clear();
        if !goes_on {
            return Ok(());
        }
        // Without this, a client that keeps sending would keep the core from the others.
        yield_now();
    }
}

fn send(peer: &Watched<TcpStream>, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match peer.until_ready(|mut peer| peer.write(bytes))? {
            0 => return Err(ErrorKind::WriteZero.into()),
            count => bytes = &bytes[count..],
        }
    }
    Ok(())
}

/// The memory that an entry takes.
fn size_of(key: &[u8], value: &[u8]) -> usize {
    key.len() + value.len() + EACH
}

struct Item {
    flags: u32,
    value: Box<[u8]>,
}

type Shard = Mutex<HashMap<Box<[u8]>, Item>>;

/// All keys and values.
struct Store {
    shards: Vec<Shard>,
    which: RandomState,
    /// The bytes in use, and their limit.
    used: AtomicUsize,
    most: usize,
}

/// The result of looking at the beginning of the input.
enum Step {
    /// A command of this many bytes was answered.
    Done(usize),
    /// The command is incomplete.
    More,
    /// The connection is to be closed.
    Close,
}

impl Store {
    fn new(most: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        Self {
            shards,
            which: RandomState::new(),
            used: 0.into(),
            most,
        }
    }

    /// Answers all complete commands, and leaves the rest in `input`. Returns false when the
    /// connection is to be closed.
    fn answer_all(&self, input: &mut Vec<u8>, output: &mut Vec<u8>) -> bool {
        let mut at = 0;
        let goes_on = loop {
            match self.answer(&input[at..], output) {
                Step::Done(_) if output.len() > MAX_OUTPUT => break false,
                Step::Done(used) => at += used,
                Step::More => break true,
                Step::Close => break false,
            }
        };
        input.drain(..at);
        goes_on
    }

    fn answer(&self, input: &[u8], output: &mut Vec<u8>) -> Step {
        let Some(length) = input.iter().take(MAX_LINE).position(|&byte| byte == b'\n') else {
            if input.len() < MAX_LINE {
                return Step::More;
            }
            output.extend_from_slice(b"CLIENT_ERROR line too long\r\n");
            return Step::Close;
        };
        let line = input[..length]
            .strip_suffix(b"\r")
            .unwrap_or(&input[..length]);
        let (line, rest) = (Words(line), &input[length + 1..]);
        let mut words = line.clone();
        let (mut used, mut answer) = (length + 1, &b"ERROR\r\n"[..]);
        match words.next() {
            Some(b"get" | b"gets") => {
                if let Some(key) = words.next() {
                    for key in std::iter::once(key).chain(words) {
                        self.get(key, output);
                        if output.len() > MAX_OUTPUT {
                            return Step::Close;
                        }
                    }
                    answer = b"END\r\n";
                }
            }
            Some(b"set") => match Set::parse(words) {
                // The length of the data that follows is unknown.
                None => {
                    output.extend_from_slice(b"CLIENT_ERROR bad command line format\r\n");
                    return Step::Close;
                }
                Some(set) if set.length > MAX_VALUE => {
                    output.extend_from_slice(b"SERVER_ERROR object too large for cache\r\n");
                    return Step::Close;
                }
                Some(set) if rest.len() < set.length + 2 => return Step::More,
                Some(set) => {
                    used += set.length + 2;
                    answer = match &rest[set.length..set.length + 2] {
                        _ if set.expires != 0 => b"SERVER_ERROR nothing expires here\r\n",
                        b"\r\n" => self.set(&set, &rest[..set.length]),
                        _ => b"CLIENT_ERROR bad data chunk\r\n",
                    };
                    answer = if set.is_quiet { b"" } else { answer };
                }
            },
            Some(b"delete") => {
                answer = match words.next().map(|key| self.delete(key)) {
                    Some(_) if words.next() == Some(b"noreply") => b"",
                    Some(true) => b"DELETED\r\n",
                    Some(false) => b"NOT_FOUND\r\n",
                    None => answer,
                }
            }
            Some(b"version") => {
                answer = concat!("VERSION ", env!("CARGO_PKG_VERSION"), "-baton\r\n").as_bytes()
            }
            Some(b"quit") => return Step::Close,
            _ => {}
        }
        output.extend_from_slice(answer);
        Step::Done(used)
    }

    /// Locks the shard of a key. It is held only while data is copied, never while a thread waits.
    fn shard(&self, key: &[u8]) -> std::sync::MutexGuard<'_, HashMap<Box<[u8]>, Item>> {
        let number = self.which.hash_one(key) as usize % SHARDS;
        self.shards[number]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, key: &[u8], output: &mut Vec<u8>) {
        if let Some(item) = self.shard(key).get(key) {
            output.extend_from_slice(b"VALUE ");
            output.extend_from_slice(key);
            output
                .extend_from_slice(format!(" {} {}\r\n", item.flags, item.value.len()).as_bytes());
            output.extend_from_slice(&item.value);
            output.extend_from_slice(b"\r\n");
        }
    }

    fn set(&self, set: &Set<'_>, value: &[u8]) -> &'static [u8] {
        let size = size_of(set.key, value);
        if self.used.fetch_add(size, Relaxed) + size > self.most {
            self.used.fetch_sub(size, Relaxed);
            return b"SERVER_ERROR out of memory storing object\r\n";
        }
        let item = Item {
            flags: set.flags,
            value: value.into(),
        };
        if let Some(before) = self.shard(set.key).insert(set.key.into(), item) {
            self.used
                .fetch_sub(size_of(set.key, &before.value), Relaxed);
        }
        b"STORED\r\n"
    }

    fn delete(&self, key: &[u8]) -> bool {
        let gone = self.shard(key).remove(key);
        gone.map(|gone| self.used.fetch_sub(size_of(key, &gone.value), Relaxed))
            .is_some()
    }
}

/// The words of a line.
#[derive(Clone)]
struct Words<'a>(&'a [u8]);

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let begin = self.0.iter().position(|&byte| byte != b' ')?;
        let rest = &self.0[begin..];
        let end = rest
            .iter()
            .position(|&byte| byte == b' ')
            .unwrap_or(rest.len());
        self.0 = &rest[end..];
        Some(&rest[..end])
    }
}

/// The arguments of a `set`.
struct Set<'a> {
    key: &'a [u8],
    flags: u32,
    /// Only 0 is accepted: no value expires.
    expires: i64,
    length: usize,
    is_quiet: bool,
}

impl<'a> Set<'a> {
    fn parse(mut words: Words<'a>) -> Option<Self> {
        fn number<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
            std::str::from_utf8(word).ok()?.parse().ok()
        }
        let key = words.next().filter(|key| key.len() <= MAX_KEY)?;
        let flags = number(words.next()?)?;
        let expires = number(words.next()?)?;
        let length = number(words.next()?)?;
        Some(Self {
            key,
            flags,
            expires,
            length,
            is_quiet: words.next() == Some(b"noreply"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TALK: &[(&str, &str)] = &[
        ("get nothing\r\n", "END\r\n"),
        ("set a 5 0 3\r\nxyz\r\n", "STORED\r\n"),
        ("get a\r\n", "VALUE a 5 3\r\nxyz\r\nEND\r\n"),
        ("set b 0 0 4 noreply\r\n\r\n\r\n\r\n", ""),
        ("get  a b nothing \n", "VALUE a 5 3\r\nxyz\r\nVALUE b 0 4\r\n\r\n\r\n\r\nEND\r\n"),
        ("set a 0 0 0\r\n\r\n", "STORED\r\n"),
        ("gets a\r\n", "VALUE a 0 0\r\n\r\nEND\r\n"),
        ("delete a\r\n", "DELETED\r\n"),
        ("delete a\r\n", "NOT_FOUND\r\n"),
        ("get a\r\n", "END\r\n"),
        ("set a 0 0 2\r\nxyz\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\n"),
        ("set a 0 60 8\r\ndelete b\r\n", "SERVER_ERROR nothing expires here\r\n"),
        ("delete b noreply\r\nset b 0 0 4\r\n1234\r\n", "STORED\r\n"),
        ("get\r\n", "ERROR\r\n"),
        ("\r\n", "ERROR\r\n"),
        ("set c 0 0 120\r\n123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890\r\n",
            "SERVER_ERROR out of memory storing object\r\n"),
    ];

    #[test]
    fn it_answers_however_the_commands_come() {
        let input: Vec<u8> = TALK.iter().flat_map(|(said, _)| said.bytes()).collect();
        let expected: String = TALK.iter().map(|(_, answered)| *answered).collect();
        for part in 1..=input.len() {
            let store = Store::new(3 * EACH + 12);
            let (mut rest, mut output) = (Vec::new(), Vec::new());
            for some in input.chunks(part) {
                rest.extend_from_slice(some);
                assert!(store.answer_all(&mut rest, &mut output));
            }
            assert_eq!(
                (String::from_utf8_lossy(&output), rest.len()),
                (expected.as_str().into(), 0),
                "by {part}"
            );
            assert_eq!(store.used.load(Relaxed), EACH + 5, "b and its value");
        }
    }

    #[test]
    fn what_is_too_long_closes_the_connection() {
        let ends = |said: &[u8], expected: &str| {
            let (store, mut output) = (Store::new(1 << 30), Vec::new());
            assert!(!store.answer_all(&mut said.to_vec(), &mut output));
            assert_eq!(String::from_utf8_lossy(&output), expected);
        };
        ends(&[b'a'; MAX_LINE], "CLIENT_ERROR line too long\r\n");
        ends(
            b"set a 0 0 -1\r\ndelete b\r\n",
            "CLIENT_ERROR bad command line format\r\n",
        );
        ends(
            b"set a 0 0 1048577\r\n",
            "SERVER_ERROR object too large for cache\r\n",
        );
        ends(
            b"version\r\nquit\r\nversion\r\n",
            concat!("VERSION ", env!("CARGO_PKG_VERSION"), "-baton\r\n"),
        );
    }

    #[test]
    fn who_asks_for_too_much_at_once_is_left() {
        let store = Store::new(2 << 20);
        let mut said = format!("set a 0 0 {MAX_VALUE}\r\n").into_bytes();
        said.extend(vec![b'x'; MAX_VALUE]);
        said.extend(b"\r\n");
        let mut output = Vec::new();
        assert!(store.answer_all(&mut said, &mut output));
        for asks in [
            format!("get{}\r\n", " a".repeat(900)),
            "get a\r\n".repeat(900),
        ] {
            output.clear();
            assert!(!store.answer_all(&mut asks.into_bytes(), &mut output));
            assert!((MAX_OUTPUT..MAX_OUTPUT + 2 * MAX_VALUE).contains(&output.len()));
        }
    }

    #[test]
    fn clients_are_served_beside_each_other() {
        let runtime = Runtime::start(Options::fixed(2)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        std::thread::spawn(move || accept(&runtime, listener, &Arc::new(Store::new(1 << 20))));
        let clients: Vec<_> = (0..20)
            .map(|number| {
                std::thread::spawn(move || {
                    let mut peer = TcpStream::connect(at).unwrap();
                    for round in 0..50 {
                        let value = format!("{number}-{round}");
                        let said = format!(
                            "set k{number} 0 0 {}\r\n{value}\r\nget k{number}\r\n",
                            value.len()
                        );
                        peer.write_all(said.as_bytes()).unwrap();
                        let expected = format!(
                            "STORED\r\nVALUE k{number} 0 {}\r\n{value}\r\nEND\r\n",
                            value.len()
                        );
                        let mut answered = vec![0; expected.len()];
                        peer.read_exact(&mut answered).unwrap();
                        assert_eq!(String::from_utf8_lossy(&answered), expected);
                    }
                })
            })
            .collect();
        clients
            .into_iter()
            .for_each(|client| client.join().unwrap());
    }
}
