// SPDX-License-Identifier: GPL-2.0-only
//! A user-level thread's stack, and the switch to it and back. All that is unsafe in this crate.

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::Cell;
use std::ptr;

/// Why a fiber gives way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// It can go on at once.
    Yield,
    /// When someone wakes it.
    Block,
}

type Inner = Yielder<(), Pause>;

thread_local! {
    /// Of the fiber that runs on this kernel thread; null while none does.
    static INNER: Cell<*const Inner> = const { Cell::new(ptr::null()) };
}

// What is thread-local is found anew each time: after a switch a fiber may be on another thread.
#[inline(never)]
fn set_inner(inner: *const Inner) {
    INNER.with(|place| place.set(inner));
}

#[inline(never)]
fn inner() -> *const Inner {
    INNER.with(Cell::get)
}

/// A function on a stack of its own, that runs when it is resumed until it gives way.
pub struct Fiber {
    coroutine: Coroutine<(), Pause, ()>,
}

// SAFETY: Own-fiber. What is on the stack was made by a function that is `Send`, and on it; a
// reference to what is thread-local does not outlive a call of ours that gives way, as none is lent
// (`set_inner`, `inner`); the fiber runs on one thread at a time.
unsafe impl Send for Fiber {}

impl Fiber {
    /// The function must not unwind.
    pub fn new(stack: DefaultStack, function: impl FnOnce() + Send + 'static) -> Self {
        let coroutine = Coroutine::with_stack(stack, move |yielder: &Inner, ()| {
            set_inner(yielder);
            function();
        });
        Self { coroutine }
    }

    /// Lets it run. `None` when its function is over.
    pub fn resume(&mut self) -> Option<Pause> {
        let result = self.coroutine.resume(());
        set_inner(ptr::null());
        match result {
            CoroutineResult::Yield(pause) => Some(pause),
            CoroutineResult::Return(()) => None,
        }
    }

    /// The stack, for another; when the function is over.
    pub fn into_stack(self) -> DefaultStack {
        self.coroutine.into_stack()
    }
}

/// Gives way: back to who called [`Fiber::resume`]. False for who is on no fiber, and has nobody to
/// give way to.
pub fn give_way(pause: Pause) -> bool {
    let inner = inner();
    if inner.is_null() {
        return false;
    }
    // SAFETY: Own-fiber. It is the running fiber's, on whose stack this call is, so that it is
    // there until that is over.
    unsafe { &*inner }.suspend(pause);
    // Others ran here meanwhile, or this is another thread.
    set_inner(inner);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fiber_goes_on_where_it_was_on_another_thread_too() {
        let (to, from) = std::sync::mpsc::channel();
        let mut fiber = Fiber::new(DefaultStack::new(1 << 16).unwrap(), move || {
            for step in 0..3 {
                to.send(step).unwrap();
                give_way(if step == 1 {
                    Pause::Block
                } else {
                    Pause::Yield
                });
            }
        });
        assert_eq!(fiber.resume(), Some(Pause::Yield));
        let mut fiber = std::thread::spawn(move || {
            assert_eq!(fiber.resume(), Some(Pause::Block));
            fiber
        })
        .join()
        .unwrap();
        assert_eq!((fiber.resume(), fiber.resume()), (Some(Pause::Yield), None));
        assert_eq!(from.iter().collect::<Vec<_>>(), [0, 1, 2]);
        fiber.into_stack();
    }

    #[test]
    fn who_is_on_no_fiber_gives_way_to_nobody() {
        assert!(!give_way(Pause::Yield));
        let mut fiber = Fiber::new(DefaultStack::new(1 << 16).unwrap(), || {
            assert!(give_way(Pause::Yield))
        });
        assert_eq!(fiber.resume(), Some(Pause::Yield));
        assert!(
            !give_way(Pause::Yield),
            "the fiber that ran last does not run"
        );
        assert_eq!(fiber.resume(), None);
        assert!(!give_way(Pause::Block));
    }
}
