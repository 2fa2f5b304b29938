// SPDX-License-Identifier: GPL-2.0-only
//! The kernel half of an enclave in user space, for the simulator and the checker.
//!
//! It is the C source of `hosts/agent/kernel`, compiled with `c/kernel.h` in place of the kernel's
//! headers. To its host it is a policy, and to an agent it is an enclave: messages, status words
//! and transactions are in memory of the same layout. An agent decides for all CPUs; agents of
//! CPUs, which are tasks of the kernel, are not modelled.
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

mod kernel;
mod spec;

use std::ffi::c_void;
use std::mem;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::{Arc, LazyLock};

use baton_abi::{
    BatonAgentAttach, BatonAgentCommit, BatonAgentCommits, BatonAgentKick, BatonAgentReply,
    BatonCpu, BatonCtx, BatonMessage, BatonMethod, BatonPolicy, BATON_EV_TICK,
};
use baton_agent::{Agent, Failure, Requests, Shared};
use baton_native::{Instance, NativePolicy, Policy};
use rustix::io::Errno;

pub use kernel::{install, Kernel};
pub use spec::{AgentSpec, MakeAgent};

/// `struct session` of the kernel half.
type Session = c_void;

extern "C" {
    fn baton_model_calls(ops: *mut BatonPolicy);
    fn baton_model_new(entries: u32, events: u32) -> *mut Session;
    fn baton_model_free(session: *mut Session);
    fn baton_model_layout(
        session: *const Session,
        layout: *mut BatonAgentAttach,
        status: *mut *mut u8,
        shared: *mut *mut u8,
    );
    fn baton_model_has_unread(session: *const Session) -> bool;
    fn baton_model_lost(session: *const Session) -> u64;
    fn baton_model_read(session: *const Session, cpu: u32) -> u32;
    fn baton_model_message(session: *const Session, cpu: u32, at: u32) -> *const BatonMessage;
    fn baton_model_judge(session: *const Session, commit: *const BatonAgentCommit) -> u32;
    fn baton_commit(session: *mut Session, commits: *mut BatonAgentCommits) -> i32;
    fn baton_kick(session: *mut Session, kick: *const BatonAgentKick) -> i32;
}

static OPS: LazyLock<BatonPolicy> = LazyLock::new(|| {
    // SAFETY: Kernel-half. All fields are integers and optional functions, for which 0 is a value.
    let mut ops = unsafe { mem::zeroed() };
    // SAFETY: Kernel-half. It fills the structure.
    unsafe { baton_model_calls(&mut ops) };
    ops
});

static POLICY: LazyLock<NativePolicy> = LazyLock::new(|| NativePolicy::new(&OPS, call));

extern "C" fn call(method: BatonMethod, this: usize, ctx: *mut BatonCtx, a: u64, b: u64) -> u64 {
    baton_native_glue::call(&OPS, method, this, ctx, a, b)
}

/// What is wrong with a commit that an agent should not have made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A message that the agent has read took this token back, or gave a newer one.
    Known,
    /// A transaction for another CPU with the same token is waiting.
    Twice,
}

/// The kernel half of an enclave.
pub struct Enclave(NonNull<Session>);

// SAFETY: Kernel-half. An enclave is used by one thread at a time: that of the model of the kernel,
// on which its agent runs as well.
unsafe impl Send for Enclave {}
// SAFETY: Kernel-half. As above.
unsafe impl Sync for Enclave {}

impl Enclave {
    /// Makes an enclave, and the instance that a host calls as that of a policy. Rings have
    /// `entries` messages, a power of two. `events` are those of `BATON_EV_*` that the agent wants
    /// messages about. The host starts the policy with the events that this returns as well.
    pub fn new(
        cpus: &[BatonCpu],
        slots: u32,
        entries: u32,
        events: u32,
    ) -> Result<(Arc<Self>, Instance, u32), String> {
        // SAFETY: Kernel-half. It has no conditions.
        let session = unsafe { baton_model_new(entries, events) };
        let session = NonNull::new(session).ok_or("there is no memory for an enclave")?;
        let enclave = Arc::new(Self(session));
        let instance = Policy::linked(&POLICY).make(cpus, slots, "")?;
        // Ticks are also needed for messages that can wait: session.c.
        Ok((enclave, instance, events | BATON_EV_TICK))
    }

    /// Its agent. `cpus` is what it sees of the machine.
    pub fn agent(self: &Arc<Self>, cpus: &[BatonCpu]) -> Agent {
        // SAFETY: Kernel-half. All fields are integers.
        let mut layout: BatonAgentAttach = unsafe { mem::zeroed() };
        let (mut status, mut shared) = (ptr::null_mut(), ptr::null_mut());
        let session = self.0.as_ptr();
        // SAFETY: Kernel-half. The session has begun, as there is an instance of it.
        unsafe { baton_model_layout(session, &mut layout, &mut status, &mut shared) };
        let shared = Shared {
            status,
            shared,
            layout,
            topology: cpus.to_vec(),
        };
        // SAFETY: Shared-memory. The layout is that of the memory, which `Asked` keeps.
        unsafe { Agent::of_model(shared, Box::new(Asked(self.clone()))) }
    }

    /// Messages lost so far, as a ring was full.
    pub fn lost(&self) -> u64 {
        // SAFETY: Kernel-half. The session has begun.
        unsafe { baton_model_lost(self.0.as_ptr()) }
    }

    /// The number of messages of this CPU's ring that the agent has read.
    pub fn read(&self, cpu: u32) -> u32 {
        // SAFETY: Kernel-half. As above.
        unsafe { baton_model_read(self.0.as_ptr(), cpu) }
    }

    /// The message of this number in a CPU's ring.
    pub fn message(&self, cpu: u32, number: u32) -> BatonMessage {
        // SAFETY: Kernel-half. The ring has a message at every number, and no CPU writes meanwhile.
        unsafe { *baton_model_message(self.0.as_ptr(), cpu, number) }
    }

    /// What is wrong with a commit, by what the agent has read. No call is under way.
    pub fn judge(&self, commit: &BatonAgentCommit) -> Option<Wrong> {
        // SAFETY: Kernel-half. As above.
        match unsafe { baton_model_judge(self.0.as_ptr(), commit) } {
            0 => None,
            1 => Some(Wrong::Known),
            _ => Some(Wrong::Twice),
        }
    }

    /// Are there messages that the agent has not read?
    pub fn has_unread(&self) -> bool {
        // SAFETY: Kernel-half. As above.
        unsafe { baton_model_has_unread(self.0.as_ptr()) }
    }
}

impl Drop for Enclave {
    fn drop(&mut self) {
        // SAFETY: Kernel-half. The agent held a reference, and the instance is gone before.
        unsafe { baton_model_free(self.0.as_ptr()) };
    }
}

/// The enclave, as its agent asks it.
struct Asked(Arc<Enclave>);

fn result(answer: i32) -> Result<(), Errno> {
    match answer {
        0 => Ok(()),
        errno => Err(Errno::from_raw_os_error(-errno)),
    }
}

impl Requests for Asked {
    fn kick(&self, kick: &mut BatonAgentKick) -> Result<(), Errno> {
        // SAFETY: Kernel-half. The session lives, and the request is valid.
        result(unsafe { baton_kick(self.0 .0.as_ptr(), kick) })
    }

    fn commit(&self, commits: &mut BatonAgentCommits) -> Result<(), Errno> {
        let at = commits.commits as *const BatonAgentCommit;
        // SAFETY: Kernel-half. The agent passes an array of so many commits.
        let these = unsafe { slice::from_raw_parts(at, commits.count as usize) };
        kernel::kernel().commits(&self.0, these);
        // SAFETY: Kernel-half. As above; the agent passes an array of so many commits.
        result(unsafe { baton_commit(self.0 .0.as_ptr(), commits) })
    }

    fn fail(&self, failure: &Failure) -> Result<(), Errno> {
        kernel::kernel().fail(failure);
        Ok(())
    }

    fn reply(&self, reply: &mut BatonAgentReply) -> Result<(), Errno> {
        reply.answer = kernel::kernel().reply(reply.slot, &reply.reply) as u32;
        Ok(())
    }

    fn now(&self) -> u64 {
        kernel::kernel().now()
    }
}
