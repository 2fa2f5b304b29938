// SPDX-License-Identifier: GPL-2.0-only
use super::ideal::{Ideal, Seen};
use super::*;
use crate::world::{Happening, Source};

const MS: u64 = 1_000_000;

/// Reads the files that a spec names.
fn read(path: &str) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|why| format!("{path}: {why}"))
}

fn ideal(spec: &str, seed: u64, cpus: usize, until: u64) -> Ideal {
    let mut world = World::new();
    build(spec, seed, cpus, &read, &mut world).unwrap_or_else(|why| panic!("{spec}: {why}"));
    Ideal::run(world, seed, until)
}

fn seen(spec: &str, group: &str, until: u64) -> Seen {
    ideal(spec, 1, 4, until)
        .groups
        .remove(group)
        .expect("a group of that name")
}

#[test]
fn wrong_specs() {
    let check = |spec: &str, expected: &str| {
        let why = build(spec, 1, 4, &read, &mut World::new()).expect_err(spec);
        assert!(why.contains(expected), "{spec}: {why}");
    };
    check("", "'' is no workload: pipe, hackbench,");
    check("pip", "'pip' is no workload");
    check("pipe+", "'' is no workload");
    check(
        "pipe:pears=2",
        "pipe has no key 'pears': it has pairs, work",
    );
    check(
        "pipe:pairs=0",
        "pipe: pairs=0 is not allowed: pairs takes 1 to 50000, or cpus",
    );
    check("pipe:work=10", "work takes time, 1ns to 1s");
    check("hogs:nice=-21", "nice takes nice values");
    check("rocksdb:load=0", "load takes number, 0.001 to 10");
    check(
        "memcached:burst-every=1ms,burst-for=2ms",
        "burst-for is longer",
    );
    check("hackbench:groups=2500,fds=1000", "at most 100000");
    check(
        "npb:program=dc",
        "npb: program=dc is not allowed: program takes one of bt, cg, ep, ft, is, lu, mg, sp, ua",
    );
    check("hogs:n=60000+hogs:n=60000", "hogs-2: 120000 tasks");
    check("nowhere.json", "nowhere.json: No such file");
    check("perf", "perf: needs a file, as perf:FILE");
    check("perf:/nowhere.txt", "/nowhere.txt: No such file");
}

#[test]
fn every_workload_by_its_defaults_does_something_and_the_same_again() {
    for workload in list() {
        let spec = workload.name;
        // hackbench has 400 tasks that do something each microsecond.
        let until = match workload.name {
            "build" => 1_000 * MS,
            // A run of the program, on four CPUs.
            "npb" => 70_000 * MS,
            "hackbench" => MS / 20,
            _ => 20 * MS,
        };
        let [one, two, other] = [1, 1, 2].map(|seed| ideal(spec, seed, 4, until));
        assert_eq!(one.hash(), two.hash(), "{spec} the same seed");
        assert!(one.groups[workload.name].done > 0, "{spec}");
        let chance = !["pipe", "hackbench", "schbench", "hogs"].contains(&workload.name);
        assert_eq!(one.hash() != other.hash(), chance, "{spec} another seed");
        assert!(listing().contains(workload.help));
    }
}

#[test]
fn a_seed_is_a_run_on_every_machine() {
    // The current numbers. They change only when a workload changes, and must be the same on every
    // machine.
    let specs = [
        "random",
        "memcached",
        "rocksdb+hogs:nice=19",
        "forkjoin+build:compile=1ms",
    ];
    let hashes = specs.map(|spec| ideal(spec, 42, 8, 5 * MS).hash());
    let expected = [
        0x87cd_66e3_f462_7b4f,
        0x3bc3_333f_91a1_bcb8,
        0x51fb_2bea_b77a_1ffc,
        0x6938_3293_0b29_88fe,
    ];
    assert_eq!(hashes, expected, "{hashes:#x?}");
}

#[test]
fn messages_come_there_and_back() {
    let pipe = seen("pipe:pairs=2,work=1us", "pipe", MS);
    assert_eq!((pipe.done, pipe.tasks), (2 * 499, 4));
    assert!(pipe.responses.iter().all(|&time| time == 2_000));
    let one = ideal("pipe:work=3us", 1, 1, 12_000).log;
    assert_eq!(
        one,
        [
            "0 pipe-0a: run 3000",
            "0 pipe-0b: down 1",
            "3000 pipe-0a: up 1 sync",
            "3000 pipe-0b: run 3000",
            "3000 pipe-0a: down 0",
            "6000 pipe-0b: up 0 sync",
            "6000 pipe-0a: response 6000",
            "6000 pipe-0b: down 1",
            "6000 pipe-0a: done 1",
            "6000 pipe-0a: run 3000",
            "9000 pipe-0a: up 1 sync",
            "9000 pipe-0b: run 3000",
            "9000 pipe-0a: down 0",
        ]
    );
}

#[test]
fn hackbench_ends_after_its_loops_and_never_overfills() {
    let spec = "hackbench:groups=2,fds=3,loops=5,buffer=2";
    let end = ideal(spec, 1, 4, 1_000 * MS);
    assert_eq!(
        (end.groups["hackbench"].done, end.alive()),
        (2 * 3 * 3 * 5, 0)
    );
    assert_eq!(end.groups["hackbench"].responses.len(), 90);
    // Senders that are faster than receivers wait for room: 3 of them send into each socket.
    let busy = ideal("hackbench:groups=1,fds=3,buffer=1", 1, 4, MS);
    assert!(busy.groups["hackbench"].done > 1_000 && busy.alive() == 6);
}

#[test]
fn requests_take_what_they_take() {
    let web = seen(
        "schbench:workers=8,sleep=100us,work=900us,post=1us",
        "schbench",
        100 * MS,
    );
    assert!((760..=800).contains(&web.done), "{}", web.done);
    assert!(web.responses.iter().all(|&time| time == 1_000_000));
    let nas = seen(
        "forkjoin:threads=4,work=1ms,imbalance=5",
        "forkjoin",
        1_000 * MS,
    );
    assert!(nas
        .responses
        .iter()
        .all(|time| (950_000..=1_050_000).contains(time)));
    assert!((950..=1_010).contains(&nas.done), "{}", nas.done);
    let batch = ideal(
        "hogs:n=3,work=1ms,nice=0/19+hogs:n=1,work=500us",
        1,
        4,
        10 * MS - 1,
    );
    assert_eq!(
        (batch.groups["hogs"].done, batch.groups["hogs-2"].done),
        (27, 19)
    );
}

#[test]
fn a_build_makes_its_objects_and_begins_again() {
    let spec = "build:jobs=3,objects=10,compile=1ms,assemble=100us,link=5ms,io=50us";
    let all = ideal(spec, 1, 4, 1_000 * MS);
    let links = all
        .log
        .iter()
        .filter(|line| line.contains("fork ld"))
        .count() as u64;
    let build = &all.groups["build"];
    assert!(
        links > 20 && (links * 10..=links * 10 + 10).contains(&build.done),
        "{links} {}",
        build.done
    );
    // make, and three recipes with a child each; no other task is left.
    assert!(all.alive() <= 7, "{}", all.alive());
    // While ld runs, nothing else is forked.
    let forks: Vec<_> = all
        .log
        .iter()
        .filter(|line| line.contains("make: fork"))
        .collect();
    for pair in forks.windows(2).filter(|pair| pair[0].contains("fork ld")) {
        let at = |line: &str| {
            line.split_once(' ')
                .and_then(|(at, _)| at.parse::<u64>().ok())
                .expect("a time")
        };
        assert!(at(pair[1]) - at(pair[0]) >= 5 * MS, "{pair:?}");
    }
}

#[test]
fn a_parallel_program_makes_its_threads_each_time_and_ends() {
    // 10 iterations of 4 loops, 15 s of CPU time, on as many CPUs as threads.
    let is = ideal("npb:program=is,threads=4,runs=2", 1, 4, 100_000 * MS);
    let group = &is.groups["npb"];
    assert_eq!((group.done, group.tasks, is.alive()), (2, 1 + 2 * 3, 0));
    // The slowest thread is late by up to 10 %.
    let shares = 3_750 * MS..=4_125 * MS;
    let times = &group.responses;
    assert!(times.iter().all(|time| shares.contains(time)), "{times:?}");
    let part = ideal(
        "npb:program=is,threads=4,runs=1,scale=0.1",
        1,
        4,
        100_000 * MS,
    );
    let time = part.groups["npb"].responses[0];
    assert!((375 * MS..=413 * MS).contains(&time), "{time}");
    let endless = ideal("npb:program=is,threads=1,scale=0.1", 1, 4, 10_000 * MS);
    assert_eq!((endless.groups["npb"].done, endless.alive()), (6, 1));
}

#[test]
fn transactions_have_their_queries_and_one_writer_of_the_log() {
    let spec = "oltp:clients=3,rows=2,query=100us,io=1ms";
    let all = ideal(spec, 1, 8, 1_000 * MS);
    let group = &all.groups["oltp"];
    assert_eq!((group.tasks, all.alive()), (6, 6));
    // All three lock the same two rows, so that updates and commits come one after the other.
    let count = |what: &str| all.log.iter().filter(|line| line.contains(what)).count() as u64;
    let asked = count("client-0: run") + count("client-1: run") + count("client-2: run");
    assert!(
        (group.done * 19..=group.done * 19 + 3 * 19).contains(&asked),
        "{asked}"
    );
    assert!((300..=900).contains(&group.done), "{}", group.done);
    let one = seen("oltp:clients=1,query=100us,io=0", "oltp", 1_000 * MS);
    // 19 queries of 100 us on average, and 15 us of the client for each.
    assert!((430..=490).contains(&one.done), "{}", one.done);
}

/// The arrivals in a time, and their total cost.
fn arrivals(spec: &str, until: u64) -> (u64, u64, Vec<u64>) {
    let mut world = World::new();
    build(spec, 9, 8, &read, &mut world).expect(spec);
    let mut source: Box<dyn Source> = world.sources.pop().expect("a source");
    let (mut rng, mut many, mut cost, mut times) = (Rng::new(9, 9), 0, 0, Vec::new());
    while let Some((at, _, item)) = source.next(&mut rng).filter(|(at, ..)| *at < until) {
        assert_eq!(item.due, at);
        many += 1;
        cost += item.service;
        times.push(at);
    }
    (many, cost, times)
}

#[test]
fn open_loops_bring_the_load_that_was_asked_for() {
    let s = 1_000 * MS;
    let close = |what: &str, got: f64, expected: f64, within: f64| {
        assert!(
            (got / expected - 1.0).abs() < within,
            "{what}: {got}, {expected} expected"
        );
    };
    let (many, cost, times) = arrivals("rocksdb:load=0.5,on=4", 20 * s);
    let mean = 0.995 * 4e3 + 0.005 * 1e7;
    close("rate", many as f64, 0.5 * 4.0 * 20e9 / mean, 0.01);
    close("load", cost as f64, 0.5 * 4.0 * 20e9, 0.05);
    // Poisson: in equal times the variance of the count is its mean.
    let mut counts = vec![0.0; 2_000];
    times
        .iter()
        .for_each(|&at| counts[(at / (10 * MS)) as usize] += 1.0);
    let mean = many as f64 / 2_000.0;
    let variance = counts
        .iter()
        .map(|count| (count - mean) * (count - mean))
        .sum::<f64>()
        / 2_000.0;
    close("dispersion", variance, mean, 0.15);

    let (_, cost, times) = arrivals(
        "memcached:load=0.5,on=2,burst=4,burst-every=10ms,burst-for=1ms",
        4 * s,
    );
    close("load", cost as f64, 0.5 * 2.0 * 4e9, 0.03);
    let inside = times.iter().filter(|&&at| at % (10 * MS) < MS).count() as f64;
    let outside = times.len() as f64 - inside;
    close("burst", inside / (outside / 9.0), 4.0, 0.1);
    let (_, cost, _) = arrivals("memcached:load=0.8,burst=1", 2 * s);
    close("load without bursts", cost as f64, 0.8 * 8.0 * 2e9, 0.03);
    // Thousands of CPUs make gaps of nanoseconds, whose fractions matter.
    let (_, cost, _) = arrivals("rocksdb:load=0.9,on=4096,longs=0", 5 * MS);
    close("short gaps", cost as f64, 0.9 * 4096.0 * 5e6, 0.01);
}

#[test]
fn a_request_that_is_late_counts_from_when_it_was_due() {
    // One worker, and requests that arrive twice as fast as it serves them: each response is longer
    // than the one before.
    let late = seen(
        "rocksdb:workers=1,on=1,load=2,longs=0,short=100us",
        "rocksdb",
        100 * MS,
    );
    assert!(late.done > 900, "{}", late.done);
    assert!(late.responses[800] > 20 * MS, "{}", late.responses[800]);
}

#[test]
fn random_workloads_are_legal() {
    let mut kinds = std::collections::BTreeSet::new();
    for seed in 0..24 {
        let mut world = World::new();
        let (cpus, count) = (1 + seed as usize % 5, 20);
        build(
            &format!("random:tasks={count},for=1s"),
            seed,
            cpus,
            &read,
            &mut world,
        )
        .expect("a workload");
        assert_eq!(world.tasks(), count);
        let mut last = 0;
        for (at, what) in &world.happenings {
            assert!(*at >= last && *at < 1_100 * MS, "{at}");
            last = *at;
            match what {
                Happening::Online(cpu, _) => assert!((1..cpus as u32).contains(cpu)),
                Happening::HigherClass(cpu, _) | Happening::Interrupt(cpu, _) => {
                    assert!(*cpu < cpus as u32)
                }
                Happening::Nice(task, nice) => {
                    assert!((task.0 as usize) < count && (-20..=19).contains(nice))
                }
                Happening::Affinity(task, mask) => {
                    assert!((task.0 as usize) < count);
                    assert!(mask
                        .iter()
                        .all(|mask| mask.count() > 0 && mask.iter().all(|cpu| cpu < cpus)));
                }
                other => panic!("{other:?}"),
            }
        }
        let end = Ideal::run(world, seed, 100 * MS);
        // Children end, the others do not.
        assert!(end.alive() >= count, "{seed}");
        // The first task is alive to the end, even if the others all wait.
        assert!(
            end.log
                .iter()
                .rev()
                .take(100_000)
                .any(|line| line.contains("random-first")),
            "{seed}"
        );
        kinds.extend(
            end.log
                .iter()
                .filter_map(|line| line.split_once(": ")?.1.split(' ').next().map(String::from)),
        );
    }
    let all = "barrier broad cpus done down exit fork nice put response resume run signal sleep \
        suspend take until up wait yield";
    assert_eq!(kinds.into_iter().collect::<Vec<_>>().join(" "), all);
}

#[test]
fn a_mix_is_all_of_its_parts() {
    let mix = ideal("pipe+hogs:n=2+pipe:pairs=2", 1, 4, MS);
    let tasks: Vec<_> = mix
        .groups
        .iter()
        .map(|(name, seen)| (name.as_str(), seen.tasks))
        .collect();
    assert_eq!(tasks, [("hogs", 2), ("pipe", 2), ("pipe-2", 4)]);
}

#[test]
fn the_page_has_all_workloads_and_keys_with_their_defaults() {
    let page = include_str!("../../../../docs/workloads.md");
    for workload in list() {
        let begin = page
            .find(&format!("### `{}`", workload.name))
            .unwrap_or_else(|| panic!("{}", workload.name));
        let section = page[begin + 4..].split("\n##").next().unwrap_or_default();
        for key in workload.keys {
            let row = section
                .lines()
                .find(|line| line.starts_with('|') && line.contains(&format!("`{}`", key.name)));
            let row = row.unwrap_or_else(|| panic!("{}: {}", workload.name, key.name));
            assert!(row.contains(key.default), "{}: {row}", workload.name);
        }
    }
}
