// SPDX-License-Identifier: GPL-2.0-only
/*
 * Exceptions of the processor in a policy's code: an access to memory that is not there, a division
 * by zero, an instruction that is none. Each ends the call as a panic does, in place of the kernel.
 *
 * An exception other than a page fault asks the kernel's die notifiers before anything is printed.
 * A page fault asks them after its oops was printed. So a probe is at the begin of
 * page_fault_oops(), which the kernel calls when it has found nothing else to do about a page
 * fault. The function is left at once then, the oops is not printed, and the kernel goes on where
 * the registers of the exception say, which is baton_trapped().
 *
 * An NMI that finds an endless loop ends the call in the same way (nmi.c).
 *
 * The code of a policy's own module is covered, and the kernel's functions on memory and strings if
 * the policy calls them directly. Other functions of the kernel may hold locks of their own.
 */
#include <linux/kallsyms.h>
#include <linux/kdebug.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <linux/ptrace.h>
#include <asm/page.h>
#include <asm/processor.h>
#include <asm/trap_pf.h>
#include <asm/trapnr.h>

#include "core.h"
#include "place.h"

/* An exception, from its begin until baton_trapped() has read it. */
struct trap {
	unsigned long ip;	/* the instruction of the policy, or where its call returns to */
	unsigned long address;	/* that was used, for a page fault */
	unsigned long error;	/* X86_PF_*, for a page fault */
	u8 vector;		/* X86_TRAP_* */
};

/* Of a call with interrupts off: nothing else happens on this CPU before it is read. */
static DEFINE_PER_CPU(struct trap, trap_here);
/* Of a policy that is created with interrupts on. Guarded by the control mutex. */
static struct trap creating_trap;

/*
 * The modules of all versions. Written under the control mutex. An exception reads it with
 * interrupts off, which is a read-side section.
 */
static struct module *modules[BATON_MAX_POLICIES * 3];

/*
 * Has exceptions in this module's code contained. A module with several policies is added for each.
 */
void baton_traps_add(struct module *module)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(modules); i++)
		if (!modules[i]) {
			WRITE_ONCE(modules[i], module);
			return;
		}
}

/* The module goes when this has returned. */
void baton_traps_remove(const struct module *module)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(modules); i++)
		if (modules[i] == module) {
			WRITE_ONCE(modules[i], NULL);
			break;
		}
	synchronize_rcu();
}

static bool is_policy(unsigned long ip)
{
	const struct module *module;
	int i;

	for (i = 0; i < ARRAY_SIZE(modules); i++) {
		module = READ_ONCE(modules[i]);
		if (module && within_module_mem_type(ip, module, MOD_TEXT))
			return true;
	}
	return false;
}

/* May a call of a policy that was interrupted with these flags be ended? */
static bool in_call(unsigned long flags)
{
	if (flags & X86_EFLAGS_IF)
		return baton_is_creator();
	return this_cpu_read(baton_frame.limit) != BATON_NO_LIMIT;
}

/* Is this in a function of the kernel on memory or strings, or in a thunk? They take no locks. */
static bool is_simple(unsigned long ip)
{
	char name[KSYM_SYMBOL_LEN];

	sprint_symbol(name, ip);
	return str_has_prefix(name, "mem") || str_has_prefix(name, "__mem") ||
	       str_has_prefix(name, "str") || str_has_prefix(name, "__x86_indirect_thunk");
}

/* May there be code at this address? */
static bool is_canonical(unsigned long ip)
{
	return __is_canonical_address(ip, boot_cpu_data.x86_virt_bits);
}

/*
 * The place in a policy at which an exception is to be blamed; 0 if it is not a policy's. It is the
 * instruction itself, or that behind the policy's call of a function that is not there, or of one
 * that is simple and has nothing on the stack but where it returns to.
 */
static unsigned long blamed(struct pt_regs *regs, bool fetched)
{
	unsigned long caller;

	if (user_mode(regs) || !in_call(regs->flags))
		return 0;
	if (is_policy(regs->ip))
		return regs->ip;
	caller = *(unsigned long *)regs->sp;
	return is_policy(caller) && (!fetched || is_simple(regs->ip)) ? caller : 0;
}

/* Lets the kernel go on in baton_trapped(). Interrupts are off, or the policy is created. */
static void divert(struct pt_regs *regs, const struct trap *trap)
{
	*(regs->flags & X86_EFLAGS_IF ? &creating_trap : this_cpu_ptr(&trap_here)) = *trap;
	/* A copy that goes down may have been interrupted, or one of user space's memory. */
	regs->flags &= ~(X86_EFLAGS_DF | X86_EFLAGS_AC);
	regs->ip = (unsigned long)baton_trapped;
}

/* Do these registers, of an NMI, belong to a policy's own code in a call with interrupts off? */
bool baton_traps_in_policy(struct pt_regs *regs)
{
	return !user_mode(regs) && !(regs->flags & X86_EFLAGS_IF) && in_call(regs->flags) &&
	       is_policy(regs->ip);
}

/*
 * Ends the call with these registers, for which the above holds, as one that does not end. NMI.
 * Returns false if that cannot be done now.
 *
 * Without FRED, the kernel returns from an NMI by a copy of the frame, which is behind the
 * registers (asm_exc_nmi in arch/x86/entry/entry_64.S). The copy differs if another NMI has come
 * meanwhile.
 */
bool baton_traps_end(struct pt_regs *regs)
{
	struct trap trap = { .ip = regs->ip, .vector = X86_TRAP_NMI };
	unsigned long *frame = (unsigned long *)(regs + 1);

	if (cpu_feature_enabled(X86_FEATURE_FRED)) {
		divert(regs, &trap);
		return true;
	}
	if (!in_nmi() || frame[0] != regs->ip || frame[1] != regs->cs || frame[2] != regs->flags ||
	    frame[3] != regs->sp)
		return false;
	*this_cpu_ptr(&trap_here) = trap;
	frame[0] = (unsigned long)baton_trapped;
	frame[2] &= ~(X86_EFLAGS_DF | X86_EFLAGS_AC);
	return true;
}

static void notrace noinline nothing(void)
{
}

/* At the begin of page_fault_oops(registers of the page fault, error code, address). */
static int on_oops(struct kprobe *unused, struct pt_regs *regs)
{
	struct pt_regs *fault = (struct pt_regs *)regs->di;
	struct trap trap = {
		.address = regs->dx, .error = regs->si, .vector = X86_TRAP_PF
	};

	trap.ip = blamed(fault, !(trap.error & X86_PF_INSTR));
	if (!trap.ip)
		return 0;
	divert(fault, &trap);
	regs->ip = (unsigned long)nothing;
	return 1;
}

/*
 * A probe that has such a function is not optimized, so that it may change where the kernel goes.
 */
static void after_oops(struct kprobe *unused, struct pt_regs *regs, unsigned long flags)
{
}

static struct kprobe oops_probe = {
	.symbol_name = "page_fault_oops",
	.pre_handler = on_oops,
	.post_handler = after_oops,
};

static int on_die(struct notifier_block *unused, unsigned long what, void *data)
{
	struct die_args *args = data;
	struct trap trap = { .vector = args->trapnr };

	if ((what != DIE_GPF && what != DIE_TRAP) || !args->regs)
		return NOTIFY_DONE;
	trap.ip = blamed(args->regs, is_canonical(args->regs->ip));
	if (!trap.ip)
		return NOTIFY_DONE;
	divert(args->regs, &trap);
	return NOTIFY_STOP;
}

static struct notifier_block die_notifier = { .notifier_call = on_die, .priority = 1000 };

static const char *name_of(u8 vector)
{
	switch (vector) {
	case X86_TRAP_DE:
		return "a division by zero, or one whose result has no place";
	case X86_TRAP_UD:
		return "a trap: BUG(), or what C does not define";
	case X86_TRAP_GP:
		return "an address was used that no memory can have, or an instruction that is the kernel's";
	default:
		return "an exception of the processor";
	}
}

/*
 * Ends the call. Entered in place of the instruction, on its stack, with interrupts as they were.
 */
void __noreturn baton_trapped(void)
{
	const struct trap *trap = irqs_disabled() ? this_cpu_ptr(&trap_here) : &creating_trap;
	struct baton_last_words *words = baton_last_words();

	if (trap->vector == X86_TRAP_NMI) {
		baton_say("the call did not end, and was interrupted", trap->ip);
		baton_abandon(baton_current_frame(), BATON_FAULT_KIND_ENDLESS_LOOP);
	}
	words->line = 0;
	words->file[0] = 0;
	words->ip = trap->ip;
	if (trap->vector == X86_TRAP_PF)
		scnprintf(words->message, sizeof(words->message),
			  "memory at %#lx was %s, and is not there to be used so: %pS", trap->address,
			  trap->error & X86_PF_INSTR   ? "executed"
			  : trap->error & X86_PF_WRITE ? "written"
						       : "read",
			  (void *)trap->ip);
	else
		scnprintf(words->message, sizeof(words->message), "%s: %pS", name_of(trap->vector),
			  (void *)trap->ip);
	baton_abandon(baton_current_frame(), BATON_FAULT_KIND_PANIC);
}

/* Process context. */
int baton_traps_init(void)
{
	int err = register_die_notifier(&die_notifier);

	if (err)
		return err;
	err = register_kprobe(&oops_probe);
	if (err) {
		pr_notice("baton: wrong pointers in policies in C are not contained: no probe of %s (%d)\n",
			  oops_probe.symbol_name, err);
		oops_probe.symbol_name = NULL;
	}
	return 0;
}

void baton_traps_exit(void)
{
	if (oops_probe.symbol_name)
		unregister_kprobe(&oops_probe);
	unregister_die_notifier(&die_notifier);
}
