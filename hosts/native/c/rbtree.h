/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * linux/rbtree.h for user space: a red-black tree whose nodes are members of what it sorts, as far
 * as a policy needs it. The kernel's own implementation cannot be taken over, as its files need the
 * kernel's headers.
 *
 * Rules: the root and the absent children are black; a red node has no red child; all paths from a
 * node down have the same number of black nodes.
 */
#ifndef BATON_NATIVE_RBTREE_H
#define BATON_NATIVE_RBTREE_H

struct rb_node {
	struct rb_node *rb_parent, *rb_left, *rb_right;
	bool rb_is_red;
};

struct rb_root {
	struct rb_node *rb_node;
};

struct rb_root_cached {
	struct rb_root rb_root;
	struct rb_node *rb_leftmost;
};

#define rb_entry(at, type, member) container_of(at, type, member)
#define rb_first_cached(tree) ((tree)->rb_leftmost)

static inline struct rb_node *rb_next(const struct rb_node *node)
{
	struct rb_node *next = node->rb_right;

	if (next) {
		while (next->rb_left)
			next = next->rb_left;
		return next;
	}
	for (next = node->rb_parent; next && node == next->rb_right; next = next->rb_parent)
		node = next;
	return next;
}

static inline void rb_link_node(struct rb_node *node, struct rb_node *parent, struct rb_node **link)
{
	*node = (struct rb_node){ .rb_parent = parent, .rb_is_red = true };
	*link = node;
}

/* Where the tree points to this node. */
static inline struct rb_node **rb_link_of(struct rb_root *root, struct rb_node *node)
{
	struct rb_node *parent = node->rb_parent;

	if (!parent)
		return &root->rb_node;
	return parent->rb_left == node ? &parent->rb_left : &parent->rb_right;
}

/* The child on one side takes the node's place, and the node becomes its child on the other. */
static inline void rb_rotate(struct rb_root *root, struct rb_node *node, bool to_left)
{
	struct rb_node *child = to_left ? node->rb_right : node->rb_left;
	struct rb_node *inner = to_left ? child->rb_left : child->rb_right;

	*rb_link_of(root, node) = child;
	child->rb_parent = node->rb_parent;
	node->rb_parent = child;
	*(to_left ? &child->rb_left : &child->rb_right) = node;
	*(to_left ? &node->rb_right : &node->rb_left) = inner;
	if (inner)
		inner->rb_parent = node;
}

static inline bool rb_is_red(const struct rb_node *node)
{
	return node && node->rb_is_red;
}

static inline void rb_insert_color(struct rb_node *node, struct rb_root *root)
{
	struct rb_node *parent, *grandparent, *uncle;

	while (rb_is_red(parent = node->rb_parent)) {
		bool is_left = (grandparent = parent->rb_parent)->rb_left == parent;

		uncle = is_left ? grandparent->rb_right : grandparent->rb_left;
		if (rb_is_red(uncle)) {
			parent->rb_is_red = uncle->rb_is_red = false;
			grandparent->rb_is_red = true;
			node = grandparent;
			continue;
		}
		if (node == (is_left ? parent->rb_right : parent->rb_left)) {
			rb_rotate(root, parent, is_left);
			parent = node;
		}
		parent->rb_is_red = false;
		grandparent->rb_is_red = true;
		rb_rotate(root, grandparent, !is_left);
		break;
	}
	root->rb_node->rb_is_red = false;
}

/* Paths through `parent` to its child `node`, which may be absent, lack a black node. */
static inline void rb_restore(struct rb_root *root, struct rb_node *parent, struct rb_node *node)
{
	while (parent && !rb_is_red(node)) {
		bool is_left = parent->rb_left == node;
		struct rb_node *other = is_left ? parent->rb_right : parent->rb_left;
		struct rb_node *inner, *outer;

		if (rb_is_red(other)) {
			other->rb_is_red = false;
			parent->rb_is_red = true;
			rb_rotate(root, parent, is_left);
			other = is_left ? parent->rb_right : parent->rb_left;
		}
		inner = is_left ? other->rb_left : other->rb_right;
		outer = is_left ? other->rb_right : other->rb_left;
		if (!rb_is_red(inner) && !rb_is_red(outer)) {
			other->rb_is_red = true;
			node = parent;
			parent = node->rb_parent;
			continue;
		}
		if (!rb_is_red(outer)) {
			inner->rb_is_red = false;
			other->rb_is_red = true;
			rb_rotate(root, other, !is_left);
			outer = other;
			other = inner;
		}
		other->rb_is_red = parent->rb_is_red;
		parent->rb_is_red = outer->rb_is_red = false;
		rb_rotate(root, parent, is_left);
		return;
	}
	if (node)
		node->rb_is_red = false;
}

static inline void rb_erase(struct rb_node *node, struct rb_root *root)
{
	struct rb_node *out = node, *child, *parent;
	bool was_red;

	if (node->rb_left && node->rb_right)
		out = rb_next(node);
	child = out->rb_left ? out->rb_left : out->rb_right;
	parent = out->rb_parent;
	was_red = out->rb_is_red;
	*rb_link_of(root, out) = child;
	if (child)
		child->rb_parent = parent;
	if (out != node) {
		/* The next node takes the place of this one. */
		if (parent == node)
			parent = out;
		*rb_link_of(root, node) = out;
		*out = *node;
		if (out->rb_left)
			out->rb_left->rb_parent = out;
		if (out->rb_right)
			out->rb_right->rb_parent = out;
	}
	if (!was_red)
		rb_restore(root, parent, child);
}

static inline void rb_insert_color_cached(struct rb_node *node, struct rb_root_cached *tree,
					  bool is_first)
{
	if (is_first)
		tree->rb_leftmost = node;
	rb_insert_color(node, &tree->rb_root);
}

static inline void rb_erase_cached(struct rb_node *node, struct rb_root_cached *tree)
{
	if (tree->rb_leftmost == node)
		tree->rb_leftmost = rb_next(node);
	rb_erase(node, &tree->rb_root);
}

#endif
