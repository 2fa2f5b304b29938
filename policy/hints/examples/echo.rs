// SPDX-License-Identifier: GPL-2.0-only
//! Sends a hint to the policy `echo` and prints its reply. Run as root, or as a user with a grant:
//! `baton load echo && baton run -p echo -- target/release/examples/echo`, built by `cargo build
//! --release -p baton-hints --example echo`.

use baton_hints::Queue;
use echo::{Hint, Reply};
use std::{error::Error, time::Duration};

fn main() -> Result<(), Box<dyn Error>> {
    let mut queue = Queue::<Hint, Reply>::open("echo", 16)?;
    queue.send(&Hint::Ping {
        number: 7,
        times: 1,
    })?;
    if let Some(Reply::Pong { number, .. }) = queue.wait(Duration::from_secs(1))? {
        println!("{number}");
    }
    Ok(())
}
