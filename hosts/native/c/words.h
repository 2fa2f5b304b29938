/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The subset of the kernel's headers that a policy in C can use in user space. `../build.sh` gives
 * this file the names of the kernel's: linux/types.h, linux/atomic.h and so on. A policy that must
 * run in the simulator can use only what is here. Add what is missing, as the kernel defines it.
 */
#ifndef BATON_NATIVE_WORDS_H
#define BATON_NATIVE_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* linux/types.h */
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;

/* linux/limits.h */
#define U32_MAX UINT32_MAX
#define U64_MAX UINT64_MAX

/* linux/compiler.h */
#define __aligned(bytes) __attribute__((aligned(bytes)))
#define __maybe_unused __attribute__((unused))
#define __ro_after_init
#define __noreturn __attribute__((noreturn))
#define noinline __attribute__((noinline))
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define likely(condition) __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)
#define READ_ONCE(place) (*(const volatile __typeof__(place) *)&(place))
#define WRITE_ONCE(place, value) (*(volatile __typeof__(place) *)&(place) = (value))

/* linux/atomic.h */
#define xchg(place, value) __atomic_exchange_n(place, value, __ATOMIC_SEQ_CST)
#define try_cmpxchg(place, old, value) \
	__atomic_compare_exchange_n(place, old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
#define cmpxchg(place, old, value) ({ \
	__typeof__(*(place)) there = (old); \
	try_cmpxchg(place, &there, value); \
	there; \
})
#define smp_load_acquire(place) __atomic_load_n(place, __ATOMIC_ACQUIRE)
#define smp_store_release(place, value) __atomic_store_n(place, value, __ATOMIC_RELEASE)
#define smp_mb() __atomic_thread_fence(__ATOMIC_SEQ_CST)

#define ATOMIC(name, type)                                                    \
	typedef struct {                                                      \
		type counter;                                                 \
	} name##_t;                                                           \
	static inline type name##_read(const name##_t *at)                    \
	{                                                                     \
		return READ_ONCE(at->counter);                                \
	}                                                                     \
	static inline void name##_set(name##_t *at, type value)               \
	{                                                                     \
		WRITE_ONCE(at->counter, value);                               \
	}                                                                     \
	static inline void name##_add(type value, name##_t *at)               \
	{                                                                     \
		__atomic_fetch_add(&at->counter, value, __ATOMIC_RELAXED);    \
	}                                                                     \
	static inline void name##_sub(type value, name##_t *at)               \
	{                                                                     \
		__atomic_fetch_sub(&at->counter, value, __ATOMIC_RELAXED);    \
	}                                                                     \
	static inline void name##_inc(name##_t *at)                           \
	{                                                                     \
		name##_add(1, at);                                            \
	}                                                                     \
	static inline void name##_dec(name##_t *at)                           \
	{                                                                     \
		name##_sub(1, at);                                            \
	}                                                                     \
	static inline type name##_inc_return(name##_t *at)                    \
	{                                                                     \
		return __atomic_add_fetch(&at->counter, 1, __ATOMIC_SEQ_CST); \
	}                                                                     \
	static inline type name##_dec_return(name##_t *at)                    \
	{                                                                     \
		return __atomic_sub_fetch(&at->counter, 1, __ATOMIC_SEQ_CST); \
	}
ATOMIC(atomic, int)
ATOMIC(atomic64, s64)
#undef ATOMIC

/* linux/minmax.h, linux/container_of.h, linux/array_size.h */
#define min(a, b) ({ __typeof__(a) one = (a); __typeof__(b) other = (b); one < other ? one : other; })
#define max(a, b) ({ __typeof__(a) one = (a); __typeof__(b) other = (b); one > other ? one : other; })
#define container_of(at, type, member) ((type *)((char *)(at) - offsetof(type, member)))
#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

/* linux/overflow.h: a size that overflows becomes the largest size, which no allocation gets */
static inline size_t size_add(size_t a, size_t b)
{
	return __builtin_add_overflow(a, b, &a) ? SIZE_MAX : a;
}

static inline size_t size_mul(size_t a, size_t b)
{
	return __builtin_mul_overflow(a, b, &a) ? SIZE_MAX : a;
}
#define array_size(count, size) size_mul(count, size)
#define struct_size(at, member, count) size_add(sizeof(*(at)), size_mul(count, sizeof(*(at)->member)))

/* linux/string.h */
static inline long strscpy(char *to, const char *from, size_t size)
{
	size_t i;

	for (i = 0; i < size; i++)
		if (!(to[i] = from[i]))
			return (long)i;
	if (size)
		to[size - 1] = 0;
	return -7;	/* -E2BIG */
}

/* asm/rqspinlock.h: the host keeps all of a lock's state but for this word */
typedef struct {
	u32 word;
} rqspinlock_t;
#define raw_res_spin_lock_init(lock) ((lock)->word = 0)

#include "rbtree.h"

#endif
