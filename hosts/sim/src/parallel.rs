// SPDX-License-Identifier: GPL-2.0-only
//! Several runs at once, on the threads of the calling process.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Carries out all jobs, as many at once as this machine has CPUs. The results are in the order of
/// the jobs. `ended` is called after each job, on any thread.
///
/// Each job has a thread of its own, so that what a failed policy leaves on that thread does not
/// disturb another run. A panic of a job is passed on.
pub fn side_by_side<T: Sync, R: Send>(
    jobs: &[T],
    run: impl Fn(&T) -> R + Sync,
    ended: impl Fn() + Sync,
) -> Vec<R> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let workers = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(jobs.len());
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| loop {
                let at = next.fetch_add(1, Relaxed);
                let Some(job) = jobs.get(at) else {
                    return;
                };
                let done = thread::scope(|scope| scope.spawn(|| run(job)).join());
                let done = done.unwrap_or_else(|cause| resume_unwind(cause));
                let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                results.push((at, done));
                ended();
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, done)| done).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_jobs() {
        let jobs: Vec<u32> = (0..100).collect();
        let ended = AtomicUsize::new(0);
        let count = || {
            ended.fetch_add(1, Relaxed);
        };
        let squares = side_by_side(&jobs, |job| job * job, count);
        assert!(squares
            .iter()
            .zip(&jobs)
            .all(|(square, job)| *square == job * job));
        assert_eq!((squares.len(), ended.into_inner()), (100, 100));
        assert!(side_by_side(&[], |job: &u32| *job, || ()).is_empty());
    }
}
