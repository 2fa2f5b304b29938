// SPDX-License-Identifier: GPL-2.0-only
/* Random insertions and removals in a tree of ../c/rbtree.h, with its rules checked. */
#include <assert.h>
#include <stdlib.h>

#include "words.h"

struct item {
	struct rb_node node;
	u64 key;
	bool is_in;
};

/* Returns the number of black nodes on a path down. */
static int check(struct rb_node *node, struct rb_node *parent, u64 least, u64 most)
{
	struct item *item = rb_entry(node, struct item, node);
	int black;

	if (!node)
		return 1;
	assert(node->rb_parent == parent);
	assert(item->key >= least && item->key <= most);
	assert(!node->rb_is_red || (!rb_is_red(node->rb_left) && !rb_is_red(node->rb_right)));
	black = check(node->rb_left, node, least, item->key);
	assert(black == check(node->rb_right, node, item->key, most));
	return black + !node->rb_is_red;
}

static void insert(struct rb_root_cached *tree, struct item *item)
{
	struct rb_node **link = &tree->rb_root.rb_node, *parent = NULL;
	bool is_first = true;

	while (*link) {
		parent = *link;
		if (item->key < rb_entry(parent, struct item, node)->key) {
			link = &parent->rb_left;
		} else {
			link = &parent->rb_right;
			is_first = false;
		}
	}
	rb_link_node(&item->node, parent, link);
	rb_insert_color_cached(&item->node, tree, is_first);
}

int main(void)
{
	static struct item items[200];
	struct rb_root_cached tree = { 0 };
	int count = 0;

	for (int round = 0; round < 500000; round++) {
		struct item *item = &items[rand() % (1 + rand() % ARRAY_SIZE(items))];

		if (item->is_in) {
			rb_erase_cached(&item->node, &tree);
			count--;
		} else {
			item->key = rand() % 50;
			insert(&tree, item);
			count++;
		}
		item->is_in = !item->is_in;
		if (round % 89 == 0) {
			struct rb_node *node = rb_first_cached(&tree);
			int found = 0;

			assert(!rb_is_red(tree.rb_root.rb_node));
			check(tree.rb_root.rb_node, NULL, 0, U64_MAX);
			for (; node; node = rb_next(node))
				found++;
			assert(found == count);
		}
	}
	return 0;
}
