/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Entry into a policy, and the two ways to leave it: to return, and to be abandoned.
 *
 * A policy in Rust must not return from a panic, and cannot be unwound. So the entry stores the
 * stack pointer, and the abandoning of a call restores it. The frames of the policy are discarded,
 * and the frames of the rules are unchanged. Interrupts are off during a call, so its struct
 * baton_frame belongs to this CPU alone. A policy that is created or destroyed with interrupts on
 * has a separate one (memory.c).
 */
#include <linux/linkage.h>
#include <linux/export.h>
#include <linux/objtool.h>
#include <asm/asm.h>
#include <asm/percpu.h>
#include <asm/thread_info.h>
#include <asm/nospec-branch.h>
#include <asm/unwind_hints.h>

#include "guard.h"

/* bytes of stack reserved for functions of the kernel while a policy is created */
#define MAKING_RESERVE 6144

/* Fields of struct baton_frame (core.h). */
#define LIMIT 8
#define HELD_BEFORE 64

	.text

/*
 * u64 baton_guard(this, ctx, a, b, func, frame): calls func(this, ctx, a, b) and returns its
 * result, or ~0 if the call was abandoned. The callee-saved registers are stored in the frame, as
 * an abandoned call does not restore them.
 */
SYM_FUNC_START(baton_guard)
	mov	%rsp, (%r9)
	lea	-BATON_STACK_GRANT(%rsp), %rax
	mov	%rax, LIMIT(%r9)
	mov	%rbx, 16(%r9)
	mov	%rbp, 24(%r9)
	mov	%r12, 32(%r9)
	mov	%r13, 40(%r9)
	mov	%r14, 48(%r9)
	mov	%r15, 56(%r9)
	mov	PER_CPU_VAR(rqspinlock_held_locks), %eax
	mov	%eax, HELD_BEFORE(%r9)
	movq	$BATON_TURNS, BATON_FRAME_TURNS(%r9)	/* and no looks, not seen */
	CALL_NOSPEC r8
	movq	$BATON_NO_LIMIT, PER_CPU_VAR(baton_frame + LIMIT)
	cmpl	$0, PER_CPU_VAR(rqspinlock_held_locks)
	jne	1f
	RET
	/* This CPU holds a lock. Does not return if the call has kept a lock. */
1:	push	%rax
	call	baton_check_locks
	pop	%rax
	RET
SYM_FUNC_END(baton_guard)

/* void baton_unwind(frame): ends the current call; baton_guard returns ~0. */
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
	movq	$BATON_NO_LIMIT, PER_CPU_VAR(baton_frame + LIMIT)
	mov	$-1, %rax
	RET
SYM_FUNC_END(baton_unwind)
STACK_FRAME_NON_STANDARD baton_unwind

/* Calls baton_turns_look(rdi). Preserves all other registers. */
SYM_FUNC_START_LOCAL(look)
	push	%rax
	push	%rcx
	push	%rdx
	push	%rsi
	push	%r8
	push	%r9
	push	%r10
	push	%r11
	call	baton_turns_look
	pop	%r11
	pop	%r10
	pop	%r9
	pop	%r8
	pop	%rsi
	pop	%rdx
	pop	%rcx
	pop	%rax
	RET
SYM_FUNC_END(look)

/*
 * Stack check. Every function of a policy in Rust that is not inlined begins with a call of it
 * (rustc -Zinstrument-mcount), and so does every other function that can call itself (bounds.awk).
 * The call counts as a turn of a loop. So neither calls that return nor those at the end of a
 * function go on without end. It must preserve all registers; only r11 is free at the start of a
 * function. A policy that is created or destroyed runs on the stack of its task with interrupts on,
 * and no CPU has a limit for it. In that case the address shows how much of that stack is left.
 */
SYM_FUNC_START(baton_stack_check)
	ANNOTATE_NOENDBR
	cmp	PER_CPU_VAR(baton_frame + LIMIT), %rsp
	jb	1f
4:	decl	PER_CPU_VAR(baton_frame + BATON_FRAME_TURNS)
	js	3f
	RET
1:	cmpq	$BATON_NO_LIMIT, PER_CPU_VAR(baton_frame + LIMIT)
	jne	2f
	mov	%rsp, %r11
	and	$(THREAD_SIZE - 1), %r11
	cmp	$MAKING_RESERVE, %r11
	jae	4b
2:	jmp	baton_stack_overflow
3:	push	%rdi
	mov	8(%rsp), %rdi
	call	look
	pop	%rdi
	RET
SYM_FUNC_END(baton_stack_check)
EXPORT_SYMBOL_GPL(baton_stack_check)

/*
 * Called by a poll in a loop (bounds.awk) when no turns are left. It must preserve all registers.
 * The call is followed by a jump back into the loop, which tells where that is.
 */
SYM_FUNC_START(baton_out_of_turns)
	ANNOTATE_NOENDBR
	push	%rdi
	push	%rax
	mov	16(%rsp), %rdi
	movslq	1(%rdi), %rax
	lea	4(%rdi, %rax), %rdi
	pop	%rax
	call	look
	pop	%rdi
	RET
SYM_FUNC_END(baton_out_of_turns)
EXPORT_SYMBOL_GPL(baton_out_of_turns)

/*
 * The kernel's functions on memory, as policies call them (build.sh). A large block counts as turns
 * of a loop. rdx is its size.
 */
.macro ON_MEMORY name
SYM_FUNC_START(baton_\name)
	ANNOTATE_NOENDBR
	cmp	$BATON_BLOCK_OF_TURN, %rdx
	jae	1f
	jmp	\name
1:	mov	%rdx, %r11
	shr	$BATON_BLOCK_OF_TURN_BITS, %r11
	sub	%r11d, PER_CPU_VAR(baton_frame + BATON_FRAME_TURNS)
	jns	2f
	push	%rdi
	mov	8(%rsp), %rdi
	call	look
	pop	%rdi
2:	jmp	\name
SYM_FUNC_END(baton_\name)
EXPORT_SYMBOL_GPL(baton_\name)
.endm

ON_MEMORY memcpy
ON_MEMORY memmove
ON_MEMORY memset
ON_MEMORY memcmp
ON_MEMORY bcmp
