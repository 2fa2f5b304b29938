// SPDX-License-Identifier: GPL-2.0-only
//! The common parts of open loops: the worker, and distributions.
//!
//! Requests arrive when they are due, whether or not a worker is ready. A response time counts from
//! the due time, so that a stall shows in every request that it delays, not in one only (no
//! coordinated omission).

use crate::rng::Rng;
use crate::world::{Cx, Object, Op, Program};

/// Takes a request, computes, answers.
pub(super) struct Worker {
    queue: Object,
    /// If set, only responses to requests with this tag are recorded.
    only: Option<u32>,
    step: u8,
    due: u64,
}

impl Worker {
    pub(super) fn of(queue: Object) -> Self {
        Self {
            queue,
            only: None,
            step: 0,
            due: 0,
        }
    }

    pub(super) fn noting(self, only: Option<u32>) -> Self {
        Self { only, ..self }
    }
}

impl Program for Worker {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        let step = self.step;
        self.step = (step + 1) % 4;
        match step {
            0 => Op::Take(self.queue),
            1 => {
                let Some(item) = cx.item else {
                    return Op::Run(1);
                };
                self.due = item.due;
                if self.only.is_some_and(|tag| tag != item.tag) {
                    self.step += 1;
                }
                Op::Run(item.service)
            }
            2 => Op::Response(cx.now.saturating_sub(self.due)),
            _ => Op::Done(1),
        }
    }
}

/// The mean time between arrivals, ns, that loads `cpus` CPUs to the share `load` when a request
/// costs `service` ns on average.
pub(super) fn gap(load: f64, cpus: u64, service: f64) -> f64 {
    service / (load * cpus as f64)
}

/// Draws from the generalized Pareto distribution with location 0 and this scale and shape (not 0).
pub(super) fn pareto(rng: &mut Rng, scale: f64, shape: f64) -> f64 {
    scale * libm::expm1(-shape * libm::log(1.0 - rng.unit())) / shape
}

/// Zipf's distribution: ranks from 1, rank k with probability proportional to k^-s. It is sampled
/// by rejection-inversion (Hörmann and Derflinger, ACM TOMACS 6(3), 1996), which needs no table for
/// any number of ranks.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    ranks: f64,
    s: f64,
    low: f64,
    high: f64,
    accept: f64,
}

impl Zipf {
    pub(super) fn new(ranks: u64, s: f64) -> Self {
        let mut zipf = Self {
            ranks: ranks as f64,
            s,
            low: 0.0,
            high: 0.0,
            accept: 0.0,
        };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(zipf.ranks + 0.5);
        zipf.accept = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    fn density(&self, x: f64) -> f64 {
        libm::exp(-self.s * libm::log(x))
    }

    /// (x^(1-s) - 1) / (1 - s), and log(x) where s is 1.
    fn integral(&self, x: f64) -> f64 {
        let log = libm::log(x);
        let t = (1.0 - self.s) * log;
        log * if libm::fabs(t) > 1e-8 {
            libm::expm1(t) / t
        } else {
            1.0 + t / 2.0
        }
    }

    fn inverse(&self, y: f64) -> f64 {
        // Rounding may pass the end of the domain.
        let t = (y * (1.0 - self.s)).max(-1.0);
        libm::exp(
            y * if libm::fabs(t) > 1e-8 {
                libm::log1p(t) / t
            } else {
                1.0 - t / 2.0
            },
        )
    }

    pub(super) fn sample(&self, rng: &mut Rng) -> u64 {
        loop {
            let u = self.high + rng.unit() * (self.low - self.high);
            let x = self.inverse(u);
            let rank = libm::floor(x + 0.5).clamp(1.0, self.ranks);
            if rank - x <= self.accept || u >= self.integral(rank + 0.5) - self.density(rank) {
                return rank as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_come_as_often_as_their_law_says() {
        let check = |ranks: u64, s: f64| {
            let (zipf, mut rng, draws) = (Zipf::new(ranks, s), Rng::new(7, 0), 200_000);
            let mut seen = vec![0u32; ranks as usize];
            for _ in 0..draws {
                seen[zipf.sample(&mut rng) as usize - 1] += 1;
            }
            let weight = |rank: usize| libm::pow(rank as f64, -s);
            let all: f64 = (1..=ranks as usize).map(weight).sum();
            for rank in [1, 2, 3, 10] {
                let expected = f64::from(draws) * weight(rank) / all;
                let off = (f64::from(seen[rank - 1]) - expected).abs();
                // Five standard deviations of a count.
                assert!(
                    off < 5.0 * expected.sqrt(),
                    "{ranks} ranks, s {s}: rank {rank} {off} off {expected}"
                );
            }
        };
        check(10, 0.5);
        check(1_000, 0.99);
        check(1_000, 1.0);
        check(100, 2.0);
        let one = Zipf::new(1, 1.2);
        assert_eq!(one.sample(&mut Rng::new(1, 1)), 1);
        let many = Zipf::new(1_000_000_000, 0.99);
        let mut rng = Rng::new(3, 3);
        assert!((0..10_000).all(|_| (1..=1_000_000_000).contains(&many.sample(&mut rng))));
    }

    #[test]
    fn pareto_has_its_mean() {
        let (mut rng, draws) = (Rng::new(5, 0), 400_000);
        let sum: f64 = (0..draws)
            .map(|_| pareto(&mut rng, 16.0292, 0.154971))
            .sum();
        let (mean, expected) = (sum / f64::from(draws), 16.0292 / (1.0 - 0.154971));
        assert!(
            (mean / expected - 1.0).abs() < 0.01,
            "{mean} for {expected}"
        );
    }
}
