// SPDX-License-Identifier: GPL-2.0-only
//! Versions of the policy of a runner, which replace each other while the agents go on.
//!
//! An agent calls the policy only within a turn. A turn that begins while a version replaces
//! another does nothing: the messages wait in their rings, and tasks that run go on. So no call is
//! made meanwhile, and no message is lost.

use std::fmt;
use std::sync::atomic::Ordering::{Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use baton_abi::BATON_AGENT_KICK_AGENT;
use baton_native::{Instance, Policy};

use crate::host;
use crate::runner::{Kicks, Runner};

/// How long an agent gives way at most while a version replaces another.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);

/// A version of the policy.
pub(crate) struct Version {
    pub policy: Policy,
    pub instance: Instance,
    /// Whether the policy has a `newly_idle`.
    pub steals: bool,
}

impl Version {
    pub fn new(policy: Policy, instance: Instance) -> Self {
        Self {
            policy,
            instance,
            steals: policy.ops().newly_idle.is_some(),
        }
    }
}

/// All versions that an agent may still have; the last one is that which new turns take.
pub(crate) struct Versions {
    all: Mutex<Vec<Arc<Version>>>,
    /// Odd while a version replaces another.
    number: AtomicU32,
    /// By CPU: its agent is in a turn.
    turning: Vec<AtomicBool>,
}

/// A version has replaced another.
#[derive(Clone, Copy, Debug)]
pub struct Upgraded {
    /// How many have done so in this session.
    pub number: u32,
    /// For how long the agents answered nothing.
    pub gap: Duration,
}

/// Why a version did not replace another, which goes on unless the policy was stopped.
#[derive(Debug)]
pub struct NotUpgraded(pub(crate) String);

impl fmt::Display for NotUpgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotUpgraded {}

impl Versions {
    pub fn new(first: Version, cpus: usize) -> Self {
        Self {
            all: Mutex::new(vec![Arc::new(first)]),
            number: AtomicU32::new(0),
            turning: (0..cpus).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<Version>>> {
        // A vector of pointers is never left in the middle of a change.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last version.
    pub fn current(&self) -> Arc<Version> {
        let all = self.all();
        Arc::clone(all.last().expect("there is always one"))
    }

    /// Takes the versions, for the end.
    pub fn take(&self) -> Vec<Arc<Version>> {
        std::mem::take(&mut self.all())
    }
}

impl Runner {
    /// Begins a turn of a CPU's agent, which has the version that `kicks` then says. False while
    /// another one takes its place.
    #[inline]
    pub(crate) fn begin_turn(&self, cpu: usize, kicks: &mut Kicks) -> bool {
        self.versions.turning[cpu].store(true, SeqCst);
        self.versions.number.load(SeqCst) == kicks.number || self.adopt(cpu, kicks)
    }

    /// Ends a turn.
    #[inline]
    pub(crate) fn end_turn(&self, cpu: usize) {
        self.versions.turning[cpu].store(false, Release);
    }

    /// The version is not that of this thread's last turn.
    #[cold]
    fn adopt(&self, cpu: usize, kicks: &mut Kicks) -> bool {
        let versions = &self.versions;
        loop {
            self.end_turn(cpu);
            let number = versions.number.load(SeqCst);
            if number % 2 == 1 {
                return false;
            }
            kicks.version = versions.current();
            kicks.version.policy.install(Some(self.services.table()));
            kicks.number = number;
            versions.turning[cpu].store(true, SeqCst);
            if versions.number.load(SeqCst) == number {
                return true;
            }
        }
    }

    /// [`crate::Session::upgrade`].
    pub(crate) fn replace(&self, policy: Policy) -> Result<Upgraded, NotUpgraded> {
        let refused = |why: &str| Err(NotUpgraded(why.into()));
        let mut all = self.versions.all();
        let old = Arc::clone(all.last().expect("there is always one"));
        if self.services.tape.is_some() {
            return refused("the policy is being recorded");
        }
        if policy.name() != old.policy.name() {
            return refused("it is another policy");
        }
        let types = |policy: &Policy| {
            let ops = policy.ops();
            (ops.hint.is_some(), ops.hint_type, ops.reply_type)
        };
        if types(&policy) != types(&old.policy) {
            return refused("it takes hints or sends replies of another type");
        }
        if policy.events() & !old.policy.events() != 0 {
            return refused("it wants events that the enclave does not tell the running version");
        }
        let mut topology = self.agent().topology().to_vec();
        for (cpu, place) in topology.iter_mut().enumerate() {
            place.online = u8::from(self.services.is_online(cpu)).into();
        }
        let slots = self.agent().nr_slots();
        for policy in [old.policy, policy] {
            policy.install(Some(self.services.table()));
        }
        let begun = Instant::now();
        let number = self.versions.number.fetch_add(1, SeqCst);
        while self.versions.turning.iter().any(|turn| turn.load(SeqCst)) {
            // The agent may be a task that runs only when this thread does not.
            thread::sleep(Duration::from_micros(10));
        }
        let made = host::enter(&self.services, 0, || {
            policy.make_from(&old.instance, &topology, slots, &self.options, |_| {})
        });
        let result = made.map(|instance| all.push(Arc::new(Version::new(policy, instance))));
        let fault = host::take_fault();
        drop(all);
        if let Err(refused) = &result {
            if refused.half_taken {
                self.fail_half_taken(fault, &refused.why);
            }
        }
        self.versions.number.fetch_add(1, SeqCst);
        let gap = begun.elapsed();
        // An error means that a CPU went offline, or that the session has ended.
        let _ = self.agent().kick(&self.agents());
        result.map_err(|refused| NotUpgraded(refused.why))?;
        self.drop_unused();
        Ok(Upgraded {
            number: number / 2 + 1,
            gap,
        })
    }

    /// The agents of all CPUs of the enclave, for a kick.
    fn agents(&self) -> Vec<u16> {
        let cpus = (0..self.agent().nr_cpus()).filter(|cpu| self.is_served(*cpu));
        cpus.map(|cpu| cpu as u16 | BATON_AGENT_KICK_AGENT)
            .collect()
    }

    /// Drops the versions that no agent has any more.
    fn drop_unused(&self) {
        let mut all = self.versions.all();
        let last = all.len() - 1;
        let unused: Vec<Arc<Version>> = all
            .extract_if(..last, |version| Arc::strong_count(version) == 1)
            .collect();
        drop(all);
        self.drop_all(unused);
    }

    /// Drops versions, which are calls of theirs.
    pub(crate) fn drop_all(&self, versions: Vec<Arc<Version>>) {
        for version in versions {
            version.policy.install(Some(self.services.table()));
            host::enter(&self.services, 0, || drop(version));
        }
    }
}
