// SPDX-License-Identifier: GPL-2.0-only
//! The stack of a user-level thread, and the switch to it and back. All unsafe code of this crate.

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::Cell;
use std::ptr;

/// Why a fiber gives way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// It stays runnable.
    Yield,
    /// It waits until it is woken.
    Block,
}

type Inner = Yielder<(), Pause>;

thread_local! {
    /// That of the fiber that runs on this kernel thread; null while none runs.
    static INNER: Cell<*const Inner> = const { Cell::new(ptr::null()) };
}

// Thread-local variables are looked up each time: after a switch a fiber may be on another thread.
#[inline(never)]
fn set_inner(inner: *const Inner) {
    INNER.with(|place| place.set(inner));
}

#[inline(never)]
fn inner() -> *const Inner {
    INNER.with(Cell::get)
}

/// A function on a stack of its own. It runs from a call of `resume` until it gives way.
pub struct Fiber {
    coroutine: Coroutine<(), Pause, ()>,
}

// SAFETY: Own-fiber. Everything on the stack was made by a function that is `Send`, and on that
// stack. No reference to a thread-local variable outlives a call that gives way, as none is
// returned (`set_inner`, `inner`). The fiber runs on one thread at a time.
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

    /// Runs the fiber until it gives way. `None` if its function has returned.
    pub fn resume(&mut self) -> Option<Pause> {
        let result = self.coroutine.resume(());
        set_inner(ptr::null());
        match result {
            CoroutineResult::Yield(pause) => Some(pause),
            CoroutineResult::Return(()) => None,
        }
    }

    /// The stack, for reuse after the function has returned.
    pub fn into_stack(self) -> DefaultStack {
        self.coroutine.into_stack()
    }
}

/// Gives way: switches back to the caller of [`Fiber::resume`]. False if the caller runs on no
/// fiber.
pub fn give_way(pause: Pause) -> bool {
    let inner = inner();
    if inner.is_null() {
        return false;
    }
    // SAFETY: Own-fiber. It belongs to the running fiber, on whose stack this call is, so it is
    // valid until the fiber is over.
    unsafe { &*inner }.suspend(pause);
    // Other fibers ran here meanwhile, or this is another thread.
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
