// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory of a policy. Every block has a header and is in the list of its policy. So the limit can
 * be enforced, and the memory of an abandoned policy is freed when the policy is unloaded. Policies
 * allocate when they are created. On the hot path the API has no need to.
 */
#include <linux/export.h>
#include <linux/irqflags.h>
#include <linux/llist.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

#include "core.h"
#include "host.h"
#include "place.h"
#include "record.h"

struct block {
	struct list_head list;
	struct llist_node later;
	struct baton_place *place;
	void *base;		/* the address returned by the kernel's allocator */
	u64 size;		/* total size, with header and padding */
	bool nolock;		/* allocated with interrupts off (kmalloc_nolock) */
} __aligned(16);

/*
 * The policy that is being created or destroyed, and the task that does so. Guarded by
 * baton_control_mutex.
 */
static struct baton_place *creating;
static struct task_struct *creator;
static bool standing_still;	/* all CPUs are held, with interrupts off */
static struct baton_frame creating_frame;

/* Does this task create or destroy a policy? Also in an exception, where interrupts are off. */
bool baton_is_creator(void)
{
	return READ_ONCE(creator) == current;
}

bool baton_creating(void)
{
	return baton_is_creator() && (standing_still || !irqs_disabled());
}

struct baton_frame *baton_creating_frame(void)
{
	return standing_still ? this_cpu_ptr(&baton_frame) : &creating_frame;
}

/* The policy of the current call; NULL if there is none. */
struct baton_place *baton_current_place(void)
{
	u32 policy;

	if (baton_creating())
		return creating;
	policy = baton_core_current_policy(smp_processor_id());
	return policy < BATON_MAX_POLICIES ? &baton_places[policy] : NULL;
}

static void *allocate(size_t size, size_t align)
{
	struct baton_place *place = baton_current_place();
	bool nolock = irqs_disabled();
	unsigned long flags;
	struct block *block;
	size_t total;
	void *base, *at;

	if (!place || check_add_overflow(size, sizeof(*block) + align, &total) ||
	    place->memory + total > place->memory_limit)
		return NULL;
	base = nolock ? kmalloc_nolock(total, 0, NUMA_NO_NODE)
		      : kvmalloc(total, GFP_KERNEL | __GFP_NOWARN);
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

void *baton_host_alloc(size_t size, size_t align)
{
	void *at = allocate(size, align);

	/* A replay lets exactly as many allocations succeed. */
	if (at && baton_is_recording())
		this_cpu_inc(baton_frame.given);
	else if (!at)
		baton_record(no_memory, this_cpu_read(baton_frame.given));
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
		return;	/* the block stays in the list, and is freed with the policy */
	list_del(&block->list);
	place->memory -= block->size;
	raw_res_spin_unlock_irqrestore(&place->memory_lock, flags);
	if (block->nolock) {
		kfree_nolock(block->base);
	} else if (!irqs_disabled()) {
		kvfree(block->base);
	} else {
		/*
		 * kvfree may sleep. A work item cannot be queued either, as a run-queue lock may be
		 * held. The next baton_free_all() frees the block.
		 */
		llist_add(&block->later, &later);
	}
}
EXPORT_SYMBOL_GPL(baton_host_free);

/*
 * Calls a function that creates or destroys a policy, or hands over its state. Returns func(first,
 * second), or BATON_ABORTED if the call was abandoned. Under the control mutex; process context, or
 * with all CPUs held (upgrade.c).
 */
u64 baton_make(struct baton_place *place, const void *func, const void *first, const void *second)
{
	u64 result;

	creating = place;
	standing_still = irqs_disabled();
	if (!standing_still)
		baton_turns_begin();
	WRITE_ONCE(creator, current);
	result = baton_guard((void *)first, (void *)second, 0, 0, (unsigned long)func,
			     baton_creating_frame());
	WRITE_ONCE(creator, NULL);
	standing_still = false;
	return result;
}

/*
 * Frees all memory that the policy still has. Process context, under the control mutex; no call is
 * in progress.
 */
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
