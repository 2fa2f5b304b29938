// SPDX-License-Identifier: GPL-2.0-only
//! Policies in user space, for the simulator and the checkers. A policy is linked in, or is a
//! library `baton_NAME.so`, which `build.sh` here builds from the same source as the kernel module.
//! All calls go through one function that returns whatever the policy does.
//!
//! A library stays loaded until the process ends, as pointers that it returned may lead into it.
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

mod recorded;
mod trap;

use std::ffi::{c_char, CString};
use std::path::Path;

use baton_abi::{
    Arg, BatonAsked, BatonBytes, BatonCpu, BatonCtx, BatonEnv, BatonMethod, BatonOlder,
    BatonPolicy, BATON_ABI, BATON_ABORTED, BATON_EV_NO_SELECT, BATON_MESSAGE_LEN,
};

pub use baton_native_glue::{module, NativePolicy};
pub use baton_seam::host::{Change, NativeHost, Panic, Table, WrongMove};
pub use recorded::{Lane, Recorded, Recording};
pub use trap::{
    contained, cpu_time_here, cpu_time_of, end_endless, give_up, place_of_crash, Crash, Limit,
};

/// A policy of which instances can be made.
#[derive(Clone, Copy)]
pub struct Policy(&'static NativePolicy);

impl Policy {
    /// A policy that is linked in: `Policy::linked(baton_native::module!(wfq::BatonPolicy))`.
    pub const fn linked(policy: &'static NativePolicy) -> Self {
        Self(policy)
    }

    /// Opens a policy in a library. The error states what is wrong with the library.
    pub fn open(path: &Path) -> Result<Self, String> {
        // SAFETY: Library. `build.sh` built it, and a policy has no code that runs when it is
        // loaded.
        let library = unsafe { libloading::Library::new(path) }
            .map_err(|e| format!("{}: {e}", path.display()))?;
        let library = Box::leak(Box::new(library));
        // SAFETY: Library. The glue declares this name with this type. The version is checked
        // before anything else in it is used.
        let symbol = unsafe { library.get::<*const &'static NativePolicy>(b"BATON_NATIVE\0") };
        let symbol = symbol.map_err(|_| format!("{} is no policy of Baton's", path.display()))?;
        // SAFETY: Library. As above; the library is never unloaded.
        let policy = unsafe { **symbol };
        match policy.abi {
            BATON_ABI if policy.table_size as usize == size_of::<Table>() => Ok(Self(policy)),
            BATON_ABI => Err(format!(
                "{} was built for another table of host functions",
                path.display()
            )),
            other => Err(format!(
                "{} was built for version {other} of the interface, not {BATON_ABI}",
                path.display()
            )),
        }
    }

    /// Its functions.
    pub fn native(&self) -> &'static NativePolicy {
        self.0
    }

    /// Its description.
    pub fn ops(&self) -> &'static BatonPolicy {
        self.0.ops
    }

    /// Its name.
    pub fn name(&self) -> String {
        let name = self.ops().name.iter().take_while(|&&c| c != 0);
        name.map(|&c| char::from(c as u8)).collect()
    }

    /// The events that it wants, as the core gets them.
    pub fn events(&self) -> u32 {
        self.ops().events
            | if self.ops().select_task_rq.is_none() {
                BATON_EV_NO_SELECT
            } else {
                0
            }
    }

    /// Sets the host of its calls on this thread, or none.
    pub fn install(&self, table: Option<&'static Table>) {
        (self.0.install)(table);
    }

    /// Calls a method that has no instance, or that is not about scheduling. Returns
    /// [`BATON_ABORTED`] if the call was abandoned.
    fn call(&self, method: BatonMethod, this: usize, a: u64, b: u64) -> u64 {
        (self.0.call)(method, this, &mut BatonCtx::default(), a, b)
    }

    /// Makes an instance. `options` as for `baton load`. The error is the policy's own message, or
    /// states that the call failed.
    pub fn make(
        &self,
        cpus: &[BatonCpu],
        max_tasks: u32,
        options: &str,
    ) -> Result<Instance, String> {
        self.with_env(cpus, max_tasks, options, |env| {
            self.call(BatonMethod::Create, 0, env, 0)
        })
    }

    /// Makes an instance from a saved state (`reregister_save`). The error is the policy's own
    /// message, or states that the call failed.
    pub fn make_of(
        &self,
        cpus: &[BatonCpu],
        max_tasks: u32,
        options: &str,
        state: &[u8],
    ) -> Result<Instance, String> {
        if self.ops().reregister_load.is_none() {
            return Err("it has no state that can be saved".into());
        }
        let bytes = BatonBytes {
            at: state.as_ptr().cast_mut(),
            length: state.len(),
        };
        let bytes = core::ptr::from_ref(&bytes) as u64;
        self.with_env(cpus, max_tasks, options, |env| {
            self.call(BatonMethod::ReregisterLoad, 0, env, bytes)
        })
    }

    /// Makes an instance from the state that `from` hands on, and converts the state if it is of
    /// another type. Both instances then share that state. No other call may run meanwhile.
    /// `taking_over` is called with true and false around the part in which locks may be taken.
    pub fn make_from(
        &self,
        from: &Instance,
        cpus: &[BatonCpu],
        max_tasks: u32,
        options: &str,
        taking_over: impl Fn(bool),
    ) -> Result<Instance, Refused> {
        let refused = |why: String| Refused {
            why,
            half_taken: false,
        };
        let (old, new) = (from.policy.ops(), self.ops());
        let converts =
            new.reregister_convert.is_some() && new.older == old.state && new.state != old.state;
        if old.reregister_prepare.is_none()
            || new.reregister_init.is_none()
            || (new.state != old.state && !converts)
        {
            return Err(refused("their states are not of one type".into()));
        }
        let older = from
            .policy
            .call(BatonMethod::ReregisterPrepare, from.this, 0, 0);
        if older == BATON_ABORTED || older == 0 {
            return Err(refused(
                "the running version failed to hand its state on".into(),
            ));
        }
        if !converts {
            let init = |env| self.call(BatonMethod::ReregisterInit, 0, env, older);
            return self
                .with_env(cpus, max_tasks, options, init)
                .map_err(refused);
        }
        let drop_older = || from.policy.call(BatonMethod::ReregisterDrop, 0, older, 0);
        let made = self.with_env(cpus, max_tasks, options, |env| {
            match self.call(BatonMethod::ReregisterConvert, 0, env, older) {
                BATON_ABORTED => BATON_ABORTED,
                0 => 0,
                state => self.call(BatonMethod::ReregisterInit, 0, env, state),
            }
        });
        let taken = made.map_err(refused).and_then(|made| {
            taking_over(true);
            let all = BatonOlder {
                state: older as *const _,
                nr_slots: max_tasks,
                reserved: 0,
            };
            let answer = self.call(
                BatonMethod::ReregisterTake,
                made.this,
                core::ptr::from_ref(&all) as u64,
                0,
            );
            taking_over(false);
            match answer {
                0 => Ok(made),
                _ => Err(Refused {
                    why: "the new version failed to take over the queues".into(),
                    half_taken: true,
                }),
            }
        });
        drop_older();
        taken
    }

    fn with_env(
        &self,
        cpus: &[BatonCpu],
        max_tasks: u32,
        options: &str,
        make: impl FnOnce(u64) -> u64,
    ) -> Result<Instance, String> {
        let options = CString::new(options).map_err(|_| "the options have a NUL in them")?;
        let mut message: [c_char; BATON_MESSAGE_LEN] = [0; BATON_MESSAGE_LEN];
        let env = BatonEnv {
            cpus: cpus.as_ptr(),
            nr_cpus: cpus.len() as u32,
            max_tasks,
            options: options.as_ptr(),
            message: message.as_mut_ptr(),
        };
        match make(core::ptr::from_ref(&env) as u64) {
            BATON_ABORTED => Err("it failed while it was being made".into()),
            0 => Err(text_of(&message)),
            this => Ok(Instance {
                policy: *self,
                this: this as usize,
            }),
        }
    }
}

/// What a policy wrote into a buffer for its message, which was zeroed.
fn text_of(message: &[c_char; BATON_MESSAGE_LEN]) -> String {
    let bytes = message.iter().map(|byte| *byte as u8);
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Why a version could not replace another.
#[derive(Debug)]
pub struct Refused {
    /// Message for the user.
    pub why: String,
    /// It had begun to take the queues over: what they held is lost.
    pub half_taken: bool,
}

/// An instance of a policy.
pub struct Instance {
    policy: Policy,
    this: usize,
}

impl Instance {
    /// The policy of this instance.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Its state, as `Policy::make_of` takes it. `None` if saving failed, or if the policy saves no
    /// state.
    pub fn save(&self) -> Option<Vec<u8>> {
        self.policy.ops().reregister_save?;
        let mut state = Vec::new();
        loop {
            let bytes = BatonBytes {
                at: state.as_mut_ptr(),
                length: state.len(),
            };
            let to = core::ptr::from_ref(&bytes) as u64;
            let length = self
                .policy
                .call(BatonMethod::ReregisterSave, self.this, to, 0);
            match usize::try_from(length) {
                Ok(length) if length <= state.len() => {
                    state.truncate(length);
                    return Some(state);
                }
                Ok(length) if length as u64 != BATON_ABORTED => state.resize(length, 0),
                _ => return None,
            }
        }
    }

    /// Lets the policy refuse to be the one of all tasks that have none; the error is its reason.
    pub fn may_be_default(&self) -> Result<(), String> {
        if self.policy.ops().may_have.is_none() {
            return Ok(());
        }
        let mut message: [c_char; BATON_MESSAGE_LEN] = [0; BATON_MESSAGE_LEN];
        let asked = BatonAsked {
            pid: 0,
            nice: 0,
            comm: [0; 16],
            message: message.as_mut_ptr(),
        };
        let asked = core::ptr::from_ref(&asked) as u64;
        match self.policy.call(BatonMethod::MayHave, self.this, asked, 0) {
            0 => Ok(()),
            BATON_ABORTED => Err("it failed when it was asked".into()),
            _ => Err(text_of(&message)),
        }
    }

    /// Calls a method with arguments as in `baton_core::Host::call`. Returns [`BATON_ABORTED`] if
    /// the call was abandoned.
    #[inline]
    pub fn call(&self, method: BatonMethod, ctx: &mut BatonCtx, a: Arg<'_>, b: Arg<'_>) -> u64 {
        (self.policy.0.call)(method, self.this, ctx, a.word(), b.word())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.policy.call(BatonMethod::Destroy, self.this, 0, 0);
    }
}
