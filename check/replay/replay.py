# SPDX-License-Identifier: GPL-2.0-only
# For gdb, which `baton replay --gdb` runs with it: stops where the policy fails, or just before the
# event that was asked for, and shows the policy's own frame. $BATON_POLICY_PLACES has the
# directories of its source, as they are in its library.
import os

import gdb

PLACES = tuple(place for place in os.environ["BATON_POLICY_PLACES"].split(":") if place)


def is_policys(frame):
    table = frame.find_sal().symtab
    return table is not None and any(name.startswith(PLACES) for name in (table.filename, table.fullname()))


def stopped(event):
    frame = gdb.newest_frame()
    while frame is not None and not is_policys(frame):
        frame = frame.older()
    if frame is not None:
        frame.select()
        gdb.execute("frame")


gdb.execute("set breakpoint pending on")
gdb.execute("set pagination off")
gdb.execute("break core::panicking::panic_fmt")
# A call that its host ends: a deadlock, a Schedulable that is lost. The policy's library, which has
# it, comes later.
gdb.execute("break baton_seam::host::abandon")
# The same of a policy in C: also its baton_assert.
gdb.execute("break baton_abandon")
gdb.execute("break baton_replay_stop")
gdb.events.stop.connect(stopped)
