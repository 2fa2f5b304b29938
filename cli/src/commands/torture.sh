# SPDX-License-Identifier: GPL-2.0-only
# Run by `baton torture` in the guest. The memory that the kernel and its modules have allocated,
# KiB. Empty slabs are released first, as many caches keep some.
slab() {
	sync
	echo 3 >/proc/sys/vm/drop_caches
	sleep 2
	for cache in /sys/kernel/slab/*/shrink; do
		echo 1 >"$cache" 2>/dev/null
	done
	awk '/^(SUnreclaim|VmallocUsed):/ { kb += $2 } END { print kb }' /proc/meminfo
}

fail() {
	echo "torture: FAILED: $*"
	baton status
	exit 1
}

module() {
	[ -z "$1" ] || echo --module "/usr/lib/baton/$(uname -r)/baton_$1.ko"
}

# storm SECONDS [VERSION VERSION]: everything at once, under the policy.
storm() {
	seconds=$1
	shift
	baton load @POLICY@ --all --stall @STALL@ $(module "$1") || fail "load"
	stressors="--switch 2 --pipe 2 --cpu 2 --fork 2 --exec 1 --clone 1 --affinity 2 --nice 1 --schedpolicy 1 --futex 2 --yield 1"
	# Fewer stressors, so that an upgrade, which is one of the tasks, soon gets its turn.
	[ -z "$1" ] || stressors="--switch 1 --affinity 1"
	stress-ng $stressors --timeout "$seconds" --quiet &
	load=$!
	hotplugs=0
	moves=0
	upgrades=0
	while kill -0 $load 2>/dev/null; do
		for state in 0 1; do
			echo $state >/sys/devices/system/cpu/cpu1/online || fail "hotplug"
			for group in a b; do
				echo $load >/sys/fs/cgroup/$group/cgroup.procs 2>/dev/null && moves=$((moves + 1))
				for task in $(cat /proc/$load/task/$load/children 2>/dev/null | head -c 60); do
					echo "$task" 2>/dev/null >/sys/fs/cgroup/$group/cgroup.procs && moves=$((moves + 1))
				done
			done
			if [ -z "@VERSIONS@" ]; then
				sleep 0.3
			fi
			# The first version is loaded. Begin with the second, and repeat.
			for version in $2 $1 $2 $1 $2 $1 $2 $1; do
				baton upgrade @POLICY@ $(module "$version") >/dev/null || fail "upgrade to $version"
				upgrades=$((upgrades + 1))
			done
		done
		hotplugs=$((hotplugs + 1))
	done
	wait $load || fail "stress-ng ended with $?"
	baton status --json >/tmp/status
	grep -q '"state": "running"' /tmp/status || fail "the policy is not running any more"
	baton list
	baton unload --everything || fail "unload"
}

echo +cpu >/sys/fs/cgroup/cgroup.subtree_control
mkdir -p /sys/fs/cgroup/a /sys/fs/cgroup/b
# A short run first, so that memory that the kernel keeps after a first use is allocated before it
# is measured.
storm 20 @VERSIONS@
before=$(slab)
storm @SECONDS@ @VERSIONS@
after=$(slab)
echo "torture: @SECONDS@ s, $hotplugs hotplug rounds, $moves cgroup moves, $upgrades upgrades; kernel memory $before KiB before, $after KiB after"
# The tolerance is for variations: caches of ended tasks and of removed names.
[ $((after - before)) -lt @GROWTH@ ] || fail "kernel memory grew by $((after - before)) KiB"
echo "torture: held"
