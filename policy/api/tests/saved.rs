// SPDX-License-Identifier: GPL-2.0-only
//! A state that is saved and loaded is the same state; bytes of anything else are refused.

use baton::{
    runqueue::{Fifo, List, Tree},
    Env, Load, Lock, PerCpu, PerTask, Place, Save, Schedulable, Shared, State, Topology, Unlike,
};
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};
use proptest::{collection::vec, prelude::*, sample::Index};
use std::sync::Arc;

const SLOTS: u32 = 24;

fn env() -> Env<'static> {
    Env::new(Topology::new(vec![Place::default(); 3]), SLOTS, "")
}

#[derive(Default)]
struct OfTask {
    vruntime: AtomicU64,
    lag: AtomicI32,
}

struct OfCpu {
    tree: Lock<Tree>,
    waiting: Shared<u32>,
}

struct All {
    cpus: PerCpu<OfCpu>,
    tasks: PerTask<OfTask>,
    fifo: Arc<Lock<Fifo>>,
    list: List,
    numbers: Vec<u32>,
    pair: (i64, Option<bool>),
    array: [u8; 3],
}

baton::state!(OfTask, version 1 { vruntime, lag });
baton::state!(OfCpu, version 1 { tree, waiting });
baton::state!(All, version 1 { cpus, tasks, fifo, list, numbers, pair, array });

fn mint(slot: u32, generation: u32) -> Schedulable {
    // SAFETY: One-baton. Each slot is minted once in a test.
    unsafe { Schedulable::from_raw(u64::from(generation) << 32 | u64::from(slot + 1)) }
        .expect("a well-formed token")
}

fn saved(state: &impl State) -> Vec<u8> {
    let length = {
        let mut save = Save::new(&mut []);
        state.save(&mut save);
        save.finish()
    };
    let mut bytes = vec![0xaa; length];
    let mut save = Save::new(&mut bytes);
    state.save(&mut save);
    assert_eq!(save.finish(), length);
    bytes
}

fn load<T: State>(bytes: &[u8]) -> Result<T, Unlike> {
    let env = env();
    let mut load = Load::new(bytes, &env);
    let state = T::load(&mut load)?;
    if load.is_done() {
        Ok(state)
    } else {
        Err(Unlike)
    }
}

/// Takes all batons out, as a dropped one panics.
fn drain(all: &mut All) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    for cpu in all.cpus.iter() {
        let mut tree = cpu.tree.lock();
        found.extend(
            std::iter::from_fn(|| tree.pop_first()).map(|(key, task)| (key, task.into_raw())),
        );
    }
    let mut fifo = all.fifo.lock();
    found.extend(std::iter::from_fn(|| fifo.pop_front()).map(|task| (0, task.into_raw())));
    found.extend(
        std::iter::from_fn(|| all.list.pop_first()).map(|(key, task)| (key, task.into_raw())),
    );
    found
}

prop_compose! {
    /// Every slot is in one of the queues, or in none.
    fn states()(
        places in vec((0..6u32, any::<u64>(), 1..=u32::MAX), SLOTS as usize),
        values in vec((prop_oneof![Just(0), any::<u64>()], prop_oneof![Just(0), any::<i32>()]), SLOTS as usize),
        waiting in any::<[u32; 3]>(),
        numbers in vec(any::<u32>(), 0..5),
        pair in any::<(i64, Option<bool>)>(),
        array in any::<[u8; 3]>(),
    ) -> All {
        let env = env();
        let mut waiting = waiting.into_iter();
        let all = All {
            cpus: env.per_cpu(|_| OfCpu { tree: Lock::new(env.tree()), waiting: Shared::new(waiting.next().unwrap()) }),
            tasks: env.per_task(),
            fifo: Arc::new(Lock::new(env.fifo())),
            list: env.list(),
            numbers,
            pair,
            array,
        };
        let mut all = all;
        for (slot, (&(place, key, generation), (vruntime, lag))) in (0..).zip(places.iter().zip(values)) {
            all.tasks.slot(slot).vruntime.store(vruntime, Relaxed);
            all.tasks.slot(slot).lag.store(lag, Relaxed);
            // Keys compare like a clock that wraps, so they span at most half of the range.
            let key = key >> 1;
            let _ = match place {
                0..3 => all.cpus.iter().nth(place as usize).unwrap().tree.lock().insert(key, mint(slot, generation)),
                3 => all.fifo.lock().push_back(mint(slot, generation)),
                4 => all.list.insert(key, mint(slot, generation)),
                _ => continue,
            };
        }
        all
    }
}

impl std::fmt::Debug for All {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(saved(self)).finish()
    }
}

proptest! {
    #[test]
    fn what_is_saved_is_loaded(mut all in states()) {
        let bytes = saved(&all);
        let mut loaded: All = load(&bytes).unwrap();
        prop_assert_eq!(&saved(&loaded), &bytes);
        prop_assert_eq!(loaded.cpus.iter().map(|cpu| cpu.waiting.get()).collect::<Vec<_>>(),
            all.cpus.iter().map(|cpu| cpu.waiting.get()).collect::<Vec<_>>());
        prop_assert_eq!(&loaded.numbers, &all.numbers);
        prop_assert_eq!((loaded.pair, loaded.array), (all.pair, all.array));
        prop_assert_eq!(drain(&mut loaded), drain(&mut all));
    }

    /// For types without a queue: if loading a state fails halfway, the tasks in its queues are
    /// lost, and the host is notified.
    #[test]
    fn a_part_is_refused(numbers in vec(any::<u32>(), 0..20), pair in any::<(i64, Option<bool>)>(), cut in any::<Index>()) {
        let bytes = saved(&(numbers.clone(), pair));
        prop_assert_eq!(load::<(Vec<u32>, (i64, Option<bool>))>(&bytes), Ok((numbers, pair)));
        let part = &bytes[..cut.index(bytes.len())];
        prop_assert!(load::<(Vec<u32>, (i64, Option<bool>))>(part).is_err());
    }

    #[test]
    fn any_bytes_are_refused_or_loaded(bytes in vec(any::<u8>(), 0..300)) {
        let _ = load::<(Vec<u64>, (Option<Box<u8>>, (PerTask<OfTask>, [i8; 5])))>(&bytes);
    }
}

#[test]
fn zeros_take_no_room() {
    let tasks: PerTask<OfTask> = env().per_task();
    assert_eq!(saved(&tasks), [0, 2 * SLOTS as u8 - 1]);
}
