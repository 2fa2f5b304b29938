# SPDX-License-Identifier: GPL-2.0-only
"""Sends a hint to the policy `echo`, and prints the reply. Run it as root or as a user with a grant:
`baton load echo && PYTHONPATH=policy/python baton run -p echo -- python3 policy/python/examples/echo.py`."""

from baton_hints import Queue

with Queue("echo", ("Hint", 1), ("Reply", 1)) as queue:
    queue.send(1, 7, 1)  # the tag, and the words
    reply = queue.wait(1.0)
    if reply:
        tag, words = reply
        print(words[0])
