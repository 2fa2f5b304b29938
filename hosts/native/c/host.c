// SPDX-License-Identifier: GPL-2.0-only
/*
 * The code around a policy in C that makes it callable in user space: one way to call its functions
 * that returns whatever they do, the functions of ../../../policy/c/host.h, and its memory. With
 * the policy's own files it is the whole library. It is the counterpart of ../glue/src/lib.rs, and
 * exports that file's `NativePolicy`. It calls the host through the table of
 * ../../../policy/seam/src/host_native.rs.
 *
 * A call is abandoned by a jump back to its beginning, over frames of C only. As in the kernel,
 * `destroy` is not called afterwards, and the memory is freed.
 *
 * Where a host's CPUs are coroutines of one thread, each function of the table may switch to
 * another one.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "words.h"
#include "baton.h"
#include "host.h"
#include "table.h"

extern const struct baton_policy BATON_POLICY_OPS;

/*
 * Blocks that have a guard behind them, those that are free included. Each takes two mappings of a
 * process's 65,530, and every policy has a copy of this file.
 */
#define MAX_MAPPED 8192
static size_t nr_mapped;
/* Freed blocks of a pool whose addresses are not used again yet. */
#define NR_FREED 1024
#define PAGE ((size_t)4096)

/* Lies before the memory that it describes. */
struct block {
	struct block *next, **link;
	struct pool *owner;
	void *base;		/* what mmap or malloc gave */
	size_t size;
	size_t mapped;		/* 0: by malloc */
};

/* The memory that instances share which have taken a state over from each other. */
struct pool {
	struct block *blocks;
	size_t used;
	size_t users;		/* instances, and states on their way from one to another */
	struct { void *base; size_t size; } freed[NR_FREED];	/* cannot be accessed */
	size_t next_freed;
};

/* An instance made by `create` or `reregister_init`. */
struct instance {
	void *policy;
	struct pool *pool;
	bool was_abandoned;
};

/* A state on its way to another instance, which may be of another copy of this file. */
struct handed {
	void *state;
	struct pool *pool;
};

/* A call under way. */
struct frame {
	void *way_out[5];
	void *word;		/* of the policy's: baton_host_get_call() */
	struct instance *instance;
	bool may_be_large;
};

static _Thread_local const struct table *table;
static _Thread_local struct frame *frame;

/* More than in the kernel, as a machine may have 4,096 CPUs; as in ../glue/src/memory.rs. */
#define MEMORY_LIMIT ((size_t)512 << 20)
#define SMALL 8192
#define UNWRITTEN 0xa5			/* what a block is full of */

static void __noreturn baton_abandon(void)
{
	__builtin_longjmp(frame->way_out, 1);
}

/* The host's answer. Restores this coroutine's frame afterwards. */
#define ASK(question) ({ \
	struct frame *mine = frame; \
	__typeof__(question) answer = question; \
	frame = mine; \
	answer; \
})

void baton_host_lock(rqspinlock_t *lock)
{
	if (!ASK(table->lock(&lock->word)))
		baton_abandon();
}

bool baton_host_try_lock(rqspinlock_t *lock)
{
	return ASK(table->try_lock(&lock->word));
}

void baton_host_unlock(rqspinlock_t *lock)
{
	if (!ASK(table->unlock(&lock->word)))
		baton_abandon();
}

u64 baton_host_now(void)
{
	return ASK(table->now());
}

u64 baton_host_random(void)
{
	return ASK(table->random());
}

/* Every host in user space needs this: the checker may switch to another CPU here. */
u32 baton_recording = 1;

u64 baton_host_read(u64 value)
{
	return ASK(table->read(value));
}

void *baton_host_get_call(void)
{
	return frame->word;
}

void baton_host_set_call(void *word)
{
	frame->word = word;
}

void baton_host_refused(u32 pid, const char *handler, const char *from, const char *to, u32 line,
			const char *why)
{
	struct frame *mine = frame;

	table->refused(pid, handler, from, to, line, why);
	frame = mine;
}

void baton_host_changed(u32 pid, const char *handler, const char *from, const char *to, u32 line)
{
	struct frame *mine = frame;

	if (!table->changed)
		return;
	table->changed(pid, handler, from, to, line);
	frame = mine;
}

void baton_host_token_dropped(u64 token)
{
	if (!ASK(table->token_dropped(token)))
		baton_abandon();
}

void baton_host_arm_timer(u64 after_ns)
{
	table->arm_timer(after_ns);
}

void baton_host_cancel_timer(void)
{
	table->cancel_timer();
}

bool baton_host_may_run(u32 slot, s32 cpu)
{
	return ASK(table->may_run(slot, cpu));
}

bool baton_host_cpu_online(s32 cpu)
{
	return ASK(table->cpu_online(cpu));
}

bool baton_host_cpu_idle(s32 cpu)
{
	return ASK(table->cpu_idle(cpu));
}

bool baton_host_any_idle(void)
{
	return ASK(table->any_idle());
}

bool baton_host_claim_idle(s32 cpu)
{
	return ASK(table->claim_idle(cpu));
}

/* Called in a policy that is built for the checker (atomics.c). */
void baton_host_atomic(void)
{
	struct frame *mine = frame;

	if (table && table->atomic)
		table->atomic();
	frame = mine;
}

u32 baton_host_reply(u32 slot, u32 tag, const u64 *words)
{
	return ASK(table->reply(slot, tag, (const u64 (*)[BATON_HINT_WORDS])words));
}

void __noreturn baton_host_panic(const char *file, size_t file_len, u32 line, const char *message,
				 size_t message_len)
{
	table->panicked((const u8 *)file, file_len, line, (const u8 *)message, message_len);
	baton_abandon();
}

/*
 * As `need_stack` in ../glue/src/memory.rs. With -fstack-clash-protection the function probes each
 * page.
 */
static noinline void need_stack(void)
{
	volatile char room[8 << 10] __maybe_unused;

	room[0] = 0;
}

/*
 * Memory whose end is followed by a page that cannot be accessed, so that an access behind it is a
 * crash. Returns NULL if there is none.
 */
static struct block *map_block(size_t size, size_t align)
{
	size_t whole = (sizeof(struct block) + size + align + PAGE - 1) / PAGE * PAGE + PAGE;
	struct block *block;
	char *base;

	if (__atomic_fetch_add(&nr_mapped, 1, __ATOMIC_RELAXED) >= MAX_MAPPED)
		goto none;
	base = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (base == MAP_FAILED)
		goto none;
	if (mprotect(base + whole - PAGE, PAGE, PROT_NONE)) {
		munmap(base, whole);
		goto none;
	}
	block = (struct block *)(((uintptr_t)base + whole - PAGE - size) / align * align) - 1;
	*block = (struct block){ .base = base, .size = whole, .mapped = whole };
	return block;
none:
	__atomic_fetch_sub(&nr_mapped, 1, __ATOMIC_RELAXED);
	return NULL;
}

static struct block *malloc_block(size_t size, size_t align)
{
	size_t whole = sizeof(struct block) + size + align;
	char *base = malloc(whole);
	struct block *block;

	if (!base)
		return NULL;
	block = (struct block *)(((uintptr_t)base + sizeof(*block) + align - 1) / align * align) -
		1;
	*block = (struct block){ .base = base, .size = whole };
	return block;
}

void *baton_host_alloc(size_t size, size_t align)
{
	struct pool *owner = frame->instance->pool;
	struct block *block;

	align = max(align, (size_t)8);
	if (!ASK(table->has_memory()) || size_add(owner->used, size) > MEMORY_LIMIT ||
	    (size > SMALL && !frame->may_be_large))
		return NULL;
	need_stack();
	block = map_block(size, align);
	if (!block)
		block = malloc_block(size, align);
	if (!block)
		return NULL;
	block->owner = owner;
	block->next = owner->blocks;
	block->link = &owner->blocks;
	if (block->next)
		block->next->link = &block->next;
	owner->blocks = block;
	owner->used += block->size;
	/* A policy that reads uninitialised memory behaves the same in each run. */
	return memset(block + 1, UNWRITTEN, size);
}

/* Keeps the addresses for a while, so that a later access is a crash. */
static void unmap_block(struct pool *owner, void *base, size_t size)
{
	size_t at = owner->next_freed++ % NR_FREED;

	if (owner->freed[at].base) {
		munmap(owner->freed[at].base, owner->freed[at].size);
		__atomic_fetch_sub(&nr_mapped, 1, __ATOMIC_RELAXED);
	}
	owner->freed[at].base = base;
	owner->freed[at].size = size;
	madvise(base, size, MADV_DONTNEED);
	mprotect(base, size, PROT_NONE);
}

void baton_host_free(void *at)
{
	struct block *block;

	if (!at)
		return;
	block = (struct block *)at - 1;
	*block->link = block->next;
	if (block->next)
		block->next->link = block->link;
	block->owner->used -= block->size;
	need_stack();
	if (block->mapped) {
		unmap_block(block->owner, block->base, block->size);
	} else {
		free(block->base);
	}
}

static void leave_pool(struct pool *pool)
{
	size_t at;

	if (--pool->users)
		return;
	while (pool->blocks)
		baton_host_free(pool->blocks + 1);
	for (at = 0; at < NR_FREED; at++)
		if (pool->freed[at].base) {
			munmap(pool->freed[at].base, pool->freed[at].size);
			__atomic_fetch_sub(&nr_mapped, 1, __ATOMIC_RELAXED);
		}
	free(pool);
}

static void free_instance(struct instance *instance)
{
	leave_pool(instance->pool);
	free(instance);
}

static enum baton_refusal refusal(u64 number)
{
	return number >= BATON_REFUSAL_STALE && number <= BATON_REFUSAL_NOTHING_TO_KEEP
		       ? number
		       : BATON_REFUSAL_NOTHING_TO_KEEP;
}

/* Returns NULL if there is no state, or no memory. */
static struct handed *hand_on(struct pool *pool, void *state)
{
	struct handed *handed = state ? malloc(sizeof(*handed)) : NULL;

	if (!handed)
		return NULL;
	*handed = (struct handed){ .state = state, .pool = pool };
	pool->users++;
	return handed;
}

/* An absent function answers 0, and so does one without a result. */
#define GIVES(NUMBER, function, ...) \
	case BATON_METHOD_##NUMBER: \
		return ops->function ? (u64)ops->function(this, ctx, __VA_ARGS__) : 0;
#define DOES(NUMBER, function, ...) \
	case BATON_METHOD_##NUMBER: \
		if (ops->function) \
			ops->function(this, ctx, __VA_ARGS__); \
		return 0;

static u64 dispatch(enum baton_method method, struct instance *instance, struct baton_ctx *ctx,
		    u64 a, u64 b)
{
	const struct baton_policy *ops = &BATON_POLICY_OPS;
	void *this = instance->policy;

	if (method == BATON_METHOD_PICK_REFUSED)
		b = refusal(b);
	switch (method) {
	case BATON_METHOD_CREATE:
		instance->policy = ops->create((const struct baton_env *)a);
		return instance->policy ? (u64)instance : 0;
	case BATON_METHOD_DESTROY:
		ops->destroy(this);
		return 0;
	case BATON_METHOD_REREGISTER_PREPARE:
		return (u64)hand_on(instance->pool, ops->reregister_prepare(this));
	case BATON_METHOD_REREGISTER_INIT:
		instance->policy = ops->reregister_init((const struct baton_env *)a,
							((struct handed *)b)->state);
		return instance->policy ? (u64)instance : 0;
	case BATON_METHOD_REREGISTER_DROP:
		ops->reregister_drop(((struct handed *)a)->state);
		return 0;
	case BATON_METHOD_MAY_HAVE:
		return ops->may_have ? ops->may_have(this, (const struct baton_asked *)a) : 0;
	BATON_CALLS(GIVES, DOES, a, b)
	default:
		/* A policy in C converts and saves no states. */
		return 0;
	}
}

/* The call itself, in a frame that can be jumped back to without loss of variables. */
static noinline u64 guarded(enum baton_method method, struct instance *instance,
			    struct baton_ctx *ctx, u64 a, u64 b)
{
	struct frame mine = { .instance = instance, .may_be_large = method == BATON_METHOD_CREATE };

	frame = &mine;
	if (__builtin_setjmp(mine.way_out))
		return BATON_ABORTED;
	return dispatch(method, instance, ctx, a, b);
}

/* `NativePolicy::call` */
static u64 call(enum baton_method method, struct instance *instance, struct baton_ctx *ctx, u64 a,
		u64 b)
{
	struct handed *handed = NULL;
	u64 answer;

	if (method == BATON_METHOD_DESTROY) {
		answer = instance->was_abandoned ? 0 : guarded(method, instance, ctx, a, b);
		free_instance(instance);
		return answer;
	}
	if (method == BATON_METHOD_REREGISTER_INIT)
		handed = (struct handed *)b;
	if (method == BATON_METHOD_REREGISTER_DROP)
		handed = (struct handed *)a;
	if (method == BATON_METHOD_CREATE || handed) {
		instance = calloc(1, sizeof(*instance));
		if (!instance)
			return BATON_ABORTED;
		instance->pool = handed ? handed->pool : calloc(1, sizeof(*instance->pool));
		if (!instance->pool) {
			free(instance);
			return BATON_ABORTED;
		}
		/* An instance takes over the share of the state. */
		if (!handed)
			instance->pool->users = 1;
	}
	answer = guarded(method, instance, ctx, a, b);
	if (answer == BATON_ABORTED)
		instance->was_abandoned = true;
	if ((method == BATON_METHOD_CREATE || handed) && answer != (u64)instance)
		free_instance(instance);
	free(handed);
	return answer;
}

static void install(const struct table *host)
{
	table = host;
}

/* `NativePolicy` in ../glue/src/lib.rs. */
struct native_policy {
	u32 abi;
	u32 table_size;
	const struct baton_policy *ops;
	u64 (*call)(enum baton_method method, struct instance *instance, struct baton_ctx *ctx,
		    u64 a, u64 b);
	void (*install)(const struct table *host);
};

static const struct native_policy native = { BATON_ABI, sizeof(struct table), &BATON_POLICY_OPS,
					     call, install };

__attribute__((visibility("default"))) const struct native_policy *const BATON_NATIVE = &native;
