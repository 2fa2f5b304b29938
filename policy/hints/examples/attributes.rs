// SPDX-License-Identifier: GPL-2.0-only
//! Gives this thread a slice of 3 ms under the policy `cfs_c`, and shows its attributes.

use baton_hints::attributes::Attributes;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let own = std::process::id();
    let mut attributes = Attributes::open("cfs_c")?;
    attributes.set(own, &[("slice", 3_000_000)])?;
    let values = attributes.get(own)?;
    for (attribute, value) in attributes.table()?.iter().zip(values) {
        println!("{} {value}", attribute.name);
    }
    Ok(())
}
