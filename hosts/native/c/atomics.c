// SPDX-License-Identifier: GPL-2.0-only
/*
 * Scheduling points for the checker. A policy that is built for the checker calls its host before
 * each atomic operation, so that another CPU may run there. The compiler (rustc, gcc or clang)
 * instruments the policy for ThreadSanitizer, and these are the functions that the instrumented
 * code calls (compiler-rt/include/sanitizer/tsan_interface_atomic.h has their types). The CPUs of
 * the checker are coroutines of one thread, so every operation has the strongest order, whichever
 * was requested.
 *
 * Plain reads and writes are not scheduling points: a race on them is an error of another kind.
 * READ_ONCE() and WRITE_ONCE() of a policy in C are scheduling points, as they are volatile.
 */
#include <stdbool.h>
#include <stdint.h>

/* In ../glue/src/lib.rs for a policy in Rust, in host.c for one in C. */
void baton_host_atomic(void);

#define OPERATION(bits, name)                                                        \
	uint##bits##_t __tsan_atomic##bits##_##name(volatile uint##bits##_t *at,     \
						    uint##bits##_t value, int order) \
	{                                                                            \
		(void)order;                                                         \
		baton_host_atomic();                                                 \
		return __atomic_##name(at, value, __ATOMIC_SEQ_CST);                 \
	}

#define ATOMICS(bits)                                                                              \
	uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *at, int order)    \
	{                                                                                          \
		(void)order;                                                                       \
		baton_host_atomic();                                                               \
		return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                      \
	}                                                                                          \
	void __tsan_atomic##bits##_store(volatile uint##bits##_t *at, uint##bits##_t value,        \
					 int order)                                                \
	{                                                                                          \
		(void)order;                                                                       \
		baton_host_atomic();                                                               \
		__atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                     \
	}                                                                                          \
	uint##bits##_t __tsan_atomic##bits##_exchange(volatile uint##bits##_t *at,                 \
						      uint##bits##_t value, int order)             \
	{                                                                                          \
		(void)order;                                                                       \
		baton_host_atomic();                                                               \
		return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                           \
	}                                                                                          \
	int __tsan_atomic##bits##_compare_exchange_strong(                                         \
		volatile uint##bits##_t *at, uint##bits##_t *old, uint##bits##_t value, int order, \
		int failed)                                                                        \
	{                                                                                          \
		(void)order;                                                                       \
		(void)failed;                                                                      \
		baton_host_atomic();                                                               \
		return __atomic_compare_exchange_n(at, old, value, false, __ATOMIC_SEQ_CST,        \
						   __ATOMIC_SEQ_CST);                              \
	}                                                                                          \
	int __tsan_atomic##bits##_compare_exchange_weak(volatile uint##bits##_t *at,               \
							uint##bits##_t *old, uint##bits##_t value, \
							int order, int failed)                     \
	{                                                                                          \
		return __tsan_atomic##bits##_compare_exchange_strong(at, old, value, order,        \
								     failed);                      \
	}                                                                                          \
	uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(                                 \
		volatile uint##bits##_t *at, uint##bits##_t old, uint##bits##_t value, int order,  \
		int failed)                                                                        \
	{                                                                                          \
		__tsan_atomic##bits##_compare_exchange_strong(at, &old, value, order, failed);     \
		return old;                                                                        \
	}                                                                                          \
	OPERATION(bits, fetch_add)                                                                 \
	OPERATION(bits, fetch_sub)                                                                 \
	OPERATION(bits, fetch_and)                                                                 \
	OPERATION(bits, fetch_or)                                                                  \
	OPERATION(bits, fetch_xor)                                                                 \
	OPERATION(bits, fetch_nand)

ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)

void __tsan_atomic_thread_fence(int order)
{
	(void)order;
	baton_host_atomic();
}

/* Functions that instrumented code calls and that are not scheduling points. */
#define NOTHING(name, ...) void name(__VA_ARGS__) {}
#define POINT(name) void name(void *at) { (void)at; baton_host_atomic(); }
#define ACCESSES(size) \
	NOTHING(__tsan_read##size, void *at) \
	NOTHING(__tsan_write##size, void *at) \
	NOTHING(__tsan_unaligned_read##size, void *at) \
	NOTHING(__tsan_unaligned_write##size, void *at) \
	POINT(__tsan_volatile_read##size) \
	POINT(__tsan_volatile_write##size) \
	POINT(__tsan_unaligned_volatile_read##size) \
	POINT(__tsan_unaligned_volatile_write##size)

#pragma GCC diagnostic ignored "-Wunused-parameter"
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
NOTHING(__tsan_read_range, void *at, unsigned long size)
NOTHING(__tsan_write_range, void *at, unsigned long size)
NOTHING(__tsan_func_entry, void *caller)
NOTHING(__tsan_func_exit, void)
NOTHING(__tsan_atomic_signal_fence, int order)
NOTHING(__tsan_init, void)
