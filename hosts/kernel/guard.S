/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The way into a policy and the two ways out: returning, and being abandoned.
 *
 * A policy in Rust must not return from a panic, nor can it be unwound. So the entry keeps the stack pointer, and abandoning
 * a call goes back to it: the frames of the policy are forgotten, those of the rules are as they were. Interrupts are off
 * throughout, so the frame is this CPU's alone.
 */
#include <linux/linkage.h>
#include <linux/export.h>
#include <linux/objtool.h>
#include <asm/asm.h>
#include <asm/percpu.h>
#include <asm/nospec-branch.h>
#include <asm/unwind_hints.h>

#define STACK_GRANT 4096	/* BATON_STACK_GRANT */

	.text

/*
 * u64 baton_guard(this, ctx, a, b, func, frame): func(this, ctx, a, b), or ~0 when the call was abandoned. The registers that a
 * function must keep are in the frame, for the case that nobody is left to restore them.
 */
SYM_FUNC_START(baton_guard)
	mov	%rsp, (%r9)
	lea	-STACK_GRANT(%rsp), %rax
	mov	%rax, 8(%r9)
	mov	%rbx, 16(%r9)
	mov	%rbp, 24(%r9)
	mov	%r12, 32(%r9)
	mov	%r13, 40(%r9)
	mov	%r14, 48(%r9)
	mov	%r15, 56(%r9)
	CALL_NOSPEC r8
	movq	$0, PER_CPU_VAR(baton_frame + 8)
	RET
SYM_FUNC_END(baton_guard)

/* void baton_unwind(frame): ends the call under way; baton_guard returns ~0. */
SYM_FUNC_START(baton_unwind)
	ANNOTATE_NOENDBR
	mov	%rdi, %r9
	mov	16(%r9), %rbx
	mov	24(%r9), %rbp
	mov	32(%r9), %r12
	mov	40(%r9), %r13
	mov	48(%r9), %r14
	mov	56(%r9), %r15
	mov	(%r9), %rsp
	UNWIND_HINT_FUNC
	movq	$0, PER_CPU_VAR(baton_frame + 8)
	mov	$-1, %rax
	RET
SYM_FUNC_END(baton_unwind)
STACK_FRAME_NON_STANDARD baton_unwind

/*
 * Every function of a policy in Rust that is not inlined begins with a call of this (rustc -Zinstrument-mcount): is there stack
 * left? It must keep all registers; r11 is free at the start of a function.
 */
SYM_FUNC_START(baton_stack_check)
	ANNOTATE_NOENDBR
	cmp	PER_CPU_VAR(baton_frame + 8), %rsp
	jb	1f
	RET
1:	jmp	baton_stack_overflow
SYM_FUNC_END(baton_stack_check)
EXPORT_SYMBOL_GPL(baton_stack_check)
