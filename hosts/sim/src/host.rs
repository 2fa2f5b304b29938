// SPDX-License-Identifier: GPL-2.0-only
//! The host that the rules and policies call: the counterpart of `hosts/kernel/host.c`.
//!
//! Everything runs on one thread. State that a call may change is in cells. Requests to the machine
//! (kicks of all CPUs, timers, evictions) are stored here, and the machine carries them out after
//! the call.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::Arc;

use baton_abi::{
    Arg, BatonCtx, BatonFault, BatonFaultKind, BatonHint, BatonMethod, BatonReplyAnswer,
    BATON_ABORTED, BATON_HINTS_MIN_ENTRIES, BATON_MAX_LOCKS,
};
use baton_core::{Core, CpuState, Fault, Host, PolicyEntry, Slot};
use baton_enclave::Enclave;
use baton_native::{place_of_crash, Crash, Instance, NativeHost, Panic, Policy, Table, WrongMove};

use crate::agent;
use crate::fault::{self, LastWords};
use crate::record::{self, Tape};
use crate::rng::Rng;
use crate::topology::CpuMask;
use crate::UnderWay;

pub(crate) type SimCore<'a> = Core<'a, SimHost>;

/// What the kernel knows of the task in a slot.
#[derive(Default)]
pub(crate) struct Facts {
    /// task_cpu()
    pub rq: Cell<u32>,
    /// Its affinity: 0 for all CPUs, otherwise an index in `masks` plus one.
    pub mask: Cell<u32>,
    /// Number of replies that it has not read. `None` while it has no hint queue.
    pub unread: Cell<Option<u32>>,
}

/// A policy's request to arm its timer on a CPU for the time `at`, or to cancel it (`None`).
pub(crate) struct TimerRequest {
    pub cpu: u32,
    pub policy: u32,
    pub at: Option<u64>,
}

pub(crate) struct SimHost {
    pub now: Cell<u64>,
    /// The policy's clock at the beginning of the run, ns.
    pub clock: Cell<u64>,
    /// The CPU on which the current code runs.
    pub here: Cell<u32>,
    /// Number of calls of policies.
    pub calls: Cell<u64>,
    under_way: Arc<UnderWay>,
    pub facts: Box<[Facts]>,
    pub masks: RefCell<Vec<Arc<CpuMask>>>,
    /// By CPU: cpu_active().
    pub active: Box<[Cell<bool>]>,
    pub timers: RefCell<Vec<TimerRequest>>,
    pub kicks_all: Cell<bool>,
    pub evictions: RefCell<Vec<u32>>,
    /// The enclave, whose instance is dropped before this host.
    pub enclave: RefCell<Option<Arc<Enclave>>>,
    /// CPUs that the agent makes look for a task, and whether their task is to be preempted.
    pub agent_kicks: RefCell<Vec<(u32, bool)>>,
    /// Number of times that the agent has acted.
    agent_turns: Cell<u64>,
    /// Replies that the machine has not taken yet, with the slot of each.
    pub replies: RefCell<Vec<(u32, BatonHint)>>,
    pub reports: RefCell<Vec<BatonFault>>,
    /// Indexed by the version of a policy less one.
    pub instances: RefCell<Vec<Instance>>,
    /// Names of policies, with the index of each in the core's table.
    pub names: RefCell<Vec<(u32, String)>>,
    rng: RefCell<Rng>,
    /// Index of the policy whose call is under way.
    calling: Cell<Option<u32>>,
    /// The policy that is being made, saved or ended.
    pub making: Cell<Option<Policy>>,
    /// A policy was abandoned in a call, or while it was made, saved or ended.
    pub has_crashed: Cell<bool>,
    /// A new version takes over queues, or a policy saves its state. Both may take locks.
    pub taking_over: Cell<bool>,
    /// Addresses of the locks that the call holds, the newest last.
    held: RefCell<Vec<usize>>,
    words: RefCell<LastWords>,
    /// Refused changes of threads' states, each once for a place in the policy's source, with how
    /// often it occurred.
    pub wrong_moves: RefCell<Vec<(WrongMove, u64)>>,
    /// The recording, if calls are recorded.
    pub tape: RefCell<Option<Tape>>,
    is_recorded: bool,
    /// Time between checkpoints of the recording, ns.
    pub checkpoint_every: Option<u64>,
}

impl SimHost {
    pub fn new(
        cpus: usize,
        slots: usize,
        seed: u64,
        under_way: Arc<UnderWay>,
        tape: Option<(Tape, Option<u64>)>,
    ) -> Self {
        let (tape, checkpoint_every) =
            tape.map_or((None, None), |(tape, every)| (Some(tape), every));
        Self {
            now: Cell::new(0),
            clock: Cell::new(0),
            here: Cell::new(0),
            calls: Cell::new(0),
            under_way,
            facts: (0..slots).map(|_| Facts::default()).collect(),
            masks: RefCell::default(),
            active: (0..cpus).map(|_| Cell::new(true)).collect(),
            timers: RefCell::default(),
            kicks_all: Cell::new(false),
            evictions: RefCell::default(),
            enclave: RefCell::default(),
            agent_kicks: RefCell::default(),
            agent_turns: Cell::new(0),
            replies: RefCell::default(),
            reports: RefCell::default(),
            instances: RefCell::default(),
            names: RefCell::default(),
            rng: RefCell::new(Rng::new(seed, u64::MAX)),
            calling: Cell::new(None),
            making: Cell::new(None),
            has_crashed: Cell::new(false),
            taking_over: Cell::new(false),
            held: RefCell::default(),
            words: RefCell::default(),
            wrong_moves: RefCell::default(),
            is_recorded: tape.is_some(),
            checkpoint_every,
            tape: RefCell::new(tape),
        }
    }

    /// A turn of the agent, in which it calls its policy.
    pub fn in_agent<R>(&self, turn: impl FnOnce() -> R) -> R {
        self.agent_turns.set(self.agent_turns.get() + 1);
        self.under_way
            .begin(self.agent_turns.get(), BatonMethod::None);
        let result = turn();
        self.under_way.end();
        result
    }

    /// Puts a reply into the queue of the task in a slot.
    pub fn reply(&self, slot: u32, reply: &BatonHint) -> BatonReplyAnswer {
        let Some(facts) = self.facts.get(slot as usize) else {
            return BatonReplyAnswer::NoQueue;
        };
        match facts.unread.get() {
            None => BatonReplyAnswer::NoQueue,
            Some(BATON_HINTS_MIN_ENTRIES..) => BatonReplyAnswer::Full,
            Some(unread) => {
                facts.unread.set(Some(unread + 1));
                self.replies.borrow_mut().push((slot, *reply));
                BatonReplyAnswer::Sent
            }
        }
    }

    /// Calls `note` with the recording and the current CPU, if there is a recording.
    pub fn record(&self, note: impl FnOnce(&mut Tape, u32)) {
        if let Some(tape) = &mut *self.tape.borrow_mut() {
            note(tape, self.here.get());
        }
    }

    /// Adds the state of the recorded policy to the recording, between two events. The error is the
    /// policy's message if it could not save its state.
    pub fn checkpoint(&self) -> Result<(), String> {
        let instances = self.instances.borrow();
        let instance = instances
            .last()
            .expect("a recording is of one policy, which has been made");
        self.making.set(Some(instance.policy()));
        self.taking_over.set(true);
        let state = instance.save();
        self.taking_over.set(false);
        self.making.set(None);
        let state = state.ok_or_else(|| self.take_words().unwrap_or_default())?;
        self.record(|tape, _| tape.checkpoint(&state));
        Ok(())
    }

    pub fn takes_hints(&self, policy: &PolicyEntry) -> bool {
        self.instances.borrow()[policy.version.load(Relaxed) - 1]
            .policy()
            .ops()
            .hint
            .is_some()
    }

    /// The functions that policies call.
    pub fn table(&self) -> &'static Table {
        if self.is_recorded {
            &record::TABLE
        } else {
            &TABLE
        }
    }

    /// Separate from [`Host::call`], so that runs without a recording need no registers for it.
    #[cold]
    #[inline(never)]
    fn call_recorded(
        &self,
        instance: &Instance,
        method: BatonMethod,
        ctx: &mut BatonCtx,
        a: Arg<'_>,
        b: Arg<'_>,
    ) -> u64 {
        self.record(|tape, cpu| tape.begin(cpu, method, ctx, &a, &b));
        let answer = self.without_locks(instance.call(method, ctx, a, b));
        self.record(|tape, cpu| tape.end(cpu, answer, ctx));
        answer
    }

    /// Returns the answer of a call. A call that returns with a lock held is abandoned instead
    /// (baton_check_locks() in hosts/kernel/host.c).
    #[inline]
    fn without_locks(&self, answer: u64) -> u64 {
        if self.held.borrow().is_empty() {
            answer
        } else {
            self.release_locks(answer)
        }
    }

    #[cold]
    fn release_locks(&self, answer: u64) -> u64 {
        for word in self.held.take() {
            // SAFETY: Mutual-exclusion. The lock was taken in the call that ends here, and the
            // policy's locks exist for that call.
            unsafe { &*(word as *const AtomicU32) }.store(0, Relaxed);
        }
        if answer != BATON_ABORTED {
            self.say("the call returned with a lock held; was its guard forgotten?");
            fail(BatonFaultKind::Deadlock);
        }
        BATON_ABORTED
    }

    /// Is the CPU in the set?
    #[inline]
    pub fn mask_has(&self, mask: u32, cpu: u32) -> bool {
        mask == 0 || self.masks.borrow()[mask as usize - 1].has(cpu as usize)
    }

    fn is_active(&self, cpu: u32) -> bool {
        self.active.get(cpu as usize).is_some_and(Cell::get)
    }

    /// baton_khost_may_run()
    #[inline]
    pub fn task_may_run(&self, slot: u32, cpu: i32) -> bool {
        let (Some(facts), Ok(cpu)) = (self.facts.get(slot as usize), u32::try_from(cpu)) else {
            return false;
        };
        let mask = facts.mask.get();
        if facts.rq.get() == cpu {
            // A task whose CPUs are all offline continues on the CPU where it is.
            return self.mask_has(mask, cpu) || !self.any_active(mask);
        }
        self.is_active(cpu) && self.mask_has(mask, cpu)
    }

    /// Is any CPU of the set online?
    pub fn any_active(&self, mask: u32) -> bool {
        (0..self.active.len() as u32).any(|cpu| self.is_active(cpu) && self.mask_has(mask, cpu))
    }

    /// Is a call under way in which locks may be taken?
    fn may_lock(&self) -> bool {
        self.calling.get().is_some() || self.taking_over.get()
    }

    fn say(&self, message: &str) {
        *self.words.borrow_mut() = LastWords {
            message: message.into(),
            ..LastWords::default()
        };
    }

    /// Takes the message of a policy that panicked while it was made or saved.
    pub fn take_words(&self) -> Option<String> {
        let LastWords {
            message,
            file,
            line,
        } = self.words.take();
        match (message.is_empty(), file.is_empty()) {
            (true, _) => None,
            (false, true) => Some(message),
            (false, false) => Some(format!("{message} ({file}:{line})")),
        }
    }
}

impl Host for SimHost {
    type Frame = ();

    #[inline]
    fn call(
        &self,
        _: (),
        policy: &PolicyEntry,
        method: BatonMethod,
        ctx: &mut BatonCtx,
        a: Arg<'_>,
        b: Arg<'_>,
    ) -> u64 {
        self.calls.set(self.calls.get() + 1);
        self.under_way.begin(self.calls.get(), method);
        let outer = self.calling.replace(Some(policy.index()));
        let instances = self.instances.borrow();
        let instance = &instances[policy.version.load(Relaxed) - 1];
        ctx.now = ctx.now.wrapping_add(self.clock.get());
        let answer = if self.is_recorded {
            self.call_recorded(instance, method, ctx, a, b)
        } else {
            self.without_locks(instance.call(method, ctx, a, b))
        };
        ctx.now = ctx.now.wrapping_sub(self.clock.get());
        self.calling.set(outer);
        self.under_way.end();
        answer
    }

    #[inline]
    fn may_run(&self, slot: &Slot, cpu: i32) -> bool {
        self.task_may_run(slot.index(), cpu)
    }

    fn kick_all(&self) {
        self.kicks_all.set(true);
    }

    fn evict(&self, cpu: i32) {
        self.evictions.borrow_mut().push(cpu as u32);
    }

    fn end_slice(&self, _: u64) {
        // A simulated slice that is shorter than a tick ends at the next one.
    }

    fn report(&self, policy: &PolicyEntry, fault: &Fault, cpu: Option<&CpuState>) {
        let names = self.names.borrow();
        let name = names
            .iter()
            .find(|(index, _)| *index == policy.index())
            .map_or("", |(_, name)| name);
        let mut reports = self.reports.borrow_mut();
        let serial = reports.len() as u64 + 1;
        let at = (self.now.get(), self.here.get());
        reports.push(fault::report(
            (policy.index(), name),
            fault,
            self.words.take(),
            at,
            serial,
            cpu,
        ));
    }

    fn with_slots_locked<R>(&self, f: impl FnOnce() -> R) -> R {
        f()
    }
}

thread_local! {
    static CORE: Cell<*const SimCore<'static>> = const { Cell::new(ptr::null()) };
}

/// Makes a core the one that `with` finds on this thread, until this is dropped.
pub(crate) struct Installed(*const SimCore<'static>);

impl Installed {
    /// # Safety
    /// On-stack: the core outlives the result.
    pub unsafe fn new(core: &SimCore<'_>) -> Self {
        Self(CORE.replace(ptr::from_ref(core).cast()))
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        CORE.set(self.0);
    }
}

#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&SimCore<'_>, &SimHost) -> R) -> R {
    // SAFETY: On-stack. Policies are called only while a simulation is on the stack, and the
    // reference does not leave this call.
    let core = unsafe { CORE.get().as_ref() }.expect("a policy is called by a simulation");
    f(core, core.host())
}

/// Does this thread execute a policy's code? It changes nothing, so a signal handler may call it.
pub(crate) fn is_in_policy() -> bool {
    // SAFETY: On-stack. As in `with`.
    let host = unsafe { CORE.get().as_ref() }.map(Core::host);
    let is_ours = |host: &SimHost| host.calling.get().is_some() || host.making.get().is_some();
    host.is_some_and(is_ours) || baton_agent::is_in_policy()
}

/// Reports a crash that would have ended the process, as a fault of the last call on this CPU.
pub(crate) fn crashed(crash: Crash) {
    let (file, line) = place_of_crash().unwrap_or_default();
    let words = LastWords {
        message: crash.to_string(),
        file,
        line,
    };
    if baton_agent::is_in_policy() {
        return agent::give_up(kind_of(crash), BatonMethod::None, 0, words);
    }
    with(|_, host| host.words.replace(words));
    fail(kind_of(crash));
}

fn kind_of(crash: Crash) -> BatonFaultKind {
    match crash {
        Crash::StackOverflow => BatonFaultKind::StackOverflow,
        _ => BatonFaultKind::Panic,
    }
}

/// Ends the call under way with a fault.
fn fail(kind: BatonFaultKind) {
    with(|core, host| {
        host.record(|tape, cpu| tape.fail(cpu, kind as u8));
        if host.calling.get().is_some() {
            let cpu = core
                .cpu(host.here.get() as i32)
                .expect("this runs on a CPU");
            core.fault_in_call(cpu, kind);
        }
    });
}

/// Does the policy whose call is under way serve this CPU?
fn serves(core: &SimCore<'_>, host: &SimHost, cpu: i32) -> bool {
    let policy = host
        .calling
        .get()
        .map(|index| &core.policies()[index as usize]);
    core.cpu(cpu)
        .is_some_and(|cpu| policy.is_none_or(|policy| core.serves(policy, cpu)))
}

fn request(at: Option<u64>) {
    with(|_, host| {
        let Some(policy) = host.calling.get() else {
            return;
        };
        host.timers.borrow_mut().push(TimerRequest {
            cpu: host.here.get(),
            policy,
            at,
        });
    });
}

/// The address by which the host identifies a lock.
pub(crate) fn address(word: &AtomicU32) -> usize {
    std::ptr::from_ref(word) as usize
}

/// The host of runs without a recording.
pub(crate) struct Plain;

impl NativeHost for Plain {
    fn lock(word: &AtomicU32) -> bool {
        if !with(|_, host| host.may_lock()) {
            with(|_, host| {
                host.say(
                    "a lock was taken while the policy was being made; use Lock::get_mut there",
                )
            });
            return false;
        }
        let is_full = with(|_, host| host.held.borrow().len() == BATON_MAX_LOCKS);
        let is_ours = !is_full && Self::try_lock(word);
        if !is_ours {
            let why = if is_full {
                "a call may hold at most 31 locks at once"
            } else {
                "the lock is held by this CPU already"
            };
            with(|_, host| host.say(why));
            fail(BatonFaultKind::Deadlock);
        }
        is_ours
    }

    fn try_lock(word: &AtomicU32) -> bool {
        with(|_, host| {
            if !host.may_lock() {
                return false;
            }
            let is_free = word.swap(1, Relaxed) == 0;
            if is_free {
                host.held.borrow_mut().push(address(word));
            }
            is_free
        })
    }

    fn unlock(word: &AtomicU32) -> bool {
        let in_order = with(|_, host| {
            let mut held = host.held.borrow_mut();
            let at = held.iter().rposition(|&other| other == address(word));
            let in_order = at.is_some_and(|at| at + 1 == held.len());
            at.map(|at| held.remove(at));
            word.store(0, Relaxed);
            if !in_order {
                host.say("locks must be released in the reverse order of taking them");
            }
            in_order
        });
        if !in_order {
            fail(BatonFaultKind::Deadlock);
        }
        in_order
    }

    fn token_dropped(token: u64) -> bool {
        with(|core, host| {
            let cpu = core
                .cpu(host.here.get() as i32)
                .expect("this runs on a CPU");
            // Outside of calls, only a policy that ends drops its tokens.
            host.calling.get().is_none() || !core.dropped(token, cpu)
        })
    }

    fn refused(wrong: WrongMove) {
        with(|_, host| {
            let mut known = host.wrong_moves.borrow_mut();
            let same = |old: &&mut (WrongMove, u64)| {
                let mut wrong = wrong.clone();
                wrong.change.pid = old.0.change.pid;
                old.0 == wrong
            };
            match known.iter_mut().find(same) {
                Some((_, times)) => *times += 1,
                None => known.push((wrong, 1)),
            }
        });
    }

    fn panicked(panic: Panic) {
        let is_memory = panic.is_out_of_memory();
        // The location would be one inside the library, so it is omitted.
        let (file, line) = if is_memory {
            (String::new(), 0)
        } else {
            (panic.file, panic.line)
        };
        let message = panic.message;
        with(|_, host| {
            *host.words.borrow_mut() = LastWords {
                message,
                file,
                line,
            }
        });
        fail(if is_memory {
            BatonFaultKind::OutOfMemory
        } else {
            BatonFaultKind::Panic
        });
    }

    fn now() -> u64 {
        with(|_, host| host.clock.get().wrapping_add(host.now.get()))
    }

    fn random() -> u64 {
        with(|_, host| host.rng.borrow_mut().any())
    }

    fn arm_timer(after_ns: u64) {
        let now = with(|_, host| host.now.get());
        request(Some(now.saturating_add(after_ns)));
    }

    fn cancel_timer() {
        request(None);
    }

    fn may_run(slot: u32, cpu: i32) -> bool {
        with(|core, host| host.task_may_run(slot, cpu) && serves(core, host, cpu))
    }

    fn cpu_online(cpu: i32) -> bool {
        with(|core, host| core.cpu(cpu).is_some_and(CpuState::is_online) && serves(core, host, cpu))
    }

    fn cpu_idle(cpu: i32) -> bool {
        with(|core, host| core.is_idle(cpu) && serves(core, host, cpu))
    }

    fn any_idle() -> bool {
        with(|core, _| core.is_any_idle())
    }

    fn claim_idle(cpu: i32) -> bool {
        with(|core, host| serves(core, host, cpu) && core.claim_idle(cpu))
    }

    fn reply(slot: u32, tag: u32, words: [u64; 6]) -> u32 {
        let reply = BatonHint {
            tag,
            thread: 0,
            words,
        };
        with(|_, host| host.reply(slot, &reply)) as u32
    }
}

/// The functions for runs without a recording; `record::TABLE` adds the recording.
pub(crate) static TABLE: Table = Table::of::<Plain>();
