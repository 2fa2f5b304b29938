// SPDX-License-Identifier: GPL-2.0-only
/*
 * The places in the kernel's functions that get a jump to the new function.
 *
 * A function begins with ENDBR (or what the kernel puts in its place), then has the five bytes
 * that the function tracer owns. The jump comes after both, so that tracing goes on as before. A
 * function that cannot be traced gets the jump at once. The table has the place of each
 * (live/src/sites.rs).
 *
 * The five bytes of a jump never cross a boundary of 16 bytes, as functions begin at one. So each
 * jump is one store of 16 bytes, which also compares what was there: an NMI executes the old
 * function or the new one. The kernel's text is read-only; stores go through a second, writable
 * mapping of its pages.
 *
 * The five bytes may have a jump label, which the kernel would find destroyed when it next switches
 * the label's key. Such a label is claimed: it is marked as one of boot code, which the kernel
 * leaves alone, until the bytes are restored.
 */
#include <linux/jump_label.h>
#include <linux/kprobes.h>
#include <linux/memory.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <asm/cmpxchg.h>

#include "engine.h"

#define JUMP 5

struct site {
	u8 *code;
	u8 *writable;
	u8 saved[JUMP];
	u8 jump[JUMP];
};

struct label {
	struct jump_entry *entry;
	struct jump_entry *writable;
	bool was_branch;	/* what the label did when its bytes were saved */
};

/* A writable second mapping of some of the kernel's memory. */
struct window {
	u8 *from, *to;
	u8 *mapping;
};

extern struct jump_entry __start___jump_table[], __stop___jump_table[];

static struct site *sites;
static unsigned int nr_sites;
static struct label *labels;
static unsigned int nr_labels;
static struct window text, table;

unsigned int baton_live_sites(void)
{
	return nr_sites;
}

static int map(struct window *window, void *from, void *to)
{
	u8 *first = PTR_ALIGN_DOWN((u8 *)from, PAGE_SIZE);
	unsigned long count = DIV_ROUND_UP((u8 *)to - first, PAGE_SIZE);
	struct page **pages = kvmalloc_array(count, sizeof(*pages), GFP_KERNEL);

	if (!pages)
		return -ENOMEM;
	for (unsigned long i = 0; i < count; i++)
		pages[i] = virt_to_page(lm_alias(first + i * PAGE_SIZE));
	window->mapping = vmap(pages, count, VM_MAP, PAGE_KERNEL);
	window->from = first;
	window->to = to;
	kvfree(pages);
	return window->mapping ? 0 : -ENOMEM;
}

static void unmap(struct window *window)
{
	vunmap(window->mapping);
	*window = (struct window){};
}

static void *writable(const struct window *window, void *address)
{
	return window->mapping + ((u8 *)address - window->from);
}

static bool has_kprobe(u8 *from, u8 *to)
{
	bool found = false;

	preempt_disable();
	for (; from < to && !found; from++)
		found = get_kprobe(from);
	preempt_enable();
	return found;
}

/* Finds the jump labels in the bytes of a site. */
static int find_labels(const u8 *code)
{
	struct jump_entry *entry;

	for (entry = __start___jump_table; entry < __stop___jump_table; entry++) {
		const u8 *at = (const u8 *)jump_entry_code(entry);
		struct label *grown;

		if (at >= code + JUMP || at + jump_entry_size(entry) <= code)
			continue;
		grown = krealloc_array(labels, nr_labels + 1, sizeof(*labels), GFP_KERNEL);
		if (!grown)
			return -ENOMEM;
		labels = grown;
		labels[nr_labels++] = (struct label){ .entry = entry };
	}
	return 0;
}

static int add_site(const struct baton_live_function *function)
{
	u8 *start = (u8 *)function->old;
	struct site *site = &sites[nr_sites];
	s32 distance;

	site->code = start + function->jump;
	if (has_kprobe(start, site->code + JUMP)) {
		pr_err("%pS has a kprobe\n", start);
		return -EBUSY;
	}
	distance = (long)function->new - (long)(site->code + JUMP);
	site->jump[0] = 0xe9;
	memcpy(site->jump + 1, &distance, sizeof(distance));
	nr_sites++;
	return find_labels(site->code);
}

/* Finds all sites, and maps what will be written. */
int baton_live_plan(void)
{
	const struct baton_live_function *function;
	u8 *from = (u8 *)ULONG_MAX, *to = NULL;
	int err;

	if (!system_has_cmpxchg128())
		return -EOPNOTSUPP;
	sites = kvcalloc(baton_live_functions_end - baton_live_functions, sizeof(*sites),
			 GFP_KERNEL);
	if (!sites)
		return -ENOMEM;
	for (function = baton_live_functions; function < baton_live_functions_end; function++) {
		if (!function->new)
			continue;
		err = add_site(function);
		if (err)
			goto failed;
		from = min(from, sites[nr_sites - 1].code);
		to = max(to, sites[nr_sites - 1].code + JUMP);
	}
	err = nr_sites ? map(&text, from, to) : 0;
	if (!err)
		err = map(&table, __start___jump_table, __stop___jump_table);
	if (err)
		goto failed;
	for (unsigned int i = 0; i < nr_sites; i++)
		sites[i].writable = writable(&text, sites[i].code);
	for (unsigned int i = 0; i < nr_labels; i++)
		labels[i].writable = writable(&table, labels[i].entry);
	return 0;

failed:
	baton_live_forget();
	return err;
}

void baton_live_forget(void)
{
	unmap(&text);
	unmap(&table);
	kvfree(sites);
	kfree(labels);
	sites = NULL;
	labels = NULL;
	nr_sites = 0;
	nr_labels = 0;
}

/* Stores five bytes at once, if the present ones are the expected ones. */
static bool store(struct site *site, const u8 *expected, const u8 *bytes)
{
	u128 *block = (u128 *)PTR_ALIGN_DOWN(site->writable, 16);
	unsigned int at = site->writable - (u8 *)block;
	u128 old, new;

	memcpy(&old, block, sizeof(old));
	if (memcmp((u8 *)&old + at, expected, JUMP))
		return false;
	new = old;
	memcpy((u8 *)&new + at, bytes, JUMP);
	return arch_try_cmpxchg128(block, &old, new);
}

static bool is_branch_now(struct jump_entry *entry)
{
	return static_key_enabled(jump_entry_key(entry)) != jump_entry_is_branch(entry);
}

static void claim_labels(bool claim)
{
	for (unsigned int i = 0; i < nr_labels; i++) {
		if (claim)
			labels[i].was_branch = is_branch_now(labels[i].entry);
		jump_entry_set_init(labels[i].writable, claim);
	}
}

int baton_live_store(bool install)
{
	unsigned int done;

	for (done = 0; done < nr_sites; done++) {
		struct site *site = &sites[done];

		if (install)
			memcpy(site->saved, site->code, JUMP);
		if (!store(site, install ? site->saved : site->jump,
			   install ? site->jump : site->saved))
			break;
	}
	if (done == nr_sites) {
		claim_labels(install);
		return 0;
	}
	while (done--)
		store(&sites[done], install ? sites[done].jump : sites[done].saved,
		      install ? sites[done].saved : sites[done].jump);
	return -EILSEQ;
}

/* Switches the labels whose keys have changed while they were claimed. */
void baton_live_sync_labels(void)
{
	for (unsigned int i = 0; i < nr_labels; i++) {
		bool is_branch = is_branch_now(labels[i].entry);

		if (is_branch != labels[i].was_branch)
			arch_jump_label_transform(labels[i].entry,
						  is_branch ? JUMP_LABEL_JMP : JUMP_LABEL_NOP);
	}
}
