// SPDX-License-Identifier: GPL-2.0-only
/*
 * `faulty_c`: a policy in C that overwrites parts of its context that are not its own, for tests.
 *
 * 1. All tasks wait in one set. A CPU runs the next task that may run there, in the order of slots.
 * 2. Each call leaves garbage in the context's fields about the task and the CPU, and in its kicks.
 * 3. With an option, a pick does what the processor refuses. fault=null and fault=write read and write
 *    an address that is not there, fault=wild one of the kernel's, fault=noncanonical one that no
 *    memory can have. fault=readonly writes what can only be read. fault=divide divides by zero.
 *    fault=trap executes an instruction that is none, fault=call calls NULL, fault=jump an address
 *    that no code can have. fault=memset lets memset() write to an address that is not there.
 *    With fault=create, `create` reads one. fault=kernel gives one to a function of the kernel that
 *    takes locks, which ends the kernel. fault=loop turns without end, fault=crossed does so in a
 *    loop that is entered in two places, and fault=recursion calls itself. With fault=create-loop,
 *    `create` turns without end.
 */
#ifdef __KERNEL__
#include <linux/random.h>
#endif
#include <linux/string.h>

#include "baton.h"
#include "host.h"

extern const struct baton_policy BATON_POLICY_OPS;

/* In the order of their names. */
enum mistake {
	MISTAKE_NONE,
	MISTAKE_NULL,
	MISTAKE_WRITE,
	MISTAKE_WILD,
	MISTAKE_NONCANONICAL,
	MISTAKE_READONLY,
	MISTAKE_DIVIDE,
	MISTAKE_TRAP,
	MISTAKE_CALL,
	MISTAKE_JUMP,
	MISTAKE_MEMSET,
	MISTAKE_KERNEL,
	MISTAKE_CREATE,
	MISTAKE_LOOP,
	MISTAKE_CROSSED,
	MISTAKE_RECURSION,
	MISTAKE_CREATE_LOOP,
};
static const char *const mistakes[] = {
	"",
	"fault=null",
	"fault=write",
	"fault=wild",
	"fault=noncanonical",
	"fault=readonly",
	"fault=divide",
	"fault=trap",
	"fault=call",
	"fault=jump",
	"fault=memset",
	"fault=kernel",
	"fault=create",
	"fault=loop",
	"fault=crossed",
	"fault=recursion",
	"fault=create-loop",
};

/* So that the compiler does not see what is wrong. */
static noinline u64 *address(unsigned long at)
{
	u64 *pointer = (u64 *)at;

	OPTIMIZER_HIDE_VAR(pointer);
	return pointer;
}

/* So that the division is not left out. */
static u64 quotient;

static noinline void crossed(u64 n)
{
	u64 zero = 0;

	OPTIMIZER_HIDE_VAR(zero);
	if (n & 1)
		goto middle;
	do {
		WRITE_ONCE(quotient, n + 1);
middle:
		WRITE_ONCE(quotient, n + 2);
	} while (!zero);
}

/* What is on the stack is used after the call, so that the compiler makes no loop of it. */
static noinline u64 recursion(u64 n)
{
	u64 deep[16];

	memset(deep, (int)n, sizeof(deep));
	OPTIMIZER_HIDE_VAR(n);
	if (n == ~0ull)
		return n;
	return recursion(n + deep[3]) + deep[n & 15];
}

static noinline void make(enum mistake mistake)
{
	u64 zero = 0;

	OPTIMIZER_HIDE_VAR(zero);
	switch (mistake) {
	case MISTAKE_CREATE:
	case MISTAKE_NULL:
		READ_ONCE(*address(0x18));
		break;
	case MISTAKE_WRITE:
		WRITE_ONCE(*address(8), 1);
		break;
	case MISTAKE_WILD:
		READ_ONCE(*address(0xffffc8ffdeadb000));
		break;
	case MISTAKE_NONCANONICAL:
		READ_ONCE(*address(0x4141414141414141));
		break;
	case MISTAKE_READONLY:
		WRITE_ONCE(*address((unsigned long)&BATON_POLICY_OPS), 1);
		break;
	case MISTAKE_DIVIDE:
		WRITE_ONCE(quotient, 1000 / zero);
		break;
	case MISTAKE_TRAP:
		__builtin_trap();
	case MISTAKE_CALL:
		((void (*)(void))address(0))();
		break;
	case MISTAKE_JUMP:
		((void (*)(void))address(0x4141414141414141))();
		break;
	case MISTAKE_CREATE_LOOP:
	case MISTAKE_LOOP:
		while (!zero)
			WRITE_ONCE(quotient, 1);
		break;
	case MISTAKE_CROSSED:
		crossed(READ_ONCE(quotient));
		break;
	case MISTAKE_RECURSION:
		WRITE_ONCE(quotient, recursion(zero));
		break;
	case MISTAKE_MEMSET:
		memset(address(8), 1, 64 + zero);
		break;
	case MISTAKE_KERNEL:
#ifdef __KERNEL__
		get_random_bytes(address(8), 64);
#endif
		break;
	default:
		break;
	}
}

struct set {
	rqspinlock_t lock;
	enum mistake mistake;	/* of a pick */
	u32 size;	/* slots */
	/* no task is at or beyond this slot; guarded by the lock, as are the fields below */
	u32 used;
	u32 next;	/* where a pick begins */
	u64 tokens[];	/* by slot; 0 where no task waits */
};

static void scribble(struct baton_ctx *ctx)
{
	ctx->now = ctx->task = ctx->runtime = 0xdeadbeefdeadbeef;
	ctx->cpu = -77;
	ctx->flags = 0xffff;
	ctx->nr_kicks = 0xffff;
	memset(ctx->kicks, 0x7e, sizeof(ctx->kicks));
}

static void *create(const struct baton_env *env)
{
	struct set *set =
		baton_host_alloc(struct_size(set, tokens, env->max_tasks), __alignof__(struct set));
	u32 i;

	if (set) {
		memset(set, 0, struct_size(set, tokens, env->max_tasks));
		set->size = env->max_tasks;
		for (i = 0; i < ARRAY_SIZE(mistakes); i++)
			if (!strcmp(env->options, mistakes[i]))
				set->mistake = i;
		if (set->mistake == MISTAKE_CREATE || set->mistake == MISTAKE_CREATE_LOOP)
			make(set->mistake);
	}
	return set;
}

static void destroy(void *this)
{
	baton_host_free(this);
}

static u64 select_task_rq(void *this, struct baton_ctx *ctx, const struct baton_task *task,
			  const struct baton_wake *wake)
{
	u64 cpu = (u32)wake->prev_cpu;

	scribble(ctx);
	return cpu;
}

static void put(void *this, struct baton_ctx *ctx, const struct baton_task *task, baton_token token)
{
	u32 slot = (u32)token - 1;
	struct set *set = this;

	baton_assert(slot < set->size);
	baton_host_lock(&set->lock);
	set->tokens[slot] = token;
	set->used = max(set->used, slot + 1);
	baton_host_unlock(&set->lock);
	scribble(ctx);
}

static u64 pick_next_task(void *this, struct baton_ctx *ctx, s32 cpu, const struct baton_task *prev)
{
	struct set *set = this;
	u64 token = BATON_PICK_NONE;
	u32 i;

	if (set->mistake)
		make(set->mistake);
	baton_host_lock(&set->lock);
	for (i = 0; i < set->used && !token; i++) {
		u32 slot = (set->next + i) % set->used;

		if (!set->tokens[slot] || !baton_host_may_run(slot, cpu))
			continue;
		token = set->tokens[slot];
		set->tokens[slot] = 0;
		set->next = slot + 1;
	}
	baton_host_unlock(&set->lock);
	scribble(ctx);
	if (!token && prev)
		return BATON_PICK_KEEP;
	return token;
}

static void pick_refused(void *this, struct baton_ctx *ctx, baton_token token,
			 enum baton_refusal why)
{
	if (why == BATON_REFUSAL_NOT_ALLOWED)
		put(this, ctx, NULL, token);
	else
		scribble(ctx);
}

static baton_token take_back(void *this, struct baton_ctx *ctx, const struct baton_task *task)
{
	struct set *set = this;
	u64 token;

	baton_host_lock(&set->lock);
	token = set->tokens[task->slot];
	set->tokens[task->slot] = 0;
	baton_host_unlock(&set->lock);
	scribble(ctx);
	return token;
}

static void about_task(void *this, struct baton_ctx *ctx, const struct baton_task *task)
{
	scribble(ctx);
}

static void about_cpu(void *this, struct baton_ctx *ctx, s32 cpu)
{
	scribble(ctx);
}

static u64 newly_idle(void *this, struct baton_ctx *ctx, s32 cpu)
{
	scribble(ctx);
	return BATON_PICK_NONE;
}

const struct baton_policy BATON_POLICY_OPS = {
	.abi = BATON_ABI,
	.version = 1,
	.events = BATON_EV_BLOCKED | BATON_EV_TICK | BATON_EV_IDLE | BATON_EV_BALANCE,
	.language = BATON_LANGUAGE_C,
	.name = "faulty_c",
	.create = create,
	.destroy = destroy,
	.select_task_rq = select_task_rq,
	.task_new = put,
	.task_wakeup = put,
	.task_preempt = put,
	.task_yield = put,
	.task_restored = put,
	.pick_next_task = pick_next_task,
	.newly_idle = newly_idle,
	.pick_refused = pick_refused,
	.balance = about_cpu,
	.task_blocked = about_task,
	.task_dequeued = take_back,
	.task_departed = take_back,
	.task_dead = about_task,
	.task_affinity_changed = about_task,
	.task_prio_changed = about_task,
	.task_tick = about_task,
	.cpu_online = about_cpu,
	.cpu_offline = about_cpu,
	.enter_idle = about_cpu,
	.exit_idle = about_cpu,
};
