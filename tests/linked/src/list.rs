// SPDX-License-Identifier: GPL-2.0-only
// Written by `cargo xtask policies`.

use crate::{linked, Linked};

/// Calls a macro with the name of each sound policy.
#[macro_export]
macro_rules! each_sound_policy {
    ($call:ident) => {
        $call!(arbiter);
        $call!(central);
        $call!(cfs_cwc_flat);
        $call!(cfs_ipanema);
        $call!(cfs_like);
        $call!(echo);
        $call!(eevdf_like);
        $call!(fifo);
        $call!(locality);
        $call!(lottery);
        $call!(relay_v1);
        $call!(relay_v2);
        $call!(shinjuku);
        $call!(template);
        $call!(ule);
        $call!(ule_cwc);
        $call!(wfq);
    };
}

/// All policies, by name.
pub const POLICIES: &[Linked] = &[
    Linked {
        name: "arbiter",
        sound: true,
        excludes: &[],
        replies: &[1, 2, 3],
        next: arbiter,
        policy: arbiter,
    },
    Linked {
        name: "central",
        sound: true,
        excludes: &[],
        replies: &[],
        next: central,
        policy: central,
    },
    Linked {
        name: "cfs_cwc_flat",
        sound: true,
        excludes: &[],
        replies: &[],
        next: cfs_cwc_flat,
        policy: cfs_cwc_flat,
    },
    Linked {
        name: "cfs_ipanema",
        sound: true,
        excludes: &["work-conservation"],
        replies: &[],
        next: cfs_ipanema,
        policy: cfs_ipanema,
    },
    Linked {
        name: "cfs_like",
        sound: true,
        excludes: &["bounded-wait"],
        replies: &[],
        next: cfs_like,
        policy: cfs_like,
    },
    Linked {
        name: "echo",
        sound: true,
        excludes: &["work-conservation", "bounded-wait"],
        replies: &[1, 2],
        next: echo,
        policy: echo,
    },
    Linked {
        name: "eevdf_like",
        sound: true,
        excludes: &["bounded-wait"],
        replies: &[],
        next: eevdf_like,
        policy: eevdf_like,
    },
    Linked {
        name: "faulty",
        sound: false,
        excludes: &[],
        replies: &[],
        next: faulty,
        policy: faulty,
    },
    Linked {
        name: "fifo",
        sound: true,
        excludes: &["work-conservation"],
        replies: &[],
        next: fifo,
        policy: fifo,
    },
    Linked {
        name: "locality",
        sound: true,
        excludes: &["work-conservation"],
        replies: &[1],
        next: locality,
        policy: locality,
    },
    Linked {
        name: "lottery",
        sound: true,
        excludes: &["bounded-wait"],
        replies: &[],
        next: lottery,
        policy: lottery,
    },
    Linked {
        name: "relay_v1",
        sound: true,
        excludes: &["work-conservation"],
        replies: &[],
        next: relay_v2,
        policy: relay_v1,
    },
    Linked {
        name: "relay_v2",
        sound: true,
        excludes: &["work-conservation"],
        replies: &[],
        next: relay_v1,
        policy: relay_v2,
    },
    Linked {
        name: "shinjuku",
        sound: true,
        excludes: &[],
        replies: &[],
        next: shinjuku,
        policy: shinjuku,
    },
    Linked {
        name: "template",
        sound: true,
        excludes: &["work-conservation"],
        replies: &[],
        next: template,
        policy: template,
    },
    Linked {
        name: "ule",
        sound: true,
        excludes: &["work-conservation"],
        replies: &[],
        next: ule,
        policy: ule,
    },
    Linked {
        name: "ule_cwc",
        sound: true,
        excludes: &[],
        replies: &[],
        next: ule_cwc,
        policy: ule_cwc,
    },
    Linked {
        name: "wfq",
        sound: true,
        excludes: &[],
        replies: &[],
        next: wfq,
        policy: wfq,
    },
    Linked {
        name: "witness",
        sound: false,
        excludes: &[],
        replies: &[],
        next: witness,
        policy: witness,
    },
];

linked!(arbiter);
linked!(central);
linked!(cfs_cwc_flat);
linked!(cfs_ipanema);
linked!(cfs_like);
linked!(echo);
linked!(eevdf_like);
linked!(faulty);
linked!(fifo);
linked!(locality);
linked!(lottery);
linked!(relay_v1);
linked!(relay_v2);
linked!(shinjuku);
linked!(template);
linked!(ule);
linked!(ule_cwc);
linked!(wfq);
linked!(witness);
