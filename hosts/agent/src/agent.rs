// SPDX-License-Identifier: GPL-2.0-only
//! The connection of a process to an enclave.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{fence, AtomicU32, AtomicUsize};
use std::time::Duration;

use baton_abi::*;
use rustix::io::Errno;
use rustix::ioctl::{self, Opcode};
use rustix::mm::ProtFlags;
use rustix::time::{clock_gettime, ClockId};

use crate::map::Map;
use crate::ring::Ring;

/// A call of the enclave's policy.
pub type Message = BatonMessage;

/// Why a process could not become the agent of an enclave.
#[derive(Debug)]
pub enum AttachError {
    /// The enclave's device cannot be opened.
    Device(PathBuf, io::Error),
    /// The kernel refused, with the reason.
    Refused(Errno, String),
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(path, why) => write!(
                f,
                "{} cannot be opened: {why}; is there an enclave of that name (baton enclave \
                 list), and may this user open it?",
                path.display()
            ),
            Self::Refused(errno, why) if why.is_empty() => {
                write!(f, "the enclave refused the agent: {errno}")
            }
            Self::Refused(_, why) => write!(f, "the enclave refused the agent: {why}"),
        }
    }
}

impl std::error::Error for AttachError {}

/// Why an agent gives up: what the report of the enclave's fault says.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The kind of fault.
    pub kind: BatonFaultKind,
    /// The method of the policy in which it happened.
    pub method: BatonMethod,
    /// Thread id of the task that the call was about; 0 if none.
    pub pid: u32,
    /// Source file and line; empty and 0 if not known.
    pub file: String,
    /// See `file`.
    pub line: u32,
    /// What happened.
    pub message: String,
}

/// A process's place in an enclave, of which it is the agent until this value is dropped.
///
/// Messages are read from one ring for each CPU. A ring has one reader at a time: the caller sees
/// to that. All other functions may be called by several threads at once.
pub struct Agent {
    port: Port,
    layout: BatonAgentAttach,
    status: Map,
    shared: Map,
    topology: Vec<BatonCpu>,
    /// The CPU on which the agent polls; `usize::MAX` if it does not.
    own: AtomicUsize,
}

/// Where the requests of an agent go.
enum Port {
    /// The enclave's device.
    Device(File),
    /// A model of the kernel.
    Model(Box<dyn Requests>),
}

/// What answers the requests of an agent where there is no device: a model of the kernel half, for
/// the simulator and the checker.
pub trait Requests: Send + Sync {
    /// `BATON_AGENT_IOC_KICK`
    fn kick(&self, kick: &mut BatonAgentKick) -> Result<(), Errno>;

    /// `BATON_AGENT_IOC_COMMIT`
    fn commit(&self, commits: &mut BatonAgentCommits) -> Result<(), Errno>;

    /// `BATON_AGENT_IOC_FAIL`. Of kind `None`, the session ends in good order.
    fn fail(&self, failure: &Failure) -> Result<(), Errno>;

    /// `BATON_AGENT_IOC_REPLY`
    fn reply(&self, reply: &mut BatonAgentReply) -> Result<(), Errno>;

    /// The time, ns.
    fn now(&self) -> u64;
}

/// What an agent wants of its enclave.
#[derive(Clone, Copy, Default)]
pub struct Wishes<'a> {
    /// Those of `BATON_EV_*` that it wants messages about.
    pub events: u32,
    /// What `baton list` shows as options.
    pub options: &'a str,
    /// The type of the hints that it takes; without a name it takes none.
    pub hint_type: BatonStateType,
    /// The type of its replies.
    pub reply_type: BatonStateType,
}

/// The memory that a model shares with its agent.
pub struct Shared {
    /// The status mapping.
    pub status: *mut u8,
    /// The shared mapping.
    pub shared: *mut u8,
    /// Where everything is in them.
    pub layout: BatonAgentAttach,
    /// The place of each CPU in the machine.
    pub topology: Vec<BatonCpu>,
}

/// The time of a clock, ns.
pub(crate) fn time(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn field<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [0; N];
    let length = text.len().min(N - 1);
    field[..length].copy_from_slice(&text.as_bytes()[..length]);
    field
}

fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&field[..end.unwrap_or(field.len())]).into_owned()
}

/// `T` must be the structure that belongs to the request.
fn request<const REQUEST: Opcode, T: Copy>(file: &File, value: &mut T) -> Result<(), Errno> {
    // SAFETY: Sized-request. Each number below is paired with its structure, whose size is part of
    // the number. The kernel writes no more than that, and the array of commits, which the caller
    // borrows mutably. Every bit pattern is a value of these structures of integers.
    unsafe { ioctl::ioctl(file, ioctl::Updater::<REQUEST, T>::new(value)) }
}

/// The device of an enclave.
pub fn device_of(enclave: &str) -> PathBuf {
    Path::new("/dev").join(format!("baton-enclave-{enclave}"))
}

impl Agent {
    /// Makes this process the agent of an enclave, which begins to schedule its tasks.
    pub fn attach(enclave: &str, wishes: &Wishes<'_>) -> Result<Self, AttachError> {
        let path = device_of(enclave);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|why| AttachError::Device(path, why))?;
        let mut layout = BatonAgentAttach {
            abi: BATON_ABI,
            events: wishes.events,
            nr_cpus: 0,
            nr_slots: 0,
            entries: 0,
            reserved: 0,
            cpus: 0,
            tasks: 0,
            masks: 0,
            rings: 0,
            status_size: 0,
            standby: 0,
            shared_size: 0,
            options: field(wishes.options),
            hint_type: wishes.hint_type,
            reply_type: wishes.reply_type,
            message: [0; BATON_MESSAGE_LEN],
        };
        let refused = |errno| AttachError::Refused(errno, String::new());
        request::<BATON_AGENT_IOC_ATTACH, _>(&file, &mut layout)
            .map_err(|errno| AttachError::Refused(errno, text(&layout.message)))?;
        let status = Map::new(&file, 0, layout.status_size, ProtFlags::READ).map_err(refused)?;
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let shared =
            Map::new(&file, BATON_AGENT_SHARED, layout.shared_size, both).map_err(refused)?;
        let topology = (0..layout.nr_cpus).map(|cpu| {
            let mut topology = BatonAgentTopology {
                cpu,
                ..Default::default()
            };
            request::<BATON_AGENT_IOC_TOPOLOGY, _>(&file, &mut topology).map(|()| topology.place)
        });
        let topology = topology.collect::<Result<_, _>>().map_err(refused)?;
        Ok(Self {
            port: Port::Device(file),
            layout,
            status,
            shared,
            topology,
            own: AtomicUsize::new(usize::MAX),
        })
    }

    /// The agent of an enclave whose kernel half is a model.
    ///
    /// # Safety
    /// Shared-memory: both mappings have the sizes and the contents that the layout says, and they
    /// live as long as the result.
    pub unsafe fn of_model(shared: Shared, requests: Box<dyn Requests>) -> Self {
        let layout = shared.layout;
        Self {
            port: Port::Model(requests),
            // SAFETY: Shared-memory. As the caller promises.
            status: unsafe { Map::of(shared.status, layout.status_size) },
            // SAFETY: Shared-memory. As the caller promises.
            shared: unsafe { Map::of(shared.shared, layout.shared_size) },
            layout,
            topology: shared.topology,
            own: AtomicUsize::new(usize::MAX),
        }
    }

    /// The time, ns: that of the monotonic clock, or of the model.
    pub fn now(&self) -> u64 {
        match &self.port {
            Port::Device(_) => time(ClockId::Monotonic),
            Port::Model(model) => model.now(),
        }
    }

    /// The place of each CPU in the machine. CPUs of other partitions count as offline.
    pub fn topology(&self) -> &[BatonCpu] {
        &self.topology
    }

    /// Number of CPUs of the machine.
    #[inline]
    pub fn nr_cpus(&self) -> usize {
        self.layout.nr_cpus as usize
    }

    /// Number of task slots.
    #[inline]
    pub fn nr_slots(&self) -> u32 {
        self.layout.nr_slots
    }

    #[inline]
    fn cpu_word(&self, cpu: usize, field: usize) -> &AtomicU32 {
        let at = cpu * size_of::<BatonAgentCpu>() + field;
        self.status.word(self.layout.cpus + at as u64)
    }

    #[inline]
    fn transaction_word(&self, cpu: usize, field: usize) -> &AtomicU32 {
        let at = cpu * size_of::<BatonTransaction>() + field;
        self.shared.word(at as u64)
    }

    /// Messages lost so far, as a ring was full.
    pub fn lost(&self) -> u64 {
        let at = offset_of!(BatonAgentHead, lost) as u64;
        self.status.read::<u64>(at, 0)
    }

    /// Does the enclave still ask this agent?
    pub fn has_ended(&self) -> bool {
        let ended = self.status.word(offset_of!(BatonAgentHead, ended) as u64);
        ended.load(Relaxed) != 0
    }

    /// Is there a message in the ring of a CPU?
    #[inline]
    pub fn has_message(&self, cpu: usize) -> bool {
        let posted = self.cpu_word(cpu, offset_of!(BatonAgentCpu, posted));
        let read = self.transaction_word(cpu, offset_of!(BatonTransaction, read));
        posted.load(Acquire) != read.load(Relaxed)
    }

    /// The ring of a CPU.
    #[inline]
    pub fn ring(&self, cpu: usize) -> Ring<'_> {
        let posted = self.cpu_word(cpu, offset_of!(BatonAgentCpu, posted));
        let read = self.transaction_word(cpu, offset_of!(BatonTransaction, read));
        let entries = self.layout.entries as usize;
        let entries = self.status.array(self.layout.rings, cpu, entries);
        Ring::new(entries, read, posted.load(Acquire))
    }

    /// Removes all messages from the ring of a CPU.
    pub fn skip(&self, cpu: usize) {
        let posted = self.cpu_word(cpu, offset_of!(BatonAgentCpu, posted));
        let read = self.transaction_word(cpu, offset_of!(BatonTransaction, read));
        read.store(posted.load(Acquire), Release);
    }

    /// Does the CPU wait for a task: its last pick found none, and no transaction is waiting?
    #[inline]
    pub fn is_idle(&self, cpu: usize) -> bool {
        // In this order: a CPU that has taken a transaction wants nothing before that is done.
        !self.is_pending(cpu) && self.wants(cpu)
    }

    /// Has the last pick on this CPU found nothing to run?
    #[inline]
    pub fn wants(&self, cpu: usize) -> bool {
        self.cpu_word(cpu, offset_of!(BatonAgentCpu, wants))
            .load(Relaxed)
            != 0
    }

    /// From now on the agent polls on this CPU, which gets no tasks.
    pub fn poll_on(&self, cpu: usize) {
        self.own.store(cpu, Relaxed);
    }

    /// The CPU on which the agent polls, if it does.
    pub fn polls_on(&self) -> Option<usize> {
        Some(self.own.load(Relaxed)).filter(|own| *own != usize::MAX)
    }

    /// Can the enclave's tasks run on this CPU? It is online, the enclave is asked there, and the
    /// agent does not poll there.
    #[inline]
    pub fn is_online(&self, cpu: usize) -> bool {
        self.is_of_enclave(cpu) && cpu != self.own.load(Relaxed)
    }

    /// Is the CPU online, and is the enclave asked there?
    #[inline]
    pub fn is_of_enclave(&self, cpu: usize) -> bool {
        self.cpu_word(cpu, offset_of!(BatonAgentCpu, online))
            .load(Relaxed)
            != 0
    }

    /// The task of the enclave that was picked on this CPU last, unless the CPU found none since.
    pub fn running(&self, cpu: usize) -> Option<BatonTask> {
        let running = self.cpu_word(cpu, offset_of!(BatonAgentCpu, running));
        let slot = running.load(Relaxed).checked_sub(1)?;
        if self.runs_agent(cpu) {
            return None;
        }
        let word = self.task(slot);
        Some(BatonTask {
            slot,
            pid: word.pid,
            cpu: cpu as i32,
            nice: word.nice,
            runtime: word.runtime,
        })
    }

    /// Did this CPU pick a task of the enclave last, other than its own agent?
    #[inline]
    pub fn runs_task(&self, cpu: usize) -> bool {
        let running = self.cpu_word(cpu, offset_of!(BatonAgentCpu, running));
        running.load(Relaxed) != 0 && !self.runs_agent(cpu)
    }

    /// Did this CPU pick its own agent last?
    #[inline]
    pub fn runs_agent(&self, cpu: usize) -> bool {
        let agent = self.cpu_word(cpu, offset_of!(BatonAgentCpu, agent));
        let running = self.cpu_word(cpu, offset_of!(BatonAgentCpu, running));
        let agent = agent.load(Relaxed);
        agent != 0 && running.load(Relaxed) == agent
    }

    /// The status word of the task in a slot.
    #[inline]
    pub fn task(&self, slot: u32) -> BatonAgentTask {
        self.status.read(self.layout.tasks, slot as usize)
    }

    /// Is the token of a message the task's newest, and not taken by a CPU? A refusal has no
    /// number: it can be read after messages that are newer.
    pub fn has_token(&self, message: &Message) -> bool {
        self.task(message.slot).token == message.token
    }

    /// The number of the last message about the task in a slot.
    pub fn sequence(&self, slot: u32) -> u32 {
        let at = slot as usize * size_of::<BatonAgentTask>() + offset_of!(BatonAgentTask, sequence);
        self.status
            .word(self.layout.tasks + at as u64)
            .load(Acquire)
    }

    /// May the task in this slot use that CPU?
    #[inline]
    pub fn may_run(&self, slot: u32, cpu: usize) -> bool {
        cpu != self.own.load(Relaxed) && self.could_run(slot, cpu)
    }

    /// The same, also on the CPU on which the agent polls.
    #[inline]
    pub(crate) fn could_run(&self, slot: u32, cpu: usize) -> bool {
        if cpu >= self.nr_cpus() || slot >= self.nr_slots() {
            return false;
        }
        let words = self.nr_cpus().div_ceil(64);
        let mask: u64 = self
            .status
            .read(self.layout.masks, slot as usize * words + cpu / 64);
        mask & 1 << (cpu % 64) != 0 && self.is_of_enclave(cpu)
    }

    /// Is a transaction of this CPU waiting to be taken?
    #[inline]
    pub fn is_pending(&self, cpu: usize) -> bool {
        let state = self.transaction_word(cpu, offset_of!(BatonTransaction, state));
        let state = state.load(Acquire);
        state == BatonTransactionState::Ready as u32
            || state == BatonTransactionState::Claimed as u32
    }

    /// Has CPU `cpu` run the task of this token next, for `slice` ns (0 for the default). The CPU
    /// sees it when it next looks for a task; [`Agent::kick`] makes it do so. False if a
    /// transaction of that CPU is still waiting.
    #[inline]
    pub fn commit(&self, cpu: usize, token: BatonToken, slice: u64) -> bool {
        if self.is_pending(cpu) {
            return false;
        }
        let state = self.transaction_word(cpu, offset_of!(BatonTransaction, state));
        let at = (cpu * size_of::<BatonTransaction>()) as u64;
        let token_at = at + offset_of!(BatonTransaction, token) as u64;
        self.shared.write(token_at, 0, token);
        let slice_at = at + offset_of!(BatonTransaction, slice) as u64;
        self.shared.write(slice_at, 0, slice);
        state.store(BatonTransactionState::Ready as u32, Release);
        // A CPU that found nothing before this has set `wants`, which the caller reads next.
        fence(SeqCst);
        true
    }

    /// Takes a waiting transaction back, and returns its token. `None` if a CPU was first, or if
    /// there is none.
    pub fn withdraw(&self, cpu: usize) -> Option<BatonToken> {
        let state = self.transaction_word(cpu, offset_of!(BatonTransaction, state));
        let (ready, empty) = (
            BatonTransactionState::Ready as u32,
            BatonTransactionState::Empty as u32,
        );
        state.compare_exchange(ready, empty, AcqRel, Relaxed).ok()?;
        Some(self.shared.read::<BatonTransaction>(0, cpu).token)
    }

    /// The token of a transaction that its CPU is taking just now.
    pub(crate) fn claimed(&self, cpu: usize) -> Option<BatonToken> {
        let state = self.transaction_word(cpu, offset_of!(BatonTransaction, state));
        let is_claimed = state.load(Acquire) == BatonTransactionState::Claimed as u32;
        is_claimed.then(|| self.shared.read::<BatonTransaction>(0, cpu).token)
    }

    /// The tokens in the standby ring that no CPU has taken.
    pub(crate) fn standing_by(&self) -> impl Iterator<Item = BatonToken> + '_ {
        let taken = offset_of!(BatonAgentHead, standby_taken) as u64;
        let taken = self.status.word(taken).load(Acquire);
        let offered = self.shared.word(self.layout.standby).load(Relaxed);
        let tokens = self.layout.standby + size_of::<BatonStandby>() as u64;
        let count = offered.wrapping_sub(taken).min(BATON_AGENT_STANDBY);
        (0..count).map(move |at| {
            let at = taken.wrapping_add(at) % BATON_AGENT_STANDBY;
            self.shared.read(tokens, at as usize)
        })
    }

    /// Is there room in the standby ring?
    pub fn can_offer(&self) -> bool {
        let taken = offset_of!(BatonAgentHead, standby_taken) as u64;
        let taken = self.status.word(taken).load(Acquire);
        let offered = self.shared.word(self.layout.standby);
        offered.load(Relaxed).wrapping_sub(taken) < BATON_AGENT_STANDBY
    }

    /// Has a CPU taken this offer from the standby ring? [`Agent::offer`] returned its number.
    pub fn is_taken(&self, offer: u32) -> bool {
        let taken = offset_of!(BatonAgentHead, standby_taken) as u64;
        let taken = self.status.word(taken).load(Acquire);
        taken.wrapping_sub(offer.wrapping_add(1)) as i32 >= 0
    }

    /// Offers a token to whichever CPU finds nothing else. Returns the number of the offer, or
    /// `None` if the standby ring is full. One thread at a time offers.
    pub fn offer(&self, token: BatonToken) -> Option<u32> {
        if !self.can_offer() {
            return None;
        }
        let offered = self.shared.word(self.layout.standby);
        let at = offered.load(Relaxed);
        let tokens = self.layout.standby + size_of::<BatonStandby>() as u64;
        self.shared
            .write(tokens, (at % BATON_AGENT_STANDBY) as usize, token);
        offered.store(at.wrapping_add(1), Release);
        fence(SeqCst);
        Some(at)
    }

    /// Makes CPUs look at their transactions: CPU numbers, with `BATON_KICK_PREEMPT` if the task
    /// that runs is to be preempted, or with `BATON_AGENT_KICK_AGENT` if the CPU's agent is to run.
    /// `INVAL` if a CPU is not the enclave's; all others are kicked.
    pub fn kick(&self, cpus: &[u16]) -> Result<(), Errno> {
        let kick = |part: &[u16]| {
            let mut kick = BatonAgentKick {
                count: part.len() as u32,
                reserved: 0,
                cpus: [0; BATON_AGENT_CPUS_AT_ONCE],
            };
            kick.cpus[..part.len()].copy_from_slice(part);
            match &self.port {
                Port::Device(file) => request::<BATON_AGENT_IOC_KICK, _>(file, &mut kick),
                Port::Model(model) => model.kick(&mut kick),
            }
        };
        let parts = cpus.chunks(BATON_AGENT_CPUS_AT_ONCE);
        parts.map(kick).fold(Ok(()), Result::and)
    }

    /// Has several CPUs run tasks, by one call for each [`BATON_AGENT_CPUS_AT_ONCE`] of them. Each
    /// commit's `outcome` says whether it was accepted. A CPU checks its transaction again when it
    /// takes it.
    pub fn commit_all(&self, commits: &mut [BatonAgentCommit]) -> Result<(), Errno> {
        commits
            .chunks_mut(BATON_AGENT_CPUS_AT_ONCE)
            .try_for_each(|part| self.request_commits(part, 0).map(drop))
    }

    /// Has several CPUs run tasks together, or none of them: [`BATON_AGENT_TOGETHER`]. True if all
    /// were accepted; else each commit's `outcome` says why not.
    pub fn commit_together(&self, commits: &mut [BatonAgentCommit]) -> Result<bool, Errno> {
        let count = commits.len();
        let accepted = self.request_commits(commits, BATON_AGENT_TOGETHER)?;
        Ok(accepted as usize == count)
    }

    fn request_commits(&self, commits: &mut [BatonAgentCommit], flags: u32) -> Result<u32, Errno> {
        let mut ask = BatonAgentCommits {
            count: commits.len() as u32,
            flags,
            commits: commits.as_mut_ptr() as u64,
            accepted: 0,
            reserved: 0,
        };
        if commits.is_empty() {
            return Ok(0);
        }
        match &self.port {
            Port::Device(file) => request::<BATON_AGENT_IOC_COMMIT, _>(file, &mut ask)?,
            Port::Model(model) => model.commit(&mut ask)?,
        }
        Ok(ask.accepted)
    }

    /// The device. `OPNOTSUPP` for a model, where no thread is the agent of a CPU.
    fn device(&self) -> Result<&File, Errno> {
        match &self.port {
            Port::Device(file) => Ok(file),
            Port::Model(_) => Err(Errno::OPNOTSUPP),
        }
    }

    /// Makes this thread the agent of the CPU to which it is bound. `NXIO` if the CPU is offline,
    /// `AGAIN` if it is about to be, `XDEV` if the thread is not bound to it, and `BUSY` if it has
    /// an agent.
    pub fn serve(&self, cpu: usize) -> Result<(), Errno> {
        let mut serve = BatonAgentServe {
            cpu: cpu as u32,
            reserved: 0,
        };
        request::<BATON_AGENT_IOC_SERVE, _>(self.device()?, &mut serve)
    }

    /// Ends [`Agent::serve`], for a CPU that went offline or is no longer the enclave's. `SRCH` if
    /// this thread is the agent of no CPU.
    pub fn leave(&self) -> Result<(), Errno> {
        let file = self.device()?;
        // SAFETY: Sized-request. The request has no argument.
        unsafe { ioctl::ioctl(file, ioctl::NoArg::<BATON_AGENT_IOC_LEAVE>::new()) }
    }

    /// For the agent of a CPU: gives way until there are messages for the CPU, or for that long.
    /// `SHUTDOWN` when the enclave no longer asks this agent.
    #[inline]
    pub fn wait(&self, longest: Option<Duration>) -> Result<(), Errno> {
        let file = self.device()?;
        let after = longest.map_or(0, |time| time.as_nanos().max(1) as usize);
        // SAFETY: Sized-request. The request has a number for its argument, and no structure.
        unsafe {
            let wait = ioctl::IntegerSetter::<BATON_AGENT_IOC_WAIT>::new_usize(after);
            ioctl::ioctl(file, wait)
        }
    }

    /// Replies to the hints of the task in a slot. An error means that the session has ended.
    pub fn reply(&self, slot: u32, reply: &BatonHint) -> Result<BatonReplyAnswer, Errno> {
        let mut ask = BatonAgentReply {
            slot,
            answer: 0,
            reply: *reply,
        };
        match &self.port {
            Port::Device(file) => request::<BATON_AGENT_IOC_REPLY, _>(file, &mut ask)?,
            Port::Model(model) => model.reply(&mut ask)?,
        }
        let known = [BatonReplyAnswer::Sent, BatonReplyAnswer::Full];
        let answer = known.into_iter().find(|known| *known as u32 == ask.answer);
        Ok(answer.unwrap_or(BatonReplyAnswer::NoQueue))
    }

    /// Ends the session in good order: the policy stops without a fault.
    pub fn end(&self) -> Result<(), Errno> {
        self.fail(&Failure {
            kind: BatonFaultKind::None,
            method: BatonMethod::None,
            pid: 0,
            file: String::new(),
            line: 0,
            message: String::new(),
        })
    }

    /// Ends the session with a fault of the policy, which `baton status` shows.
    pub fn fail(&self, failure: &Failure) -> Result<(), Errno> {
        let file = match &self.port {
            Port::Device(file) => file,
            Port::Model(model) => return model.fail(failure),
        };
        let mut fail = BatonAgentFail {
            kind: failure.kind as u32,
            method: failure.method as u32,
            pid: failure.pid,
            line: failure.line,
            file: field(&failure.file),
            message: field(&failure.message),
        };
        request::<BATON_AGENT_IOC_FAIL, _>(file, &mut fail)
    }
}
