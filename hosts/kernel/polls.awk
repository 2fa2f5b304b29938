# SPDX-License-Identifier: GPL-2.0-only
# Marks all functions of a module in LLVM's language as ones that need polls, and adds the poll that
# LLVM's pass place-safepoints puts into their loops:
#
#   decl  the turns that are left (struct baton_frame)
#   js    out of line: call baton_out_of_turns (guard.S), and back
#
# `turns` is the offset of the turns.
/^define / {
	# The mark precedes the personality and the metadata, which precede the body.
	match($0, /( personality .*)?( ![a-zA-Z.]+ ![0-9]+)* \{$/)
	$0 = substr($0, 1, RSTART - 1) " gc \"statepoint-example\"" substr($0, RSTART)
}
{ print }
END {
	printf "define internal void @gc.safepoint_poll() {\n"
	printf "  call void asm sideeffect \"decl %%gs:(baton_frame+%d)(%%rip)\\0A\\09js 1f\\0A2:\\0A", turns
	printf ".pushsection .text.baton_polls,\\22ax\\22,@progbits\\0A1:\\09call baton_out_of_turns\\0A"
	printf "\\09jmp 2b\\0A.popsection\", \"~{dirflag},~{fpsr},~{flags}\"()\n"
	printf "  ret void\n}\n"
}
