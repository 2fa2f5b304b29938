// SPDX-License-Identifier: GPL-2.0-only
//! User-level threads, on cores that the process asks for: a small runtime after Arachne (Qin et
//! al., OSDI '18).
//!
//! ```
//! use baton_runtime::{Options, Runtime};
//!
//! let runtime = Runtime::start(Options::fixed(2)).expect("threads and stacks can be made");
//! let sum = runtime.spawn(|| {
//!     let parts: Vec<_> = (0..10u64).map(|n| baton_runtime::spawn(move || n * n)).collect();
//!     parts.into_iter().map(|part| part.join().expect("it does not panic")).sum::<u64>()
//! });
//! assert_eq!(sum.join().expect("it does not panic"), 285);
//! runtime.end();
//! ```
//!
//! The runtime has one kernel thread (an activation) for each core that the process may have at
//! most. An activation runs user-level threads from its own queue, and takes threads from the
//! queues of others when that is empty. It gets its core from the [`Arbiter`]. A user-level thread
//! runs until it ends, waits, or yields. It waits for sockets and pipes by [`watch`]. A thread that
//! waits in the kernel in another way, or computes for long without [`yield_now`], keeps its core
//! from the others.
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

mod arbiter;
mod fiber;
mod files;
mod history;
mod load;
mod pool;
mod sync;
mod task;
mod timer;

pub use arbiter::server;
pub use arbiter::Arbiter;
pub use files::{watch, Watched};
pub use history::{Event, History};
pub use pool::{Options, Runtime, StartError};
pub use sync::{channel, JoinHandle, Mutex, MutexGuard, Receiver, Sender};
pub use task::{sleep, spawn, yield_now};
