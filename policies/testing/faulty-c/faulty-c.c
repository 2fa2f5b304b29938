// SPDX-License-Identifier: GPL-2.0-only
/*
 * `faulty_c`: a policy in C that overwrites parts of its context that are not its own, for tests.
 *
 * 1. All tasks wait in one set. A CPU runs the next task that may run there, in the order of slots.
 * 2. Each call leaves garbage in the context's fields about the task and the CPU, and in its kicks.
 * 3. With an option, a method does what it must not: the `after`-th call (0) of pick_next_task, or
 *    of the method that the option `in` names, and each call after that. fault=null and fault=write
 *    read and write an address that is not there, fault=wild one of the kernel's,
 *    fault=noncanonical one that no memory can have. fault=readonly writes what can only be read.
 *    fault=divide divides by zero. fault=trap executes an instruction that is none, fault=call calls
 *    NULL, fault=jump an address that no code can have. fault=memset lets memset() write to an
 *    address that is not there. fault=index is beyond the end of an array. fault=loop turns without
 *    end, and fault=crossed does so in a loop that is entered in two places. fault=recursion is a
 *    function that calls itself without end, and fault=indirect one that does so by a pointer.
 *    fault=token answers with a token that no task ever had. fault=kernel gives a wrong address to a function of the
 *    kernel that takes locks, which ends the kernel.
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
	MISTAKE_INDEX,
	MISTAKE_LOOP,
	MISTAKE_CROSSED,
	MISTAKE_RECURSION,
	MISTAKE_INDIRECT,
	MISTAKE_TOKEN,
	MISTAKE_KERNEL,
};
static const char *const mistakes[] = {
	"",	     "null",   "write", "wild",	 "noncanonical", "readonly", "divide",
	"trap",	     "call",   "jump",	"memset", "index",	 "loop",     "crossed",
	"recursion", "indirect", "token", "kernel",
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

/*
 * Its data on the stack are used after the call, so that the compiler does not make a loop of it.
 */
static noinline u64 recursion(u64 n)
{
	u64 deep[8] = { n };

	barrier_data(deep);
	return n + 1 ? recursion(n + 1) + deep[0] : 0;
}

static u64 (*deeper)(u64 n);

static noinline u64 indirect(u64 n)
{
	u64 deep[8] = { n };

	barrier_data(deep);
	return READ_ONCE(deeper)(n + 1) + deep[0];
}

static u64 (*deeper)(u64 n) = indirect;

static noinline void make(enum mistake mistake)
{
	u64 zero = 0;

	OPTIMIZER_HIDE_VAR(zero);
	switch (mistake) {
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
	case MISTAKE_INDEX:
		WRITE_ONCE(quotient, (u64)mistakes[ARRAY_SIZE(mistakes) + zero][0]);
		break;
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
	case MISTAKE_INDIRECT:
		WRITE_ONCE(quotient, indirect(zero));
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
	enum mistake mistake;
	char method[32];	/* of the mistake */
	u64 after;	/* its calls before the mistake */
	u64 calls;	/* so far; those at the same time may count as one */
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

/* Every method begins with this. Returns true if it is to answer with a wrong token. */
static bool reach(struct set *set, const char *method)
{
	if (!set->mistake || strcmp(set->method, method))
		return false;
	if (READ_ONCE(set->calls) < set->after) {
		WRITE_ONCE(set->calls, set->calls + 1);
		return false;
	}
	make(set->mistake);
	return set->mistake == MISTAKE_TOKEN;
}

/* Of the first slot, in a generation that it has not. */
#define WRONG_TOKEN ((u64)0x7fffffff << 32 | 1)

/* Copies the value of an option, with a name as "in="; `value` stays if there is none. */
static void option(const char *options, const char *name, char *value, size_t size)
{
	const char *at = strstr(options, name);
	size_t i;

	if (!at || (at != options && at[-1] != ','))
		return;
	at += strlen(name);
	for (i = 0; i + 1 < size && at[i] && at[i] != ','; i++)
		value[i] = at[i];
	value[i] = 0;
}

static void *create(const struct baton_env *env)
{
	struct set *set =
		baton_host_alloc(struct_size(set, tokens, env->max_tasks), __alignof__(struct set));
	char fault[16] = "", after[8] = "0", *digit;
	u32 i;

	if (!set)
		return NULL;
	memset(set, 0, struct_size(set, tokens, env->max_tasks));
	set->size = env->max_tasks;
	memcpy(set->method, "pick_next_task", sizeof("pick_next_task"));
	option(env->options, "in=", set->method, sizeof(set->method));
	option(env->options, "fault=", fault, sizeof(fault));
	option(env->options, "after=", after, sizeof(after));
	for (digit = after; *digit >= '0' && *digit <= '9'; digit++)
		set->after = set->after * 10 + *digit - '0';
	for (i = 0; i < ARRAY_SIZE(mistakes); i++)
		if (!strcmp(fault, mistakes[i]))
			set->mistake = i;
	reach(set, "create");
	return set;
}

static void destroy(void *this)
{
	reach(this, "destroy");
	baton_host_free(this);
}

static u64 select_task_rq(void *this, struct baton_ctx *ctx, const struct baton_task *task,
			  const struct baton_wake *wake)
{
	u64 cpu = (u32)wake->prev_cpu;

	reach(this, "select_task_rq");
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

/* Takes the next task that may run there, or that may not. The lock is held. */
static u64 take_next(struct set *set, s32 cpu, bool may_run)
{
	u32 i;

	for (i = 0; i < set->used; i++) {
		u32 slot = (set->next + i) % set->used;
		u64 token = set->tokens[slot];

		if (!token || baton_host_may_run(slot, cpu) != may_run)
			continue;
		set->tokens[slot] = 0;
		set->next = slot + 1;
		return token;
	}
	return BATON_PICK_NONE;
}

static u64 pick_next_task(void *this, struct baton_ctx *ctx, s32 cpu, const struct baton_task *prev)
{
	struct set *set = this;
	u64 token = BATON_PICK_NONE;

	if (reach(set, "pick_next_task"))
		return WRONG_TOKEN;
	baton_host_lock(&set->lock);
	/* A task that may not run there is refused. */
	if (set->mistake && !strcmp(set->method, "pick_refused"))
		token = take_next(set, cpu, false);
	if (!token)
		token = take_next(set, cpu, true);
	baton_host_unlock(&set->lock);
	scribble(ctx);
	if (!token && prev)
		return BATON_PICK_KEEP;
	return token;
}

static void pick_refused(void *this, struct baton_ctx *ctx, baton_token token,
			 enum baton_refusal why)
{
	struct set *set = this;
	u32 slot = (u32)token - 1;

	reach(this, "pick_refused");
	if (why == BATON_REFUSAL_NOT_ALLOWED) {
		baton_assert(slot < set->size);
		baton_host_lock(&set->lock);
		/* The task may have been queued again meanwhile, with a newer token. */
		if (!set->tokens[slot])
			set->tokens[slot] = token;
		baton_host_unlock(&set->lock);
	}
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

static u64 newly_idle(void *this, struct baton_ctx *ctx, s32 cpu)
{
	bool is_wrong = reach(this, "newly_idle");

	scribble(ctx);
	return is_wrong ? WRONG_TOKEN : BATON_PICK_NONE;
}

/* Methods that differ only in their names. */
#define PUT(method)                                                                               \
	static void on_##method(void *this, struct baton_ctx *ctx, const struct baton_task *task, \
			   baton_token token)                                                     \
	{                                                                                         \
		reach(this, #method);                                                             \
		put(this, ctx, task, token);                                                      \
	}
#define TAKE_BACK(method)                                                                         \
	static baton_token on_##method(void *this, struct baton_ctx *ctx,                         \
				  const struct baton_task *task)                                  \
	{                                                                                         \
		bool is_wrong = reach(this, #method);                                             \
                                                                                                  \
		return is_wrong ? WRONG_TOKEN : take_back(this, ctx, task);                       \
	}
#define ABOUT_TASK(method)                                                                        \
	static void on_##method(void *this, struct baton_ctx *ctx, const struct baton_task *task) \
	{                                                                                         \
		reach(this, #method);                                                             \
		scribble(ctx);                                                                    \
	}
#define ABOUT_CPU(method)                                                                         \
	static void on_##method(void *this, struct baton_ctx *ctx, s32 cpu)                       \
	{                                                                                         \
		reach(this, #method);                                                             \
		scribble(ctx);                                                                    \
	}

PUT(task_new)
PUT(task_wakeup)
PUT(task_preempt)
PUT(task_yield)
PUT(task_restored)
TAKE_BACK(task_dequeued)
TAKE_BACK(task_departed)
ABOUT_TASK(task_blocked)
ABOUT_TASK(task_dead)
ABOUT_TASK(task_affinity_changed)
ABOUT_TASK(task_prio_changed)
ABOUT_TASK(task_tick)
ABOUT_CPU(balance)
ABOUT_CPU(cpu_online)
ABOUT_CPU(cpu_offline)
ABOUT_CPU(enter_idle)
ABOUT_CPU(exit_idle)

const struct baton_policy BATON_POLICY_OPS = {
	.abi = BATON_ABI,
	.version = 1,
	.events = BATON_EV_BLOCKED | BATON_EV_TICK | BATON_EV_IDLE | BATON_EV_BALANCE,
	.language = BATON_LANGUAGE_C,
	.name = "faulty_c",
	.create = create,
	.destroy = destroy,
	.select_task_rq = select_task_rq,
	.task_new = on_task_new,
	.task_wakeup = on_task_wakeup,
	.task_preempt = on_task_preempt,
	.task_yield = on_task_yield,
	.task_restored = on_task_restored,
	.pick_next_task = pick_next_task,
	.newly_idle = newly_idle,
	.pick_refused = pick_refused,
	.balance = on_balance,
	.task_blocked = on_task_blocked,
	.task_dequeued = on_task_dequeued,
	.task_departed = on_task_departed,
	.task_dead = on_task_dead,
	.task_affinity_changed = on_task_affinity_changed,
	.task_prio_changed = on_task_prio_changed,
	.task_tick = on_task_tick,
	.cpu_online = on_cpu_online,
	.cpu_offline = on_cpu_offline,
	.enter_idle = on_enter_idle,
	.exit_idle = on_exit_idle,
};
