// SPDX-License-Identifier: GPL-2.0-only
/*
 * A policy's memory. Every block has a header and is in the list of its policy, so that the limit holds and a policy that was
 * abandoned leaks nothing: what it held is freed when it is unloaded. Policies allocate when they are made; on the hot path the
 * API has no need to.
 */
#include <linux/export.h>
#include <linux/irqflags.h>
#include <linux/llist.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

#include "core.h"
#include "host.h"

#define MEMORY_LIMIT (256ULL << 20)

struct block {
	struct list_head list;
	struct llist_node later;
	struct baton_place *place;
	void *base;		/* what the kernel's allocator gave */
	u64 size;		/* of all, with header and padding */
	bool nolock;		/* made with interrupts off (kmalloc_nolock) */
} __aligned(16);

/* The policy that is being made or unmade, by which task. Guarded by baton_control_mutex. */
static struct baton_place *creating;
static struct task_struct *creator;
static struct baton_frame creating_frame;

bool baton_creating(void)
{
	return READ_ONCE(creator) == current && !irqs_disabled();
}

struct baton_frame *baton_creating_frame(void)
{
	return &creating_frame;
}

static struct baton_place *current_place(void)
{
	u32 policy;

	if (baton_creating())
		return creating;
	policy = baton_core_current_policy(smp_processor_id());
	return policy < BATON_MAX_POLICIES ? &baton_places[policy] : NULL;
}

void *baton_host_alloc(size_t size, size_t align)
{
	struct baton_place *place = current_place();
	bool nolock = irqs_disabled();
	unsigned long flags;
	struct block *block;
	size_t total;
	void *base, *at;

	if (!place || check_add_overflow(size, sizeof(*block) + align, &total) || place->memory + total > MEMORY_LIMIT)
		return NULL;
	base = nolock ? kmalloc_nolock(total, 0, NUMA_NO_NODE) : kvmalloc(total, GFP_KERNEL | __GFP_NOWARN);
	if (!base)
		return NULL;
	at = PTR_ALIGN(base + sizeof(*block), max_t(size_t, align, 16));
	block = at - sizeof(*block);
	*block = (struct block){ .place = place, .base = base, .size = total, .nolock = nolock };
	if (raw_res_spin_lock_irqsave(&place->memory_lock, flags)) {
		if (nolock)
			kfree_nolock(base);
		else
			kvfree(base);
		return NULL;
	}
	list_add(&block->list, &place->blocks);
	place->memory += total;
	raw_res_spin_unlock_irqrestore(&place->memory_lock, flags);
	return at;
}
EXPORT_SYMBOL_GPL(baton_host_alloc);

static LLIST_HEAD(later);

static void free_later(struct work_struct *work)
{
	struct block *block, *next;

	llist_for_each_entry_safe(block, next, llist_del_all(&later), later)
		kvfree(block->base);
}
static DECLARE_WORK(later_work, free_later);

void baton_host_free(void *at)
{
	struct block *block = at - sizeof(*block);
	struct baton_place *place;
	unsigned long flags;

	if (!at)
		return;
	place = block->place;

	if (raw_res_spin_lock_irqsave(&place->memory_lock, flags))
		return;	/* stays in the list, and is freed with the policy */
	list_del(&block->list);
	place->memory -= block->size;
	raw_res_spin_unlock_irqrestore(&place->memory_lock, flags);
	if (block->nolock) {
		kfree_nolock(block->base);
	} else if (!irqs_disabled()) {
		kvfree(block->base);
	} else {
		/* kvfree may sleep, and a run-queue lock may be held, so that a work cannot be queued either: when the policy is unloaded. */
		llist_add(&block->later, &later);
	}
}
EXPORT_SYMBOL_GPL(baton_host_free);

static u64 guarded(struct baton_place *place, unsigned long func, void *first, bool *faulted)
{
	u64 result;

	creating = place;
	WRITE_ONCE(creator, current);
	result = baton_guard(first, NULL, 0, 0, func, &creating_frame);
	WRITE_ONCE(creator, NULL);
	*faulted = result == BATON_ABORTED;
	return result;
}

/* Makes the policy. Process context, under the control mutex. */
void *baton_create(struct baton_place *place, const struct baton_env *env, bool *faulted)
{
	u64 result = guarded(place, (unsigned long)place->ops->create, (void *)env, faulted);

	return *faulted ? NULL : (void *)result;
}

/* Unmakes it. Process context, under the control mutex; no call is under way. */
void baton_destroy(struct baton_place *place, void *this)
{
	bool faulted;

	guarded(place, (unsigned long)place->ops->destroy, this, &faulted);
}

/* Frees what the policy has left. Process context, under the control mutex; no call is under way. */
void baton_free_all(struct baton_place *place)
{
	struct block *block, *next;

	list_for_each_entry_safe(block, next, &place->blocks, list) {
		list_del(&block->list);
		if (block->nolock)
			kfree_nolock(block->base);
		else
			kvfree(block->base);
	}
	place->memory = 0;
	schedule_work(&later_work);
	flush_work(&later_work);
}

/* Process context; no policy is registered. */
void baton_memory_exit(void)
{
	flush_work(&later_work);
	free_later(NULL);
}
