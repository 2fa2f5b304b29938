// SPDX-License-Identifier: GPL-2.0-only
/*
 * A program that holds a resilient lock for a while with interrupts on, as programs may, and then
 * takes it once more. The kernel refuses that as a deadlock, unless an interrupt has meanwhile
 * released the lock, or the kernel's record of it. tests/booted/src/held.rs runs it.
 *
 * Context: BPF_PROG_RUN, in the context of a task.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Turns of the loop in which it holds the lock: some milliseconds. */
#define TURNS 100000

char _license[] SEC("license") = "GPL";

/* The kernel's type, found by its name (include/asm-generic/rqspinlock.h). */
struct bpf_res_spin_lock {
	__u32 val;
};

extern int bpf_res_spin_lock(struct bpf_res_spin_lock *lock) __ksym;
extern void bpf_res_spin_unlock(struct bpf_res_spin_lock *lock) __ksym;
extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __ksym;
extern int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym;
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym;

struct value {
	struct bpf_res_spin_lock lock;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct value);
} locks SEC(".maps");

/*
 * Returns the result of the second lock: -EDEADLK if the first is still recorded, 0 if it is not, 1
 * if the first was not taken.
 */
SEC("syscall")
int held(void *ctx)
{
	/* Looked up twice, as the verifier refuses two locks that it knows to be the same. */
	__u32 key = 0;
	struct value *first = bpf_map_lookup_elem(&locks, &key);
	struct value *second = bpf_map_lookup_elem(&locks, &key);
	int again = 1, i;

	if (!first || !second || bpf_res_spin_lock(&first->lock))
		return again;
	bpf_for(i, 0, TURNS)
		asm volatile("");
	again = bpf_res_spin_lock(&second->lock);
	if (!again)
		bpf_res_spin_unlock(&second->lock);
	bpf_res_spin_unlock(&first->lock);
	return again;
}
