# SPDX-License-Identifier: GPL-2.0-only
"""A scheduler in Python: one queue for all CPUs. See docs/agents.md.

    baton enclave create mine --cpus 1-3
    PYTHONPATH=policy/python python3 policy/python/examples/fifo.py mine
"""

import sys
from collections import deque

from baton_agent import Agent


class Fifo(Agent):
    def __init__(self, enclave):
        self.queue = deque()
        super().__init__(enclave)

    def ready(self, task, why):
        self.queue.append(task)

    def gone(self, task, why):
        self.queue = deque(other for other in self.queue if other.slot != task.slot)

    def pick(self, cpu):
        for task in self.queue:
            if self.may_run(task, cpu):
                self.queue.remove(task)
                return task
        return None

    def reset(self):
        self.queue.clear()


Fifo(sys.argv[1]).run(cpu=0)
