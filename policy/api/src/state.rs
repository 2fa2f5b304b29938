// SPDX-License-Identifier: GPL-2.0-only
//! Types of the states that one version of a policy passes to the next ([`crate::Upgrade`]).
//!
//! The next version was compiled separately, so the host compares everything that determines the
//! memory layout: names, sizes, offsets and types of all fields, and the compiler. Enoki (3.2)
//! casts a pointer without a check.

use crate::{
    runqueue::{Fifo, List, Tree},
    saved::{Load, Save, Unlike},
    shared::{Shared, Word},
    Cpu, Lock, PerCpu, PerTask,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use baton_message::fnv::{text, word, BEGIN};
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicU16, AtomicU32, AtomicU64, AtomicU8, AtomicUsize,
    Ordering,
};

/// A type whose values can be passed to another version. `baton::state!` implements it for a
/// structure.
pub trait State: Sized + Send + Sync + 'static {
    /// The memory layout. Only `baton::state!` may define it.
    #[doc(hidden)]
    const LAYOUT: Layout;

    /// Writes the value; see [`Save`]. No call of the policy is in progress meanwhile.
    #[doc(hidden)]
    fn save(&self, to: &mut Save<'_>);

    /// Reads a value that `save` wrote.
    #[doc(hidden)]
    fn load(from: &mut Load<'_>) -> Result<Self, Unlike>;
}

/// The memory layout of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Name of the type, without its path.
    pub name: &'static str,
    /// The version that the author gave the type; 0 for types that `baton::state!` did not define.
    pub version: u32,
    /// Hash of the names, sizes, offsets and types of all fields, recursively, and of the compiler.
    pub hash: u64,
}

/// The compiler version, if the build passes it. Types of the standard library may have another
/// layout in another version.
const COMPILER: &str = match option_env!("BATON_RUSTC") {
    Some(version) => version,
    None => "",
};

/// Version of this crate's own types, whose fields the hash does not cover. Raise it when one of
/// them changes.
const CONTAINERS: u64 = 2;

impl Layout {
    /// For `baton::state!`: the layout of a structure without its fields.
    #[doc(hidden)]
    pub const fn of<T>(name: &'static str, version: u32) -> Self {
        let hash = text(word(text(BEGIN, COMPILER), CONTAINERS), name);
        Self {
            name,
            version,
            hash: word(
                word(word(hash, version as u64), size_of::<T>() as u64),
                align_of::<T>() as u64,
            ),
        }
    }

    /// For `baton::state!`: adds a field.
    #[doc(hidden)]
    pub const fn field(self, name: &str, offset: usize, of: Self) -> Self {
        Self {
            hash: word(word(text(self.hash, name), offset as u64), of.hash),
            ..self
        }
    }
}

/// For `baton::state!`: the layout of the field that the function returns.
#[doc(hidden)]
pub const fn layout_of<S, F: State>(_: fn(&S) -> &F) -> Layout {
    F::LAYOUT
}

/// Implements [`State`] for a structure, given its version and the names of all its fields. The
/// types of the fields must be states, too.
///
/// ```
/// struct TaskState { vruntime: core::sync::atomic::AtomicU64, weight: u32 }
/// baton::state!(TaskState, version 1 { vruntime, weight });
/// ```
#[macro_export]
macro_rules! state {
    ($type:ident, version $version:literal { $($field:ident),* $(,)? }) => {
        impl $crate::State for $type {
            const LAYOUT: $crate::Layout = $crate::Layout::of::<$type>(stringify!($type), $version)
                $(.field(stringify!($field), core::mem::offset_of!($type, $field),
                    $crate::layout_of(|state: &$type| &state.$field)))*;

            fn save(&self, to: &mut $crate::Save<'_>) {
                $($crate::State::save(&self.$field, to);)*
            }

            fn load(from: &mut $crate::Load<'_>) -> ::core::result::Result<Self, $crate::Unlike> {
                Ok($type { $($field: $crate::State::load(from)?),* })
            }
        }
        // A field that is not named is an error here.
        const _: fn(&$type) = |state| {
            let $type { $($field: _),* } = state;
        };
    };
}

macro_rules! plain {
    ($($type:ty)*) => {$(
        impl State for $type {
            const LAYOUT: Layout = Layout::of::<Self>(stringify!($type), 0);

            fn save(&self, to: &mut Save<'_>) {
                // A signed number is sign-extended to 64 bits.
                to.word(*self as u64);
            }

            fn load(from: &mut Load<'_>) -> Result<Self, Unlike> {
                let word = from.word()?;
                let value = word as $type;
                if value as u64 == word { Ok(value) } else { Err(Unlike) }
            }
        }
    )*};
}
plain!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize);

impl State for () {
    const LAYOUT: Layout = Layout::of::<Self>("()", 0);

    fn save(&self, _: &mut Save<'_>) {}

    fn load(_: &mut Load<'_>) -> Result<Self, Unlike> {
        Ok(())
    }
}

impl State for bool {
    const LAYOUT: Layout = Layout::of::<Self>("bool", 0);

    fn save(&self, to: &mut Save<'_>) {
        to.word(u64::from(*self));
    }

    fn load(from: &mut Load<'_>) -> Result<Self, Unlike> {
        Ok(from.word()? != 0)
    }
}

impl State for Cpu {
    const LAYOUT: Layout = Layout::of::<Self>("Cpu", 0);

    fn save(&self, to: &mut Save<'_>) {
        to.word(self.index() as u64);
    }

    fn load(from: &mut Load<'_>) -> Result<Self, Unlike> {
        let number = from.word()?;
        let mut cpus = from.env().topology().cpus();
        cpus.find(|cpu| cpu.index() as u64 == number).ok_or(Unlike)
    }
}

macro_rules! atomic {
    ($($type:ident $plain:ty,)*) => {$(
        impl State for $type {
            const LAYOUT: Layout = Layout::of::<Self>(stringify!($type), 0);

            fn save(&self, to: &mut Save<'_>) {
                self.load(Ordering::Relaxed).save(to);
            }

            fn load(from: &mut Load<'_>) -> Result<Self, Unlike> {
                <$plain as State>::load(from).map(Self::new)
            }
        }
    )*};
}
atomic! {
    AtomicBool bool, AtomicU8 u8, AtomicU16 u16, AtomicU32 u32, AtomicU64 u64, AtomicUsize usize, AtomicI32 i32, AtomicI64 i64,
}

macro_rules! queue {
    ($($type:ident |$queue:ident, $slot:ident| $all:expr, $key:expr, $make:ident;)*) => {$(
        impl State for $type {
            const LAYOUT: Layout = Layout::of::<Self>(stringify!($type), 0);

            fn save(&self, to: &mut Save<'_>) {
                let $queue = self;
                to.word($queue.len() as u64);
                for $slot in $all {
                    let (key, slot) = $key;
                    to.word(key);
                    to.word(u64::from(slot));
                    to.word(u64::from($queue.generation(slot)));
                }
            }

            fn load(from: &mut Load<'_>) -> Result<Self, Unlike> {
                let mut queue = from.env().$make();
                for _ in 0..from.count()? {
                    let key = from.word()?;
                    let (slot, generation) = (<u32 as State>::load(from)?, <u32 as State>::load(from)?);
                    if !queue.restore(key, slot, generation) {
                        return Err(Unlike);
                    }
                }
                Ok(queue)
            }
        }
    )*};
}
queue! {
    Fifo |queue, slot| queue.iter(), (0, slot), fifo;
    List |queue, entry| queue.iter(), entry, list;
    Tree |queue, entry| queue.iter(), entry, tree;
}

macro_rules! of_one {
    ($($type:ident |$this:ident, $to:ident, $from:ident| $save:expr, $load:expr;)*) => {$(
        impl<T: State> State for $type<T> {
            const LAYOUT: Layout = Layout::of::<Self>(stringify!($type), 0).field("", 0, T::LAYOUT);

            fn save(&self, $to: &mut Save<'_>) {
                let $this = self;
                $save
            }

            fn load($from: &mut Load<'_>) -> Result<Self, Unlike> {
                $load
            }
        }
    )*};
}
of_one! {
    Option |this, to, from| {
        to.word(u64::from(this.is_some()));
        this.iter().for_each(|value| value.save(to));
    }, Ok(if from.word()? == 0 { None } else { Some(T::load(from)?) });
    Vec |this, to, from| {
        to.word(this.len() as u64);
        this.iter().for_each(|value| value.save(to));
    }, (0..from.count()?).map(|_| T::load(from)).collect();
    Box |this, to, from| T::save(this, to), T::load(from).map(Box::new);
    Arc |this, to, from| T::save(this, to), T::load(from).map(Arc::new);
    Lock |this, to, from| this.lock().save(to), T::load(from).map(Lock::new);
    PerCpu |this, to, from| this.iter().for_each(|value| value.save(to)), PerCpu::load(from);
    PerTask |this, to, from| this.iter().for_each(|value| value.save(to)), PerTask::load(from);
}

impl<T: Word + Send + Sync> State for Shared<T> {
    const LAYOUT: Layout =
        Layout::of::<Self>("Shared", 0).field(T::NAME, 0, Layout::of::<T>(T::NAME, 0));

    fn save(&self, to: &mut Save<'_>) {
        to.word(self.get().to_word());
    }

    fn load(from: &mut Load<'_>) -> Result<Self, Unlike> {
        Ok(Self::new(T::from_word(from.word()?)))
    }
}

impl<T: State, const N: usize> State for [T; N] {
    const LAYOUT: Layout = Layout::of::<Self>("array", 0).field("", N, T::LAYOUT);

    fn save(&self, to: &mut Save<'_>) {
        self.iter().for_each(|value| value.save(to));
    }

    fn load(from: &mut Load<'_>) -> Result<Self, Unlike> {
        let values: Vec<T> = (0..N).map(|_| T::load(from)).collect::<Result<_, _>>()?;
        values.try_into().map_err(|_| Unlike)
    }
}

impl<A: State, B: State> State for (A, B) {
    const LAYOUT: Layout = Layout::of::<Self>("pair", 0)
        .field("0", core::mem::offset_of!(Self, 0), A::LAYOUT)
        .field("1", core::mem::offset_of!(Self, 1), B::LAYOUT);

    fn save(&self, to: &mut Save<'_>) {
        self.0.save(to);
        self.1.save(to);
    }

    fn load(from: &mut Load<'_>) -> Result<Self, Unlike> {
        Ok((A::load(from)?, B::load(from)?))
    }
}
