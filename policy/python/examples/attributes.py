# SPDX-License-Identifier: GPL-2.0-only
# Gives this thread a slice of 3 ms under the policy cfs_c, and shows its attributes.

import os

from baton_hints import Attributes

with Attributes("cfs_c") as attributes:
    attributes.set(os.getpid(), slice=3_000_000)
    for name, value in attributes.get(os.getpid()).items():
        print(name, value)
