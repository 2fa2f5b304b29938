// SPDX-License-Identifier: GPL-2.0-only
// Written by `cargo xtask policies`.

use crate::{linked, source, Linked};

/// Calls a macro with the name of each sound policy.
#[macro_export]
macro_rules! each_sound_policy {
    ($call:ident) => {
        $call!(arbiter);
        $call!(central);
        $call!(cfs_cwc);
        $call!(cfs_cwc_flat);
        $call!(cfs_ipanema);
        $call!(cfs_like);
        $call!(echo);
        $call!(edf);
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
        source: None,
    },
    Linked {
        name: "central",
        sound: true,
        excludes: &[],
        replies: &[],
        next: central,
        policy: central,
        source: None,
    },
    Linked {
        name: "cfs_cwc",
        sound: true,
        excludes: &[],
        replies: &[],
        next: cfs_cwc,
        policy: cfs_cwc,
        source: source!("cfs-cwc/cfs_cwc"),
    },
    Linked {
        name: "cfs_cwc_flat",
        sound: true,
        excludes: &[],
        replies: &[],
        next: cfs_cwc_flat,
        policy: cfs_cwc_flat,
        source: source!("cfs-cwc-flat/cfs_cwc_flat"),
    },
    Linked {
        name: "cfs_ipanema",
        sound: true,
        excludes: &["work-conservation"],
        replies: &[],
        next: cfs_ipanema,
        policy: cfs_ipanema,
        source: source!("cfs-ipanema/cfs_ipanema"),
    },
    Linked {
        name: "cfs_like",
        sound: true,
        excludes: &["bounded-wait"],
        replies: &[],
        next: cfs_like,
        policy: cfs_like,
        source: None,
    },
    Linked {
        name: "echo",
        sound: true,
        excludes: &["work-conservation", "bounded-wait"],
        replies: &[1, 2],
        next: echo,
        policy: echo,
        source: None,
    },
    Linked {
        name: "edf",
        sound: true,
        excludes: &[],
        replies: &[],
        next: edf,
        policy: edf,
        source: source!("edf/edf"),
    },
    Linked {
        name: "eevdf_like",
        sound: true,
        excludes: &["bounded-wait"],
        replies: &[],
        next: eevdf_like,
        policy: eevdf_like,
        source: None,
    },
    Linked {
        name: "faulty",
        sound: false,
        excludes: &[],
        replies: &[],
        next: faulty,
        policy: faulty,
        source: None,
    },
    Linked {
        name: "fifo",
        sound: true,
        excludes: &["work-conservation"],
        replies: &[],
        next: fifo,
        policy: fifo,
        source: None,
    },
    Linked {
        name: "locality",
        sound: true,
        excludes: &["work-conservation"],
        replies: &[1],
        next: locality,
        policy: locality,
        source: None,
    },
    Linked {
        name: "lottery",
        sound: true,
        excludes: &["bounded-wait"],
        replies: &[],
        next: lottery,
        policy: lottery,
        source: source!("lottery/lottery"),
    },
    Linked {
        name: "relay_v1",
        sound: true,
        excludes: &["work-conservation"],
        replies: &[],
        next: relay_v2,
        policy: relay_v1,
        source: None,
    },
    Linked {
        name: "relay_v2",
        sound: true,
        excludes: &["work-conservation"],
        replies: &[],
        next: relay_v1,
        policy: relay_v2,
        source: None,
    },
    Linked {
        name: "shinjuku",
        sound: true,
        excludes: &[],
        replies: &[],
        next: shinjuku,
        policy: shinjuku,
        source: None,
    },
    Linked {
        name: "template",
        sound: true,
        excludes: &["work-conservation"],
        replies: &[],
        next: template,
        policy: template,
        source: None,
    },
    Linked {
        name: "ule",
        sound: true,
        excludes: &["work-conservation"],
        replies: &[],
        next: ule,
        policy: ule,
        source: source!("ule/ule"),
    },
    Linked {
        name: "ule_cwc",
        sound: true,
        excludes: &[],
        replies: &[],
        next: ule_cwc,
        policy: ule_cwc,
        source: source!("ule-cwc/ule_cwc"),
    },
    Linked {
        name: "wfq",
        sound: true,
        excludes: &[],
        replies: &[],
        next: wfq,
        policy: wfq,
        source: None,
    },
    Linked {
        name: "witness",
        sound: false,
        excludes: &[],
        replies: &[],
        next: witness,
        policy: witness,
        source: None,
    },
];

linked!(arbiter);
linked!(central);
linked!(cfs_cwc);
linked!(cfs_cwc_flat);
linked!(cfs_ipanema);
linked!(cfs_like);
linked!(echo);
linked!(edf);
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
