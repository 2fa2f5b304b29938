// SPDX-License-Identifier: GPL-2.0-only
//! Run queues: where a policy keeps the [`Schedulable`](crate::Schedulable)s that it holds.
//!
//! | | order | put in | take the first | take any |
//! | --- | --- | --- | --- | --- |
//! | [`Fifo`] | of arrival | O(1) | O(1) | O(1) |
//! | [`List`] | by key | O(n), O(1) when the key is the largest | O(1) | O(1) |
//! | [`Tree`] | by key | O(log n) | O(log n), `first` O(1) | O(log n) |
//!
//! All are created by [`Env`](crate::Env), share one link per task slot, and never allocate. They
//! have no lock of their own: protect them by a [`Lock`](crate::Lock), which several queues may
//! share. Putting a task into a queue panics if the host of the queue has no such slot. Dropping a
//! queue that is not empty drops its tasks, which the host notices.
//!
//! When a `Schedulable` is put into a queue, another one of the same task may already be queued,
//! here or in another queue. This happens when one CPU puts a refused `Schedulable` back while
//! another CPU enqueues the task again. The newer of the two then takes the place of the queued
//! one, and the older is dropped ([`Queued::Merged`]). No task is lost, because the host accepts
//! only the newest one.
//!
//! **Keys** are compared as the kernel compares virtual run times: `a` is before `b` when the
//! wrapping difference `a - b` is negative as a signed number. A clock may therefore wrap at 2^64.
//! All keys in one queue at a time must lie within 2^63 of each other; otherwise their order is
//! arbitrary, but nothing else is affected. Equal keys keep the order of their insertion.

mod chain;
mod fifo;
mod list;
mod nodes;
mod ring;
mod tree;

pub use fifo::Fifo;
pub use list::List;
pub use tree::Tree;

/// The result of putting a [`Schedulable`](crate::Schedulable) into a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the task may have been queued already, here or elsewhere: code that counts tasks \
    must know"]
pub enum Queued {
    /// It was put into this queue.
    New,
    /// Another `Schedulable` of the same task is queued, here or in another queue. The newer of the
    /// two has its place, and the older is dropped.
    Merged,
}

/// Is key `a` before key `b`?
#[inline]
fn before(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) < 0
}

#[cfg(test)]
mod tests {
    use super::before;

    #[test]
    fn keys_are_ordered_across_the_wrap() {
        assert!(before(1, 2) && !before(2, 1) && !before(2, 2));
        assert!(before(u64::MAX, 0) && !before(0, u64::MAX));
        assert!(before(u64::MAX - 5, 1 << 62));
    }
}
