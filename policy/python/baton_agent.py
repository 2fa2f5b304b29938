# SPDX-License-Identifier: GPL-2.0-only
"""For schedulers in Python: the agent of an enclave. See docs/agents.md.

    class Fifo(Agent):
        def ready(self, task, why): ...
        def pick(self, cpu): ...

    Fifo("mine").run(cpu=0)

The agent polls for messages on a CPU of its own, and decides for all others. Stores of Python are
not ordered for other processors than x86's, so this is for x86-64 only, as Baton is.
"""

import ctypes
import errno
import mmap
import os
import struct

import baton_abi as abi

_NO_SLOT = 0xFFFFFFFF
_libc = ctypes.CDLL(None, use_errno=True)
_word = struct.Struct("<I")
_token = struct.Struct("<Q")

# Methods whose messages hand a task over.
READY = {
    abi.METHOD_TASK_NEW: "new",
    abi.METHOD_TASK_WAKEUP: "wakeup",
    abi.METHOD_TASK_PREEMPT: "preempt",
    abi.METHOD_TASK_YIELD: "yield",
    abi.METHOD_TASK_RESTORED: "restored",
    abi.METHOD_PICK_REFUSED: "refused",
}
# Methods whose messages take it back.
GONE = {
    abi.METHOD_TASK_BLOCKED: "blocked",
    abi.METHOD_TASK_DEQUEUED: "dequeued",
    abi.METHOD_TASK_DEPARTED: "departed",
    abi.METHOD_TASK_DEAD: "dead",
}
CHANGED = {
    abi.METHOD_TASK_AFFINITY_CHANGED: "affinity",
    abi.METHOD_TASK_PRIO_CHANGED: "priority",
}


class Task:
    """A task as of a message. `slice` is how long it may run, ns; 0 for the default."""

    __slots__ = ("slot", "pid", "token", "cpu", "nice", "runtime", "waker", "slice")

    def __init__(self, slot, pid, token, cpu, nice, runtime, waker=-1):
        self.slot, self.pid, self.token, self.cpu = slot, pid, token, cpu
        self.nice, self.runtime, self.waker, self.slice = nice, runtime, waker, 0

    def __repr__(self):
        return f"Task(pid={self.pid}, cpu={self.cpu})"


class Agent:
    """The agent of an enclave. A scheduler overrides `ready` and `pick`, and others as needed."""

    # Name and version of the hints that `hint` takes, and of the replies. Applications may have
    # any layout of that version.
    hints = replies = ("", 0)

    def __init__(self, enclave, events=0):
        """Attaches to the enclave. `events`: of abi.EV_*, for example EV_TICK."""
        path = f"/dev/baton-enclave-{enclave}"
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            why = f"it cannot be opened: {error.strerror}; is it there (baton enclave list)?"
            raise OSError(error.errno, why, path) from None
        ask = abi.AgentAttach(abi=abi.ABI, events=events)
        for kind, (name, version) in ((ask.hint_type, self.hints), (ask.reply_type, self.replies)):
            kind.name, kind.version = name.encode(), version
        failed = self._request(abi.AGENT_IOC_ATTACH, ask)
        if failed:
            os.close(self._fd)
            raise OSError(failed, ask.message.decode() or os.strerror(failed), path)
        self._layout = ask
        self._status = mmap.mmap(self._fd, ask.status_size, mmap.MAP_SHARED, mmap.PROT_READ)
        self._shared = mmap.mmap(self._fd, ask.shared_size, offset=abi.AGENT_SHARED)
        self.nr_cpus, self.nr_slots = ask.nr_cpus, ask.nr_slots
        self._own = None
        self._lost = 0
        self._seen = [0] * self.nr_slots
        # By slot: a token that was found in a status word, and whose message has yet to come.
        self._found = {}

    # What a scheduler overrides.

    def ready(self, task, why):
        """The task waits for a CPU. `why`: of READY, or "found" after messages were lost."""
        raise NotImplementedError

    def pick(self, cpu):
        """The task that this CPU is to run, which has nothing to run; None if there is none."""
        raise NotImplementedError

    def gone(self, task, why):
        """The task sleeps, or its token is no longer valid. `why`: of GONE."""

    def changed(self, task, why):
        """The task has another affinity or priority. `why`: of CHANGED."""

    def tick(self, task):
        """The tick of the task's CPU, if the agent attached with EV_TICK."""

    def slice_ended(self, task):
        """The task's slice has ended, and others wait. Runs what `pick` returns in its place."""
        return self.pick(task.cpu)

    def cpu_changed(self, cpu, is_online):
        """A CPU has come to the enclave, or has left it."""

    def hint(self, task, hint):
        """The task sent a hint: tag, thread (a slot plus one, or 0) and words."""

    def reset(self):
        """Messages were lost. Forget all tasks: `ready` follows for those that wait."""

    # What a scheduler asks.

    def cpus(self):
        """The CPUs that the agent schedules."""
        return [cpu for cpu in range(self.nr_cpus) if cpu != self._own and self.is_online(cpu)]

    def is_online(self, cpu):
        """Is the CPU online, and does it belong to the enclave?"""
        return self._cpu_word(cpu, abi.AgentCpu.online) != 0

    def is_idle(self, cpu):
        """Has the CPU found nothing to run, and no transaction of it is waiting?"""
        state = self._transaction_word(cpu, abi.Transaction.state)
        waits = state in (abi.TRANSACTION_STATE_READY, abi.TRANSACTION_STATE_CLAIMED)
        return self._cpu_word(cpu, abi.AgentCpu.wants) != 0 and not waits

    def may_run(self, task, cpu):
        """May the task use this CPU?"""
        words = (self.nr_cpus + 63) // 64
        at = self._layout.masks + 8 * (task.slot * words + cpu // 64)
        return _token.unpack_from(self._status, at)[0] >> cpu % 64 & 1 and self.is_online(cpu)

    def topology(self, cpu):
        """The CPU's place in the machine: core, llc and node."""
        ask = abi.AgentTopology(cpu=cpu)
        self._check(self._request(abi.AGENT_IOC_TOPOLOGY, ask))
        return ask.place

    @property
    def lost(self):
        """Messages that found no room."""
        return _token.unpack_from(self._status, abi.AgentHead.lost.offset)[0]

    @property
    def ended(self):
        """Does the enclave no longer ask this agent?"""
        return _word.unpack_from(self._status, abi.AgentHead.ended.offset)[0] != 0

    def reply(self, task, tag, *words):
        """Replies to the task's hints. False if it has no queue, or no room in it."""
        ask = abi.AgentReply(slot=task.slot)
        ask.reply.tag = tag
        ask.reply.words[: len(words)] = words
        failed = self._request(abi.AGENT_IOC_REPLY, ask)
        return not failed and ask.answer == abi.REPLY_ANSWER_SENT

    # The loop.

    def run(self, cpu):
        """Schedules until the enclave ends that. Polls on this CPU, which gets no tasks."""
        os.sched_setaffinity(0, {cpu})
        self._own = cpu
        while not self.ended:
            if self.lost != self._lost:
                self._resync()
            preempting = [pair for ring in range(self.nr_cpus) for pair in self._read(ring)]
            waiting = [(idle, self.pick(idle)) for idle in self.cpus() if self.is_idle(idle)]
            orders = [(at, task, False) for at, task in waiting if task]
            self.commit(orders + [(at, task, True) for at, task in preempting])

    def commit(self, orders):
        """Has CPUs run tasks: (cpu, task, whether the task that runs there is preempted)."""
        for part in range(0, len(orders), abi.AGENT_CPUS_AT_ONCE):
            self._commit(orders[part : part + abi.AGENT_CPUS_AT_ONCE])

    def close(self):
        """Ends in good order. The enclave's tasks go on without this agent."""
        self._request(abi.AGENT_IOC_FAIL, abi.AgentFail(kind=abi.FAULT_KIND_NONE))

    def _commit(self, orders):
        commits = (abi.AgentCommit * len(orders))()
        for commit, (cpu, task, preempt) in zip(commits, orders):
            commit.token, commit.slice = task.token, task.slice
            commit.cpu = cpu | (abi.KICK_PREEMPT if preempt else 0)
        ask = abi.AgentCommits(count=len(orders), commits=ctypes.addressof(commits))
        failed = self._request(abi.AGENT_IOC_COMMIT, ask)
        if failed == errno.ESHUTDOWN:
            return
        self._check(failed)
        for commit, (cpu, task, _) in zip(commits, orders):
            # The messages of the task say what became of a stale token.
            if commit.outcome not in (
                abi.COMMIT_COMPLETE,
                abi.COMMIT_STALE,
                abi.COMMIT_NOT_FOUND,
            ):
                self.ready(task, "refused")

    def _resync(self):
        self._lost = self.lost
        for cpu in range(self.nr_cpus):
            self._set_read(cpu, self._cpu_word(cpu, abi.AgentCpu.posted))
        self.reset()
        self._found.clear()
        for slot in range(self.nr_slots):
            # The number first: the token is then not older.
            self._seen[slot] = self._task_word(slot).sequence
            word = self._task_word(slot)
            is_ours = word.flags & (abi.AGENT_TASK_MEMBER | abi.AGENT_TASK_AGENT)
            if is_ours == abi.AGENT_TASK_MEMBER and word.token:
                self._found[slot] = word.token
                task = Task(slot, word.pid, word.token, word.cpu, word.nice, word.runtime)
                self.ready(task, "found")

    def _read(self, cpu):
        """Answers the messages of a ring. Yields CPUs on which other tasks are to run."""
        read = self._transaction_word(cpu, abi.Transaction.read)
        # What comes meanwhile is read after the other rings.
        end = self._cpu_word(cpu, abi.AgentCpu.posted)
        while read != end:
            index = cpu * self._layout.entries + read % self._layout.entries
            at = self._layout.rings + index * ctypes.sizeof(abi.Message)
            message = abi.Message.from_buffer_copy(self._status, at)
            if message.method == abi.METHOD_HINT:
                if not self._of_hint(cpu, read + 1, message):
                    return  # a message before it is in another ring
                read += 1
            elif message.sequence:
                ahead = message.sequence - self._seen[message.slot] & 0xFFFFFFFF
                if 1 < ahead < 0x80000000:
                    return  # a message before it is in another ring
                if ahead == 1:
                    self._seen[message.slot] = message.sequence
                    self._of_task(message)
            else:
                yield from self._of_cpu(message)
            read = read + 1 & 0xFFFFFFFF
            self._set_read(cpu, read)

    @staticmethod
    def _task(message):
        return Task(
            message.slot,
            message.pid,
            message.token,
            message.cpu,
            message.nice,
            message.runtime,
            message.waker,
        )

    def _of_task(self, message):
        task, method = self._task(message), message.method
        found = self._found.pop(message.slot, None)
        if method in READY:
            if found != message.token:
                self.ready(task, READY[method])
        elif method in GONE:
            self.gone(task, GONE[method])
        elif method in CHANGED:
            self.changed(task, CHANGED[method])
        elif method == abi.METHOD_TASK_TICK:
            self.tick(task)

    def _of_hint(self, cpu, number, message):
        index = cpu * self._layout.entries + number % self._layout.entries
        at = self._layout.rings + index * ctypes.sizeof(abi.Message)
        hint = abi.Hint.from_buffer_copy(self._status, at)
        follows = [(message.slot, message.after), (hint.thread - 1, message.after_named)]
        for slot, number in follows:
            if 0 <= slot < self.nr_slots and self._seen[slot] - number & 0x80000000:
                return False
        # Else a task has died, and its slot may be another's.
        tasks = [(message.slot, message.pid), (hint.thread - 1, message.named_pid)]
        if all(
            not 0 <= slot < self.nr_slots or self._task_word(slot).pid == pid
            for slot, pid in tasks
        ):
            self.hint(self._task(message), hint)
        return True

    def _of_cpu(self, message):
        method = message.method
        if method == abi.METHOD_PICK_REFUSED:
            # It has no number, and can be read after messages that are newer.
            if self._task_word(message.slot).token == message.token:
                self.ready(self._task(message), READY[method])
        elif method == abi.METHOD_PICK_NEXT_TASK and message.slot != _NO_SLOT:
            task = self._task(message)
            other = self.slice_ended(task)
            if other:
                yield task.cpu, other
        elif method in (abi.METHOD_CPU_ONLINE, abi.METHOD_CPU_OFFLINE):
            self.cpu_changed(message.cpu, method == abi.METHOD_CPU_ONLINE)

    # The memory that is shared with the kernel.

    def _request(self, number, ask):
        # Not fcntl.ioctl, which discards what the kernel returns with a refusal.
        failed = _libc.ioctl(self._fd, ctypes.c_ulong(number), ctypes.byref(ask))
        return ctypes.get_errno() if failed else 0

    @staticmethod
    def _check(failed):
        if failed:
            raise OSError(failed, os.strerror(failed))

    def _cpu_word(self, cpu, field):
        at = self._layout.cpus + cpu * ctypes.sizeof(abi.AgentCpu) + field.offset
        return _word.unpack_from(self._status, at)[0]

    def _task_word(self, slot):
        at = self._layout.tasks + slot * ctypes.sizeof(abi.AgentTask)
        return abi.AgentTask.from_buffer_copy(self._status, at)

    def _transaction_word(self, cpu, field):
        at = cpu * ctypes.sizeof(abi.Transaction) + field.offset
        return _word.unpack_from(self._shared, at)[0]

    def _set_read(self, cpu, read):
        at = cpu * ctypes.sizeof(abi.Transaction) + abi.Transaction.read.offset
        _word.pack_into(self._shared, at, read)
