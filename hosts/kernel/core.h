/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Internal interface of baton.ko, between its C files and the rules (core-lib).
 *
 * Lock order: control_mutex > baton_hints_mutex > a run-queue lock (the kernel's) > a policy's own
 * locks > slot_lock, memory locks, locks of the recordings' rings.
 */
#ifndef BATON_CORE_H
#define BATON_CORE_H

#include <linux/jiffies.h>
#include <linux/jump_label_ratelimit.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/types.h>

#include "baton.h"
#include "guard.h"

struct baton_cpu_state;	/* defined in core-lib */
struct baton_meter;		/* defined in core-lib */
struct baton_place;		/* place.h */
struct baton_recording;
struct baton_version;		/* place.h */

/*
 * Per-CPU state to leave a policy. Only its CPU uses it, with interrupts off. guard.S depends on
 * the layout up to `seen`.
 */
struct baton_frame {
	u64 sp;			/* stack pointer at the entry of the current call */
	/* lowest stack address that the call may use, or BATON_NO_LIMIT */
	u64 limit;
	u64 saved[6];		/* rbx, rbp, r12 to r15 */
	/*
	 * resilient locks that this CPU held when the call began: those of a BPF program that the
	 * call interrupts
	 */
	s32 held_before;
	/* of loops, until turns.c looks at the call */
	s32 turns __aligned(8);
	u32 looks : 24;		/* of turns.c at the current call */
	u32 seen : 8;		/* by NMIs: the current call (nmi.c) */
	u64 looked;		/* time of the last one, ns (local_clock) */
	u64 lasted;		/* between them, ns */
	const struct baton_cpu_state *cpu;	/* state of this CPU in the rules */
	struct baton_ring *ring;	/* ring that the current call is recorded into, or NULL */
	/* memory blocks allocated in the current call, if it is recorded */
	u64 given;
	u8 ended_by;			/* fault of the last abandoned call */
	bool is_panicking;		/* between a panic and its end (host.c) */
};

DECLARE_PER_CPU(struct baton_frame, baton_frame);

extern struct mutex baton_control_mutex;
extern u32 baton_stall_ms;

/*
 * Details of a panic until the report is made: of a call on this CPU, or of the policy that is
 * being created.
 */
struct baton_last_words {
	u32 line;
	char file[96];
	char message[BATON_MESSAGE_LEN];
	u64 ip;			/* of the instruction, after an exception; otherwise 0 */
};
struct baton_last_words *baton_last_words(void);
const struct baton_last_words *baton_creating_last_words(void);

/* guard.S */
u64 baton_guard(void *this, void *ctx, u64 a, u64 b, unsigned long func, struct baton_frame *frame);
void __noreturn baton_unwind(struct baton_frame *frame);

/* traps.c */
int baton_traps_init(void);
void baton_traps_exit(void);
void baton_traps_add(struct module *module);
void baton_traps_remove(const struct module *module);
bool baton_traps_in_policy(struct pt_regs *regs);
bool baton_traps_end(struct pt_regs *regs);
void __noreturn baton_trapped(void);

/* nmi.c */
int baton_nmi_init(void);
void baton_nmi_exit(void);

/* turns.c */
void baton_turns_begin(void);
void baton_turns_look(unsigned long ip);
u64 baton_turns_limit_ns(void);

/* host.c */
void __noreturn baton_abandon(struct baton_frame *frame, enum baton_fault_kind kind);
void baton_host_init(void);
void baton_say(const char *what, unsigned long ip);
void baton_host_exit(void);
struct baton_frame *baton_current_frame(void);
void baton_khost_kick_all(void);
void baton_khost_evict(void);
void baton_khost_kick(const struct baton_ctx *ctx);
void baton_khost_kick_here(struct baton_ctx *ctx);

/* memory.c */
u64 baton_make(struct baton_place *place, const void *func, const void *first, const void *second);
void baton_free_all(struct baton_place *place);
bool baton_creating(void);
bool baton_is_creator(void);
struct baton_frame *baton_creating_frame(void);
void baton_memory_exit(void);

/* hold.c */
u64 baton_hold_all(void (*change)(void *data), void *data);

/* timer.c */
int baton_timers_add(struct baton_place *place);
void baton_timers_stop(struct baton_place *place);
void baton_timers_remove(struct baton_place *place);

/* watch.c */
void baton_watch_init(void);
void baton_watch_exit(void);
void baton_fallback_timers_init(void);
void baton_fallback_timers_exit(void);

/* upgrade.c */
int baton_upgrade(struct baton_place *place, struct baton_upgrade *arg);
int baton_renew(struct baton_place *place, struct baton_cpu *cpus,
		void (*held)(struct baton_place *, void *), void *data, char *message);
u64 baton_switch(struct baton_place *from, struct baton_place *to);
void baton_upgrade_fault(void);
void baton_upgrade_exit(void);

/* record.c */
void baton_record_end(struct baton_place *place, u32 why);
bool baton_is_recorded(const struct baton_place *place);
int baton_record_request(struct file *file, unsigned int cmd, void *arg);
ssize_t baton_record_read(struct file *file, char __user *to, size_t count, loff_t *at);
int baton_record_mmap(struct file *file, struct vm_area_struct *vma);
void baton_record_release(struct file *file);

/* flight.c */
int baton_flight_init(void);
int baton_flight_set(struct baton_place *place, struct baton_record *arg);
void baton_flight_go_on(void);
bool baton_flight_has_fault(const struct baton_place *place);
struct baton_recording *baton_flight_of_fault(struct baton_place *place);
void baton_flight_forget(struct baton_place *place);
void baton_flight_exit(void);

/* channel.c */
void baton_hints_event(struct baton_ctx *ctx, struct baton_frame *frame);

/* hints.c */
extern struct static_key_false_deferred baton_hints_key;	/* enabled while a queue is open */
int baton_hints_init(u32 max_tasks);
void baton_hints_exit(void);
void baton_hints_gone(u64 handle);
extern struct mutex baton_hints_mutex;
void baton_hints_offer(const struct baton_place *place);
void baton_hints_withdraw(const struct baton_place *place, u32 why);
void baton_hints_close(const struct baton_place *place);
bool baton_hints_replace(const struct baton_place *place, const struct baton_version *to);

/* grants.c */
int baton_grant(struct baton_grant *arg);

/* partition.c */
extern u32 baton_partitioned;
int baton_set_partition(struct baton_partition *arg);
void baton_partition_info(struct baton_partition *arg);
const char *baton_partition_name(u32 id);
void baton_partition_leave(const struct baton_place *place);
void baton_partition_switch(const struct baton_place *from, const struct baton_place *to,
			    bool begin);

/* cgroup.c */
int baton_cgroup_set(u64 cgroup, const struct baton_place *place);
void baton_cgroup_apply(void);
void baton_cgroup_info(struct baton_rule *arg);
void baton_cgroup_change(const struct baton_place *from, const struct baton_place *to);
void baton_cgroup_exit(void);

/* control.c */
int baton_set_class(struct task_struct *task, bool ext);
int baton_control_init(void);
void baton_control_exit(void);

/* create.c */
struct baton_creation {
	struct baton_env env;
	struct baton_cpu *cpus;
};
int baton_begin_create(const struct baton_place *place, struct baton_creation *creation,
		       const char *options, char *message);
void baton_end_create(struct baton_creation *creation);
void baton_describe_panic(char *text, size_t size);
void baton_unmake(struct baton_place *place, const struct baton_version *version, char *message);

/* fault.c */
void baton_fault_clear(struct baton_place *place);
void baton_fault_exit(void);

/* debugfs.c */
void baton_debugfs_init(void);
void baton_debugfs_exit(void);

/* measure.c */
int baton_measure(u32 ms);
u32 baton_measured_for(void);
int baton_measured_calls(struct baton_calls *calls);
void baton_measure_add(const struct baton_place *place);
void baton_measure_remove(const struct baton_place *place);
void baton_measure_exit(void);

/* moves.c */
int baton_moves_read(struct baton_refused_change *what);
void baton_moves_forget(u32 policy);
void baton_moves_exit(void);

/* shim_calls.c */
int baton_shim_init(void);
extern u32 baton_attached;
extern u32 baton_attached_all;
extern u64 baton_no_slot;

/* core-lib */
size_t baton_core_slot_size(void);
size_t baton_core_cpu_size(void);
void baton_core_init(void *slots, size_t nr_slots, void *cpus, size_t nr_cpus);
const struct baton_cpu_state *baton_core_cpu(s32 cpu);
u32 baton_core_select(struct baton_ctx *ctx, struct baton_frame *frame,
		      const struct baton_cpu_state *cpu);
u32 baton_core_enqueue(struct baton_ctx *ctx, struct baton_frame *frame,
		       const struct baton_cpu_state *cpu);
u32 baton_core_dispatch(struct baton_ctx *ctx, struct baton_frame *frame,
			const struct baton_cpu_state *cpu);
u32 baton_core_tick(struct baton_ctx *ctx, struct baton_frame *frame,
		    const struct baton_cpu_state *cpu);
u32 baton_core_yield(struct baton_ctx *ctx, struct baton_frame *frame,
		     const struct baton_cpu_state *cpu);
u32 baton_core_tell_idle(struct baton_ctx *ctx, struct baton_frame *frame,
			 const struct baton_cpu_state *cpu, bool idle);
bool baton_core_note_idle(const struct baton_cpu_state *cpu, bool idle);
u32 baton_core_online(struct baton_ctx *ctx, struct baton_frame *frame,
		      const struct baton_cpu_state *cpu, bool online);
u32 baton_core_enable(struct baton_ctx *ctx, struct baton_frame *frame,
		      const struct baton_cpu_state *cpu, s32 nice);
u32 baton_core_disable(struct baton_ctx *ctx, struct baton_frame *frame,
		       const struct baton_cpu_state *cpu, bool dead);
u32 baton_core_nice(struct baton_ctx *ctx, struct baton_frame *frame,
		    const struct baton_cpu_state *cpu, s32 nice);
u32 baton_core_affinity(struct baton_ctx *ctx, struct baton_frame *frame,
			const struct baton_cpu_state *cpu);
u32 baton_core_timer(struct baton_ctx *ctx, struct baton_frame *frame,
		     const struct baton_cpu_state *cpu, u32 policy);
u64 baton_core_init_task(struct task_struct *task, u32 pid, u64 parent);
void baton_core_exit_task(u64 handle);
u64 baton_core_rescue(void);
bool baton_core_is_rescued(u64 token);
void baton_core_pick_failed(u64 token);
struct task_struct *baton_core_task_of_slot(u32 slot);
bool baton_core_is_queued(u32 slot);
bool baton_core_is_idle(s32 cpu);
bool baton_core_is_any_idle(void);
bool baton_core_claim_idle(s32 cpu);
bool baton_core_is_asleep(s32 cpu);
bool baton_core_is_online(s32 cpu);
void baton_core_note_online(s32 cpu, bool online);
bool baton_core_dropped(u64 token, s32 cpu);
s32 baton_core_register(u32 events);
void baton_core_unregister(u32 index);
void baton_core_set_events(u32 index, u32 events);
bool baton_core_fault(u32 index, enum baton_fault_kind kind, u32 method, u32 pid, u64 now);
void baton_core_set_in_custody(u32 slot);
bool baton_core_start(u32 index, const struct baton_version *version);
bool baton_core_stop(u32 index);
void baton_core_swap(u32 index, const struct baton_version *version, u32 events);
void baton_core_set_recorder(u32 index, const struct baton_recording *recording);
void baton_core_set_measured(u32 index, bool on);
size_t baton_core_meter_size(void);
bool baton_core_add_calls(const struct baton_meter *meter, struct baton_calls *to);
u64 baton_core_count_calls(const struct baton_calls *calls);
u64 baton_core_percentile(const struct baton_calls *calls, u32 percent);
void baton_core_set_order(const u32 *first, size_t count);
bool baton_core_set_share(u32 index, u32 percent);
void baton_core_set_partition(u32 id, const u64 *cpus, size_t words, u32 policies, u64 now,
			      struct baton_frame *frame, const struct baton_cpu_state *cpu);
u32 baton_core_partition_of_cpu(s32 cpu);
u32 baton_core_partition_of_policy(u32 index);
bool baton_core_serves(s32 here, s32 cpu);
void baton_core_relieve(void);
s32 baton_core_rescued_home(u32 slot, s32 near);
u32 baton_core_used_slots(void);
void baton_core_hand_over(u32 from, u32 to, u64 now, struct baton_frame *frame,
			  const struct baton_cpu_state *cpu);
void baton_core_hand_anew(u32 index, bool is_new, u64 now, struct baton_frame *frame,
			  const struct baton_cpu_state *cpu);
u32 baton_core_state(u32 index);
void baton_core_set_default(s32 index);
bool baton_core_is_default(u32 index);
bool baton_core_assign(u32 pid, s32 index);
bool baton_core_assign_by_rule(u32 slot, s32 index);
bool baton_core_rescue_again(void);
void baton_core_check_stall(struct baton_ctx *ctx, struct baton_frame *frame,
			    const struct baton_cpu_state *cpu, u64 limit);
u64 baton_core_fallback_slice(void);
void baton_core_end_slice(struct baton_ctx *ctx, const struct baton_cpu_state *cpu);
bool baton_core_fault_in_call(s32 cpu, enum baton_fault_kind kind);
u32 baton_core_current_policy(s32 cpu);
void baton_core_event(const void *cpu, size_t back, struct baton_event *out);
void baton_core_info(struct baton_core_info *info);
void baton_core_policy_info(struct baton_policy_info *info);
bool baton_core_cpu_info(struct baton_cpu_info *info);
bool baton_core_task_info(struct baton_task_info *info);

/*
 * Time stamp of events: coarse, but only one load. A policy that asks for the time gets the exact
 * one (host.c).
 */
static inline u64 baton_coarse_now(void)
{
	return (u64)jiffies * TICK_NSEC;
}

#endif
