# SPDX-License-Identifier: GPL-2.0-only
"""For scripts: gives hints to the scheduling policy that runs them, and reads its replies.

See docs/hints.md.

    with Queue("echo", ("Hint", 1), ("Reply", 1)) as queue:
        queue.send(1, 7, 1)
        tag, words = queue.wait(1.0)

A queue is its thread's own. Sending and receiving make no system call. Stores of Python are not
ordered for other processors than x86's, so this is for x86-64 only, as Baton is.
"""

import ctypes
import errno
import mmap
import os
import select

import baton_abi as abi

PATH = "/dev/baton-hints"
ENDS = ("open", "unloaded", "replaced", "fault", "revoked", "gone")
ANSWERS = ("taken", "malformed", "thread", "not a member", "stopped")


def _name(text):
    name = text.encode()
    if len(name) > 31:
        raise ValueError(
            f"names of policies and types have at most 31 letters, not as {text!r}: "
            "check it (baton status)"
        )
    return name


def _device():
    try:
        return os.open(PATH, os.O_RDWR | os.O_CLOEXEC)
    except PermissionError as error:
        why = "it cannot be opened: no grant permits that (baton hints grant)"
        raise OSError(error.errno, why, PATH) from None
    except OSError as error:
        why = f"it cannot be opened: {error.strerror}; is a policy loaded (baton load)?"
        raise OSError(error.errno, why, PATH) from None


_libc = ctypes.CDLL(None, use_errno=True)


def _request(fd, number, ask):
    # Not fcntl.ioctl, which discards the message that the kernel returns with a refusal.
    return ctypes.get_errno() if _libc.ioctl(fd, ctypes.c_ulong(number), ctypes.byref(ask)) else 0


class Full(Exception):
    """The policy has yet to read what was sent before."""


class Closed(Exception):
    """The queue is closed; the argument, of ENDS, says why."""


class Queue:
    """The calling thread's queue to a policy.

    Types are a name and a version; `entries` is a power of two from 16 on.
    """

    def __init__(self, policy, hint, reply, entries=16):
        ask = abi.HintsOpen(
            _name(policy),
            abi.StateType(_name(hint[0]), hint[1]),
            abi.StateType(_name(reply[0]), reply[1]),
            entries,
        )
        self._fd = _device()
        try:
            failed = _request(self._fd, abi.HINTS_IOC_OPEN, ask)
            if failed:
                raise OSError(failed, ask.message.decode() or os.strerror(failed), PATH)
            self._map = mmap.mmap(self._fd, ask.size)
        except OSError:
            os.close(self._fd)
            raise
        self._entries = ask.entries
        self._head = abi.HintsHead.from_buffer(self._map)
        ring = abi.HintsEntry * self._entries
        self._hints = ring.from_buffer(self._map, ctypes.sizeof(abi.HintsHead))
        replies = ctypes.sizeof(abi.HintsHead) + ctypes.sizeof(ring)
        self._replies = ring.from_buffer(self._map, replies)
        self._next_hint = self._next_reply = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Closes the queue."""
        del self._head, self._hints, self._replies
        try:
            self._map.close()
        finally:
            os.close(self._fd)

    @property
    def refused(self):
        """Hints that the policy did not take from the ring."""
        return self._head.refused

    @property
    def lost(self):
        """Replies that there was no room for."""
        return self._head.lost

    @property
    def end(self):
        """Why it is closed, of ENDS."""
        return ENDS[min(self._head.end, len(ENDS) - 1)]

    def _at(self, place):
        # Its index, and its sequence while the writer owns it: see policy/message/src/ring.rs.
        return place % self._entries, place // self._entries * 2 & 0xFFFFFFFF

    def send(self, tag, *words, thread=0):
        """Gives the policy a hint; raises Full or Closed."""
        if self._head.end:
            raise Closed(self.end)
        if len(words) > abi.HINT_WORDS:
            raise ValueError(f"a hint has {abi.HINT_WORDS} words at most")
        place, sequence = self._at(self._next_hint)
        # No name for the entry here: an exception would keep it alive, and the mapping with it.
        if self._hints[place].sequence != sequence:
            raise Full()
        self._write(self._hints[place], tag, thread, words)
        self._hints[place].sequence = sequence + 1
        self._next_hint += 1

    @staticmethod
    def _write(entry, tag, thread, words):
        entry.tag, entry.thread = tag, thread
        entry.words[:] = list(words) + [0] * (abi.HINT_WORDS - len(words))

    def send_now(self, tag, *words, thread=0):
        """Gives the policy a hint at once, by a system call: what became of it, of ANSWERS."""
        ask = abi.HintsSend(abi.Hint(tag, thread, (ctypes.c_uint64 * abi.HINT_WORDS)(*words)))
        failed = _request(self._fd, abi.HINTS_IOC_SEND, ask)
        if failed == errno.ESHUTDOWN:
            raise Closed(self.end)
        if failed:
            raise OSError(failed, os.strerror(failed), PATH)
        return ANSWERS[ask.answer]

    def receive(self):
        """The next reply, as its tag and its words; None if there is none."""
        place, sequence = self._at(self._next_reply)
        entry = self._replies[place]
        if entry.sequence != sequence + 1:
            return None
        reply = entry.tag, tuple(entry.words)
        entry.sequence = sequence + 2 & 0xFFFFFFFF
        self._next_reply += 1
        return reply

    def wait(self, seconds):
        """The next reply; sleeps for so long until there is one.

        None when the time is over or the queue closed.
        """
        reply = self.receive()
        if reply is None:
            poll = select.poll()
            poll.register(self._fd, select.POLLIN)
            poll.poll(seconds * 1000)
            reply = self.receive()
        return reply


class NotSet(Exception):
    """Attributes that a policy did not set, or did not tell; the argument says why."""


class Attributes:
    """The attributes that a policy gives its threads, by name.

    The calling thread must be a task of the policy. See docs/attributes.md.

        with Attributes("cfs_c") as attributes:
            attributes.set(os.getpid(), slice=3_000_000)
    """

    # How long a policy in an agent may take to reply, in seconds.
    PATIENCE = 1.0

    def __init__(self, policy):
        self._queue = Queue(policy, ("Attributes", 1), ("AttributesReply", 1))
        try:
            self.table = self._describe()
        except BaseException:
            self._queue.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Closes the queue."""
        self._queue.close()

    def _ask(self, tag, *words, thread=0):
        while self._queue.receive():  # replies to requests that were given up
            pass
        answer = self._queue.send_now(tag, *words, thread=thread)
        if answer != "taken":
            raise NotSet(f"the request was not taken: {answer}")
        reply = self._queue.wait(self.PATIENCE)
        if reply is None:
            raise NotSet("the policy did not reply")
        of, words = reply
        if of not in (tag, abi.ATTRIBUTE_TAG_SET):
            raise NotSet("the reply is to something else")
        if of != abi.ATTRIBUTE_TAG_SET or words[0] == abi.ATTRIBUTE_ANSWER_SET:
            return words
        if words[0] == abi.ATTRIBUTE_ANSWER_NOT_YET:
            raise NotSet("the policy does not know the thread yet")
        if words[0] == abi.ATTRIBUTE_ANSWER_RANGE:
            name = list(self.table)[words[1]]
            raise NotSet("{} is from {} to {}".format(name, *self.table[name][:2]))
        reason = b"".join(word.to_bytes(8, "little") for word in words[1:])
        raise NotSet(reason.split(b"\0")[0].decode())

    def _describe(self):
        table, count = {}, 1
        while len(table) < count:
            words = self._ask(abi.ATTRIBUTE_TAG_DESCRIBE, len(table))
            count = words[0] >> 8 & 0xFF
            name = b"".join(word.to_bytes(8, "little") for word in words[4:])
            values = (ctypes.c_int64(word).value for word in words[1:4])
            table[name.split(b"\0")[0].decode()] = tuple(values)
        return table  # name: (min, max, initial)

    def get(self, thread):
        """The attributes of a thread, which is an id: values by name."""
        words = self._ask(abi.ATTRIBUTE_TAG_GET, thread=thread)
        values = (ctypes.c_int64(word).value for word in words[1:])
        return dict(zip(self.table, values))

    def set(self, thread, **values):
        """Sets attributes of a thread, all or none; raises NotSet."""
        names = list(self.table)
        which, words = 0, [0] * abi.MAX_ATTRIBUTES
        for name, value in values.items():
            if name not in self.table:
                raise NotSet(f"the policy has no attribute {name}")
            which |= 1 << names.index(name)
            words[names.index(name)] = ctypes.c_uint64(value).value
        self._ask(abi.ATTRIBUTE_TAG_SET, which, *words, thread=thread)
