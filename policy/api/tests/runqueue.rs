// SPDX-License-Identifier: GPL-2.0-only
//! The run queues against models made of `Vec` and `BTreeMap`: several queues over the links of one
//! `Env`, random steps, every answer compared, and no `Schedulable` lost or doubled.

use baton::{
    runqueue::{Fifo, List, Queued, Tree},
    Env, Place, Schedulable, Topology,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

const SLOTS: u32 = 24;

fn env() -> Env<'static> {
    Env::new(Topology::new(vec![Place::default()]), SLOTS, "")
}

/// Plays the host: creates the task's next `Schedulable`.
fn mint(slot: u32, generation: u32) -> Schedulable {
    // SAFETY: One-baton. Tests create a `Schedulable` for a slot only after the last one of that
    // slot was returned.
    unsafe { Schedulable::from_raw(u64::from(generation) << 32 | u64::from(slot + 1)) }
        .expect("a well-formed token")
}

/// Gives a `Schedulable` back to the host.
fn retire(task: Schedulable) -> (u32, u32) {
    let identity = (task.slot(), task.generation());
    let _ = task.into_raw();
    identity
}

/// A queue and its model: ordered by key, then by arrival. A `Fifo` has keys too, which order its
/// pushes.
enum Queue {
    Fifo(Fifo),
    List(List),
    Tree(Tree),
}

/// Slot and generation, by offset of the key and number of the arrival.
type Model = BTreeMap<(u64, i64), (u32, u32)>;

struct Pair {
    queue: Queue,
    model: Model,
    base: u64,
    arrivals: i64,
}

#[derive(Clone, Debug)]
enum Step {
    /// Put the slot in, with this offset of the key, unless it is queued already.
    Put {
        slot: u32,
        offset: u64,
        front: bool,
    },
    Pop,
    Remove {
        slot: u32,
    },
    /// Take the first whose slot has these low bits.
    PopWhere {
        low: u32,
    },
}

impl Pair {
    fn new(queue: Queue, base: u64) -> Self {
        Self {
            queue,
            model: Model::new(),
            base,
            arrivals: 0,
        }
    }

    fn put(&mut self, slot: u32, generation: u32, offset: u64, front: bool) {
        self.arrivals += 1;
        let task = mint(slot, generation);
        let key = self.base.wrapping_add(offset);
        let place = match &mut self.queue {
            Queue::Fifo(q) if front => {
                assert_eq!(q.push_front(task), Queued::New);
                (0, -self.arrivals)
            }
            Queue::Fifo(q) => {
                assert_eq!(q.push_back(task), Queued::New);
                (0, self.arrivals)
            }
            Queue::List(q) => {
                assert_eq!(q.insert(key, task), Queued::New);
                (offset, self.arrivals)
            }
            Queue::Tree(q) => {
                assert_eq!(q.insert(key, task), Queued::New);
                (offset, self.arrivals)
            }
        };
        self.model.insert(place, (slot, generation));
    }

    /// Takes the task at `place` out of both, and compares.
    fn take(
        &mut self,
        place: Option<(u64, i64)>,
        fifo: impl FnOnce(&mut Fifo) -> Option<Schedulable>,
        list: impl FnOnce(&mut List) -> Option<(u64, Schedulable)>,
        tree: impl FnOnce(&mut Tree) -> Option<(u64, Schedulable)>,
    ) -> Option<u32> {
        let expected = place.map(|place| {
            (
                place.0,
                self.model.remove(&place).expect("a place of the model"),
            )
        });
        let base = self.base;
        let keyed = |(key, task): (u64, Schedulable)| (key.wrapping_sub(base), retire(task));
        let got = match &mut self.queue {
            Queue::Fifo(q) => fifo(q).map(|task| (0, retire(task))),
            Queue::List(q) => list(q).map(keyed),
            Queue::Tree(q) => tree(q).map(keyed),
        };
        assert_eq!(got, expected);
        got.map(|(_, (slot, _))| slot)
    }

    fn find(&self, mut fits: impl FnMut(u32) -> bool) -> Option<(u64, i64)> {
        self.model
            .iter()
            .find(|(_, &(slot, _))| fits(slot))
            .map(|(&place, _)| place)
    }

    fn step(&mut self, step: &Step) -> Option<u32> {
        match *step {
            Step::Put { .. } => None,
            Step::Pop => self.take(
                self.find(|_| true),
                Fifo::pop_front,
                List::pop_first,
                Tree::pop_first,
            ),
            Step::Remove { slot } => self.take(
                self.find(|s| s == slot),
                |q| q.remove(slot),
                |q| q.remove(slot),
                |q| q.remove(slot),
            ),
            Step::PopWhere { low } => {
                let fits = |slot: u32| slot % 4 == low;
                self.take(
                    self.find(fits),
                    |q| q.pop_where(fits),
                    |q| q.pop_where(fits),
                    |q| q.pop_where(fits),
                )
            }
        }
    }

    /// Compares everything that can be read.
    fn check(&self) {
        let expected: Vec<(u64, u32)> = self
            .model
            .iter()
            .map(|(place, task)| (place.0, task.0))
            .collect();
        let base = self.base;
        let offset = |(key, slot): (u64, u32)| (key.wrapping_sub(base), slot);
        let (got, first, len, is_empty): (Vec<_>, _, _, _) = match &self.queue {
            Queue::Fifo(q) => (
                q.iter().map(|s| (0, s)).collect(),
                q.front().map(|s| (0, s)),
                q.len(),
                q.is_empty(),
            ),
            Queue::List(q) => (
                q.iter().map(offset).collect(),
                q.first().map(offset),
                q.len(),
                q.is_empty(),
            ),
            Queue::Tree(q) => (
                q.iter().map(offset).collect(),
                q.first().map(offset),
                q.len(),
                q.is_empty(),
            ),
        };
        assert_eq!(got, expected);
        assert_eq!(first, expected.first().copied());
        assert_eq!((len, is_empty), (expected.len(), expected.is_empty()));
        // Step by step, as a walk that may change other things between two steps.
        let places = |(_, slot): &(u64, u32)| match &self.queue {
            Queue::Fifo(q) => q.after(*slot).map(|s| (0, s)),
            Queue::List(q) => q.iter().skip_while(|it| it.1 != *slot).nth(1).map(offset),
            Queue::Tree(q) => q.after(*slot).map(offset),
        };
        let walked: Vec<_> = std::iter::successors(first, places).collect();
        assert_eq!(walked, expected);
        // Also one past the last slot: a slot without a task is in no queue.
        for slot in 0..=SLOTS {
            let got = match &self.queue {
                Queue::Fifo(q) => q.contains(slot),
                Queue::List(q) => q.contains(slot),
                Queue::Tree(q) => q.contains(slot),
            };
            let is_there = expected.iter().any(|entry| entry.1 == slot);
            assert_eq!(got, is_there, "contains({slot})");
            if !is_there {
                assert_eq!(places(&(0, slot)), None, "after {slot}, which is not here");
            }
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let step = prop_oneof![
        5 => (0..SLOTS, 0..12_u64, any::<bool>()).prop_map(|(slot, offset, front)| Step::Put { slot, offset, front }),
        2 => Just(Step::Pop),
        2 => (0..=SLOTS).prop_map(|slot| Step::Remove { slot }),
        1 => (0..4_u32).prop_map(|low| Step::PopWhere { low }),
    ];
    // Most steps for one tree, which then has few and many tasks in turn.
    proptest::collection::vec(
        (prop_oneof![2 => Just(4_usize), 1 => 0..5_usize], step),
        0..300,
    )
}

proptest! {
    #[test]
    fn queues_agree_with_their_models(
        steps in steps(),
        base in prop_oneof![Just(0), Just(u64::MAX - 6), Just(i64::MAX as u64 - 6), any::<u64>()],
    ) {
        let env = env();
        let mut pairs = [
            Pair::new(Queue::Fifo(env.fifo()), base),
            Pair::new(Queue::Fifo(env.fifo()), base),
            Pair::new(Queue::List(env.list()), base),
            Pair::new(Queue::Tree(env.tree()), base),
            Pair::new(Queue::Tree(env.tree()), base),
        ];
        // The host's view, by slot: the newest generation, and whether it is queued.
        let mut tasks = [(0_u32, false); SLOTS as usize];
        for (at, step) in &steps {
            if let Step::Put { slot, offset, front } = *step {
                let task = &mut tasks[slot as usize];
                if !task.1 {
                    *task = (task.0 + 1, true);
                    pairs[*at].put(slot, task.0, offset, front);
                }
            } else if let Some(slot) = pairs[*at].step(step) {
                tasks[slot as usize].1 = false;
            }
            pairs[*at].check();
        }
        for pair in &mut pairs {
            pair.check();
            while let Some(slot) = pair.step(&Step::Pop) {
                tasks[slot as usize].1 = false;
            }
        }
        prop_assert!(tasks.iter().all(|task| !task.1), "a Schedulable was lost");
    }
}

#[test]
fn equal_keys_keep_their_order() {
    let env = env();
    let (mut list, mut tree) = (env.list(), env.tree());
    for slot in 0..8 {
        let _ = list.insert(7, mint(slot, 1));
        let _ = tree.insert(7, mint(slot + 8, 1));
    }
    for slot in 0..8 {
        assert_eq!(
            list.pop_first().map(|(key, task)| (key, retire(task))),
            Some((7, (slot, 1)))
        );
        assert_eq!(
            tree.pop_first().map(|(key, task)| (key, retire(task))),
            Some((7, (slot + 8, 1)))
        );
    }
}

#[test]
fn a_queue_does_not_give_what_another_holds() {
    let env = env();
    let (mut one, mut other, mut tree) = (env.fifo(), env.fifo(), env.tree());
    let _ = one.push_back(mint(3, 1));
    assert_eq!(other.remove(3).map(retire), None);
    assert_eq!(tree.remove(3).map(|(_, task)| retire(task)), None);
    assert_eq!(one.remove(3).map(retire), Some((3, 1)));
    assert_eq!(one.remove(3).map(retire), None);
}

#[test]
fn debug_shows_the_order() {
    let env = env();
    let (mut fifo, mut list, mut tree) = (env.fifo(), env.list(), env.tree());
    let _ = fifo.push_back(mint(1, 1));
    let _ = fifo.push_front(mint(0, 1));
    let _ = list.insert(5, mint(2, 1));
    let _ = tree.insert(4, mint(3, 1));
    assert_eq!(
        format!("{fifo:?} {list:?} {tree:?}"),
        "[0, 1] [(5, 2)] [(4, 3)]"
    );
    fifo.remove(1).map(retire);
    fifo.remove(0).map(retire);
    list.remove(2).map(|(_, task)| retire(task));
    tree.remove(3).map(|(_, task)| retire(task));
}

/// The stand-in host panics when a `Schedulable` is dropped, which identifies the dropped one.
#[test]
#[should_panic(expected = "slot 3, generation 1")]
fn of_two_schedulables_of_a_task_the_older_is_dropped_from_its_queue() {
    let env = env();
    let (mut one, mut other) = (env.fifo(), env.tree());
    let _ = one.push_back(mint(3, 1));
    let _ = other.insert(0, mint(3, 2));
}

#[test]
#[should_panic(expected = "slot 3, generation 1")]
fn of_two_schedulables_of_a_task_the_older_is_not_queued() {
    let env = env();
    let (mut one, mut other) = (env.fifo(), env.tree());
    let _ = one.push_back(mint(3, 2));
    let _ = other.insert(0, mint(3, 1));
}

/// Runs something while the thread unwinds, where the stand-in host does not panic for a dropped
/// `Schedulable`.
fn unwinding<T>(does: impl FnOnce() -> T) -> T {
    struct Last<F: FnMut()>(F);
    impl<F: FnMut()> Drop for Last<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    let (mut does, mut got) = (Some(does), None);
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _last = Last(|| got = does.take().map(|does| does()));
        resume_unwind(Box::new(()));
    }));
    assert!(unwound.is_err());
    got.expect("it was done")
}

#[test]
fn a_second_schedulable_of_a_task_is_said_to_be_merged() {
    let env = env();
    let queues: [fn(&Env<'static>) -> Queue; 3] = [
        |env| Queue::Fifo(env.fifo()),
        |env| Queue::List(env.list()),
        |env| Queue::Tree(env.tree()),
    ];
    let put = |queue: &mut Queue, generation: u32, front: bool| match queue {
        Queue::Fifo(q) if front => q.push_front(mint(3, generation)),
        Queue::Fifo(q) => q.push_back(mint(3, generation)),
        Queue::List(q) => q.insert(7, mint(3, generation)),
        Queue::Tree(q) => q.insert(7, mint(3, generation)),
    };
    let pop = |queue: &mut Queue| match queue {
        Queue::Fifo(q) => q.pop_front(),
        Queue::List(q) => q.pop_first().map(|(_, task)| task),
        Queue::Tree(q) => q.pop_first().map(|(_, task)| task),
    };
    for (make, make_other, front) in queues
        .iter()
        .flat_map(|one| queues.iter().map(move |other| (one, other)))
        .flat_map(|(a, b)| [(a, b, true), (a, b, false)])
    {
        let (mut one, mut other) = (make(&env), make_other(&env));
        assert_eq!(put(&mut one, 1, front), Queued::New);
        // A newer one, an older one, and a newer one in another queue: the newest takes the place
        // of the first.
        assert_eq!(unwinding(|| put(&mut one, 3, front)), Queued::Merged);
        assert_eq!(unwinding(|| put(&mut one, 2, front)), Queued::Merged);
        assert_eq!(unwinding(|| put(&mut other, 4, front)), Queued::Merged);
        assert_eq!(pop(&mut other).map(retire), None);
        assert_eq!(pop(&mut one).map(retire), Some((3, 4)));
        assert_eq!(pop(&mut one).map(retire), None);
    }
}

#[test]
#[should_panic(expected = "index out of bounds")]
fn a_task_of_another_host_is_refused() {
    let _ = env().fifo().push_back(mint(SLOTS, 1));
}

#[test]
#[should_panic(expected = "a Schedulable was dropped: slot 5, generation 9")]
fn dropping_a_queue_drops_its_tasks() {
    let mut queue = env().tree();
    let _ = queue.insert(0, mint(5, 9));
    drop(queue);
}

/// A `Tree` is a list up to eight tasks, and then a tree until one is left.
#[test]
fn a_tree_grows_and_shrinks() {
    let env = env();
    let mut tree = env.tree();
    for most in 1..SLOTS {
        for slot in 0..most {
            // 0, 2, 4 ... and 1, 3, 5 ... by turns from both ends.
            let key = u64::from(if slot % 2 == 0 { slot } else { SLOTS - slot });
            let _ = tree.insert(key, mint(slot, most));
        }
        let keys: Vec<u64> = tree.iter().map(|(key, _)| key).collect();
        assert!(keys.is_sorted() && keys.len() == most as usize, "{keys:?}");
        let taken = std::iter::from_fn(|| tree.pop_first()).map(|(key, task)| {
            retire(task);
            key
        });
        assert_eq!(taken.collect::<Vec<_>>(), keys);
        assert!(tree.is_empty() && tree.first().is_none());
    }
}
