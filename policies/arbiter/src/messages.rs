// SPDX-License-Identifier: GPL-2.0-only
//! Messages between processes and the arbiter.

baton::message! {
    /// A message from a process.
    pub enum Hint, version 1 {
        /// The sender is an activation of the process whose leader that thread is, and waits for a
        /// core.
        Join {
            /// A thread of the process, the same for all its activations; it may be the sender.
            /// When it ends, the process has no activations any more.
            leader: baton::Thread,
        } = 1,
        /// From a leader or an activation: the process wants this many cores at that level.
        Request {
            /// 0 goes before all others, 7 is the last.
            level: u8,
            /// The number of cores. It holds until the next request for this level.
            cores: u32,
        } = 2,
        /// From an activation: it gives its core back, if it has one, and waits for another.
        Park {} = 3,
    }
}

baton::message! {
    /// A message from the arbiter to the thread that it is about.
    pub enum Reply, version 1 {
        /// The activation has a core.
        Granted {
            /// Its CPU.
            cpu: u32,
        } = 1,
        /// The activation's core is reclaimed: it must park.
        Reclaim {
            /// Its CPU.
            cpu: u32,
            /// The time until the core is taken, ns; 0 if it is taken already.
            within: u64,
        } = 2,
        /// The sender's hint was not valid.
        Refused {
            /// The hint's tag.
            tag: u8,
        } = 3,
    }
}
