// SPDX-License-Identifier: GPL-2.0-only
//! A host in user space: policies are closures, and a task's allowed CPUs are a mask.

use baton_abi::{
    Arg, BatonCtx, BatonFaultKind, BatonHint, BatonMethod, BatonRefusal, BatonTask, BatonWake,
    BATON_ABORTED, BATON_PICK_KEEP, BATON_PICK_NONE,
};
use baton_core::{Core, CpuState, Fault, Host, PolicyEntry, Slot, TaskFacts, TaskState};
use std::sync::{
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
    Arc, Mutex, OnceLock, RwLock,
};

pub type TestCore = Core<'static, TestHost>;

/// A call of a policy's method.
pub struct Call<'c> {
    pub core: &'static TestCore,
    pub policy: &'c PolicyEntry,
    pub method: BatonMethod,
    pub ctx: &'c mut BatonCtx,
    /// The task that it is about, or the previous task.
    pub task: Option<BatonTask>,
    pub wake: Option<BatonWake>,
    pub hint: Option<BatonHint>,
    /// The CPU that it is about, or the token that was refused.
    pub what: u64,
    /// The token that is handed over, or the reason of a refusal.
    pub token: u64,
    /// The CPU on which this runs.
    pub here: i32,
}

impl Call<'_> {
    /// The policy fails in this call.
    pub fn abort(&self, kind: BatonFaultKind) -> u64 {
        self.core
            .fault_in_call(self.core.cpu(self.here).unwrap(), kind);
        BATON_ABORTED
    }

    /// The policy drops a token in this call.
    pub fn drop_token(&self, token: u64) -> u64 {
        let lost = self.core.dropped(token, self.core.cpu(self.here).unwrap());
        if lost {
            BATON_ABORTED
        } else {
            0
        }
    }

    /// May the task of this token run on that CPU?
    pub fn may_run(&self, token: u64, cpu: i32) -> bool {
        self.core.host().may_run(slot_of(self.core, token), cpu)
    }
}

/// The slot that a valid token names.
pub fn slot_of(core: &TestCore, token: u64) -> &'static Slot {
    &core.slots()[(token as u32) as usize - 1]
}

/// A policy: answers calls in place of [`Host::call`].
pub type Policy = Arc<dyn Fn(&mut Call<'_>) -> u64 + Send + Sync>;

#[derive(Default)]
pub struct TestHost {
    core: OnceLock<&'static TestCore>,
    /// By `version` less one.
    policies: RwLock<Vec<Policy>>,
    /// The CPUs that each task may use, one bit each, by slot.
    masks: Vec<AtomicU64>,
    pub reports: Mutex<Vec<(u32, Fault)>>,
    pub kicks: AtomicU32,
    /// CPUs whose task must be enqueued, one bit each.
    pub evictions: AtomicU64,
    slots_lock: Mutex<()>,
    /// Only one thread runs the rules, so no policy may be entered that is not running.
    strict: AtomicBool,
}

impl Host for TestHost {
    type Frame = i32;

    fn call(
        &self,
        here: i32,
        policy: &PolicyEntry,
        method: BatonMethod,
        ctx: &mut BatonCtx,
        a: Arg<'_>,
        b: Arg<'_>,
    ) -> u64 {
        let this = policy.version.load(SeqCst);
        assert!(this != 0, "{method:?} of a policy that was never started");
        assert!(
            !self.strict.load(SeqCst) || policy.is_running(),
            "{method:?} of a policy that is {:?}",
            policy.state()
        );
        let model = self.policies.read().unwrap()[this - 1].clone();
        let mut call = Call {
            core: self.core.get().unwrap(),
            policy,
            method,
            ctx,
            task: None,
            wake: None,
            hint: None,
            what: 0,
            token: 0,
            here,
        };
        match a {
            Arg::Word(word) => call.what = word,
            Arg::Task(task) => call.task = Some(*task),
            Arg::Wake(_) | Arg::Hint(_) => panic!("never the first argument"),
        }
        match b {
            Arg::Word(word) => call.token = word,
            Arg::Task(task) => call.task = Some(*task),
            Arg::Wake(wake) => call.wake = Some(*wake),
            Arg::Hint(hint) => call.hint = Some(*hint),
        }
        model(&mut call)
    }

    fn may_run(&self, slot: &Slot, cpu: i32) -> bool {
        self.masks[slot.index() as usize].load(SeqCst) & (1 << cpu) != 0
    }

    fn kick_all(&self) {
        self.kicks.fetch_add(1, SeqCst);
    }

    fn evict(&self, cpu: i32) {
        self.evictions.fetch_or(1 << cpu, SeqCst);
    }

    fn end_slice(&self, _: u64) {}

    fn report(&self, policy: &PolicyEntry, fault: &Fault, _: Option<&CpuState>) {
        self.reports.lock().unwrap().push((policy.index(), *fault));
    }

    fn with_slots_locked<R>(&self, f: impl FnOnce() -> R) -> R {
        let _guard = self.slots_lock.lock().unwrap();
        f()
    }
}

/// A core whose CPUs are all online. Never freed, like the kernel's.
pub fn new_core(slots: usize, cpus: i32, strict: bool) -> &'static TestCore {
    let masks = (0..slots).map(|_| AtomicU64::new(!0)).collect();
    let host = TestHost {
        masks,
        strict: AtomicBool::new(strict),
        ..TestHost::default()
    };
    let slots: Vec<Slot> = (0..slots).map(|_| Slot::default()).collect();
    let states: Vec<CpuState> = (0..cpus).map(|_| CpuState::default()).collect();
    let core: &TestCore = Box::leak(Box::new(Core::new(host, slots.leak(), states.leak())));
    assert!(core.host().core.set(core).is_ok());
    for cpu in 0..cpus {
        core.note_online(cpu, true);
    }
    core
}

/// Registers a policy that wants all events.
pub fn register(core: &TestCore) -> &PolicyEntry {
    core.register(baton_abi::BATON_EV_ALL)
        .expect("the table has room")
}

/// Makes a version of a policy from these functions.
pub fn version(core: &TestCore, policy: Policy) -> usize {
    let mut policies = core.host().policies.write().unwrap();
    policies.push(policy);
    policies.len()
}

/// Starts a registered policy with these functions.
pub fn start(core: &TestCore, entry: &PolicyEntry, policy: Policy) {
    assert_eq!(core.start(entry, version(core, policy)), Ok(()));
}

/// Creates a task in Baton's class and returns its handle. The host's identifier of the task is
/// also `pid`.
pub fn new_task(core: &TestCore, pid: u32, parent: u64) -> Option<u64> {
    let facts = TaskFacts {
        opaque: pid as usize,
        pid,
        parent,
    };
    let baton_core::Init::Handle(handle) = core.init_task(&facts) else {
        return None;
    };
    core.host().masks[core.by_handle(handle).unwrap().index() as usize].store(!0, SeqCst);
    core.enable_task(handle, 0);
    Some(handle)
}

/// Sets the CPUs that a task may use.
pub fn set_mask(core: &TestCore, slot: &Slot, mask: u64) {
    core.host().masks[slot.index() as usize].store(mask, SeqCst);
}

/// First come, first served on every CPU where the task may run. Its tokens are in `queue`.
pub fn fifo(call: &mut Call<'_>, queue: &Mutex<Vec<u64>>) -> u64 {
    use BatonMethod as M;
    let mut queue = queue.lock().unwrap();
    match call.method {
        M::TaskNew | M::TaskWakeup | M::TaskPreempt | M::TaskYield | M::TaskRestored => {
            queue.push(call.token)
        }
        M::PickNextTask => {
            let cpu = call.what as i32;
            return match queue.iter().position(|&token| call.may_run(token, cpu)) {
                Some(at) => queue.remove(at),
                None if call.task.is_some() => BATON_PICK_KEEP,
                None => BATON_PICK_NONE,
            };
        }
        M::PickRefused
            if call.token == BatonRefusal::NotAllowed as u64 && !queue.contains(&call.what) =>
        {
            queue.push(call.what);
        }
        M::TaskDequeued | M::TaskDeparted => {
            let slot = call.task.unwrap().slot;
            let at = queue.iter().position(|&token| token as u32 == slot + 1);
            return at.map_or(0, |at| queue.remove(at));
        }
        M::SelectTaskRq => return call.wake.unwrap().prev_cpu as u64,
        _ => {}
    }
    0
}

/// The number of tasks in a state.
pub fn count(core: &TestCore, state: TaskState) -> usize {
    core.slots()
        .iter()
        .filter(|slot| slot.state() == state)
        .count()
}

/// The tasks that are stranded in stopped policies, with as many calls as needed.
pub fn rescue_all(core: &TestCore) -> Vec<&'static Slot> {
    let mut found = Vec::new();
    while core.rescue_pending() {
        found.extend(core.rescue_one().map(|(slot, _)| slot));
    }
    found
}
