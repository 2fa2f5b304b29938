// SPDX-License-Identifier: GPL-2.0-only
//! What processes and the arbiter say to each other.

baton::message! {
    /// What a process says.
    pub enum Hint, version 1 {
        /// I am an activation of the process whose leader that thread is, and wait for a core.
        Join {
            /// A thread of the process, the same for all its activations; it may be the sender.
            /// When it ends, there are no activations any more.
            leader: baton::Thread,
        } = 1,
        /// By a leader or an activation: the process wants so many cores at that level.
        Request {
            /// 0 goes before all others, 7 is the last.
            level: u8,
            /// How many. It stands until another is given for this level.
            cores: u32,
        } = 2,
        /// By an activation: I give my core back, if I have one, and wait for another.
        Park {} = 3,
    }
}

baton::message! {
    /// What the arbiter answers, to the activation that it is about.
    pub enum Reply, version 1 {
        /// You have a core.
        Granted {
            /// Its CPU.
            cpu: u32,
        } = 1,
        /// Your core is for another: park.
        Reclaim {
            /// Its CPU.
            cpu: u32,
            /// It is yours for so long yet, ns.
            within: u64,
        } = 2,
        /// What you said means nothing.
        Refused {
            /// The hint's tag.
            tag: u8,
        } = 3,
    }
}
