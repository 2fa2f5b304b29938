# SPDX-License-Identifier: GPL-2.0-only
# Refuses a policy that may need more stack than `max` bytes at once. Prints why, or nothing.
#
# Input: the lines of bounds.awk about functions and calls, and then those of llvm-readelf
# --stack-sizes. A function that checks the stack as it begins ends a chain of calls: it is only
# asked what it needs from there on.

FNR == 1 { file++ }
file == 1 && $2 == "checked" { is_checked[$1] = 1 }
file == 1 && $2 ~ /^@/ { calls_of[$1] = calls_of[$1] " " $2 }
# "120 NAME", below a heading.
file == 2 && $1 ~ /^[0-9]+$/ { frame["@" $2] = $1 + 8; sizes++ }

# The bytes that a function needs with those that it calls; `via` has the next one of the chain.
function need(name,    called, n, i, most, bytes) {
	if (name in needs)
		return needs[name]
	n = split(calls_of[name], called, " ")
	most = 0
	needs[name] = 0	# if it calls itself, by a panic in the handler of panics
	for (i = 1; i <= n; i++) {
		if (called[i] in is_checked)
			continue
		bytes = need(called[i])
		if (bytes > most) {
			most = bytes
			via[name] = called[i]
		}
	}
	return needs[name] = frame[name] + most
}

END {
	if (file != 2 || !sizes) {
		print "the sizes of stack frames are not known (Baton's own fault)"
		exit
	}
	for (name in frame)
		if (need(name) > needs[worst])
			worst = name
	if (needs[worst] <= max)
		exit
	chain = substr(worst, 2)
	for (name = via[worst]; name; name = via[name])
		chain = chain ", which calls " substr(name, 2)
	if (via[worst])
		chain = chain ","
	printf "the function %s needs %d bytes of stack at once, of %d", chain, needs[worst], max
	print ": keep large values in storage, not in local variables (policy)"
}
