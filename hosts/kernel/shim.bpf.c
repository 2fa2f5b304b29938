// SPDX-License-Identifier: GPL-2.0-only
/*
 * The shim: a sched_ext scheduler without decisions of its own. Each callback fills a struct
 * baton_ctx, calls a kfunc of baton.ko, and carries out the answer. The shim is attached once and
 * stays attached while policies are loaded and unloaded.
 *
 * Context: that of the sched_ext callback. init, exit and init_task run in process context, and
 * cpu_online and cpu_offline in the hotplug path. All others run with interrupts off, most of them
 * with a run-queue lock held.
 *
 * Task handles. The handle of a task (its slot, and the number of this use of the slot) is in
 * p->scx.dsq_vtime, a field of sched_ext that a scheduler without priority queues may use freely.
 * Reading it costs one load on the hot path. The kernel clears the field while the task is of
 * another class, so the task storage keeps the handle for that time. An array of task references
 * leads from a slot to its task. init_task fills an entry and exit_task empties it.
 *
 * Omitted callbacks. ops.dequeue, ops.quiescent and ops.stopping would each cost every context
 * switch. The core learns the same at the next dispatch or enqueue (hosts/core, "lazy notices").
 * ops.runnable and ops.running have no user.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "baton.h"
#include "shim.h"

char _license[] SEC("license") = "GPL";

/*
 * The fallback queues hold tasks without a policy, each in FIFO order. The queue of kernel threads
 * is checked first, as all other tasks may depend on them. On each CPU the other queues take turns,
 * so that the tasks of one user, however many, do not take more than that user's part.
 */
#define KTHREADS_DSQ 1
#define USERS_DSQ 2		/* root's queue; then the users' queues, by uid % 16 */
#define NR_USERS_DSQS 17

/* Attempts of one dispatch. Each may insert a task, so this is below ops.dispatch_max_batch. */
#define MAX_TRIES 16
#define MAX_RT_PRIO_NICE_0 120	/* static_prio of nice 0 */
#define PF_KTHREAD 0x00200000	/* include/linux/sched.h */

/* include/uapi/asm-generic/errno-base.h: macros, so not in BTF */
#define ESRCH 3
#define ENOMEM 12
#define EBUSY 16

/*
 * Flags that the core gets from the kernel unchanged: ENQUEUE_WAKEUP, ENQUEUE_RESTORE, WF_FORK and
 * WF_SYNC (kernel/sched/sched.h). They are macros, so BTF does not have them. No kernel with
 * sched_ext has other values.
 */
#define ENQUEUE_FLAGS (BATON_F_WAKEUP | BATON_F_RESTORE)
#define WAKE_FLAGS (BATON_F_FORK | BATON_F_SYNC)

/* Read by the loader. */
const volatile u64 switch_partial = SCX_OPS_SWITCH_PARTIAL;

/* Set by the loader. */
/* 1: all normal tasks of the machine; 0: only tasks of class SCHED_EXT */
const volatile u32 all_tasks;
const volatile u32 nr_cpus = 1;	/* possible CPUs */

/* Re-enqueues tasks when a higher class takes the CPU. 0 if the kernel does not have it. */
enum scx_enq_flags___immed { SCX_ENQ_IMMED___immed = 1ULL << 33 };
#define IMMED									\
	(bpf_core_enum_value_exists(enum scx_enq_flags___immed, SCX_ENQ_IMMED___immed) ? \
		 bpf_core_enum_value(enum scx_enq_flags___immed, SCX_ENQ_IMMED___immed) : \
		 0)

/* These may be missing in a kernel, and thus in its BTF. */
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
	__uint(max_entries, 32768);	/* the loader sets this to the core's max_tasks */
	__type(key, u32);
	__type(value, struct slot_ref);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u64);
} handles SEC(".maps");

/* As in the kernel, with thread_info in task_struct. */
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
 * Index of the fallback queue that this CPU checks first when it next takes a task from the
 * fallback.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} next_queue SEC(".maps");

/*
 * Moves a task from the fallback to the local queue of this CPU. False if no task there may run
 * here. The verifier checks a global function once, and not in each turn of the loop that calls it.
 */
__noinline int take_fallback(void)
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
 * Carries out kick `i`, if there is one. sched_ext ends the whole scheduler for a CPU number that
 * is out of range.
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

/* `other`: flags for kicks that do not preempt. */
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
 * Kick flags for a task that is being inserted into the fallback queue. SCX_KICK_IDLE ignores a CPU
 * that is busy now. That CPU may look for a task and go idle before the task is inserted, which
 * happens after the callback. A kick without flags arrives after the insertion.
 */
#define KICK_AFTER 0

/*
 * Declares and fills the context of a callback about a task. The kfunc sets `now`. Only the first
 * nr_kicks entries of `kicks` are read.
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
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, call.slice, IMMED);
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
 * Inserts the task call->task. False if the task is gone or may no longer run here. The caller must
 * then try again, as the CPU would idle.
 *
 * The program must use at most 48 bytes of stack. With more, the verifier gives it a private stack,
 * which makes each of its calls slower. So larger data is in the context, and the barrier keeps the
 * compiler from computing its address early and spilling it.
 */
static __always_inline bool insert_slot(struct baton_ctx *call, bool local)
{
	struct slot_ref *ref;
	struct task_struct *p;
	u32 *word;	/* the slot number; later the free dispatch slots */

	asm volatile("" : "+r"(call));
	word = (u32 *)&call->now;
	*word = (u32)call->task - 1;
	ref = bpf_map_lookup_elem(&slots, word);
	if (!ref)
		return false;
	/* non-sleepable programs are RCU readers */
	p = ref->task;
	if (!p)
		return false;
	if (local && task_cpu(p) == call->cpu) {
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, call->slice, IMMED);
		return true;
	}
	/*
	 * Since the rules checked it, a task of another run queue may have been dequeued, given
	 * another mask and enqueued again. The insertion stores the enqueue that it applies to, so
	 * a check after the insertion is final. sched_ext ends the whole scheduler for an insertion
	 * on a wrong CPU.
	 */
	*word = scx_bpf_dispatch_nr_slots();
	scx_bpf_dsq_insert(p, local ? SCX_DSQ_LOCAL : fallback_of(p), call->slice,
			   local ? IMMED : 0);
	if (local ? !p->migration_disabled && bpf_cpumask_test_cpu(call->cpu, p->cpus_ptr) :
				   baton_is_rescued(call))
		return true;
	/* A task that has died meanwhile has not been inserted. */
	if (scx_bpf_dispatch_nr_slots() < *word)
		scx_bpf_dispatch_cancel();
	/*
	 * Its migration may be disabled only because a BPF program runs in its context while it is
	 * being switched out.
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
	u16 empty = 0;

	call.nr_kicks = 0;
	call.slice = 0;
	call.cpu = cpu;
	/*
	 * Try again after a rescue, and after a turn of the fallback that had no task for this CPU.
	 * Neither has called a policy.
	 */
#pragma clang loop unroll(disable)
	for (tries = 0; tries < MAX_TRIES; tries++) {
		if (prev) {
			call.task = prev->scx.dsq_vtime;
			call.runtime = prev->se.sum_exec_runtime;
			call.flags =
				empty |
				(prev->scx.flags & SCX_TASK_QUEUED ? BATON_F_PREV_RUNNABLE : 0);
		} else {
			call.task = 0;
			call.flags = empty;
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
			 * a task that was queued in a stopped policy; it may be bound to an idle
			 * CPU
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
			empty = BATON_TURN_WAS_EMPTY;
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

	/* Pass the nice value, as `weight` is on the cgroup scale and rounded. */
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
		/* read from the task storage, as the parent may be of another class at present */
		u64 *parent = bpf_task_storage_get(&handles, bpf_get_current_task_btf(), NULL, 0);

		call.task = parent ? *parent : 0;
	}
	call.task = baton_init_task(&call);
	if (!call.task)
		return 0;	/* no free slot: this is counted, and the fallback runs the task */
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
	 * A running task keeps running without being enqueued. If a higher class took its CPU
	 * before the end of its slice, the task would wait at the head of the CPU's local queue.
	 * Any number of tasks could wait there in turn, and no policy would be asked before each
	 * had run for its slice.
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
	/* the loader adds switch_partial */
	.flags = SCX_OPS_ENQ_EXITING | SCX_OPS_ENQ_MIGRATION_DISABLED,
	.timeout_ms = 30000,
	.name = "baton",
};
