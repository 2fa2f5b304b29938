// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler of the kernel that guests boot. The first run fetches that kernel's debug package
//! into the cache, which takes some minutes.

use baton_live::boundary::Class;
use baton_live::Prepared;
use baton_vm::Kernel;

#[test]
fn the_scheduler_is_the_kernels_and_is_taken_apart() {
    let prepared = Prepared::make(&Kernel::of_root().unwrap()).unwrap();
    let identity = &prepared.identity;
    assert_eq!(identity.different, []);
    assert!(identity.functions > 1000, "{}", identity.functions);
    assert_eq!(identity.equal + identity.excused.len(), identity.functions);
    assert!(identity.references > 10_000, "{}", identity.references);

    let boundary = prepared.boundary().unwrap();
    let check = |name: &str, class: Class, reason: &str| {
        let found = boundary.functions.iter().find(|f| f.name == name);
        let found = found.unwrap_or_else(|| panic!("there is no {name}"));
        let reasons: Vec<_> = found.reasons.iter().map(ToString::to_string).collect();
        assert_eq!(found.class, class, "{name}: {reasons:?}");
        let has = reasons.iter().any(|text| text.contains(reason));
        assert!(has || reason.is_empty(), "{name}: {reasons:?}");
    };
    check("__schedule", Class::Kept, "tasks sleep in it");
    check("schedule", Class::Kept, "tasks sleep in it");
    check("arch_cpu_idle", Class::Kept, "weak");
    check("default_idle_call", Class::Kept, ".cpuidle.text");
    check(
        "__do_sys_sched_getattr",
        Class::Kept,
        "constants that only a boot fills in",
    );
    check("wake_up_process", Class::Interface, "it is exported");
    check(
        "enqueue_task_fair",
        Class::Interface,
        "fair_sched_class has its address",
    );
    check("place_entity", Class::Internal, "");
    let is_shared = |name: &str| {
        let found = boundary.data.iter().find(|datum| datum.name == name);
        found.unwrap_or_else(|| panic!("there is no {name}")).shared
    };
    assert!(is_shared("runqueues") && is_shared("fair_sched_class"));
    assert!(!is_shared("sched_prio_to_weight"));
    let calls = |name: &str| boundary.external.iter().any(|e| e.name == name);
    assert!(calls("hrtimer_start_range_ns"));
}
