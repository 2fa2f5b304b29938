// SPDX-License-Identifier: GPL-2.0-only
//! Each task of a machine gets the share of its weight.

use baton_sim::world::World;

use crate::life::{hog, sleeper};
use crate::{machine, run, wfq};

const SECONDS: u64 = 4;
const BURST: u64 = 2_000_000;
const LIGHT: f64 = 15.0 / 1024.0;

/// Numbers of hogs of nice 0, hogs of nice 19, and tasks that sleep as long as they compute, on a
/// machine.
struct Mix {
    shape: &'static str,
    cpus: f64,
    hogs: usize,
    light: usize,
    sleepers: usize,
}

impl Mix {
    /// The due of a task of nice 0 while it wants to run, as a part of a CPU. With a rate of r, a
    /// burst takes 1 / r times as long as the sleep after it, so a sleeper wants to run for a part
    /// of 1 / (1 + r) of the time. r is the share of the weight among the tasks that want to run.
    fn rate(&self) -> f64 {
        let [hogs, light, sleepers] = [self.hogs, self.light, self.sleepers].map(|n| n as f64);
        let wanting = |rate: f64| hogs + light * LIGHT + sleepers / (1.0 + rate);
        (0..100).fold(1.0, |rate, _| self.cpus / wanting(rate))
    }
}

/// The results of a mix under `wfq`, for the tasks of nice 0.
struct Measured {
    /// The CPU time of all hogs, and of all sleepers, as ratios to their due.
    together: [f64; 2],
    /// The largest distance of a task from its due, per cent.
    worst: f64,
    /// Migrations per second and CPU.
    migrations: f64,
}

fn measure(mix: &Mix, seed: u64) -> Measured {
    let mut world = World::new();
    let [hogs, light, sleepers] = ["hogs", "light", "sleepers"].map(|name| world.group(name));
    (0..mix.hogs).for_each(|_| _ = world.task(hog("hog").group(hogs)));
    (0..mix.light).for_each(|_| _ = world.task(hog("light").nice(19).group(light)));
    (0..mix.sleepers).for_each(|_| _ = world.task(sleeper(BURST).group(sleepers)));
    let mut config = machine(mix.shape, wfq(), SECONDS * 1_000);
    (config.seed, config.jitter) = (seed, 10_000);
    let stats = run(&config, world).stats;
    let rate = mix.rate();
    let ratios = |group: &str, due: f64| -> Vec<f64> {
        let group = stats.groups.iter().find(|g| &*g.name == group).unwrap();
        let part = |ran: u64| ran as f64 / (SECONDS * 1_000_000_000) as f64;
        group.ran.iter().map(|&ran| part(ran) / due).collect()
    };
    let each = [
        ratios("hogs", rate),
        ratios("sleepers", rate / (1.0 + rate)),
    ];
    let off = each
        .iter()
        .flatten()
        .map(|ratio| 100.0 * (ratio - 1.0).abs());
    Measured {
        worst: off.fold(0.0, f64::max),
        together: each.map(|ratios| ratios.iter().sum::<f64>() / ratios.len() as f64),
        migrations: stats.migrations.iter().sum::<u64>() as f64 / SECONDS as f64 / mix.cpus,
    }
}

/// Rules 9 to 11 of `wfq`. What a task gets in 4 s depends on the tasks that share its CPUs.
#[test]
fn hogs_and_sleepers_have_what_they_are_due() {
    let four = Mix {
        shape: "1x4x1",
        cpus: 4.0,
        hogs: 6,
        light: 3,
        sleepers: 4,
    };
    let many = Mix {
        shape: "2x32x1",
        cpus: 64.0,
        hogs: 96,
        light: 48,
        sleepers: 64,
    };
    // On a machine with many CPUs, light tasks briefly have CPUs to themselves, and the others lack
    // that time.
    for (mix, within, seeds) in [(four, 0.05, 1..=4), (many, 0.07, 1..=1)] {
        for seed in seeds {
            let Measured {
                together: [hogs, sleepers],
                worst,
                migrations,
            } = measure(&mix, seed);
            let what = format!(
                "{}, seed {seed}: hogs have {hogs:.3} of their due, sleepers {sleepers:.3}, the \
                 worst is {worst:.1} % off; {migrations:.0} migrations",
                mix.shape
            );
            println!("{what}");
            assert!(
                (hogs - 1.0).abs() < within && (sleepers - 1.0).abs() < within,
                "{what}"
            );
            assert!(worst < 20.0 && migrations < 150.0, "{what}");
        }
    }
}
