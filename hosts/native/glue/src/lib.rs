// SPDX-License-Identifier: GPL-2.0-only
//! The code around a policy that makes it callable in user space: the table of its functions, and
//! one function that calls them. That function returns even if the policy's function panics or the
//! call is abandoned. The counterpart of `hosts/kernel/glue` and `hosts/kernel/guard.S`.
#![deny(unsafe_op_in_unsafe_fn)]

mod memory;

use baton_abi::{
    baton_methods, BatonAsked, BatonBytes, BatonCtx, BatonEnv, BatonHint, BatonMethod, BatonOlder,
    BatonPolicy, BatonRefusal, BatonTask, BatonToken, BatonWake, BATON_ABI, BATON_ABORTED,
};
use baton_seam::host;
use std::{ffi::c_void, sync::Once};

#[doc(hidden)]
pub use baton_bridge::ops;
pub use memory::Bounded;
use memory::Making;

/// A policy in user space: the symbol `BATON_NATIVE` of a `baton_NAME.so`, or the result of
/// `module!`.
#[repr(C)]
pub struct NativePolicy {
    /// [`BATON_ABI`] that it was built with.
    pub abi: u32,
    /// Size of the table of host functions that it calls.
    pub table_size: u32,
    /// Its description. Its functions are called through `call` only.
    pub ops: &'static BatonPolicy,
    /// Calls a method. `this` is the result of `create`, or 0. `a` and `b` are the method's further
    /// arguments, as in [`BatonPolicy`]. Returns [`BATON_ABORTED`] if the call was abandoned, and 0
    /// for an absent method or one without a result.
    pub call:
        extern "C" fn(method: BatonMethod, this: usize, ctx: *mut BatonCtx, a: u64, b: u64) -> u64,
    /// Sets the host of this thread's calls.
    pub install: extern "C" fn(table: Option<&'static host::Table>),
}

impl NativePolicy {
    /// A policy that is linked in.
    pub const fn new(
        ops: &'static BatonPolicy,
        call: extern "C" fn(BatonMethod, usize, *mut BatonCtx, u64, u64) -> u64,
    ) -> Self {
        Self {
            abi: BATON_ABI,
            table_size: size_of::<host::Table>() as u32,
            ops,
            call,
            install,
        }
    }
}

extern "C" fn install(table: Option<&'static host::Table>) {
    static HOOK: Once = Once::new();
    HOOK.call_once(host::report_panics);
    host::install(table);
}

/// Called by `../../c/atomics.c` in a policy that is built for the checker.
#[no_mangle]
extern "C" fn baton_host_atomic() {
    host::atomic();
}

/// A type that is passed as a word.
trait Word {
    fn from_word(word: u64) -> Self;
    fn into_word(self) -> u64;
}

macro_rules! words {
    ($($type:ty),*) => {
        $(impl Word for $type {
            fn from_word(word: u64) -> Self {
                word as Self
            }

            fn into_word(self) -> u64 {
                self as u64
            }
        })*
    };
}
words!(u64, i32);

impl<T> Word for *const T {
    fn from_word(word: u64) -> Self {
        word as Self
    }

    fn into_word(self) -> u64 {
        self as u64
    }
}

impl<T> Word for *mut T {
    fn from_word(word: u64) -> Self {
        word as Self
    }

    fn into_word(self) -> u64 {
        self as u64
    }
}

impl Word for () {
    fn from_word(_: u64) -> Self {}

    fn into_word(self) -> u64 {
        0
    }
}

impl Word for BatonRefusal {
    fn from_word(word: u64) -> Self {
        match word {
            1 => Self::Stale,
            2 => Self::Foreign,
            3 => Self::NotAllowed,
            4 => Self::CpuOffline,
            _ => Self::NothingToKeep,
        }
    }

    fn into_word(self) -> u64 {
        self as u64
    }
}

/// Calls a method: see [`NativePolicy::call`].
#[inline(always)]
#[doc(hidden)]
pub fn call(
    ops: &BatonPolicy,
    method: BatonMethod,
    this: usize,
    ctx: *mut BatonCtx,
    a: u64,
    b: u64,
) -> u64 {
    let _making = method.may_sleep().then(Making::begin);
    host::guard(|| dispatch(ops, method, this as *mut c_void, ctx, a, b)).unwrap_or(BATON_ABORTED)
}

#[inline(always)]
fn dispatch(
    ops: &BatonPolicy,
    method: BatonMethod,
    this: *mut c_void,
    ctx: *mut BatonCtx,
    a: u64,
    b: u64,
) -> u64 {
    /// Calls a method's function. The form (`free`, `this` or `call`) decides the first parameters;
    /// the method's own arguments follow.
    macro_rules! called {
        ($function:ident, free($($type:ty)?)) => {
            $function($(<$type>::from_word(a))?)
        };
        ($function:ident, free($first:ty, $second:ty)) => {
            $function(<$first>::from_word(a), <$second>::from_word(b))
        };
        ($function:ident, this($($type:ty)?)) => {
            $function(this $(, <$type>::from_word(a))?)
        };
        ($function:ident, call($type:ty)) => {
            $function(this, ctx, <$type>::from_word(a))
        };
        ($function:ident, call($first:ty, $second:ty)) => {
            $function(this, ctx, <$first>::from_word(a), <$second>::from_word(b))
        };
    }
    macro_rules! by_number {
        ($(
            $(#[$doc:meta])*
            $variant:ident $name:ident: $need:ident $context:ident
                $form:ident($($argument:ident: $type:ty),*) $(-> $answer:ty)?;
        )*) => {
            match method {
                BatonMethod::None => 0,
                $(BatonMethod::$variant => ops
                    .$name
                    .map_or(0, |function| called!(function, $form($($type),*)).into_word()),)*
            }
        };
    }
    baton_methods!(by_number)
}

/// Makes a `&'static NativePolicy` of a type that implements `Scheduler`, for a program that the
/// policy is linked into.
#[macro_export]
macro_rules! module {
    ($scheduler:ty) => {{
        const OPS: &$crate::Ops = &$crate::ops::<$scheduler>();
        extern "C" fn call(
            method: $crate::Method,
            this: usize,
            ctx: *mut $crate::Ctx,
            a: u64,
            b: u64,
        ) -> u64 {
            $crate::call(OPS, method, this, ctx, a, b)
        }
        const MODULE: &$crate::NativePolicy = &$crate::NativePolicy::new(OPS, call);
        MODULE
    }};
}

#[doc(hidden)]
pub use baton_abi::{BatonCtx as Ctx, BatonMethod as Method, BatonPolicy as Ops};

/// Exports the policy of this type from the library. The library enables the feature
/// `alloc_error_hook`, so that a failed allocation is a panic and does not end the process.
#[macro_export]
macro_rules! export {
    ($scheduler:ty) => {
        #[global_allocator]
        static MEMORY: $crate::Bounded = $crate::Bounded;
        #[used]
        #[link_section = ".init_array"]
        static HOOK: extern "C" fn() = {
            extern "C" fn hook() {
                std::alloc::set_alloc_error_hook(|layout| {
                    panic!("memory allocation of {} bytes failed", layout.size())
                });
            }
            hook
        };
        #[no_mangle]
        pub static BATON_NATIVE: &$crate::NativePolicy = $crate::module!($scheduler);
    };
}
