// SPDX-License-Identifier: GPL-2.0-only
/*
 * `faulty_c`: one queue for all CPUs, and, with the option `fault`, an error that only C permits.
 * The error occurs in the hundredth task_wakeup or, if its name begins with `create`, when the
 * policy is created. For tests of the hosts in user space: most of these errors crash a kernel.
 */
#include <linux/atomic.h>
#include <linux/string.h>

#include "baton.h"
#include "host.h"

extern const struct baton_policy BATON_POLICY_OPS;

struct faulty {
	rqspinlock_t lock;
	char fault[32];
	u32 wakeups;
	u32 max_tasks, last;	/* number of slots; slot that ran last */
	baton_token waiting[];		/* by slot */
};

/* Volatile, so that the compiler does not know its value. */
static int *volatile nowhere;
static volatile int zero;
static u64 deeper(u64 n);
static u64 (*volatile again)(u64 n) = deeper;

static u64 deeper(u64 n)
{
	volatile u64 values[16] = { n };

	return again(values[0] + 1) + values[1];
}

static u64 hoard(u64 n);
static u64 (*volatile more)(u64 n) = hoard;

static u64 hoard(u64 n)
{
	u64 *last = baton_host_alloc(64, 8);

	*last = more(n + 1);
	return *last + 1;
}

static bool is(const char *fault, const char *name)
{
	return strcmp(fault, name) == 0;
}

static void go_wrong(struct faulty *faulty, const char *fault)
{
	if (is(fault, "assert"))
		baton_assert(faulty->wakeups < 100);
	else if (is(fault, "null"))
		*nowhere = 1;
	else if (is(fault, "division"))
		zero = 100 / zero;
	else if (is(fault, "trap"))
		__builtin_trap();
	else if (is(fault, "recursion"))
		deeper(1);
	else if (is(fault, "spin"))
		for (;;)
			;
	else if (is(fault, "hoard"))
		hoard(1);
	else if (is(fault, "large"))
		baton_assert(baton_host_alloc(9000, 8));
	else if (is(fault, "deadlock"))
		baton_host_lock(&faulty->lock);
}

static void *faulty_create(const struct baton_env *env)
{
	struct faulty *faulty = baton_host_alloc(struct_size(faulty, waiting, env->max_tasks),
						 __alignof__(*faulty));
	const char *fault = strstr(env->options, "fault=");

	if (!faulty)
		return NULL;
	memset(faulty, 0, struct_size(faulty, waiting, env->max_tasks));
	raw_res_spin_lock_init(&faulty->lock);
	faulty->max_tasks = env->max_tasks;
	if (fault)
		strscpy(faulty->fault, fault + strlen("fault="), sizeof(faulty->fault));
	if (is(faulty->fault, "create-null"))
		*nowhere = 1;
	baton_assert(!is(faulty->fault, "create-assert"));
	return faulty;
}

static void faulty_destroy(void *this)
{
	struct faulty *faulty = this;

	if (is(faulty->fault, "destroy"))
		*nowhere = 1;
	baton_host_free(faulty);
}

static void put(void *this, struct baton_ctx *ctx, const struct baton_task *task, baton_token token)
{
	struct faulty *faulty = this;

	baton_host_lock(&faulty->lock);
	faulty->waiting[task->slot] = token;
	baton_host_unlock(&faulty->lock);
	ctx->kicks[ctx->nr_kicks++] = task->cpu | BATON_KICK_IDLE;
}

static void faulty_task_wakeup(void *this, struct baton_ctx *ctx, const struct baton_task *task,
			       baton_token token)
{
	struct faulty *faulty = this;

	baton_host_lock(&faulty->lock);
	if (++faulty->wakeups == 100)
		go_wrong(faulty, faulty->fault);
	baton_host_unlock(&faulty->lock);
	put(this, ctx, task, token);
}

static u64 faulty_pick_next_task(void *this, struct baton_ctx *ctx, s32 cpu,
				 const struct baton_task *prev)
{
	struct faulty *faulty = this;
	baton_token token = BATON_PICK_NONE;
	u32 slot, tried;

	if (faulty->wakeups >= 100 && is(faulty->fault, "stall"))
		return BATON_PICK_NONE;
	if (faulty->wakeups >= 100 && is(faulty->fault, "loop"))
		return 1ULL << 32 | 1;
	baton_host_lock(&faulty->lock);
	for (tried = 1; tried <= faulty->max_tasks && token == BATON_PICK_NONE; tried++) {
		slot = (faulty->last + tried) % faulty->max_tasks;
		if (faulty->waiting[slot] && baton_host_may_run(slot, cpu)) {
			token = xchg(&faulty->waiting[slot], 0);
			faulty->last = slot;
		}
	}
	baton_host_unlock(&faulty->lock);
	return token;
}

static void faulty_pick_refused(void *this, struct baton_ctx *ctx, baton_token token,
				enum baton_refusal why)
{
}

static baton_token faulty_take(void *this, struct baton_ctx *ctx, const struct baton_task *task)
{
	struct faulty *faulty = this;
	baton_token token;

	baton_host_lock(&faulty->lock);
	token = xchg(&faulty->waiting[task->slot], 0);
	baton_host_unlock(&faulty->lock);
	return token;
}

const struct baton_policy BATON_POLICY_OPS = {
	.abi = BATON_ABI,
	.version = 1,
	.language = 1,
	.name = "faulty_c",
	.create = faulty_create,
	.destroy = faulty_destroy,
	.task_new = put,
	.task_wakeup = faulty_task_wakeup,
	.task_preempt = put,
	.task_yield = put,
	.task_restored = put,
	.pick_next_task = faulty_pick_next_task,
	.pick_refused = faulty_pick_refused,
	.task_dequeued = faulty_take,
	.task_departed = faulty_take,
};
