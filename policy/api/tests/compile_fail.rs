// SPDX-License-Identifier: GPL-2.0-only
//! What a policy cannot do, because it does not compile. Each file of `compile_fail/` has the
//! compiler's answer beside it; `TRYBUILD=overwrite cargo test -p baton --test compile_fail` writes
//! the answers anew.

use baton::Ctx;

#[test]
fn a_policy_cannot() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}

/// A `Ctx` stays on the CPU that was called. Not one of the files, because the compiler's answer to
/// that lists the private parts of `Ctx`. Instead this compiles only while `Ctx` is neither `Send`
/// nor `Sync`: if it were, there would be two `A`s for which `Ctx: Unique<A>`, and `_` could be
/// either.
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
