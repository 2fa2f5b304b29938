// SPDX-License-Identifier: GPL-2.0-only
//! One recorded CPU: makes its calls, and compares the policy's actions with the recorded ones.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::time::Duration;

use baton_abi::{Arg, BatonCtx, BatonFaultKind, BatonMethod, BATON_ABORTED};
use baton_native::{cpu_time_here, give_up, Change, Crash, Instance, Limit};
use baton_trace::{fault_name, method_name, About, Call, Carried, Event, Return};

use crate::ahead::Ahead;
use crate::order::{Grant, Order};
use crate::run::Yielder;
use crate::{Cause, Changed, Did, Divergence, End, Fault, Options};

/// The message of a policy's failure.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastWords {
    pub message: String,
    pub place: Option<String>,
}

/// A call that the kernel ended as endless, and that goes on here for this CPU time, is ended.
const PATIENCE: Duration = Duration::from_millis(250);

/// A call that the kernel ended as endless, and that returns here after less than this CPU time, is
/// not the same: the kernel grants some million turns of loops.
const BRIEF: Duration = Duration::from_millis(1);

thread_local! {
    /// Is a policy's call on this thread one that may be ended by [`Limit`], and not within a
    /// function of the replay?
    static MAY_BE_ENDED: Cell<bool> = const { Cell::new(false) };
}

/// Called from a signal handler, so it only reads.
pub(crate) fn may_be_ended() -> bool {
    MAY_BE_ENDED.get()
}

/// How the current call relates to the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// There is no current call.
    Outside,
    /// The call is compared with the recording.
    Follows,
    /// The call is being abandoned, for this reason.
    Failing(BatonFaultKind),
    /// The recording ended during the call; it gets arbitrary answers until it returns.
    Cut,
    /// The replay ends; the call gets arbitrary answers, as above.
    Adrift,
}

/// One recorded CPU. It is used by one thread only, because its calls cause all its requests.
pub(crate) struct Lane<'r> {
    index: usize,
    cpu: u16,
    order: &'r Order,
    ahead: RefCell<Ahead<'r>>,
    /// Number of the next event, if that has no stamp.
    number: Cell<u64>,
    call: Cell<Option<Call>>,
    /// Number of that event.
    call_number: Cell<u64>,
    course: Cell<Course>,
    /// Number of successful allocations in the call.
    given: Cell<u64>,
    /// Addresses of the locks that the call holds.
    held: RefCell<Vec<usize>>,
    last_words: RefCell<LastWords>,
    /// CPU time of this thread when the policy had done all that is recorded of a call which the
    /// kernel ended.
    all_done: Cell<Option<Duration>>,
    /// The limit of what it does after that.
    limit: RefCell<Option<Limit>>,
    options: &'r Options,
    /// The handle of the lane's coroutine; NULL if the lane is a thread.
    scope: Cell<*mut Yielder>,
}

impl<'r> Lane<'r> {
    pub fn new(
        index: usize,
        cpu: u16,
        order: &'r Order,
        ahead: Ahead<'r>,
        options: &'r Options,
    ) -> Self {
        Self {
            index,
            cpu,
            order,
            ahead: RefCell::new(ahead),
            number: Cell::new(0),
            call: Cell::new(None),
            call_number: Cell::new(0),
            course: Cell::new(Course::Outside),
            given: Cell::new(0),
            held: RefCell::default(),
            last_words: RefCell::default(),
            all_done: Cell::new(None),
            limit: RefCell::default(),
            options,
            scope: Cell::new(ptr::null_mut()),
        }
    }

    /// Declares that the lane is the coroutine with this handle.
    pub fn is_coroutine(&self, scope: *mut Yielder) {
        self.scope.set(scope);
    }

    /// Makes all calls.
    pub fn run(&self, policy: &Instance) {
        loop {
            let front = self.ahead.borrow().front().copied();
            match front {
                Some(Event::Call(call)) => {
                    if self.turn(Some(call.now)).is_none() {
                        return;
                    }
                    self.make(policy, &call);
                    if self.course.replace(Course::Outside) == Course::Adrift {
                        return;
                    }
                }
                Some(Event::End { .. }) => {
                    if self.turn(None).is_none() {
                        return;
                    }
                    self.done();
                }
                Some(_) => {
                    let what =
                        "an event stands outside a call: this is not how recordings are written"
                            .into();
                    return self.stop(End::Gap {
                        cpu: self.cpu,
                        what,
                    });
                }
                None => return,
            }
        }
    }

    /// The policy has changed the state of a thread.
    pub fn changed(&self, change: Change) {
        let (Some(changed), Some(call)) = (&self.options.changed, self.call.get()) else {
            return;
        };
        // What happens after the recorded part is no more than an attempt to return.
        if self.course.get() == Course::Follows {
            changed(&Changed {
                number: self.call_number.get(),
                now: call.now,
                cpu: self.cpu,
                change,
            });
        }
    }

    fn stop(&self, end: End) {
        let mut state = self.order.state();
        self.order.end(&mut state, end);
    }

    /// Waits for the turn of the next event, which has a stamp. Returns its number, or `None` if
    /// the replay ends.
    fn turn(&self, now: Option<u64>) -> Option<u64> {
        let number = self.order.turn(self.index, now, || {
            // SAFETY: On-stack. It belongs to the coroutine that this code runs on, whose first
            // frame holds it.
            if let Some(scope) = unsafe { self.scope.get().as_mut() } {
                scope.yield_with(());
            }
        });
        match number {
            Some(number) => self.number.set(number),
            None => self.course.set(Course::Adrift),
        }
        number
    }

    /// Marks the next event, which has a stamp, as done.
    fn done(&self) {
        let (stamp, unstamped) = {
            let mut ahead = self.ahead.borrow_mut();
            ahead.fill();
            (ahead.stamp, ahead.unstamped())
        };
        self.number.set(self.number.get() + 1);
        self.look_for_gap();
        self.order.done(self.index, stamp, unstamped);
    }

    /// Ends the replay if events are missing here, because all later events may depend on them.
    fn look_for_gap(&self) {
        let missing = self.ahead.borrow_mut().missing.take();
        if let Some(what) = missing {
            self.stop(End::Gap {
                cpu: self.cpu,
                what,
            });
        }
    }

    fn make(&self, policy: &Instance, call: &Call) {
        if self.options.stop_at == Some(self.number.get()) {
            crate::baton_replay_stop(self.number.get());
        }
        self.call.set(Some(*call));
        self.call_number.set(self.number.get());
        self.course.set(Course::Follows);
        self.given.set(0);
        self.done();
        self.watch();
        let Carried {
            slice,
            nr_kicks,
            kicks,
        } = call.carried;
        let mut ctx = BatonCtx {
            now: call.now,
            cpu: call.cpu,
            flags: call.flags,
            slice,
            nr_kicks,
            kicks,
            ..BatonCtx::default()
        };
        let method = BatonMethod::of(call.method.into());
        let word = |word: u64| Arg::Word(word);
        let (a, b) = match &call.about {
            About::Waking(task, wake) => (Arg::Task(task), Arg::Wake(wake)),
            About::Given(task, token) => (Arg::Task(task), word(*token)),
            About::Task(task) => (Arg::Task(task), word(0)),
            About::Pick(cpu, prev) => (word(*cpu as u64), prev.as_ref().map_or(word(0), Arg::Task)),
            About::Cpu(cpu) => (word(*cpu as u64), word(0)),
            About::Refused(token, why) => (word(*token), word(u64::from(*why))),
            About::Hint(task, hint) => (Arg::Task(task), Arg::Hint(hint)),
        };
        let answer = policy.call(method, &mut ctx, a, b);
        self.end_watch();
        if answer != BATON_ABORTED
            && self.course.get() == Course::Follows
            && !self.held.borrow().is_empty()
        {
            self.fail(
                BatonFaultKind::Deadlock,
                "the call returned with a lock held; was its guard forgotten?",
            );
        }
        if !self.is_over() {
            self.end(call, answer, &ctx);
        }
        self.leave_call();
    }

    /// Releases the locks that the policy keeps beyond its call, or held when it was abandoned.
    fn leave_call(&self) {
        self.end_watch();
        self.all_done.set(None);
        let held = self.held.take();
        held.iter().for_each(|address| self.order.unlock(*address));
        self.call.set(None);
    }

    /// The policy was ended in the midst of a call that the kernel ended, too.
    pub fn was_ended(&self, crash: Crash) {
        self.end_watch();
        match (self.ended_by_kernel(), crash) {
            (Some(kind), Crash::Endless | Crash::StackOverflow) => self.note_end_by_kernel(kind),
            _ => self.diverge(|| Did::Else(format!("fails: {crash}"))),
        }
        self.leave_call();
        self.course.set(Course::Outside);
    }

    /// Compares the end of a call with the recorded one.
    fn end(&self, call: &Call, answer: u64, ctx: &BatonCtx) {
        let carried = Carried::of(ctx);
        let failed = match self.course.get() {
            Course::Failing(kind) => Some(kind),
            _ => (answer == BATON_ABORTED).then_some(BatonFaultKind::Panic),
        };
        if failed == Some(BatonFaultKind::OutOfMemory) {
            self.skip_no_memory();
        }
        let front = self.ahead.borrow().front().copied();
        let did = || match failed {
            None => Did::Answered(Return {
                stamp: 0,
                answer,
                carried,
            }),
            Some(kind) => {
                let LastWords { message, place } = &*self.last_words.borrow();
                let place = place
                    .as_ref()
                    .map_or(String::new(), |place| format!(" at {place}"));
                let (method, kind) = (method_name(call.method), fault_name(kind as u8));
                Did::Else(format!("{method} is abandoned: {kind}{place}: {message}"))
            }
        };
        match (front, failed) {
            (Some(Event::Return(end)), None)
                if (end.answer == answer || !gives(call.method))
                    && is_same(&end.carried, &carried) =>
            {
                if self.turn(None).is_some() {
                    self.done();
                }
            }
            (Some(Event::Abandoned { kind, .. }), Some(found)) if found as u8 == kind => {
                if let Some(number) = self.turn(None) {
                    self.note_fault(call, kind, number);
                    self.done();
                }
            }
            _ => self.diverge(did),
        }
    }

    /// Skips the event that records a failed allocation.
    fn skip_no_memory(&self) {
        let mut ahead = self.ahead.borrow_mut();
        if let Some(Event::NoMemory { .. }) = ahead.front() {
            ahead.pop();
            self.number.set(self.number.get() + 1);
        }
    }

    fn note_fault(&self, call: &Call, kind: u8, number: u64) {
        let LastWords { message, place } = self.last_words.take();
        let fault = Fault {
            number,
            now: call.now,
            cpu: self.cpu,
            method: method_name(call.method),
            task: call.about.task().map(|task| task.pid),
            kind: fault_name(kind),
            message,
            place,
        };
        self.order.state().faults.push(fault);
    }

    /// Handles an action of the policy that is not the next recorded event.
    #[cold]
    fn diverge(&self, did: impl FnOnce() -> Did) {
        if self.ahead.borrow().ends_for_want_of_memory() {
            self.skip_no_memory();
        }
        let front = self.ahead.borrow().front().copied();
        let is_stamped = self.ahead.borrow().is_stamped();
        match front {
            // The replay ends here in any case.
            None => return self.course.set(Course::Adrift),
            Some(Event::End { .. }) => return self.course.set(Course::Cut),
            Some(Event::Abandoned { kind, .. }) if self.was_limited(kind) => return,
            Some(_) => {}
        }
        // Everything before this event must be replayed correctly first.
        if is_stamped && self.turn(None).is_none() {
            return;
        }
        self.course.set(Course::Adrift);
        let call = self.call.get();
        let divergence = Divergence {
            number: self.number.get(),
            call: 0,
            now: call.map_or(0, |call| call.now),
            cpu: self.cpu,
            method: call.map_or("-", |call| method_name(call.method)),
            task: call.and_then(|call| call.about.task().map(|task| task.pid)),
            expected: String::new(),
            got: String::new(),
            did: did(),
            before: Vec::new(),
            cause: Cause::OtherPolicy,
        };
        self.stop(End::Diverged(Box::new(divergence)));
    }

    /// Whether the recorded call was ended because something was exhausted that the kernel grants.
    /// A replay has more of it, so the call goes on to its end, but is not compared any more.
    fn was_limited(&self, kind: u8) -> bool {
        use BatonFaultKind::{EndlessLoop, OutOfMemory, StackOverflow};
        let kinds = [StackOverflow, OutOfMemory, EndlessLoop];
        let kind = kinds.into_iter().find(|limited| *limited as u8 == kind);
        if kind == Some(EndlessLoop) {
            let used = self
                .all_done
                .get()
                .map(|then| cpu_time_here().saturating_sub(then));
            if used.is_none_or(|used| used < BRIEF) {
                return false;
            }
        }
        if let Some(kind) = kind {
            self.note_end_by_kernel(kind);
        }
        kind.is_some()
    }

    /// Notes that the kernel ended the call here.
    fn note_end_by_kernel(&self, kind: BatonFaultKind) {
        if let (Some(number), Some(call)) = (self.turn(None), self.call.get()) {
            let why = match kind {
                BatonFaultKind::StackOverflow => "the call had used up its stack here",
                BatonFaultKind::OutOfMemory => {
                    "the kernel's memory was used up here; in a replay there is more"
                }
                _ => "the call did not end: its loops turned on and on from here",
            };
            self.last_words.borrow_mut().message = why.into();
            self.note_fault(&call, kind as u8, number);
            self.done();
            self.course.set(Course::Cut);
        }
    }

    /// Whether the kernel ended the call as an endless loop or recursion, and has recorded nothing
    /// more of it.
    #[inline]
    fn ended_by_kernel(&self) -> Option<BatonFaultKind> {
        use BatonFaultKind::{EndlessLoop, StackOverflow};
        let ahead = self.ahead.borrow();
        let Some(Event::Abandoned { kind, .. }) = ahead.front() else {
            return None;
        };
        let mut found = [EndlessLoop, StackOverflow].into_iter();
        found.find(|endless| *endless as u8 == *kind)
    }

    /// Ends the call some time later, if the kernel ended it here. In a debugger it goes on, so
    /// that the loop can be seen.
    #[inline]
    fn watch(&self) {
        if self.ended_by_kernel().is_some() {
            self.all_done.set(Some(cpu_time_here()));
            if self.scope.get().is_null() {
                self.limit.replace(Some(Limit::new(PATIENCE)));
                MAY_BE_ENDED.set(true);
            }
        }
    }

    fn end_watch(&self) {
        MAY_BE_ENDED.set(false);
        self.limit.take();
    }

    /// Runs a function of the replay that the policy calls, in which the call is not ended. Some of
    /// them can be called after the last recorded event.
    #[inline(always)]
    pub fn inside<R>(&self, function: impl FnOnce() -> R) -> R {
        MAY_BE_ENDED.set(false);
        let result = function();
        // A call that diverges is not ended any more.
        let is_followed = self.course.get() == Course::Follows;
        MAY_BE_ENDED.set(is_followed && self.limit.borrow().is_some());
        result
    }

    /// The policy asks for something without a stamp. `fits` takes the answer from the recorded
    /// event, if that is the same question.
    #[inline(always)]
    pub fn ask<R>(
        &self,
        otherwise: R,
        fits: impl FnOnce(&Event) -> Option<R>,
        did: impl FnOnce() -> Did,
    ) -> R {
        if self.course.get() != Course::Follows {
            return otherwise;
        }
        let answer = {
            let mut ahead = self.ahead.borrow_mut();
            let answer = ahead.front().and_then(fits);
            if answer.is_some() {
                ahead.pop();
            }
            answer
        };
        let Some(answer) = answer else {
            self.diverge(did);
            return otherwise;
        };
        self.number.set(self.number.get() + 1);
        self.watch();
        answer
    }

    /// The policy allocates memory. Returns whether the recorded allocation succeeded.
    pub fn has_memory(&self) -> bool {
        // The signal may not come while the policy is in the allocator.
        if self.limit.borrow().as_ref().is_some_and(Limit::is_reached) {
            give_up(Crash::Endless);
        }
        if self.course.get() != Course::Follows {
            return true;
        }
        let given = self.given.get();
        let front = self.ahead.borrow().front().copied();
        if front == Some(Event::NoMemory { after: given }) {
            self.skip_no_memory();
            return false;
        }
        self.given.set(given + 1);
        true
    }

    /// Whether the rest of the current call is not compared with the recording.
    fn is_over(&self) -> bool {
        matches!(self.course.get(), Course::Cut | Course::Adrift)
    }

    pub fn is_in_call(&self) -> bool {
        self.course.get() != Course::Outside
    }

    pub fn lock(&self, address: usize) -> bool {
        if self.course.get() != Course::Follows {
            return false;
        }
        let front = self.ahead.borrow().front().copied();
        match front {
            Some(Event::Lock { id, .. }) => self.take(address, id),
            Some(Event::Abandoned { kind, .. }) => {
                let deadlock = [BatonFaultKind::Deadlock, BatonFaultKind::LockTimeout]
                    .into_iter()
                    .find(|k| *k as u8 == kind);
                match deadlock {
                    Some(kind) => self.fail(kind, "the lock was not granted, as recorded"),
                    None => self.diverge(|| self.takes("takes", address)),
                }
                false
            }
            _ => {
                self.diverge(|| self.takes("takes", address));
                false
            }
        }
    }

    /// Abandons the call.
    fn fail(&self, kind: BatonFaultKind, why: &str) {
        *self.last_words.borrow_mut() = LastWords {
            message: why.into(),
            place: None,
        };
        self.course.set(Course::Failing(kind));
    }

    fn takes(&self, how: &str, address: usize) -> Did {
        Did::Else(format!("{how} {}", self.order.name_of_lock(address)))
    }

    fn take(&self, address: usize, id: u64) -> bool {
        if self.turn(None).is_none() {
            return false;
        }
        match self.order.lock(self.index, address, id) {
            Grant::Granted => {
                self.held.borrow_mut().push(address);
                self.done();
                self.watch();
                return true;
            }
            Grant::Ended => self.course.set(Course::Adrift),
            Grant::Other(what) => self.diverge(|| Did::Else(format!("takes {what}"))),
            Grant::Held(by) if by == self.index => {
                self.diverge(|| Did::Else("takes the lock, which this CPU has already".into()))
            }
            Grant::Held(_) => {
                self.diverge(|| {
                    Did::Else("takes the lock, which another CPU does not release before".into())
                });
            }
        }
        false
    }

    pub fn try_lock(&self, address: usize) -> bool {
        if self.course.get() != Course::Follows {
            return self.is_over();
        }
        let front = self.ahead.borrow().front().copied();
        match front {
            Some(Event::Lock { id, .. }) => self.take(address, id),
            Some(Event::Busy { id }) => {
                let other = self.order.is_lock(address, id).err();
                let fits = other.is_none().then_some(false);
                self.ask(
                    false,
                    |_| fits,
                    || Did::Else(format!("tries to take {}", other.unwrap_or_default())),
                )
            }
            _ => {
                self.diverge(|| self.takes("tries to take", address));
                false
            }
        }
    }

    /// Returns false if locks are not released in the reverse order.
    pub fn unlock(&self, address: usize) -> bool {
        let in_order = {
            let mut held = self.held.borrow_mut();
            let at = held.iter().rposition(|other| *other == address);
            let in_order = at.is_some_and(|at| at + 1 == held.len());
            at.map(|at| held.remove(at));
            in_order
        };
        self.order.unlock(address);
        if self.course.get() != Course::Follows || in_order {
            return true;
        }
        self.fail(
            BatonFaultKind::Deadlock,
            "locks must be released in the reverse order of taking them",
        );
        false
    }

    /// Returns false if the drop lost a task, as recorded.
    pub fn dropped(&self, token: u64) -> bool {
        let is_lost = self.ahead.borrow().front() == Some(&Event::Dropped(token));
        if self.course.get() != Course::Follows || !is_lost {
            return true;
        }
        self.ask((), |_| Some(()), || Did::Else(String::new()));
        self.fail(
            BatonFaultKind::LostTask,
            "a Schedulable was dropped: its task would never have run again",
        );
        false
    }

    pub fn panicked(&self, words: LastWords, kind: BatonFaultKind) {
        if self.course.get() == Course::Follows {
            *self.last_words.borrow_mut() = words;
            self.course.set(Course::Failing(kind));
        }
    }
}

/// Whether the method has an answer. For other methods, the kernel records whatever is in a
/// register.
fn gives(method: u8) -> bool {
    use BatonMethod::{Hint, NewlyIdle, PickNextTask, SelectTaskRq, TaskDeparted, TaskDequeued};
    [
        SelectTaskRq,
        PickNextTask,
        NewlyIdle,
        TaskDequeued,
        TaskDeparted,
        Hint,
    ]
    .iter()
    .any(|it| *it as u8 == method)
}

fn is_same(a: &Carried, b: &Carried) -> bool {
    let count = usize::from(a.nr_kicks).min(a.kicks.len());
    (a.slice, a.nr_kicks) == (b.slice, b.nr_kicks) && a.kicks[..count] == b.kicks[..count]
}
