// SPDX-License-Identifier: GPL-2.0-only
//! The options of a policy, and the errors for wrong ones.

use baton::{Env, Place, Topology};

fn env(options: &str) -> Env<'_> {
    Env::new(
        Topology::new(vec![Place {
            core: 0,
            llc: 0,
            node: 0,
        }]),
        16,
        options,
    )
}

#[test]
fn durations_and_numbers() {
    let env = env("slice=3ms, count = 12,long=2s,short=7us,bare=5");
    let durations =
        ["slice", "long", "short", "bare", "none"].map(|key| env.duration(key, 9).unwrap());
    assert_eq!(durations, [3_000_000, 2_000_000_000, 7_000, 5, 9]);
    assert_eq!(
        (env.number("count", 1), env.number("none", 1)),
        (Ok(12), Ok(1))
    );
    assert_eq!(
        env.known_options(&["slice", "count", "long", "short", "bare"]),
        Ok(())
    );
}

#[test]
fn what_is_wrong_names_the_option_and_the_value() {
    let duration = |text: &str| env(text).duration("slice", 0).unwrap_err().to_string();
    let is_none = |value: &str| {
        let said = duration(&format!("slice={value}"));
        assert_eq!(
            said,
            format!(
                "the option slice is a duration, a whole number with ns, us, ms \
            or s, not `{value}`"
            )
        );
    };
    [
        "",
        "ms",
        "3m",
        "-1ms",
        "1.5ms",
        "3 ms",
        "99999999999999999999ns",
    ]
    .into_iter()
    .for_each(is_none);
    assert_eq!(
        duration("slice=99999999999s"),
        "the option slice is too long: `99999999999s`"
    );
    let number = env("count=x").number("count", 0).unwrap_err();
    assert_eq!(
        number.message(),
        "the option count is a whole number, not `x`"
    );
    let unknown = |known: &[&str]| {
        env("slice=1,k=2")
            .known_options(known)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        unknown(&["slice", "count"]),
        "the policy has no option k; it has slice, count"
    );
    assert_eq!(unknown(&[]), "the policy has no option slice: it has none");
}
