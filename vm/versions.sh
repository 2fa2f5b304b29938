#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Prints the versions that the root has, in the form of vm/tested. Runs inside the root:
#
#   vm/enter vm/versions.sh >vm/tested      after `make test` has passed with a new root
#
# A program that is missing has no line.
echo '# SPDX-License-Identifier: GPL-2.0-only'
echo '# The versions that were tested, as vm/versions.sh prints them.'
sed 's/^/kernel /' /kernel/default 2>/dev/null
rustc --version 2>/dev/null | sed 's/^\(rustc [^ ]*\).*/\1/'
clang --version 2>/dev/null | sed -n 's/.*clang version \([^ ]*\).*/clang \1/p'
