// SPDX-License-Identifier: GPL-2.0-only
//! Load balancing of policies in Baton's language on a machine with many CPUs.

use std::collections::BTreeSet;
use std::sync::Arc;

use baton_sim::topology::CpuMask;
use baton_sim::world::{Happening, Spawn, World};

use crate::life::{hog, watched};
use crate::{cfs_cwc_flat, machine};

/// A call looks at so many cores at most that it serves 128 of the idle ones here. The threads may
/// use none of these, so calls that always began with them would never come to the others.
#[test]
fn balancing_goes_on_where_the_last_call_ended() {
    const LAST: usize = 1_023;
    let mut world = World::new();
    let allowed = Some(Arc::new(CpuMask::of([0, LAST - 1, LAST])));
    for nr in 0..3 {
        let task = world.task(Spawn {
            affinity: Some(Arc::new(CpuMask::of([0]))),
            ..hog(&format!("hog {nr}"))
        });
        let change = Happening::Affinity(task, allowed.clone());
        world.happens(20_000_000, change);
    }
    let (_, runs) = watched(&machine("16x32x2", cfs_cwc_flat(), 1_500), world);
    let used: BTreeSet<usize> = runs.iter().map(|(_, cpu, _)| *cpu as usize).collect();
    assert_eq!(used, BTreeSet::from([0, LAST - 1, LAST]));
}
