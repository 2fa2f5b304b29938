# SPDX-License-Identifier: GPL-2.0-only
"""A client of `echo` in Python, by policy/python/baton_hints.py. Run by hints.rs here: fails where something is wrong."""

import itertools
import os
import sys

from baton_hints import Full, Queue


def rounds(queue, count):
    """Rounds without a system call: the tick has the policy look at the ring."""
    for number in range(count):
        queue.send(1, number, 1)
        while not queue.receive():
            pass


if sys.argv[1:] == ["without-calls"]:
    with Queue("echo", ("Hint", 1), ("Reply", 1)) as queue:
        # The first rounds make the interpreter allocate the memory that it needs. The others are
        # between two calls that the test looks for.
        rounds(queue, 20)
        os.getppid()
        rounds(queue, 100)
        os.getppid()
    sys.exit()


def refused(name, hint, reply, why):
    try:
        Queue(name, ("Hint", hint), ("Reply", reply))
    except (OSError, ValueError) as error:
        assert why in str(error), error
    else:
        raise AssertionError(f"it is taken: not as '{why}' says")


refused("echo", 2, 1, "hints are of another type")
refused("echo", 1, 2, "replies are of another type")
refused("e" * 32, 1, 1, "at most 31 letters")
os.seteuid(65534)
refused("echo", 1, 1, "no grant permits that (baton hints grant)")
os.seteuid(0)

# An exception inside closes the queue: the thread can open another.
try:
    with Queue("echo", ("Hint", 1), ("Reply", 1)) as queue:
        while True:
            queue.send(1, 0, 0)
except Full:
    pass

with Queue("echo", ("Hint", 1), ("Reply", 1)) as queue:
    # Through many laps of the ring.
    for number in range(200):
        queue.send(1, number, 1)
        tag, words = queue.wait(5.0)
        assert (tag, words[0], words[2:]) == (1, number, (0, 0, 0, 0)), (tag, words)
    assert queue.receive() is None
    # Faster than the policy reads; a tick may come in between.
    try:
        for number in range(10_000):
            queue.send(1, number, 1)
        raise AssertionError("it is never full")
    except Full:
        pass
    assert queue.send_now(1, 7, 1) == "taken"
    replies = list(itertools.takewhile(lambda reply: reply, iter(queue.receive, 0)))
    assert len(replies) == 16 and queue.lost > 0, (replies, queue.lost)
    assert queue.send_now(77) == "malformed"
    assert queue.send_now(2, 1, thread=1) == "thread"
    assert queue.send_now(2, 1, thread=os.getpid()) == "taken"
    tag, words = queue.receive()
    assert tag == 2 and queue.end == "open", (tag, queue.end)
    queue.send(77)
    assert queue.wait(0.05) is None and queue.refused == 1, queue.refused
