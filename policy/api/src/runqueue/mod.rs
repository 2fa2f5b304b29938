// SPDX-License-Identifier: GPL-2.0-only
//! Run queues: where a policy keeps the [`Schedulable`](crate::Schedulable)s that it holds.
//!
//! | | order | put in | take the first | take any |
//! | --- | --- | --- | --- | --- |
//! | [`Fifo`] | of arrival | O(1) | O(1) | O(1) |
//! | [`List`] | by key | O(n), at once when the key is the largest | O(1) | O(1) |
//! | [`Tree`] | by key | O(log n) | O(log n), `first` O(1) | O(log n) |
//!
//! All are made by [`Env`](crate::Env), share one link per task slot, and never allocate. They are
//! not locked: put them behind a [`Lock`](crate::Lock), which two queues may share. Putting a task
//! of another host into a queue panics. Where another `Schedulable` of the same task is queued,
//! here or in another queue, the newer of the two has its place, and the older is dropped: that is
//! no loss, as the host takes the newest only, and happens when a refused one is put back while the
//! task is enqueued anew ([`Queued::Merged`] says so). Dropping a queue that is not empty drops its
//! tasks, which the host notices.
//!
//! **Keys** are compared as the kernel compares virtual run times: `a` is before `b` when the
//! wrapping difference `a - b` is negative as a signed number, so that a clock may pass 2^64. All
//! keys in one queue at a time must therefore lie within 2^63 of each other; otherwise the order
//! (nothing else) is arbitrary. Equal keys keep the order of their insertion.

mod chain;
mod fifo;
mod list;
mod nodes;
mod ring;
mod tree;

pub use fifo::Fifo;
pub use list::List;
pub use tree::Tree;

/// What became of a [`Schedulable`](crate::Schedulable) that was put into a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the task may have been queued already, here or elsewhere: whoever counts tasks must \
    know"]
pub enum Queued {
    /// It is where it was put.
    New,
    /// Another of the same task is queued, here or in another queue. The newer of the two has that
    /// one's place, the older is dropped.
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
