// SPDX-License-Identifier: GPL-2.0-only
//! Messages between applications and policies: their types, and the rings in shared memory that
//! carry them.
//!
//! The same code runs in the kernel, in applications and in tests. It is safe, allocates nothing,
//! and does not panic for any contents of the memory that it reads.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod attributes;
mod field;
#[doc(hidden)]
pub mod fnv;
mod kind;
pub mod ring;

pub use baton_abi::{BatonHint as Raw, BatonStateType as Type};
pub use field::{Field, Reader, Thread, Writer};
pub use kind::Kind;

/// A type of messages. Only [`message!`](crate::message) may implement it.
pub trait Message: Sized + Copy {
    /// Name, version, and a hash of all its contents. Two types are the same if these are equal.
    const TYPE: Type;

    /// How many threads a message of this type can name: 0 or 1.
    const THREADS: usize;

    /// Encodes the message as it is stored in a ring.
    fn encode(&self) -> Raw;

    /// Decodes a message; `None` if it is not of this type. Each message has one encoding: all
    /// unused parts are 0.
    fn decode(raw: &Raw) -> Option<Self>;
}

/// Defines a type of messages: an enum whose variants have at most six fields of plain types (`u8`
/// to `u64`, `i32`, `i64`, `bool`), and at most one [`Thread`] besides. Each variant has its own
/// tag. Raise the version when the meaning of a field changes.
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
