# SPDX-License-Identifier: GPL-2.0-only
# Each target makes on a fresh Debian 12 or 13 what it needs, as root or with sudo: see vm/root.sh.

.PHONY: demo test check containment matrix monkey sanitized hostile agents programs kernels
.PHONY: live torture setup root-next clean

demo: ## A policy is simulated, checked, compared, upgraded, crashed and replayed: 3 minutes
	@./baton demo

test: ## Everything that is tested, in booted kernels too
	@vm/enter cargo xtask test

check: ## Formatting, lints and house rules
	@vm/enter cargo xtask check

containment: ## Whatever a policy or the tool does wrong, 20 times in a row
	@vm/enter cargo xtask booted 20 containment
	@vm/enter cargo xtask loops

matrix: ## Each method with each kind of fault, at six moments; writes the table of docs/faults.md
	@vm/enter cargo xtask matrix

monkey: ## Two hundred commands that are killed at random, with the machine whole after each
	@vm/enter cargo xtask monkey 1 200

sanitized: ## Booted tests on kernels with KASAN, lockdep and others, and with KCSAN; hours
	@vm/enter cargo xtask sanitized

live: ## The kernel's own scheduler, replaced in a guest; fetches 353 MB once; ten minutes
	@vm/enter cargo test -p baton-live --features kernel-tests

hostile: ## Hostile clients: ten minutes of hint queues, five of attributes, ten of a user's hogs
	@vm/enter cargo xtask hostile 600
	@vm/enter cargo xtask attributes 300
	@vm/enter cargo xtask hogs 600

agents: ## Ten minutes of a hostile agent, 200 agents that end, 200 upgrades, ten minutes of secure_vm
	@vm/enter cargo xtask agents 600 200

programs: ## Ten thousand random programs in Baton's language, compiled and interpreted: half an hour
	@vm/enter cargo xtask programs 10000

kernels: ## Every kernel of Debian's archive that has sched_ext, tried briefly: half an hour
	@vm/enter cargo xtask kernels

torture: ## Ten minutes of stress under wfq
	@./baton torture

setup: ## Only the Debian root
	@vm/root.sh

root-next: ## The check and the demo with kernel and compilers of Debian unstable, in $BATON_CACHE-next
	@vm/next.sh

clean: ## What was built; the root and downloaded crates stay
	@vm/enter sh -c 'cd "$${BATON_CACHE:?}" && find . -mindepth 1 -maxdepth 1 \
		! -name root ! -name root.lock ! -name root.tmp ! -name cargo -exec rm -rf {} +'
