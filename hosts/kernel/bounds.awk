# SPDX-License-Identifier: GPL-2.0-only
# Bounds the time and the stack of a policy, in a module in LLVM's language.
#
# Time: all functions are marked as ones that need polls, and the poll is added that LLVM's pass
# place-safepoints puts into their loops:
#
#   decl  the turns that are left (struct baton_frame)
#   js    out of line: call baton_out_of_turns (guard.S), and back
#
# Stack: a function that may call itself, directly or through others, is given the check of the
# stack, unless rustc has given it to all functions of its crate. The file `calls` gets a line for
# each function, "FUNCTION checked" or "FUNCTION -", and for each call "FUNCTION CALLED", for
# chains.awk.
#
# `turns` is the offset of the turns.

BEGIN { check = "\"instrument-function-entry-inlined\"=\"mcount\"" }

# The names of functions and variables in `text`, into `names`. Returns their number. Those that are
# called there are in `is_called`.
function find_names(text,    n) {
	n = 0
	while (match(text, /@[-a-zA-Z$._0-9]+|@"[^"]*"/)) {
		names[++n] = substr(text, RSTART, RLENGTH)
		text = substr(text, RSTART + RLENGTH)
		is_called[n] = text ~ /^\(/
	}
	return n
}

# Notes all functions that can be reached from `from` by calls which return: those of the handler of
# panics do not.
function reach(from,    called, n, i) {
	n = split(calls_of[from], called, " ")
	for (i = 1; i <= n; i++)
		if (!(called[i] in reached) && called[i] !~ /rust_begin_unwind/) {
			reached[called[i]] = 1
			reach(called[i])
		}
}

# The type of a function as far as it matters: the types of the result and the parameters, without
# their attributes. `text` is the head of its definition, or a call through a pointer.
function type_of(text,    result, depth, i, c, word) {
	match(text, /[@%]("[^"]*"|[-a-zA-Z$._0-9]+)\(/)
	result = substr(text, 1, RSTART - 2)
	sub(/^.* /, "", result)
	depth = 0
	word = ""
	for (i = RSTART + RLENGTH; i <= length(text); i++) {
		c = substr(text, i, 1)
		if (depth == 0 && (c == "," || c == ")")) {
			sub(/^ */, "", word)
			sub(/ .*/, "", word)
			result = result " " word
			word = ""
			if (c == ")")
				break
			continue
		}
		depth += (c ~ /[([{<]/) - (c ~ /[]})>]/)
		word = word c
	}
	return result
}

{ line[NR] = $0 }
/^define / {
	find_names($0)
	body = names[1]
	function_at[NR] = body
	is_defined[body] = 1
	type[body] = type_of($0)
	match($0, / #[0-9]+/)
	group[body] = substr($0, RSTART + 1, RLENGTH - 1)
	next
}
/^}/ { body = ""; next }
# A function whose address is in a variable or used by another function: any indirect call of its
# type may be of it.
body == "" && /^@/ {
	n = find_names($0)
	for (i = 2; i <= n; i++)
		has_address[names[i]] = 1
}
body != "" {
	n = find_names($0)
	for (i = 1; i <= n; i++)
		if (is_called[i])
			calls_directly[body, names[i]] = 1
		else
			has_address[names[i]] = 1
	if (match($0, /(call|invoke) [^@]*%[-a-zA-Z$._0-9]+\(/))
		is_indirect[body, type_of(substr($0, RSTART))] = 1
}
/^attributes #[0-9]+ = / && index($0, check) { checks[$2] = 1 }

END {
	for (pair in calls_directly) {
		split(pair, of, SUBSEP)
		if (of[2] in is_defined)
			calls_of[of[1]] = calls_of[of[1]] " " of[2]
	}
	for (pair in is_indirect) {
		split(pair, of, SUBSEP)
		for (other in has_address)
			if (other in is_defined && type[other] == of[2])
				calls_of[of[1]] = calls_of[of[1]] " " other
	}
	for (name in is_defined) {
		split("", reached)
		reach(name)
		is_checked[name] = group[name] in checks
		if (name in reached && !is_checked[name])
			is_checked[name] = is_new[name] = 1
		print name, is_checked[name] ? "checked" : "-" >calls
		n = split(calls_of[name], called, " ")
		for (i = 1; i <= n; i++)
			print name, called[i] >calls
	}
	for (n = 1; n <= NR; n++) {
		text = line[n]
		if (n in function_at) {
			# The marks precede the personality and the metadata, which precede the body.
			match(text, /( personality .*)?( ![a-zA-Z.]+ ![0-9]+)* \{$/)
			mark = " gc \"statepoint-example\""
			if (function_at[n] in is_new)
				mark = " " check mark
			text = substr(text, 1, RSTART - 1) mark substr(text, RSTART)
		}
		print text
	}
	printf "define internal void @gc.safepoint_poll() {\n"
	printf "  call void asm sideeffect \"decl %%gs:(baton_frame+%d)(%%rip)\\0A", turns
	printf "\\09js 1f\\0A2:\\0A.pushsection .text.baton_polls,\\22ax\\22,@progbits\\0A"
	printf "1:\\09call baton_out_of_turns\\0A"
	printf "\\09jmp 2b\\0A.popsection\", \"~{dirflag},~{fpsr},~{flags}\"()\n"
	printf "  ret void\n}\n"
}
