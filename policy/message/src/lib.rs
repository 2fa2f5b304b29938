// SPDX-License-Identifier: GPL-2.0-only
//! What applications and policies say to each other: types of messages, and the rings in shared
//! memory that carry them.
//!
//! The same code is in the kernel, in applications and in tests. It is safe, allocates nothing and
//! does not panic, whatever is in the memory that it reads.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod field;
#[doc(hidden)]
pub mod fnv;
mod kind;
pub mod ring;

pub use baton_abi::{BatonHint as Raw, BatonStateType as Type};
pub use field::{Field, Reader, Thread, Writer};
pub use kind::Kind;

/// A type of messages. Made by [`message!`](crate::message), which a type must not do without.
pub trait Message: Sized + Copy {
    /// Its name, its version, and a number made of all that is in it: two types are the same when
    /// these are.
    const TYPE: Type;

    /// How many threads a message of this type can name: 0 or 1.
    const THREADS: usize;

    /// As it lies in a ring.
    fn encode(&self) -> Raw;

    /// What that says; `None` if it is no message of this type. There is one way to say each thing:
    /// what is not used is 0.
    fn decode(raw: &Raw) -> Option<Self>;
}

/// Makes a type of messages: an enum whose variants have fields of plain types (`u8` to `u64`,
/// `i32`, `i64`, `bool`) and at most one [`Thread`]; six fields at most beside that. Each variant
/// has its tag. Whoever changes what a field means raises the version.
///
/// ```
/// use baton_message::{message, Message, Thread};
///
/// message! {
///     /// What a server says of its threads.
///     pub enum Hint, version 1 {
///         /// It is about to answer a request, in so many ns.
///         Deadline { ns: u64 } = 1,
///         /// That thread of mine is of this group.
///         Group { thread: Thread, group: u32 } = 2,
///     }
/// }
/// assert_eq!(Hint::decode(&Hint::Deadline { ns: 5 }.encode()), Some(Hint::Deadline { ns: 5 }));
/// ```
#[macro_export]
macro_rules! message {
    ($(#[$meta:meta])* $vis:vis enum $name:ident, version $version:literal {
        $($(#[$of:meta])* $variant:ident { $($(#[$about:meta])* $field:ident: $type:ty),* $(,)? } = $tag:literal),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name {
            $($(#[$of])* $variant { $($(#[$about])* $field: $type),* }),+
        }

        const _: () = {
            const KIND: $crate::Kind = $crate::Kind::new(stringify!($name), $version)
                $(.variant(stringify!($variant), $tag)$(.field::<$type>(stringify!($field)))*)+;

            impl $crate::Message for $name {
                const TYPE: $crate::Type = KIND.finish();
                const THREADS: usize = KIND.most_threads();

                #[inline]
                fn encode(&self) -> $crate::Raw {
                    match *self {
                        $($name::$variant { $($field),* } => {
                            #[allow(unused_mut, reason = "of a variant without fields")]
                            let mut to = $crate::Writer::new($tag);
                            $($crate::Field::put($field, &mut to);)*
                            to.finish()
                        })+
                    }
                }

                #[inline]
                #[deny(unreachable_patterns, reason = "each tag is of one variant")]
                fn decode(raw: &$crate::Raw) -> ::core::option::Option<Self> {
                    #[allow(unused_mut, reason = "of variants without fields")]
                    let mut from = $crate::Reader::new(raw);
                    let message = match raw.tag {
                        $($tag => $name::$variant { $($field: $crate::Field::take(&mut from)?),* },)+
                        _ => return None,
                    };
                    from.is_done().then_some(message)
                }
            }
        };
    };
}
