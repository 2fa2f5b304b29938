// SPDX-License-Identifier: GPL-2.0-only
//! One replay: an instance of the policy, and its lanes as threads or as coroutines.

use std::ptr;
use std::thread;
use std::time::Instant;

use baton_native::{contained, Instance, Policy};
use baton_trace::{Header, Recording, Stream};
use generator::{Gn, LocalGenerator, Scope};

use crate::ahead::Ahead;
use crate::lane::{may_be_ended, Lane};
use crate::order::{Order, State};
use crate::table::{take_words, Current, TABLE};
use crate::{End, Options, Outcome};

/// Words of a coroutine's stack. It is as large as a thread's, since a debugger may call functions
/// on it.
const STACK: usize = (1 << 20) / size_of::<usize>();

/// The handle by which a coroutine lets the next one go on.
pub(crate) type Yielder = Scope<'static, 'static, (), ()>;

/// Replays once, and returns the instance.
pub(crate) fn once(
    recording: &Recording,
    policy: Policy,
    options: &Options,
) -> Result<(Outcome, Instance), String> {
    let instance = make(recording, policy, options)?;
    let began = Instant::now();
    let (from, first) = options
        .from
        .map_or((0, 0), |mark| (mark.stamp, mark.number));
    let mut aheads: Vec<Ahead<'_>> = recording
        .streams
        .iter()
        .map(|stream| Ahead::new(stream, from))
        .collect();
    let stamps = aheads.iter().map(|ahead| ahead.stamp).collect();
    let numbered = first + aheads.iter().map(Ahead::unstamped).sum::<u64>();
    let order = Order::new(stamps, numbered, recording.begin(), options);
    missing_cpus(recording, &mut aheads);
    for (ahead, stream) in aheads.iter_mut().zip(&recording.streams) {
        if let Some(what) = ahead.missing.take() {
            order.end(
                &mut order.state(),
                End::Gap {
                    cpu: stream.cpu,
                    what,
                },
            );
        }
    }
    let lanes = aheads.into_iter().zip(&recording.streams).enumerate();
    if options.single {
        as_coroutines(lanes, &order, &instance, options)
    } else {
        thread::scope(|scope| {
            for (index, (ahead, stream)) in lanes {
                let (order, instance) = (&order, &instance);
                let name = format!("CPU {}", stream.cpu);
                let lane = move || {
                    // Ends the replay if this lane panics, so that no other lane waits for it.
                    let _ender = Ender(order);
                    policy.install(Some(&TABLE));
                    let lane = Lane::new(index, stream.cpu, order, ahead, options);
                    // SAFETY: On-stack. It is dropped before the lane.
                    let _current = unsafe { Current::new(&lane) };
                    // A call without an end is left behind, and its stack. Other crashes are not
                    // contained.
                    while let Err(crash) = contained(may_be_ended, || lane.run(instance)) {
                        lane.was_ended(crash);
                    }
                };
                thread::Builder::new()
                    .name(name)
                    .spawn_scoped(scope, lane)
                    .expect("threads can be made");
            }
        })
    }
    let mut state = order.state();
    let State {
        end,
        calls,
        times,
        faults,
        numbered,
        ..
    } = &mut *state;
    let end = end.take().unwrap_or(End::Whole);
    let last = match &end {
        End::Diverged(divergence) => divergence.number,
        _ => *numbered,
    };
    let outcome = Outcome {
        first,
        events: last - first,
        all: recording.streams.iter().map(Stream::len).sum(),
        calls: *calls,
        end,
        faults: std::mem::take(faults),
        elapsed: began.elapsed(),
        recorded: times.map_or(0, |(first, last)| last - first),
    };
    drop(state);
    Ok((outcome, instance))
}

/// Ends the replay when a thread panics.
struct Ender<'r>(&'r Order);

impl Drop for Ender<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let what = "the replay itself failed".into();
            self.0.end(&mut self.0.state(), End::Gap { cpu: 0, what });
        }
    }
}

fn make(recording: &Recording, policy: Policy, options: &Options) -> Result<Instance, String> {
    let header = &recording.header;
    if let Some((name, version, _)) = &header.state {
        let (our_name, our_version, _) = Header::state_type(&policy.ops().state);
        if (&our_name, our_version) != (name, *version) {
            let what = match our_name.as_str() {
                "" => "has no state that can be saved".into(),
                name => format!("has {name}, version {our_version}"),
            };
            return Err(format!(
                "the recording begins with a state ({name}, version {version}), and {} {what}",
                policy.name()
            ));
        }
    }
    let cpus = header.places();
    if cpus.is_empty() {
        return Err("the recording is of a machine without CPUs".into());
    }
    if cpus.len() > MAX_CPUS {
        return Err(format!(
            "the recording is of {} CPUs, and no machine has more than {MAX_CPUS}",
            cpus.len()
        ));
    }
    if header.max_tasks > MAX_TASKS {
        return Err(format!(
            "the recording is of {} task slots, and no machine has more than {MAX_TASKS}",
            header.max_tasks
        ));
    }
    let state = match (&options.from, &header.state) {
        (Some(_), None) => return Err("its header says nothing of states".into()),
        (Some(mark), Some(_)) => Some(
            recording
                .checkpoints
                .get(mark.index)
                .map(|point| &point.state),
        ),
        (None, Some(_)) => Some(recording.state.as_ref()),
        (None, None) => None,
    };
    let state = state
        .map(|state| state.ok_or("the state that it begins with is damaged, or not there"))
        .transpose()?;
    policy.install(Some(&TABLE));
    take_words();
    let text = options.policy_options.as_ref().unwrap_or(&header.options);
    let made = match state {
        None => policy.make(&cpus, header.max_tasks, text),
        Some(state) => policy.make_of(&cpus, header.max_tasks, text, state),
    };
    made.map_err(|why| match take_words() {
        Some(words) => format!("{why}: {}", words.message),
        None => why,
    })
}

/// The largest number of CPUs that Linux supports.
const MAX_CPUS: usize = 8192;

/// The limit of `baton load`.
const MAX_TASKS: u32 = 1 << 20;

/// Handles damaged blocks when no stream has a gap but some CPUs have no stream: the blocks may
/// belong to those CPUs.
fn missing_cpus(recording: &Recording, aheads: &mut [Ahead<'_>]) {
    let explained = recording.streams.iter().any(Stream::has_gap);
    let all_are_there = recording.streams.len() >= recording.header.nr_cpus();
    if !recording.damage.is_empty() && !explained && !all_are_there {
        if let Some(first) = aheads.first_mut() {
            first.missing =
                Some("blocks are damaged, and which CPU's they are cannot be told".into());
        }
    }
}

fn as_coroutines<'r>(
    lanes: impl Iterator<Item = (usize, (Ahead<'r>, &'r Stream))>,
    order: &'r Order,
    instance: &'r Instance,
    options: &'r Options,
) {
    let lanes: Vec<Lane<'r>> = lanes
        .map(|(index, (ahead, stream))| Lane::new(index, stream.cpu, order, ahead, options))
        .collect();
    let coroutine = |lane: &'_ Lane<'r>| {
        let lane = ptr::from_ref(lane);
        Gn::new_scoped_opt_local(STACK, move |mut scope| {
            // SAFETY: On-stack. The lanes outlive their coroutines.
            let lane = unsafe { &*lane };
            lane.is_coroutine(ptr::from_mut(&mut scope).cast());
            lane.run(instance);
        })
    };
    let mut coroutines: Vec<LocalGenerator<'_, (), ()>> = lanes.iter().map(coroutine).collect();
    let resume = |index: usize, coroutines: &mut [LocalGenerator<'_, (), ()>]| {
        // SAFETY: On-stack. It is dropped before the lanes.
        let _current = unsafe { Current::new(&lanes[index]) };
        coroutines[index].resume();
    };
    while let Some(next) = order.next() {
        resume(next, &mut coroutines);
    }
    // The lanes that wait go on to see that the replay is over.
    for index in 0..coroutines.len() {
        while !coroutines[index].is_done() {
            resume(index, &mut coroutines);
        }
    }
}
