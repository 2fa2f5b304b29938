// SPDX-License-Identifier: GPL-2.0-only
//! Requests of the control device to the rules. Process context, under the control mutex, unless
//! noted.

use crate::{core, measure::MEASURED};
use ::core::sync::atomic::Ordering::{AcqRel, Relaxed};
use baton_abi::{
    BatonCoreInfo, BatonCpuInfo, BatonCtx, BatonEvent, BatonFaultKind, BatonMethod,
    BatonPolicyInfo, BatonPolicyState, BatonTaskInfo,
};
use baton_core::{CpuState, Fault, PolicyEntry, TaskState};

fn place(index: u32) -> Option<&'static PolicyEntry> {
    core().policies().get(index as usize)
}

/// Registers a policy. Returns its index in the table, or -1 if the table is full.
#[no_mangle]
pub extern "C" fn baton_core_register(events: u32) -> i32 {
    core()
        .register(events)
        .map_or(-1, |entry| entry.index() as i32)
}

/// Forgets a policy that is not running.
#[no_mangle]
pub extern "C" fn baton_core_unregister(index: u32) {
    if let Some(entry) = place(index) {
        core().unregister(entry);
    }
}

/// See [`baton_core::Core::set_events`].
#[no_mangle]
pub extern "C" fn baton_core_set_events(index: u32, events: u32) {
    if let Some(entry) = place(index) {
        core().set_events(entry, events);
    }
}

/// Stops a policy because of a fault that another module has found. False if it was not running.
/// Any context in which the place cannot be freed.
#[no_mangle]
pub extern "C" fn baton_core_fault(
    index: u32,
    kind: BatonFaultKind,
    method: u32,
    pid: u32,
    now: u64,
) -> bool {
    let fault = Fault {
        kind,
        method: BatonMethod::of(method),
        pid,
        now,
    };
    place(index).is_some_and(|entry| core().fault(entry, &fault, None))
}

/// See [`baton_core::Slot::set_in_custody`].
#[no_mangle]
pub extern "C" fn baton_core_set_in_custody(slot: u32) {
    if let Some(slot) = core().slots().get(slot as usize) {
        slot.set_in_custody();
    }
}

/// Starts a policy with this version (`struct baton_version`). False if the policy is not in state
/// "registered".
#[no_mangle]
pub extern "C" fn baton_core_start(index: u32, version: usize) -> bool {
    place(index).is_some_and(|entry| core().start(entry, version).is_ok())
}

/// Stops a policy. False if there is nothing to stop. The caller must wait until calls in progress
/// have ended.
#[no_mangle]
pub extern "C" fn baton_core_stop(index: u32) -> bool {
    place(index).is_some_and(|entry| core().stop(entry))
}

/// Replaces the running version by this one. The caller must wait until calls in progress have
/// ended.
#[no_mangle]
pub extern "C" fn baton_core_swap(index: u32, version: usize, events: u32) {
    if let Some(entry) = place(index) {
        core().swap(entry, version, events);
    }
}

/// See [`baton_core::Core::hand_anew`].
#[no_mangle]
pub extern "C" fn baton_core_hand_anew(
    index: u32,
    is_new: bool,
    now: u64,
    frame: crate::Frame,
    cpu: &CpuState,
) {
    if let Some(entry) = place(index) {
        core().hand_anew(entry, is_new, now, frame, cpu);
    }
}

/// State of a policy (`BatonPolicyState`). Any context.
#[no_mangle]
pub extern "C" fn baton_core_state(index: u32) -> u32 {
    place(index).map_or(BatonPolicyState::Absent, PolicyEntry::state) as u32
}

/// Sets the policy of all tasks that are not assigned to one; -1 for none.
#[no_mangle]
pub extern "C" fn baton_core_set_default(index: i32) {
    core().set_default(u32::try_from(index).ok().and_then(place));
}

/// See [`baton_core::Core::set_order`].
///
/// # Safety
/// Host-call: `first` has `count` places.
#[no_mangle]
pub unsafe extern "C" fn baton_core_set_order(first: *const u32, count: usize) {
    // SAFETY: Host-call. The caller's promise.
    core().set_order(unsafe { ::core::slice::from_raw_parts(first, count) });
}

/// See [`baton_core::Core::set_share`].
#[no_mangle]
pub extern "C" fn baton_core_set_share(index: u32, percent: u32) -> bool {
    place(index).is_some_and(|entry| core().set_share(entry, percent))
}

/// See [`baton_core::Core::set_partition`]; `cpus` has one bit for each CPU, in `words` words.
///
/// # Safety
/// Host-call: `cpus` has `words` words.
#[no_mangle]
pub unsafe extern "C" fn baton_core_set_partition(
    id: u32,
    cpus: *const u64,
    words: usize,
    policies: u32,
    now: u64,
    frame: crate::Frame,
    cpu: &CpuState,
) {
    // SAFETY: Host-call. The caller's promise.
    let cpus = unsafe { ::core::slice::from_raw_parts(cpus, words) };
    let has = |cpu: i32| {
        cpus.get(cpu as usize / 64)
            .is_some_and(|word| word & 1 << (cpu as u32 % 64) != 0)
    };
    core().set_partition(
        &baton_core::Partition {
            id,
            cpus: has,
            policies,
        },
        now,
        frame,
        cpu,
    );
}

/// The partition that a CPU is in; 0 for none.
#[no_mangle]
pub extern "C" fn baton_core_partition_of_cpu(cpu: i32) -> u32 {
    core()
        .cpu(cpu)
        .map_or(baton_core::FREE, CpuState::partition)
}

/// The partition that a policy is in; 0 for none.
#[no_mangle]
pub extern "C" fn baton_core_partition_of_policy(index: u32) -> u32 {
    place(index).map_or(baton_core::FREE, PolicyEntry::partition)
}

/// Is the policy that CPU `here` called last also asked on CPU `cpu`? Any context.
#[no_mangle]
pub extern "C" fn baton_core_serves(here: i32, cpu: i32) -> bool {
    let policy = core().cpu(here).and_then(|here| place(here.event(0).0));
    policy
        .zip(core().cpu(cpu))
        .is_some_and(|(policy, cpu)| core().serves(policy, cpu))
}

/// See [`baton_core::Core::rescued_home`].
#[no_mangle]
pub extern "C" fn baton_core_rescued_home(slot: u32, near: i32) -> i32 {
    core()
        .slots()
        .get(slot as usize)
        .map_or(near, |slot| core().rescued_home(slot, near))
}

/// The number of slots that have ever been in use. Slots beyond it never were.
#[no_mangle]
pub extern "C" fn baton_core_used_slots() -> u32 {
    core().used().len() as u32
}

/// See [`baton_core::Core::relieve`].
#[no_mangle]
pub extern "C" fn baton_core_relieve() {
    core().relieve();
}

/// See [`baton_core::Core::hand_over`].
#[no_mangle]
pub extern "C" fn baton_core_hand_over(
    from: u32,
    to: u32,
    now: u64,
    frame: crate::Frame,
    cpu: &CpuState,
) {
    if let (Some(from), Some(to)) = (place(from), place(to)) {
        core().hand_over(from, to, now, frame, cpu);
    }
}

/// Does this policy have all tasks that are not assigned to one?
#[no_mangle]
pub extern "C" fn baton_core_is_default(index: u32) -> bool {
    place(index).is_some_and(|entry| entry.id() != 0 && entry.id() == core().default_policy())
}

/// Sets the recording of a policy's calls; NULL for none. Calls that have begun are not affected.
/// Any context.
#[no_mangle]
pub extern "C" fn baton_core_set_recorder(index: u32, recording: usize) {
    set_observers(index, |observers| recording | observers & MEASURED);
}

/// Sets whether a policy's calls are measured. Calls that have begun are not affected.
#[no_mangle]
pub extern "C" fn baton_core_set_measured(index: u32, on: bool) {
    let bit = if on { MEASURED } else { 0 };
    set_observers(index, |observers| observers & !MEASURED | bit);
}

fn set_observers(index: u32, change: impl Fn(usize) -> usize) {
    if let Some(entry) = place(index) {
        let change = |observers| Some(change(observers));
        let _ = entry.observers.fetch_update(AcqRel, Relaxed, change);
    }
}

/// Assigns the task with this thread id to a policy; -1 for none. False if there is no such task.
#[no_mangle]
pub extern "C" fn baton_core_assign(pid: u32, index: i32) -> bool {
    let slot = core()
        .used()
        .iter()
        .find(|slot| slot.pid() == pid && slot.state() != TaskState::Free);
    if let Some(slot) = slot {
        core().assign(slot, u32::try_from(index).ok().and_then(place));
    }
    slot.is_some()
}

/// See [`baton_core::Core::assign_by_rule`].
#[no_mangle]
pub extern "C" fn baton_core_assign_by_rule(slot: u32, index: i32) -> bool {
    let entry = u32::try_from(index).ok().and_then(place);
    core()
        .slots()
        .get(slot as usize)
        .is_some_and(|slot| core().assign_by_rule(slot, entry))
}

/// See [`baton_core::Core::rescue_stranded`]. Any context.
#[no_mangle]
pub extern "C" fn baton_core_rescue_again() -> bool {
    core().rescue_stranded()
}

/// See [`baton_core::Core::fallback_slice`]. Any context.
#[no_mangle]
pub extern "C" fn baton_core_fallback_slice() -> u64 {
    core().fallback_slice()
}

/// See [`baton_core::Core::end_slice`]. On the CPU in question, interrupts off.
#[no_mangle]
pub extern "C" fn baton_core_end_slice(ctx: &mut BatonCtx, cpu: &CpuState) {
    core().end_slice(cpu, ctx);
}

/// Judges the policy of a task that has waited for more than `limit` ns. Interrupts off, no
/// run-queue lock held. `frame` and `cpu` belong to this CPU.
#[no_mangle]
pub extern "C" fn baton_core_check_stall(
    ctx: &mut BatonCtx,
    frame: crate::Frame,
    cpu: &CpuState,
    limit: u64,
) {
    if let Some(slot) = core().find_stall(ctx.now, limit) {
        core().judge_stall(frame, cpu, ctx, slot);
    }
}

/// Stops the policy that this CPU called last, for a fault in that call. False if it was stopped
/// already. Called in that call.
#[no_mangle]
pub extern "C" fn baton_core_fault_in_call(cpu: i32, kind: BatonFaultKind) -> bool {
    core()
        .cpu(cpu)
        .is_some_and(|cpu| core().fault_in_call(cpu, kind))
}

/// Index in the table of the policy that this CPU called last. Called in that call.
#[no_mangle]
pub extern "C" fn baton_core_current_policy(cpu: i32) -> u32 {
    core().cpu(cpu).map_or(0, |cpu| cpu.event(0).0)
}

/// The call that this CPU made `back` calls ago.
///
/// # Safety
/// Host-call: `cpu` was given to `baton_khost_report`, and `out` is writable.
#[no_mangle]
pub unsafe extern "C" fn baton_core_event(cpu: *const CpuState, back: usize, out: *mut BatonEvent) {
    // SAFETY: Host-call. The caller's promise.
    unsafe { *out = (*cpu).event(back).1 };
}

/// Fills in the fields of `info` that the rules provide.
///
/// # Safety
/// Host-call: `info` is valid.
#[no_mangle]
pub unsafe extern "C" fn baton_core_info(info: *mut BatonCoreInfo) {
    // SAFETY: Host-call. The caller's promise.
    let info = unsafe { &mut *info };
    info.abi = baton_abi::BATON_ABI;
    info.max_tasks = core().slots().len() as u32;
    info.tasks = core().tasks();
    info.default_policy = core().default_policy();
}

/// Fills in what the rules know about the policy at `info.index`.
///
/// # Safety
/// Host-call: `info` is valid.
#[no_mangle]
pub unsafe extern "C" fn baton_core_policy_info(info: *mut BatonPolicyInfo) {
    // SAFETY: Host-call. The caller's promise.
    let info = unsafe { &mut *info };
    let Some(entry) = place(info.index) else {
        return;
    };
    info.state = entry.state() as u32;
    info.id = entry.id();
    let before = core().order().take_while(|place| *place != info.index);
    info.rank = before
        .filter(|place| self::place(*place).is_some_and(|other| other.id() != 0))
        .count() as u32;
    info.share = entry.share.load(Relaxed);
    info.refusals = entry.refusals.load(Relaxed);
    info.faults = entry.faults.load(Relaxed);
    let members = core()
        .used()
        .iter()
        .filter(|slot| slot.state() != TaskState::Free && slot.policy() == info.id);
    for slot in members.filter(|_| info.id != 0) {
        info.tasks = info.tasks.wrapping_add(1);
        info.queued = info
            .queued
            .wrapping_add(u32::from(slot.state() == TaskState::Queued));
    }
}

/// Fills in the counters of the CPU `info.cpu`. False if there is no such CPU.
///
/// # Safety
/// Host-call: `info` is valid.
#[no_mangle]
pub unsafe extern "C" fn baton_core_cpu_info(info: *mut BatonCpuInfo) -> bool {
    // SAFETY: Host-call. The caller's promise.
    let info = unsafe { &mut *info };
    let Some(cpu) = core().cpu(info.cpu as i32) else {
        return false;
    };
    *info = BatonCpuInfo {
        cpu: info.cpu,
        online: u32::from(cpu.is_online()),
        dispatches: cpu.dispatches.get(),
        picks: cpu.picks.get(),
        enqueues: cpu.enqueues.get(),
        directs: cpu.directs.get(),
        refusals: cpu.refusals.get(),
        fallbacks: cpu.fallbacks.get(),
        timers: cpu.timers.get(),
    };
    true
}

/// Fills in what the rules know about the first task in slot `info.slot` or after it; the pid is 0
/// if there is none. False if there is no such slot.
///
/// # Safety
/// Host-call: `info` is valid.
#[no_mangle]
pub unsafe extern "C" fn baton_core_task_info(info: *mut BatonTaskInfo) -> bool {
    // SAFETY: Host-call. The caller's promise.
    let info = unsafe { &mut *info };
    if info.slot as usize >= core().slots().len() {
        return false;
    }
    let slots = core().used().get(info.slot as usize..).unwrap_or_default();
    let Some((number, slot)) = (info.slot..)
        .zip(slots)
        .find(|(_, slot)| slot.state() != TaskState::Free)
    else {
        info.pid = 0;
        return true;
    };
    info.slot = number;
    info.state = slot.state() as u32;
    info.pid = slot.pid();
    info.policy = slot.policy();
    info.cpu = slot.cpu();
    info.nice = slot.nice();
    info.wanted = slot.wanted();
    true
}
