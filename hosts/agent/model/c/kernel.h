/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The subset of the kernel's headers that the kernel half of an enclave needs in user space. It
 * stands for each header that ../build.rs names. Add what is missing, as the kernel defines it.
 *
 * Where the checker's CPUs are coroutines of one thread, each access that another CPU can see is
 * preceded by baton_model_point(), where another CPU may go on.
 */
#ifndef BATON_MODEL_KERNEL_H
#define BATON_MODEL_KERNEL_H

#include <errno.h>
#include <stdlib.h>

#include "words.h"

/* Functions of ../src/kernel.rs. */
void baton_model_point(void);
u32 baton_model_cpu(void);

#undef READ_ONCE
#undef WRITE_ONCE
#undef xchg
#undef cmpxchg
#undef smp_load_acquire
#undef smp_store_release
#define READ_ONCE(place) ({ \
	baton_model_point(); \
	*(const volatile __typeof__(place) *)&(place); \
})
#define WRITE_ONCE(place, value) do { \
	baton_model_point(); \
	*(volatile __typeof__(place) *)&(place) = (value); \
} while (0)
#define xchg(place, value) ({ \
	baton_model_point(); \
	__atomic_exchange_n(place, value, __ATOMIC_SEQ_CST); \
})
#define cmpxchg(place, old, value) ({ \
	__typeof__(*(place)) there = (old); \
	baton_model_point(); \
	try_cmpxchg(place, &there, value); \
	there; \
})
#define smp_load_acquire(place) ({ \
	baton_model_point(); \
	__atomic_load_n(place, __ATOMIC_ACQUIRE); \
})
#define smp_store_release(place, value) do { \
	baton_model_point(); \
	__atomic_store_n(place, value, __ATOMIC_RELEASE); \
} while (0)

/* linux/compiler.h, linux/cache.h */
#define __user
#define __always_inline inline __attribute__((always_inline))
#define ____cacheline_aligned __attribute__((aligned(64)))

/* linux/minmax.h, linux/math.h, linux/limits.h, vdso/time64.h */
#define clamp(value, low, high) ({ \
	__typeof__(value) it = (value); \
	it < (low) ? (low) : it > (high) ? (high) : it; \
})
#define DIV_ROUND_UP(n, d) (((n) + (d) - 1) / (d))
#define U64_MAX UINT64_MAX
#define NSEC_PER_USEC 1000ULL
#define NSEC_PER_SEC 1000000000ULL

/* linux/smp.h */
#define smp_processor_id() baton_model_cpu()
#define raw_smp_processor_id() baton_model_cpu()

/* linux/sched.h, linux/sched/signal.h: an agent of a CPU; no signal comes to one */
struct task_struct {
	u32 pid;
	int on_cpu;
};
static inline bool signal_pending(const struct task_struct *task)
{
	return false;
}

/* linux/rcupdate.h: nothing that is read under RCU is freed while a call is under way */
static inline void preempt_disable(void) {}
static inline void preempt_enable(void) {}
static inline void rcu_read_lock(void) {}
static inline void rcu_read_unlock(void) {}

/* linux/mm.h, linux/slab.h, linux/vmalloc.h */
#define PAGE_SIZE 4096ULL
#define PAGE_ALIGN(size) (((size) + PAGE_SIZE - 1) & ~(PAGE_SIZE - 1))
#define GFP_KERNEL 0
static inline void *zeroed(size_t size)
{
	void *at = aligned_alloc(PAGE_SIZE, PAGE_ALIGN(size));

	return at ? memset(at, 0, size) : NULL;
}
#define vmalloc_user(size) zeroed(size)
#define vzalloc(size) zeroed(size)
#define kvcalloc(count, size, flags) zeroed(array_size(count, size))
static inline void *kvmemdup(const void *from, size_t size, int flags)
{
	void *to = zeroed(size);

	return to ? memcpy(to, from, size) : NULL;
}
#define vfree(at) free(at)
#define kvfree(at) free(at)

/* linux/uaccess.h: the caller is the model, which gives what it owns */
#define u64_to_user_ptr(address) ((void *)(uintptr_t)(address))
#define copy_from_user(to, from, size) (memcpy(to, from, size), 0)
#define copy_to_user(to, from, size) (memcpy(to, from, size), 0)
#define put_user(value, at) (*(at) = (value), 0)

/* Types of fields that only other parts of the kernel half use. */
struct list_head { int unused; };
struct kref { int unused; };
struct miscdevice { int unused; };
struct mutex { int unused; };
struct hrtimer { int unused; };
struct delayed_work { int unused; };
struct work_struct { int unused; };
struct irq_work { int unused; };
struct file_operations;
struct pid;
typedef struct { int unused; } call_single_data_t;

#endif
