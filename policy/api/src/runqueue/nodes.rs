// SPDX-License-Identifier: GPL-2.0-only
//! The balancing of [`super::Tree`]: a textbook red-black tree (Cormen et al., chapter 13) with
//! slots instead of pointers.
//!
//! In a link, `a` is the left child, `b` the right one, and `c` is `parent << 1` with the colour in
//! bit 0, which fits as slots and [`NIL`] have 31 bits. The two sides are mirror images, so each
//! case is written once, for a `side` and its opposite.

use super::before;
use baton_seam::{Link, NIL};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

const LEFT: bool = false;
const RIGHT: bool = true;

/// A tree during one operation.
///
/// Invariants between operations: the root is black; no red node has a red child; all paths from a
/// node down to missing children pass the same number of black nodes; keys are in order.
pub(super) struct Nodes<'a> {
    pub links: &'a [Link],
    pub root: u32,
}

impl Nodes<'_> {
    #[inline]
    fn link(&self, node: u32) -> &Link {
        &self.links[node as usize]
    }

    #[inline]
    pub fn key(&self, node: u32) -> u64 {
        self.link(node).key.load(Relaxed)
    }

    #[inline]
    fn child_field(&self, node: u32, side: bool) -> &AtomicU32 {
        let link = self.link(node);
        if side == LEFT {
            &link.a
        } else {
            &link.b
        }
    }

    #[inline]
    fn child(&self, node: u32, side: bool) -> u32 {
        self.child_field(node, side).load(Relaxed)
    }

    #[inline]
    fn set_child(&self, node: u32, side: bool, child: u32) {
        self.child_field(node, side).store(child, Relaxed);
    }

    #[inline]
    fn parent(&self, node: u32) -> u32 {
        self.link(node).c.load(Relaxed) >> 1
    }

    /// Is the node red? A missing child is black.
    #[inline]
    fn is_red(&self, node: u32) -> bool {
        node != NIL && self.link(node).c.load(Relaxed) & 1 != 0
    }

    #[inline]
    fn set_parent(&self, node: u32, parent: u32) {
        let c = &self.link(node).c;
        c.store(parent << 1 | c.load(Relaxed) & 1, Relaxed);
    }

    #[inline]
    fn set_red(&self, node: u32, red: bool) {
        let c = &self.link(node).c;
        c.store(c.load(Relaxed) & !1 | u32::from(red), Relaxed);
    }

    /// Makes a node a leaf below `parent`.
    #[inline]
    fn set_leaf(&self, node: u32, parent: u32, red: bool) {
        let link = self.link(node);
        link.a.store(NIL, Relaxed);
        link.b.store(NIL, Relaxed);
        link.c.store(parent << 1 | u32::from(red), Relaxed);
    }

    /// Is the node the left or the right child of its parent?
    #[inline]
    fn side(&self, node: u32, parent: u32) -> bool {
        self.child(parent, LEFT) != node
    }

    /// The leftmost or rightmost node of the subtree at `node`.
    fn outermost(&self, mut node: u32, side: bool) -> u32 {
        loop {
            match self.child(node, side) {
                NIL => return node,
                child => node = child,
            }
        }
    }

    /// The next node in order, or [`NIL`].
    pub fn after(&self, mut node: u32) -> u32 {
        let right = self.child(node, RIGHT);
        if right != NIL {
            return self.outermost(right, LEFT);
        }
        loop {
            let parent = self.parent(node);
            if parent == NIL || self.side(node, parent) == LEFT {
                return parent;
            }
            node = parent;
        }
    }

    /// Replaces `old`, below `parent`, by `new`, which may be [`NIL`].
    fn replace(&mut self, old: u32, parent: u32, new: u32) {
        if parent == NIL {
            self.root = new;
        } else {
            self.set_child(parent, self.side(old, parent), new);
        }
        if new != NIL {
            self.set_parent(new, parent);
        }
    }

    /// Rotates `node` towards `side`; its child on the other side takes its place.
    fn rotate(&mut self, node: u32, side: bool) {
        let up = self.child(node, !side);
        let between = self.child(up, side);
        self.set_child(node, !side, between);
        if between != NIL {
            self.set_parent(between, node);
        }
        self.replace(node, self.parent(node), up);
        self.set_child(up, side, node);
        self.set_parent(node, up);
    }

    /// Inserts `node` behind all nodes with an equal or smaller key. Returns true if it is
    /// now the first.
    #[inline]
    pub fn put(&mut self, key: u64, node: u32) -> bool {
        self.link(node).key.store(key, Relaxed);
        if self.root == NIL {
            self.set_leaf(node, NIL, false);
            self.root = node;
            return true;
        }
        self.put_below(key, node)
    }

    fn put_below(&mut self, key: u64, node: u32) -> bool {
        let mut is_first = true;
        let mut parent = self.root;
        let side = loop {
            let side = if before(key, self.key(parent)) {
                LEFT
            } else {
                RIGHT
            };
            is_first &= side == LEFT;
            match self.child(parent, side) {
                NIL => break side,
                child => parent = child,
            }
        };
        self.set_leaf(node, parent, true);
        self.set_child(parent, side, node);
        self.settle_insertion(node);
        is_first
    }

    /// Restores the invariants after the red node `node` was inserted.
    pub fn settle_insertion(&mut self, mut node: u32) {
        loop {
            let parent = self.parent(node);
            if parent == NIL {
                return self.set_red(node, false);
            }
            if !self.is_red(parent) {
                return;
            }
            // A red node is not the root, so there is a grandparent.
            let grandparent = self.parent(parent);
            let side = self.side(parent, grandparent);
            let uncle = self.child(grandparent, !side);
            if self.is_red(uncle) {
                self.set_red(parent, false);
                self.set_red(uncle, false);
                self.set_red(grandparent, true);
                node = grandparent;
                continue;
            }
            let top = if self.side(node, parent) == side {
                parent
            } else {
                self.rotate(parent, side);
                node
            };
            self.set_red(top, false);
            self.set_red(grandparent, true);
            return self.rotate(grandparent, !side);
        }
    }

    /// Removes a node.
    pub fn cut(&mut self, node: u32) {
        let (left, right, parent) = (
            self.child(node, LEFT),
            self.child(node, RIGHT),
            self.parent(node),
        );
        // The child that moves up, its new parent, and whether a black node is missing there.
        let (child, below, was_black);
        if left == NIL || right == NIL {
            child = if left == NIL { right } else { left };
            below = parent;
            was_black = !self.is_red(node);
            self.replace(node, parent, child);
        } else {
            // The next node in order, which has no left child, takes the node's place and colour.
            let next = self.outermost(right, LEFT);
            child = self.child(next, RIGHT);
            was_black = !self.is_red(next);
            if next == right {
                below = next;
            } else {
                below = self.parent(next);
                self.replace(next, below, child);
                self.set_child(next, RIGHT, right);
                self.set_parent(right, next);
            }
            self.replace(node, parent, next);
            self.set_child(next, LEFT, left);
            self.set_parent(left, next);
            self.set_red(next, self.is_red(node));
        }
        if was_black {
            self.settle_removal(child, below);
        }
    }

    /// Restores the invariants when every path through `node` (which may be missing), below
    /// `parent`, lacks one black node.
    fn settle_removal(&mut self, mut node: u32, mut parent: u32) {
        while parent != NIL && !self.is_red(node) {
            let side = self.side(node, parent);
            // The other side has one more black node, so there is a sibling.
            let mut sibling = self.child(parent, !side);
            if self.is_red(sibling) {
                self.set_red(sibling, false);
                self.set_red(parent, true);
                self.rotate(parent, side);
                sibling = self.child(parent, !side);
            }
            let (near, far) = (self.child(sibling, side), self.child(sibling, !side));
            if !self.is_red(near) && !self.is_red(far) {
                self.set_red(sibling, true);
                node = parent;
                parent = self.parent(node);
                continue;
            }
            if !self.is_red(far) {
                self.set_red(near, false);
                self.set_red(sibling, true);
                self.rotate(sibling, !side);
                sibling = near;
            }
            self.set_red(sibling, self.is_red(parent));
            self.set_red(parent, false);
            self.set_red(self.child(sibling, !side), false);
            return self.rotate(parent, side);
        }
        if node != NIL {
            self.set_red(node, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{sync::Arc, vec::Vec};
    use baton_seam::{Links, Parking};
    use proptest::prelude::*;

    const SLOTS: u32 = 64;

    /// Number of black nodes on each path down from `node`; panics when an invariant is broken.
    fn check_below(
        nodes: &Nodes<'_>,
        node: u32,
        parent: u32,
        in_order: &mut Vec<(u64, u32)>,
    ) -> u32 {
        if node == NIL {
            return 1;
        }
        assert_eq!(nodes.parent(node), parent, "parent of {node}");
        assert!(
            !(nodes.is_red(node) && nodes.is_red(parent)),
            "{node} and its parent are red"
        );
        let left = check_below(nodes, nodes.child(node, LEFT), node, in_order);
        in_order.push((nodes.key(node), node));
        let right = check_below(nodes, nodes.child(node, RIGHT), node, in_order);
        assert_eq!(left, right, "black nodes below {node}");
        left + u32::from(!nodes.is_red(node))
    }

    /// Checks the invariants and returns the nodes in order.
    fn check(nodes: &Nodes<'_>) -> Vec<(u64, u32)> {
        let mut in_order = Vec::new();
        assert!(!nodes.is_red(nodes.root), "the root is red");
        check_below(nodes, nodes.root, NIL, &mut in_order);
        for (at, &(_, slot)) in in_order.iter().enumerate() {
            assert_eq!(
                nodes.after(slot),
                in_order.get(at + 1).map_or(NIL, |next| next.1),
                "after {slot}"
            );
        }
        in_order
    }

    /// Inserts each slot, or removes it if it is in the tree, and compares with a sorted vector
    /// after each step.
    fn run(steps: impl IntoIterator<Item = (u32, u64)>, base: u64) {
        let parking = Parking::new(Arc::new(Links::new(SLOTS)));
        let mut nodes = Nodes {
            links: parking.links(),
            root: NIL,
        };
        // (offset from the base, slot), in order.
        let mut model: Vec<(u64, u32)> = Vec::new();
        for (slot, offset) in steps {
            if let Some(at) = model.iter().position(|entry| entry.1 == slot) {
                model.remove(at);
                nodes.cut(slot);
            } else {
                let at = model.partition_point(|entry| entry.0 <= offset);
                model.insert(at, (offset, slot));
                assert_eq!(nodes.put(base.wrapping_add(offset), slot), at == 0);
            }
            let expected: Vec<_> = model
                .iter()
                .map(|&(offset, slot)| (base.wrapping_add(offset), slot))
                .collect();
            assert_eq!(check(&nodes), expected);
        }
    }

    proptest! {
        #[test]
        fn invariants_hold_after_each_step(
            steps in proptest::collection::vec((0..SLOTS, 0..40_u64), 0..400),
            base in prop_oneof![Just(0), Just(u64::MAX - 20), any::<u64>()],
        ) {
            run(steps, base);
        }
    }

    #[test]
    fn rising_and_falling_keys() {
        let up = (0..SLOTS).map(|slot| (slot, u64::from(slot)));
        let down = (0..SLOTS).map(|slot| (slot, u64::from(SLOTS - slot)));
        run(up.clone().chain(up.clone()), 0);
        run(down.clone().chain(up.rev()), u64::MAX - 30);
    }
}
