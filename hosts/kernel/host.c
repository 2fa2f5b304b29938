// SPDX-License-Identifier: GPL-2.0-only
/*
 * Services of the host for policies: locks, time, kicks, and the abandoning of a call after a
 * fault. policy/seam/src/host_kernel.rs declares the functions that are exported here.
 *
 * Context: a call of a policy, with interrupts off and often with a run-queue lock held. Only
 * `create`, `destroy`, and the upgrade methods that run before CPUs are held are called in process
 * context. Nothing here sleeps, allocates or prints; the log line of a fault is printed later
 * (fault.c).
 */
#include <linux/cpumask.h>
#include <linux/export.h>
#include <linux/irq_work.h>
#include <linux/irqflags.h>
#include <linux/random.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/smp.h>
#include <linux/stringify.h>
#include <linux/workqueue.h>

#include "core.h"
#include "host.h"
#include "record.h"
#include "register.h"

DEFINE_PER_CPU(struct baton_frame, baton_frame);
EXPORT_PER_CPU_SYMBOL_GPL(baton_frame);	/* policies count their turns in it */
static DEFINE_PER_CPU(struct baton_last_words, last_words);
static struct baton_last_words creating_words;	/* guarded by baton_control_mutex */
static DEFINE_PER_CPU(call_single_data_t, kick_data);
static DEFINE_PER_CPU(unsigned long, kick_sent);	/* bit 0: kick_data is in flight */
static DEFINE_PER_CPU(bool, kick_preempts);	/* it is to preempt, whatever runs */
static DEFINE_PER_CPU(u64, random_state);
static DEFINE_RAW_SPINLOCK(slot_lock);	/* guards the list of free slots in core-lib */

/* The frame of the current call. */
struct baton_frame *baton_current_frame(void)
{
	return likely(irqs_disabled()) ? this_cpu_ptr(&baton_frame) : baton_creating_frame();
}

struct baton_last_words *baton_last_words(void)
{
	return baton_creating() ? &creating_words : raw_cpu_ptr(&last_words);
}

const struct baton_last_words *baton_creating_last_words(void)
{
	return &creating_words;
}

/*
 * Abandons the current call: releases its locks, newest first, and returns from baton_guard.
 * Reports the fault unless that was done already; the caller has stored its message.
 *
 * The kernel keeps one table of held locks for each CPU. A call can run in an interrupt (a timer or
 * a wakeup) of a BPF program that itself holds locks. baton_guard stores the number of locks held
 * when the call begins, and no lock below that number is released here. The call cannot have
 * released one of them either, as locks are released in the reverse order of taking them.
 */
void __noreturn baton_abandon(struct baton_frame *frame, enum baton_fault_kind kind)
{
	struct rqspinlock_held *held = raw_cpu_ptr(&rqspinlock_held_locks);

	frame->ended_by = kind;
	frame->is_panicking = false;
	if (!baton_creating())
		baton_core_fault_in_call(smp_processor_id(), kind);
	while (irqs_disabled() && held->cnt > frame->held_before && held->cnt <= RES_NR_HELD)
		res_spin_unlock((rqspinlock_t *)held->locks[held->cnt - 1]);
	baton_unwind(frame);
}

/* Stores the message of a fault. `ip` is the instruction at which it happened, or 0. */
void baton_say(const char *what, unsigned long ip)
{
	struct baton_last_words *words = baton_last_words();

	strscpy(words->message, what, sizeof(words->message));
	words->file[0] = 0;
	words->line = 0;
	words->ip = ip;
}

static void say(const char *what)
{
	baton_say(what, 0);
}

static __always_inline void take_lock(rqspinlock_t *lock)
{
	int err;

	if (unlikely(this_cpu_read(baton_frame.limit) == BATON_NO_LIMIT)) {
		say("a lock was taken while the policy was being made; use Lock::get_mut there");
		baton_abandon(baton_current_frame(), BATON_FAULT_KIND_PANIC);
	}
	/*
	 * The kernel grants more locks, but does not recognise them when they are released. Its
	 * table has this many entries for the whole CPU, so the locks of a BPF program that this
	 * call interrupts count as well.
	 */
	BUILD_BUG_ON(BATON_MAX_LOCKS > RES_NR_HELD);
	if (unlikely(this_cpu_read(rqspinlock_held_locks.cnt) >= BATON_MAX_LOCKS)) {
		say("a call may hold at most 31 locks at once");
		baton_abandon(this_cpu_ptr(&baton_frame), BATON_FAULT_KIND_DEADLOCK);
	}
	err = res_spin_lock(lock);
	if (unlikely(err)) {
		say(err == -EDEADLK
			    ? "this CPU already holds the lock, or its holder waits for a lock that this CPU holds"
			    : "the lock was not released for 250 ms");
		baton_abandon(this_cpu_ptr(&baton_frame), err == -EDEADLK
								  ? BATON_FAULT_KIND_DEADLOCK
								  : BATON_FAULT_KIND_LOCK_TIMEOUT);
	}
}

/*
 * The recorded variants are separate functions, so that recording costs other calls only a jump
 * that is not taken.
 */
static noinline void recorded_lock(rqspinlock_t *lock)
{
	take_lock(lock);
	baton_record(lock, lock);
}

notrace void baton_host_lock(rqspinlock_t *lock)
{
	if (baton_is_recording())
		return recorded_lock(lock);
	take_lock(lock);
}
EXPORT_SYMBOL_GPL(baton_host_lock);

bool baton_host_try_lock(rqspinlock_t *lock)
{
	/*
	 * A resilient lock has no trylock. The check makes waiting unlikely, and any wait is
	 * bounded.
	 */
	if (atomic_read(&lock->val)) {
		baton_record(busy, lock);
		return false;
	}
	baton_host_lock(lock);
	return true;
}
EXPORT_SYMBOL_GPL(baton_host_try_lock);

notrace void baton_host_unlock(rqspinlock_t *lock)
{
	/*
	 * The kernel's table of held locks, by which it detects deadlocks, is a stack. It lists the
	 * locks to release when a call is abandoned.
	 */
	struct rqspinlock_held *held = this_cpu_ptr(&rqspinlock_held_locks);

	u32 last = held->cnt - 1;

	if (likely(last < RES_NR_HELD && held->locks[last] == lock)) {
		/* res_spin_unlock(), without a second look at the table */
		smp_store_release(&lock->locked, 0);
		WRITE_ONCE(held->locks[last], NULL);
		this_cpu_dec(rqspinlock_held_locks.cnt);
		return;
	}
	say("locks must be released in the reverse order of taking them");
	baton_abandon(this_cpu_ptr(&baton_frame), BATON_FAULT_KIND_DEADLOCK);
}
EXPORT_SYMBOL_GPL(baton_host_unlock);

/* Stores the message and the place of a panic in the source. */
static void store_panic(const char *file, size_t file_len, u32 line, const char *message,
			size_t message_len)
{
	struct baton_last_words *words = baton_last_words();

	words->line = line;
	words->ip = 0;
	strscpy(words->file, file, min(file_len + 1, sizeof(words->file)));
	strscpy(words->message, message, min(message_len + 1, sizeof(words->message)));
}

/*
 * A policy in Rust panics, and makes its message next. If that takes more stack than is left, the
 * panic is reported without the message.
 */
void baton_host_panicking(const char *file, size_t file_len, u32 line);
void baton_host_panicking(const char *file, size_t file_len, u32 line)
{
	static const char unknown[] = "a panic, with too little stack left to say why";

	store_panic(file, file_len, line, unknown, sizeof(unknown) - 1);
	baton_current_frame()->is_panicking = true;
}
EXPORT_SYMBOL_GPL(baton_host_panicking);

void __noreturn baton_host_panic(const char *file, size_t file_len, u32 line, const char *message,
				 size_t message_len)
{
	store_panic(file, file_len, line, message, message_len);
	/* The message of Rust's library after a failed allocation that must not fail. */
	baton_abandon(baton_current_frame(),
		      strstarts(baton_last_words()->message, "memory allocation of ")
			      ? BATON_FAULT_KIND_OUT_OF_MEMORY
			      : BATON_FAULT_KIND_PANIC);
}
EXPORT_SYMBOL_GPL(baton_host_panic);

/*
 * Called by guard.S when a call has used up the stack granted to it. The stack below the limit
 * belongs to the host and suffices for this function.
 */
void __noreturn baton_stack_overflow(void);
void __noreturn baton_stack_overflow(void)
{
	struct baton_frame *frame = baton_current_frame();

	if (frame->is_panicking)
		baton_abandon(frame, BATON_FAULT_KIND_PANIC);
	if (irqs_disabled())
		say("the call used up the " __stringify(BATON_STACK_GRANT)
		    " bytes of stack that a policy is granted; is there a recursion?");
	else
		say("the stack is used up; is there a recursion?");
	baton_abandon(frame, BATON_FAULT_KIND_STACK_OVERFLOW);
}

/*
 * Called by guard.S when a call has returned and this CPU holds locks. Returns if the CPU held the
 * same number before the call.
 */
void baton_check_locks(void);
void baton_check_locks(void)
{
	/*
	 * A policy that is created with interrupts on takes no locks, and held_before is not valid
	 * for it.
	 */
	if (!irqs_disabled() ||
	    this_cpu_read(rqspinlock_held_locks.cnt) == this_cpu_read(baton_frame.held_before))
		return;
	say("the call returned with a lock held; was its guard forgotten?");
	baton_abandon(this_cpu_ptr(&baton_frame), BATON_FAULT_KIND_DEADLOCK);
}

void baton_host_token_dropped(u64 token)
{
	if (baton_creating() || !baton_core_dropped(token, smp_processor_id()))
		return;
	baton_record(dropped, token);
	baton_abandon(this_cpu_ptr(&baton_frame), BATON_FAULT_KIND_LOST_TASK);
}
EXPORT_SYMBOL_GPL(baton_host_token_dropped);

static noinline u64 recorded_now(void)
{
	u64 now = local_clock();

	baton_record(now, now);
	return now;
}

u64 baton_host_now(void)
{
	return baton_is_recording() ? recorded_now() : local_clock();
}
EXPORT_SYMBOL_GPL(baton_host_now);

u64 baton_host_random(void)
{
	/* xorshift64, a few instructions a number; seeded at init, never 0 */
	u64 x = raw_cpu_read(random_state);

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	raw_cpu_write(random_state, x);
	baton_record(random, x);
	return x;
}
EXPORT_SYMBOL_GPL(baton_host_random);

/*
 * If RCU is preemptible, a BPF program disables migration of the task that it interrupts
 * (rcu_read_lock_dont_migrate()). All callbacks of the shim are BPF programs, and that task may be
 * the one that is being enqueued.
 */
static bool migration_disabled(const struct task_struct *task)
{
	return task->migration_disabled > (IS_ENABLED(CONFIG_PREEMPT_RCU) && task == current);
}

/* For the rules: may the task run on this CPU now? The caller keeps the task alive. */
bool baton_khost_may_run(struct task_struct *task, s32 cpu);
notrace bool baton_khost_may_run(struct task_struct *task, s32 cpu)
{
	if (unlikely(!task || (u32)cpu >= nr_cpu_ids))
		return false;
	/*
	 * As in the kernel's own classes, a task whose CPUs are all offline stays on its current
	 * CPU until one of its CPUs is online again, or until its next wakeup gives it another
	 * mask.
	 */
	if (task_cpu(task) == cpu)
		return cpumask_test_cpu(cpu, task->cpus_ptr) ||
		       !cpumask_intersects(task->cpus_ptr, cpu_active_mask);
	return cpumask_test_cpu(cpu, task->cpus_ptr) && cpu_active(cpu) &&
	       (!task->migration_disabled || !migration_disabled(task));
}

/* Is the policy of the current call asked on that CPU? */
static bool serves(s32 cpu)
{
	return likely(!READ_ONCE(baton_partitioned)) || baton_core_serves(smp_processor_id(), cpu);
}

/*
 * A task that is not queued cannot be picked now, so only its affinity counts. Disabled migration
 * does not: it may end soon (a BPF program may run in the task's context on another CPU), and the
 * policy's decision may be for the long term, such as the choice of a home CPU.
 */
static noinline bool may_run_later(const struct task_struct *task, u32 slot, s32 cpu)
{
	return !baton_core_is_queued(slot) && cpumask_test_cpu(cpu, task->cpus_ptr) &&
	       cpu_active(cpu);
}

static __always_inline bool may_run(u32 slot, s32 cpu)
{
	struct task_struct *task = baton_core_task_of_slot(slot);

	if (!baton_khost_may_run(task, cpu) &&
	    !(task && task->migration_disabled && (u32)cpu < nr_cpu_ids &&
	      may_run_later(task, slot, cpu)))
		return false;
	return serves(cpu);
}

static noinline bool recorded_may_run(u32 slot, s32 cpu)
{
	bool yes = may_run(slot, cpu);

	baton_record(may_run, slot, cpu, yes);
	return yes;
}

bool baton_host_may_run(u32 slot, s32 cpu)
{
	return baton_is_recording() ? recorded_may_run(slot, cpu) : may_run(slot, cpu);
}
EXPORT_SYMBOL_GPL(baton_host_may_run);

static __always_inline bool is_online(s32 cpu)
{
	return baton_core_is_online(cpu) && serves(cpu);
}

static noinline bool recorded_cpu_online(s32 cpu)
{
	bool yes = is_online(cpu);

	baton_record(online, cpu, yes);
	return yes;
}

bool baton_host_cpu_online(s32 cpu)
{
	return baton_is_recording() ? recorded_cpu_online(cpu) : is_online(cpu);
}
EXPORT_SYMBOL_GPL(baton_host_cpu_online);

static __always_inline bool cpu_idle(s32 cpu)
{
	return baton_core_is_idle(cpu) && serves(cpu);
}

static noinline bool recorded_cpu_idle(s32 cpu)
{
	bool yes = cpu_idle(cpu);

	baton_record(idle, cpu, yes);
	return yes;
}

bool baton_host_cpu_idle(s32 cpu)
{
	return baton_is_recording() ? recorded_cpu_idle(cpu) : cpu_idle(cpu);
}
EXPORT_SYMBOL_GPL(baton_host_cpu_idle);

static noinline bool recorded_any_idle(void)
{
	bool yes = baton_core_is_any_idle();

	baton_record(any_idle, yes);
	return yes;
}

bool baton_host_any_idle(void)
{
	return baton_is_recording() ? recorded_any_idle() : baton_core_is_any_idle();
}
EXPORT_SYMBOL_GPL(baton_host_any_idle);

static __always_inline bool claim_idle(s32 cpu)
{
	return serves(cpu) && baton_core_claim_idle(cpu);
}

static noinline bool recorded_claim_idle(s32 cpu)
{
	bool yes = claim_idle(cpu);

	baton_record(claim, cpu, yes);
	return yes;
}

bool baton_host_claim_idle(s32 cpu)
{
	return baton_is_recording() ? recorded_claim_idle(cpu) : claim_idle(cpu);
}
EXPORT_SYMBOL_GPL(baton_host_claim_idle);

/*
 * Ends the slice of the current task and makes the CPU reschedule. Called in a hard interrupt, or
 * with interrupts off, on the CPU in question.
 */
static void kick_here(void *unused)
{
	current->scx.slice = 0;	/* means nothing to a task of another class */
	set_tsk_need_resched(current);
	set_preempt_need_resched();
}

static void kicked(void *unused)
{
	/* kick_data may be reused once its callback runs */
	clear_bit_unlock(0, this_cpu_ptr(&kick_sent));
	/* A sender that finds the bit set has set this before. */
	smp_mb__after_atomic();
	if (this_cpu_xchg(kick_preempts, false) || is_idle_task(current))
		kick_here(NULL);
}

/*
 * Sends a kick. Without `preempt`, a busy CPU ignores it. Callers of
 * smp_call_function_single_async() must not let two CPUs use one csd at once, so `kick_sent` guards
 * kick_data.
 */
static void kick(int cpu, bool preempt)
{
	if (preempt)
		xchg(per_cpu_ptr(&kick_preempts, cpu), true);
	if (test_and_set_bit_lock(0, per_cpu_ptr(&kick_sent, cpu)))
		return;
	if (smp_call_function_single_async(cpu, per_cpu_ptr(&kick_data, cpu)))
		clear_bit_unlock(0, per_cpu_ptr(&kick_sent, cpu));
}

/*
 * Makes every CPU dispatch soon. Any context. A kick that is still in flight serves this one as
 * well.
 */
void baton_khost_kick_all(void)
{
	unsigned long flags;
	int cpu;

	local_irq_save(flags);
	for_each_online_cpu(cpu) {
		if (cpu == smp_processor_id())
			kick_here(NULL);
		else
			kick(cpu, true);
	}
	local_irq_restore(flags);
}

/* Carries out the kicks of a call that no BPF program made. Interrupts off. */
void baton_khost_kick(const struct baton_ctx *ctx)
{
	u32 i;

	for (i = 0; i < min(ctx->nr_kicks, BATON_MAX_KICKS); i++) {
		int cpu = ctx->kicks[i] & (BATON_KICK_PREEMPT - 1);

		if (!(ctx->kicks[i] & BATON_KICK_PREEMPT) && !baton_core_is_asleep(cpu))
			continue;
		if (cpu == smp_processor_id())
			kick_here(NULL);
		else if (cpu < nr_cpu_ids && cpu_online(cpu))
			kick(cpu, ctx->kicks[i] & BATON_KICK_PREEMPT);
	}
}

/*
 * Makes an idle CPU dispatch, or, with `preempt`, any CPU. A CPU that is about to go idle takes the
 * interrupt once it is idle, and then dispatches again. Any context except NMI.
 */
void baton_kick_cpu(u32 cpu, bool preempt)
{
	unsigned long flags;

	local_irq_save(flags);
	if (cpu == smp_processor_id()) {
		if (preempt || is_idle_task(current))
			kick_here(NULL);
	} else if (cpu < nr_cpu_ids && cpu_online(cpu)) {
		kick(cpu, preempt);
	}
	local_irq_restore(flags);
}
EXPORT_SYMBOL_GPL(baton_kick_cpu);

/*
 * Carries out the preemption of the current CPU, which needs no interrupt, and leaves the other
 * kicks. The CPU's run queue is locked. A task of a higher class is not preempted, as in
 * kick_one_cpu() (kernel/sched/ext/ext.c).
 */
void baton_khost_kick_here(struct baton_ctx *ctx)
{
	u32 i, left = 0;

	if (!is_idle_task(current) && !(current->scx.flags & SCX_TASK_QUEUED))
		return;
	for (i = 0; i < min(ctx->nr_kicks, BATON_MAX_KICKS); i++) {
		if (ctx->kicks[i] == (smp_processor_id() | BATON_KICK_PREEMPT))
			kick_here(NULL);
		else
			ctx->kicks[left++] = ctx->kicks[i];
	}
	ctx->nr_kicks = left;
}

/*
 * Eviction: sched_ext keeps a runnable task on its CPU as long as the CPU has no other task. So the
 * host provides one, the worker of a work item bound to the CPU. As the current task has no slice
 * left, it is then enqueued.
 *
 * SCX_OPS_ENQ_LAST would also have the task enqueued. On a CPU that is going offline, however, it
 * leaves the task on the local queue and the CPU idle, while the hotplug waits for a grace period
 * that may depend on the task.
 */
struct eviction {
	struct irq_work begin;
	struct work_struct other;
};

static DEFINE_PER_CPU(struct eviction, evictions);

static void come_and_go(struct work_struct *work)
{
}

/* Hard interrupt on the CPU in question, after the dispatch. */
static void begin_eviction(struct irq_work *work)
{
	struct eviction *eviction = container_of(work, struct eviction, begin);

	current->scx.slice = 0;	/* means nothing to a task of another class */
	queue_work_on(smp_processor_id(), system_highpri_wq, &eviction->other);
}

/*
 * Causes the previous task to be enqueued if it stays runnable. Called in a dispatch. A CPU that is
 * going offline makes no dispatch.
 */
void baton_khost_evict(void)
{
	irq_work_queue(&this_cpu_ptr(&evictions)->begin);
}

u64 baton_khost_lock_slots(void);
u64 baton_khost_lock_slots(void)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&slot_lock, flags);
	return flags;
}

void baton_khost_unlock_slots(u64 flags);
void baton_khost_unlock_slots(u64 flags)
{
	raw_spin_unlock_irqrestore(&slot_lock, (unsigned long)flags);
}

void baton_host_init(void)
{
	int cpu;

	for_each_possible_cpu(cpu) {
		struct eviction *eviction = per_cpu_ptr(&evictions, cpu);

		init_irq_work(&eviction->begin, begin_eviction);
		INIT_WORK(&eviction->other, come_and_go);
		INIT_CSD(per_cpu_ptr(&kick_data, cpu), kicked, NULL);
		per_cpu(random_state, cpu) = get_random_u64() | 1;
		per_cpu(baton_frame, cpu).cpu = baton_core_cpu(cpu);
		per_cpu(baton_frame, cpu).limit = BATON_NO_LIMIT;
	}
}

static void nothing(void *unused)
{
}

/*
 * Waits until no kick and no eviction is in flight. Process context; no further fault is possible.
 */
void baton_host_exit(void)
{
	int cpu;

	on_each_cpu(nothing, NULL, 1);
	for_each_possible_cpu(cpu) {
		irq_work_sync(&per_cpu_ptr(&evictions, cpu)->begin);
		cancel_work_sync(&per_cpu_ptr(&evictions, cpu)->other);
	}
}
