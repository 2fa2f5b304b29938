// SPDX-License-Identifier: GPL-2.0-only
//! Forbidden actions of a policy, which do not compile. Each file of `compile_fail/` has the
//! compiler's output beside it; `TRYBUILD=overwrite cargo test -p baton --test compile_fail` writes
//! the output again.

use baton::Ctx;

#[test]
fn a_policy_cannot() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}

/// A `Ctx` stays on the CPU that was called. This is not one of the files because the compiler's
/// output lists the private parts of `Ctx`. Instead, this compiles only while `Ctx` is neither
/// `Send` nor `Sync`: otherwise, `Ctx: Unique<A>` would hold for two `A`s, and `_` would be
/// ambiguous.
#[test]
fn a_ctx_cannot_go_to_another_thread() {
    trait Unique<A> {
        const HOLDS: bool = true;
    }
    struct IfSend;
    struct IfSync;
    impl<T> Unique<()> for T {}
    impl<T: Send> Unique<IfSend> for T {}
    impl<T: Sync> Unique<IfSync> for T {}
    const { assert!(<Ctx<'_> as Unique<_>>::HOLDS) }
}
