/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The way into a policy and the two ways out: returning, and being abandoned.
 *
 * A policy in Rust must not return from a panic, nor can it be unwound. So the entry keeps the
 * stack pointer, and abandoning a call goes back to it: the frames of the policy are forgotten,
 * those of the rules are as they were. Interrupts are off throughout, so the frame is this CPU's
 * alone.
 */
#include <linux/linkage.h>
#include <linux/export.h>
#include <linux/objtool.h>
#include <asm/asm.h>
#include <asm/percpu.h>
#include <asm/thread_info.h>
#include <asm/nospec-branch.h>
#include <asm/unwind_hints.h>

#define STACK_GRANT 4096	/* BATON_STACK_GRANT */
#define MAKING_RESERVE 6144	/* bytes that the kernel's own functions may need below a policy that is being made */

/* Fields of struct baton_frame (core.h). */
#define LIMIT 8
#define HELD_BEFORE 64
#define NO_LIMIT -1		/* BATON_NO_LIMIT */

	.text

/*
 * u64 baton_guard(this, ctx, a, b, func, frame): func(this, ctx, a, b), or ~0 when the call was
 * abandoned. The registers that a function must keep are in the frame, for the case that nobody is
 * left to restore them.
 */
SYM_FUNC_START(baton_guard)
	mov	%rsp, (%r9)
	lea	-STACK_GRANT(%rsp), %rax
	mov	%rax, LIMIT(%r9)
	mov	%rbx, 16(%r9)
	mov	%rbp, 24(%r9)
	mov	%r12, 32(%r9)
	mov	%r13, 40(%r9)
	mov	%r14, 48(%r9)
	mov	%r15, 56(%r9)
	mov	PER_CPU_VAR(rqspinlock_held_locks), %eax
	mov	%eax, HELD_BEFORE(%r9)
	CALL_NOSPEC r8
	movq	$NO_LIMIT, PER_CPU_VAR(baton_frame + LIMIT)
	cmpl	$0, PER_CPU_VAR(rqspinlock_held_locks)
	jne	1f
	RET
	/* This CPU holds a lock. Does not come back if the call has kept it. */
1:	push	%rax
	call	baton_check_locks
	pop	%rax
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
	movq	$NO_LIMIT, PER_CPU_VAR(baton_frame + LIMIT)
	mov	$-1, %rax
	RET
SYM_FUNC_END(baton_unwind)
STACK_FRAME_NON_STANDARD baton_unwind

/*
 * Every function of a policy in Rust that is not inlined begins with a call of this (rustc
 * -Zinstrument-mcount): is there stack left? It must keep all registers; r11 is free at the start
 * of a function. While a policy is made or unmade it is on its task's stack, with interrupts on,
 * and no CPU has a limit for it; what is left of that stack is seen by its address.
 */
SYM_FUNC_START(baton_stack_check)
	ANNOTATE_NOENDBR
	cmp	PER_CPU_VAR(baton_frame + LIMIT), %rsp
	jb	1f
	RET
1:	cmpq	$NO_LIMIT, PER_CPU_VAR(baton_frame + LIMIT)
	jne	2f
	mov	%rsp, %r11
	and	$(THREAD_SIZE - 1), %r11
	cmp	$MAKING_RESERVE, %r11
	jb	2f
	RET
2:	jmp	baton_stack_overflow
SYM_FUNC_END(baton_stack_check)
EXPORT_SYMBOL_GPL(baton_stack_check)
