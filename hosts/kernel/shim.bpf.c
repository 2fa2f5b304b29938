// SPDX-License-Identifier: GPL-2.0-only
/*
 * The shim: a sched_ext scheduler that decides nothing. Each callback fills a struct baton_ctx,
 * calls a kfunc of baton.ko, and carries out the answer. It is attached once and stays while
 * policies come and go.
 *
 * Context: as sched_ext has it; all but init_task run with interrupts off or in the hotplug path,
 * and most with a run-queue lock held.
 *
 * How a task is known. Its handle (slot, and which use of the slot) is in p->scx.dsq_vtime, a field
 * of sched_ext's that is free to a scheduler without priority queues: one load on the hot path. The
 * task storage keeps the handle while the task is of another class, as the kernel clears the field
 * then. From a slot to its task leads an array of references, filled in init_task and emptied in
 * exit_task.
 *
 * What is not here, and why. ops.dequeue, ops.quiescent, ops.stopping: each costs every context
 * switch, and what they would say is found out at the next dispatch or enqueue (hosts/core, "lazy
 * notices"). ops.runnable, ops.running: nobody asks.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "baton.h"
#include "shim.h"

char _license[] SEC("license") = "GPL";

/*
 * The fallback's queues, of tasks without a policy: each first come, first served. That of the
 * kernel's threads is looked at first, as all others may depend on them. The others take turns on
 * each CPU, so that one user's tasks, however many, keep another's from no more than their part.
 */
#define KTHREADS_DSQ 1
#define USERS_DSQ 2		/* root's, and then those of the users with the same remainder */
#define NR_USERS_DSQS 17

#define MAX_TRIES 16		/* of a dispatch; each may insert a task: below ops.dispatch_max_batch */
#define MAX_RT_PRIO_NICE_0 120	/* static_prio of nice 0 */
#define PF_KTHREAD 0x00200000	/* include/linux/sched.h */

/* include/uapi/asm-generic/errno-base.h: macros, so not in BTF */
#define ESRCH 3
#define ENOMEM 12
#define EBUSY 16

/*
 * Flags that the rules have from the kernel as they are. kernel/sched/sched.h: SCX_ENQ_WAKEUP and
 * ENQUEUE_RESTORE; WF_FORK and WF_SYNC. Macros, so not in BTF; stable since 2016.
 */
#define ENQUEUE_FLAGS (BATON_F_WAKEUP | BATON_F_RESTORE)
#define WAKE_FLAGS (BATON_F_FORK | BATON_F_SYNC)

/* Set by the loader. */
/* 1: every normal task of the machine; else those of class SCHED_EXT */
const volatile u32 all_tasks;
const volatile u32 nr_cpus = 1;	/* possible CPUs */
/* SCX_ENQ_IMMED where the kernel has it: gives tasks back when a higher class takes the CPU */
const volatile u64 immed;

/* A kernel may lack these, and so its types. */
extern bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice) __weak __ksym;
extern bool scx_bpf_task_set_dsq_vtime(struct task_struct *p, u64 vtime) __weak __ksym;

extern u32 baton_select(struct baton_ctx *call) __ksym;
extern u32 baton_enqueue(struct baton_ctx *call) __ksym;
extern u32 baton_dispatch(struct baton_ctx *call) __ksym;
extern u64 baton_init_task(struct baton_ctx *call) __ksym;
extern bool baton_idle(bool idle) __ksym;
extern u32 baton_event(struct baton_ctx *call, u32 event, s32 more) __ksym;
extern bool baton_rescue(struct baton_ctx *call) __ksym;
extern bool baton_is_rescued(struct baton_ctx *call) __ksym;

extern bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask) __ksym;
extern struct task_struct *bpf_task_acquire(struct task_struct *p) __ksym;
extern void bpf_task_release(struct task_struct *p) __ksym;

struct slot_ref {
	struct task_struct __kptr *task;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 32768);	/* set by the loader to the core's max_tasks */
	__type(key, u32);
	__type(value, struct slot_ref);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u64);
} handles SEC(".maps");

/* As the kernel's, where the thread_info is in the task. */
static __always_inline s32 task_cpu(const struct task_struct *p)
{
	return p->thread_info.cpu;
}

static __always_inline void set_slice(struct task_struct *p, u64 slice)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice))
		scx_bpf_task_set_slice(p, slice);
	else
		p->scx.slice = slice;
}

static __always_inline void set_handle(struct task_struct *p, u64 handle)
{
	if (bpf_ksym_exists(scx_bpf_task_set_dsq_vtime))
		scx_bpf_task_set_dsq_vtime(p, handle);
	else
		p->scx.dsq_vtime = handle;
}

static __always_inline u64 fallback_of(const struct task_struct *p)
{
	u32 user;

	if (p->flags & PF_KTHREAD)
		return KTHREADS_DSQ;
	user = p->real_cred->uid.val;
	return user ? USERS_DSQ + 1 + user % (NR_USERS_DSQS - 1) : USERS_DSQ;
}

/*
 * The place of the queue that is to be looked at first when this CPU next takes a task from the
 * fallback.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} next_queue SEC(".maps");

/*
 * Takes a task from the fallback to this CPU's own queue. False when it has none that may run here.
 */
static __always_inline bool take_fallback(void)
{
	u32 zero = 0, i, place;
	u32 *next = bpf_map_lookup_elem(&next_queue, &zero);

	if (scx_bpf_dsq_move_to_local(KTHREADS_DSQ))
		return true;
	if (!next)
		return false;
	place = *next;
#pragma clang loop unroll(disable)
	for (i = 0; i < NR_USERS_DSQS; i++) {
		u64 dsq = USERS_DSQ + (place + i) % NR_USERS_DSQS;

		if (scx_bpf_dsq_move_to_local(dsq)) {
			*next = (dsq - USERS_DSQ + 1) % NR_USERS_DSQS;
			return true;
		}
	}
	return false;
}

/*
 * Carries out one kick, if it was asked for. A CPU that the machine does not have would end the
 * whole scheduler.
 */
static __always_inline void kick(const struct baton_ctx *call, u32 i, u64 other)
{
	u32 cpu;

	if (i >= call->nr_kicks)
		return;
	cpu = call->kicks[i] & (BATON_KICK_PREEMPT - 1);
	if (cpu < nr_cpus)
		scx_bpf_kick_cpu(cpu,
				 call->kicks[i] & BATON_KICK_PREEMPT ? SCX_KICK_PREEMPT : other);
}

/* `other` is how a CPU is kicked that is not to be preempted. */
static __always_inline void kick_all_by(const struct baton_ctx *call, u64 other)
{
	if (!call->nr_kicks)
		return;
	kick(call, 0, other);
	kick(call, 1, other);
	kick(call, 2, other);
	kick(call, 3, other);
}

static __always_inline void kick_all(const struct baton_ctx *call)
{
	kick_all_by(call, SCX_KICK_IDLE);
}

/*
 * How a CPU is kicked for a task that is being inserted into the fallback queue: SCX_KICK_IDLE
 * leaves a CPU alone that is busy now, and which may have looked and gone idle by the time the task
 * is there, after the callback. This one comes later than that.
 */
#define KICK_AFTER 0

/*
 * What every callback about a task begins with. `now` is added by the kfunc; of `kicks` nobody
 * reads more than there are.
 */
#define ABOUT(call, p, which_cpu, what)					\
	struct baton_ctx call;						\
	call.task = (p)->scx.dsq_vtime;					\
	call.runtime = (p)->se.sum_exec_runtime;				\
	call.slice = 0;							\
	call.cpu = (which_cpu);						\
	call.flags = (what);						\
	call.nr_kicks = 0

SEC("struct_ops/baton_select_cpu")
s32 BPF_PROG(baton_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	ABOUT(call, p, prev_cpu, wake_flags & WAKE_FLAGS);

	if (baton_select(&call) == BATON_V_RUN)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, call.slice, immed);
	kick_all(&call);
	return call.cpu;
}

SEC("struct_ops/baton_enqueue_task")
void BPF_PROG(baton_enqueue_task, struct task_struct *p, u64 enq_flags)
{
	ABOUT(call, p, task_cpu(p), enq_flags & ENQUEUE_FLAGS);
	u32 verdict;

	verdict = baton_enqueue(&call);
	if (verdict != BATON_V_NONE)
		scx_bpf_dsq_insert(p, verdict == BATON_V_FALLBACK ? fallback_of(p) : SCX_DSQ_LOCAL,
				   call.slice, enq_flags);
	kick_all_by(&call, verdict == BATON_V_FALLBACK ? KICK_AFTER : SCX_KICK_IDLE);
}

/*
 * False when the task is gone or may not be here any more: then there must be another round, as the
 * CPU would idle.
 *
 * The task is call->task. What a program needs more than 48 bytes of stack for is in the context,
 * whose place is kept from being computed early and spilled: else it is given a stack of its own,
 * which costs every call in it.
 */
static __always_inline bool insert_slot(struct baton_ctx *call, bool local)
{
	struct slot_ref *ref;
	struct task_struct *p;
	u32 *word;	/* the slot's number, then the room that there was */

	asm volatile("" : "+r"(call));
	word = (u32 *)&call->now;
	*word = (u32)call->task - 1;
	ref = bpf_map_lookup_elem(&slots, word);
	if (!ref)
		return false;
	/* programs that do not sleep are RCU readers */
	p = ref->task;
	if (!p)
		return false;
	if (local && task_cpu(p) == call->cpu) {
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, call->slice, immed);
		return true;
	}
	/*
	 * A task of another run queue may have been dequeued, given another mask and enqueued again
	 * since the rules looked. The insertion notes which enqueue it is for, so a look after it
	 * is final. A wrong CPU would end the whole scheduler.
	 */
	*word = scx_bpf_dispatch_nr_slots();
	scx_bpf_dsq_insert(p, local ? SCX_DSQ_LOCAL : fallback_of(p), call->slice,
			   local ? immed : 0);
	if (local ? !p->migration_disabled && bpf_cpumask_test_cpu(call->cpu, p->cpus_ptr) :
				   baton_is_rescued(call))
		return true;
	/* What has died meanwhile is not inserted. */
	if (scx_bpf_dispatch_nr_slots() < *word)
		scx_bpf_dispatch_cancel();
	/*
	 * Its migration may be disabled just because a BPF program runs in its name, while it
	 * is being switched out.
	 */
	if (local)
		baton_event(call, BATON_E_PICK_FAILED, 0);
	return false;
}

SEC("struct_ops/baton_dispatch_cpu")
void BPF_PROG(baton_dispatch_cpu, s32 cpu, struct task_struct *prev)
{
	struct baton_ctx call;
	u32 verdict, tries;
	u16 vain = 0;

	call.nr_kicks = 0;
	call.slice = 0;
	call.cpu = cpu;
	/*
	 * Again after a rescue, and when the fallback queue's turn has nothing for this CPU: no
	 * policy has been asked then.
	 */
#pragma clang loop unroll(disable)
	for (tries = 0; tries < MAX_TRIES; tries++) {
		if (prev) {
			call.task = prev->scx.dsq_vtime;
			call.runtime = prev->se.sum_exec_runtime;
			call.flags =
				vain |
				(prev->scx.flags & SCX_TASK_QUEUED ? BATON_F_PREV_RUNNABLE : 0);
		} else {
			call.task = 0;
			call.flags = vain;
		}
		verdict = baton_dispatch(&call);
		if (verdict == BATON_V_RUN) {
			if (insert_slot(&call, true))
				break;
			continue;
		}
		if (verdict == BATON_V_KEEP) {
			if (prev)
				set_slice(prev, call.slice);
			break;
		}
		if (verdict == BATON_V_RESCUE && tries < MAX_TRIES - 1) {
			/*
			 * a task that a stopped policy had queued; it may be bound to an idle CPU
			 */
			if (baton_rescue(&call)) {
				insert_slot(&call, false);
				if ((u32)call.runtime < nr_cpus)
					scx_bpf_kick_cpu(call.runtime, KICK_AFTER);
			}
			continue;
		}
		if (verdict != BATON_V_NOTHING && take_fallback())
			break;
		if (verdict == BATON_V_FALLBACK || verdict == BATON_V_NOTHING)
			break;
		if (verdict == BATON_V_TURN)
			vain = BATON_TURN_IS_VAIN;
	}
	if (tries == MAX_TRIES)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	kick_all(&call);
}

SEC("struct_ops/baton_tick_task")
void BPF_PROG(baton_tick_task, struct task_struct *p)
{
	ABOUT(call, p, task_cpu(p), 0);

	if (baton_event(&call, BATON_E_TICK, 0) == BATON_V_EXPIRE)
		set_slice(p, 0);
	kick_all(&call);
}

SEC("struct_ops/baton_yield_task")
bool BPF_PROG(baton_yield_task, struct task_struct *from, struct task_struct *to)
{
	ABOUT(call, from, task_cpu(from), 0);

	if (to)
		return false;
	baton_event(&call, BATON_E_YIELD, 0);
	set_slice(from, 0);
	return true;
}

SEC("struct_ops/baton_set_weight")
void BPF_PROG(baton_set_weight, struct task_struct *p, u32 weight)
{
	ABOUT(call, p, task_cpu(p), 0);

	/* The nice value, as the weight given here is the cgroup scale's, rounded. */
	baton_event(&call, BATON_E_NICE, p->static_prio - MAX_RT_PRIO_NICE_0);
	kick_all(&call);
}

SEC("struct_ops/baton_set_cpumask")
void BPF_PROG(baton_set_cpumask, struct task_struct *p, const struct cpumask *mask)
{
	ABOUT(call, p, task_cpu(p), 0);

	baton_event(&call, BATON_E_AFFINITY, 0);
	kick_all(&call);
}

SEC("struct_ops/baton_update_idle")
void BPF_PROG(baton_update_idle, s32 cpu, bool idle)
{
	if (baton_idle(idle)) {
		struct baton_ctx call = { .cpu = cpu };

		baton_event(&call, BATON_E_IDLE, idle);
		kick_all(&call);
	}
}

static __always_inline void change_online(s32 cpu, bool online)
{
	struct baton_ctx call = { .cpu = cpu };

	baton_event(&call, BATON_E_ONLINE, online);
	kick_all(&call);
}

SEC("struct_ops/baton_cpu_online")
void BPF_PROG(baton_cpu_online, s32 cpu)
{
	change_online(cpu, true);
}

SEC("struct_ops/baton_cpu_offline")
void BPF_PROG(baton_cpu_offline, s32 cpu)
{
	change_online(cpu, false);
}

SEC("struct_ops.s/baton_init_task_op")
s32 BPF_PROG(baton_init_task_op, struct task_struct *p, struct scx_init_task_args *args)
{
	struct baton_ctx call = { .runtime = (u64)p, .cpu = p->pid };
	struct task_struct *old, *ref;
	struct slot_ref *place;
	u64 *stored;
	u32 slot;

	stored = bpf_task_storage_get(&handles, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!stored)
		return -ENOMEM;
	*stored = 0;
	if (args->fork) {
		/* read through the task storage, as the parent may be of another class for now */
		u64 *parent = bpf_task_storage_get(&handles, bpf_get_current_task_btf(), NULL, 0);

		call.task = parent ? *parent : 0;
	}
	call.task = baton_init_task(&call);
	if (!call.task)
		return 0;	/* no slot left: counted, and run by the fallback */
	slot = (u32)call.task - 1;
	place = bpf_map_lookup_elem(&slots, &slot);
	ref = bpf_task_acquire(p);
	if (!place || !ref) {
		if (ref)
			bpf_task_release(ref);
		baton_event(&call, BATON_E_EXIT, 0);
		return -ESRCH;
	}
	old = bpf_kptr_xchg(&place->task, ref);
	if (old)
		bpf_task_release(old);
	*stored = call.task;
	return 0;
}

SEC("struct_ops/baton_exit_task")
void BPF_PROG(baton_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	u64 *stored = bpf_task_storage_get(&handles, p, NULL, 0);
	struct baton_ctx call = {};
	struct task_struct *old;
	struct slot_ref *place;
	u32 slot;

	if (!stored || !*stored)
		return;
	call.task = *stored;
	*stored = 0;
	slot = (u32)call.task - 1;
	place = bpf_map_lookup_elem(&slots, &slot);
	if (place) {
		old = bpf_kptr_xchg(&place->task, NULL);
		if (old)
			bpf_task_release(old);
	}
	baton_event(&call, BATON_E_EXIT, 0);
}

SEC("struct_ops/baton_enable")
void BPF_PROG(baton_enable, struct task_struct *p)
{
	u64 *stored = bpf_task_storage_get(&handles, p, NULL, 0);
	struct baton_ctx call = {};

	if (!stored)
		return;
	call.task = *stored;
	set_handle(p, call.task);
	/*
	 * One that runs goes on, without being enqueued. If a higher class took its CPU before the
	 * slice ends, it would wait at the head of the CPU's own queue; so would any number, each
	 * before it is preempted, and nobody would be asked before each had run for its slice.
	 */
	set_slice(p, 1);
	baton_event(&call, BATON_E_ENABLE, p->static_prio - MAX_RT_PRIO_NICE_0);
}

SEC("struct_ops/baton_disable")
void BPF_PROG(baton_disable, struct task_struct *p)
{
	ABOUT(call, p, task_cpu(p), 0);

	/* TASK_DEAD, include/linux/sched.h */
	baton_event(&call, BATON_E_DISABLE, !!(p->__state & 0x80));
	kick_all(&call);
}

SEC("struct_ops.s/baton_init")
s32 BPF_PROG(baton_init)
{
	struct baton_ctx call = {};
	u32 i;
	s32 err;

	for (i = 0; i < 1 + NR_USERS_DSQS; i++) {
		err = scx_bpf_create_dsq(KTHREADS_DSQ + i, -1);
		if (err)
			return err;
	}
	return baton_event(&call, BATON_E_ATTACH, all_tasks) ? -EBUSY : 0;
}

SEC("struct_ops/baton_exit")
void BPF_PROG(baton_exit, struct scx_exit_info *info)
{
	struct baton_ctx call = {};

	baton_event(&call, BATON_E_DETACH, 0);
}

SEC(".struct_ops.link")
struct sched_ext_ops baton_ops = {
	.select_cpu = (void *)baton_select_cpu,
	.enqueue = (void *)baton_enqueue_task,
	.dispatch = (void *)baton_dispatch_cpu,
	.tick = (void *)baton_tick_task,
	.yield = (void *)baton_yield_task,
	.set_weight = (void *)baton_set_weight,
	.set_cpumask = (void *)baton_set_cpumask,
	.update_idle = (void *)baton_update_idle,
	.cpu_online = (void *)baton_cpu_online,
	.cpu_offline = (void *)baton_cpu_offline,
	.init_task = (void *)baton_init_task_op,
	.exit_task = (void *)baton_exit_task,
	.enable = (void *)baton_enable,
	.disable = (void *)baton_disable,
	.init = (void *)baton_init,
	.exit = (void *)baton_exit,
	/* the loader adds SCX_OPS_SWITCH_PARTIAL */
	.flags = SCX_OPS_ENQ_EXITING | SCX_OPS_ENQ_MIGRATION_DISABLED,
	.timeout_ms = 30000,
	.name = "baton",
};
