// SPDX-License-Identifier: GPL-2.0-only
//! User-level threads on kernel threads without an arbiter, and on cores of the server.

use baton_runtime::{
    channel, server, sleep, spawn, yield_now, Arbiter, Event, Mutex, Options, Runtime,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs a function as a user-level thread of a runtime of one core, and of one of three.
fn check<T: Send + std::fmt::Debug + PartialEq + 'static>(function: fn() -> T, expected: T) {
    for cores in [1, 3] {
        let runtime = Runtime::start(Options::fixed(cores)).unwrap();
        let result = runtime.spawn(function).join().unwrap();
        runtime.end();
        assert_eq!(result, expected, "{cores} cores");
    }
}

#[test]
fn threads_end_and_are_joined() {
    check(
        || {
            (0..1_000u64)
                .map(|n| spawn(move || n))
                .collect::<Vec<_>>()
                .into_iter()
                .map(|t| t.join().unwrap())
                .sum()
        },
        499_500u64,
    );
    // User-level threads can spawn and join too.
    check(
        || spawn(|| spawn(|| 7).join().unwrap() + 1).join().unwrap(),
        8,
    );
}

#[test]
fn a_panic_is_the_joiners() {
    check(
        || {
            spawn(|| panic!("on purpose"))
                .join()
                .map_err(|why| *why.downcast::<&str>().unwrap())
        },
        Err("on purpose"),
    );
}

#[test]
fn who_yields_lets_others_go_on() {
    fn turns() -> bool {
        let flag = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&flag);
        let waits = spawn(move || {
            while !seen.load(SeqCst) {
                yield_now()
            }
        });
        let sets = spawn(move || flag.store(true, SeqCst));
        waits.join().is_ok() && sets.join().is_ok()
    }
    check(turns, true);
}

#[test]
fn a_mutex_is_held_by_one_across_waits() {
    fn count() -> u64 {
        let mutex = Arc::new(Mutex::new(0u64));
        let add = |mutex: Arc<Mutex<u64>>| {
            for _ in 0..100 {
                let mut value = mutex.lock();
                let before = *value;
                yield_now();
                *value = before + 1;
            }
        };
        let threads: Vec<_> = (0..20)
            .map(|_| {
                let mutex = Arc::clone(&mutex);
                spawn(move || add(mutex))
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        let sum = *mutex.lock();
        sum
    }
    check(count, 2_000);
}

#[test]
fn messages_come_in_order_and_end() {
    fn flow() -> (Vec<u32>, Option<u32>) {
        let (to, from) = channel(3);
        let sender = spawn(move || (0..500).for_each(|n| to.send(n).unwrap()));
        let got: Vec<_> = (0..500).map(|_| from.receive().unwrap()).collect();
        sender.join().unwrap();
        (got, from.receive())
    }
    check(flow, ((0..500).collect(), None));
    fn gone() -> Result<(), u32> {
        let (to, from) = channel(1);
        drop(from);
        to.send(5)
    }
    check(gone, Err(5));
    // Many senders that wait for room: none is forgotten.
    fn many() -> u64 {
        let (to, from) = channel(1);
        for n in 0..100u64 {
            let to = to.clone();
            spawn(move || (0..20).for_each(|_| to.send(n).unwrap()));
        }
        drop(to);
        std::iter::from_fn(|| from.receive()).sum()
    }
    check(many, 99_000);
}

#[test]
fn sleepers_wake_in_time_and_others_run_meanwhile() {
    fn doze() -> (bool, bool) {
        let begin = Instant::now();
        let sleepers: Vec<_> = (0..100)
            .map(|_| spawn(|| sleep(Duration::from_millis(50))))
            .collect();
        let other = spawn(|| 1).join().unwrap() == 1;
        sleepers
            .into_iter()
            .for_each(|sleeper| sleeper.join().unwrap());
        let took = begin.elapsed();
        // In sequence they would take five seconds.
        (
            other,
            (Duration::from_millis(50)..Duration::from_secs(3)).contains(&took),
        )
    }
    check(doze, (true, true));
}

#[test]
fn a_sleeper_wakes_in_time_beside_one_that_computes() {
    let runtime = Runtime::start(Options::fixed(2)).unwrap();
    let begin = Instant::now();
    let sleeper = runtime.spawn(move || {
        sleep(Duration::from_millis(40));
        begin.elapsed()
    });
    std::thread::sleep(Duration::from_millis(5));
    // Both are usually on the same core. The other activation sleeps, and waits for neither.
    let other = runtime.spawn(|| {
        sleep(Duration::from_millis(10));
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(700) {}
    });
    let late = sleeper.join().unwrap();
    other.join().unwrap();
    runtime.end();
    assert!(late < Duration::from_millis(500), "{late:?}");
}

#[test]
fn threads_of_two_runtimes_talk() {
    const WORDS: u32 = 1000;
    let (many, one) = (
        Runtime::start(Options::fixed(3)).unwrap(),
        Runtime::start(Options::fixed(1)).unwrap(),
    );
    let pairs = (0..6).map(|_| {
        let (there, from_there) = channel(1);
        let (back, from_back) = channel(1);
        let echo = one.spawn(move || {
            std::iter::from_fn(|| from_there.receive()).try_for_each(|word: u32| back.send(word))
        });
        let caller = many.spawn(move || {
            (0..WORDS).all(|n| there.send(n).is_ok() && from_back.receive() == Some(n))
        });
        (caller, echo)
    });
    for (caller, echo) in pairs.collect::<Vec<_>>() {
        assert!(caller.join().unwrap());
        assert!(echo.join().unwrap().is_ok());
    }
    many.end();
    one.end();
}

#[test]
fn what_nobody_takes_may_panic_as_it_goes() {
    struct Sensitive;
    impl Drop for Sensitive {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    let runtime = Runtime::start(Options::fixed(1)).unwrap();
    let (go, when) = channel(1);
    drop(runtime.spawn(move || {
        when.receive();
        Sensitive
    }));
    go.send(()).unwrap();
    assert_eq!(runtime.spawn(|| 3).join().unwrap(), 3);
    runtime.end();
}

#[test]
fn kernel_threads_send_and_join_too() {
    let runtime = Runtime::start(Options::fixed(2)).unwrap();
    let (to, from) = channel(2);
    let sum = runtime.spawn(move || std::iter::from_fn(|| from.receive()).sum::<u64>());
    (0..1_000u64).for_each(|n| to.send(n).unwrap());
    drop(to);
    assert_eq!(sum.join().unwrap(), 499_500);
    runtime.end();
}

#[test]
fn what_became_of_requests_is_kept_for_who_wants_it() {
    let events = |history| {
        let runtime = Runtime::start(Options {
            history,
            ..Options::fixed(1)
        })
        .unwrap();
        runtime.spawn(|| ()).join().unwrap();
        runtime
            .end()
            .into_iter()
            .map(|(_, event)| event)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        events(true),
        [Event::Requested(1), Event::Granted, Event::Parked]
    );
    // Otherwise a server that never ends would grow.
    assert_eq!(events(false), []);
}

#[test]
fn wrong_options_are_refused() {
    let refused = |options: Options| {
        Runtime::start(options)
            .err()
            .map(|why| why.to_string())
            .unwrap_or_default()
    };
    assert!(refused(Options::fixed(0)).contains("at least one core"));
    assert!(refused(Options {
        level: 8,
        ..Options::fixed(1)
    })
    .contains("a level from 0 to 7"));
    assert!(refused(Options {
        least: 3,
        ..Options::fixed(2)
    })
    .contains("at least one core"));
    // The arbiter is not asked before this check.
    let many = Options::of(Arbiter::Hints, arbiter::MAX_ACTIVATIONS as u32 + 1);
    assert!(refused(many).contains("ask for 64 cores at most"));
    let nobody = Options::of(Arbiter::Socket("/nonexistent/socket".into()), 2);
    assert!(refused(nobody).contains("the arbiter grants no cores: /nonexistent/socket"));
}

/// Computes in pieces until stopped.
fn compute(stop: Arc<AtomicBool>, done: Arc<AtomicU64>) {
    while !stop.load(SeqCst) {
        (0..10_000u32).for_each(|n| {
            std::hint::black_box(n);
        });
        done.fetch_add(1, SeqCst);
        yield_now();
    }
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn as_many_cores_are_wanted_as_there_is_work() {
    let runtime = Runtime::start(Options {
        least: 1,
        ..Options::fixed(3)
    })
    .unwrap();
    assert_eq!(runtime.wanted(), 1);
    for _ in 0..2 {
        let (stop, done) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let threads: Vec<_> = (0..9)
            .map(|_| {
                let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
                runtime.spawn(move || compute(stop, done))
            })
            .collect();
        until("nine want three cores", || runtime.wanted() == 3);
        stop.store(true, SeqCst);
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        until("no thread wants the least", || runtime.wanted() == 1);
    }
    runtime.end();
}

/// The two processes are two runtimes here. The server moves no thread: only its messages are
/// tested.
#[test]
fn the_server_grants_by_level_and_takes_back() {
    let path = std::env::temp_dir().join(format!("baton-arbiter-{}", std::process::id()));
    let socket = path.clone();
    std::thread::spawn(move || server::serve_unmoved(&socket, 3));
    until("the server listens", || path.exists());
    let of = |cores| Options::of(Arbiter::Socket(path.clone()), cores);
    let options = |level, cores| Options {
        level,
        least: cores,
        history: true,
        ..of(cores)
    };
    let (stop, done) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let low = Runtime::start(options(4, 2)).unwrap();
    for _ in 0..4 {
        let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
        low.spawn(move || compute(stop, done));
    }
    until("the low one computes", || done.load(SeqCst) > 100);
    let high = Runtime::start(options(0, 2)).unwrap();
    assert_eq!(high.spawn(|| 5).join().unwrap(), 5);
    let granted = |history: &[(u64, Event)]| {
        history
            .iter()
            .filter(|(_, event)| *event == Event::Granted)
            .count()
    };
    let history = high.end();
    assert!((1..=2).contains(&granted(&history)), "{history:?}");
    // It has its cores back.
    let before = done.load(SeqCst);
    until("the low one goes on", || done.load(SeqCst) > before + 100);
    stop.store(true, SeqCst);
    let history = low.end();
    assert!(
        granted(&history) >= 3 && history.iter().any(|(_, event)| *event == Event::Reclaimed),
        "{history:?}"
    );
    std::fs::remove_file(path).unwrap();
}

#[test]
fn who_waits_for_a_file_lets_others_run() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    const PEERS: usize = 40;
    const WORDS: u64 = 50;
    for cores in [1, 3] {
        let runtime = Runtime::start(Options::fixed(cores)).unwrap();
        let serve = |socket: UnixStream| {
            socket.set_nonblocking(true).unwrap();
            let socket = runtime.watch(socket).unwrap();
            runtime.spawn(move || {
                let mut sum = 0;
                loop {
                    let mut word = [0; 8];
                    match socket.until_ready(|mut socket| socket.read(&mut word)) {
                        Ok(0) => return sum,
                        Ok(8) => sum += u64::from_le_bytes(word),
                        other => panic!("{other:?}"),
                    }
                    socket
                        .until_ready(|mut socket| socket.write_all(&word))
                        .unwrap();
                }
            })
        };
        let (mut clients, mut servers) = (Vec::new(), Vec::new());
        for peer in 0..PEERS as u64 {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            servers.push(serve(theirs));
            clients.push(std::thread::spawn(move || {
                for n in 0..WORDS {
                    ours.write_all(&(peer + n).to_le_bytes()).unwrap();
                    let mut back = [0; 8];
                    ours.read_exact(&mut back).unwrap();
                    assert_eq!(u64::from_le_bytes(back), peer + n);
                }
            }));
        }
        clients
            .into_iter()
            .for_each(|client| client.join().unwrap());
        for (peer, server) in (0..).zip(servers) {
            assert_eq!(
                server.join().unwrap(),
                peer * WORDS + WORDS * (WORDS - 1) / 2
            );
        }
        runtime.end();
    }
}

#[test]
fn a_writer_waits_for_room_and_a_kernel_thread_may_wait_too() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    const LENGTH: usize = 4 << 20;
    let runtime = Runtime::start(Options::fixed(1)).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    [&ours, &theirs]
        .into_iter()
        .for_each(|socket| socket.set_nonblocking(true).unwrap());
    let theirs = runtime.watch(theirs).unwrap();
    let writer = runtime.spawn(move || {
        let bytes: Vec<_> = (0..LENGTH).map(|n| (n % 251) as u8).collect();
        let mut at = 0;
        while at < LENGTH {
            at += theirs
                .until_ready(|mut socket| socket.write(&bytes[at..]))
                .unwrap();
        }
    });
    let ours = runtime.watch(ours).unwrap();
    let (mut all, mut some) = (Vec::new(), [0; 9_973]);
    loop {
        match ours
            .until_ready(|mut socket| socket.read(&mut some))
            .unwrap()
        {
            0 => break,
            count => all.extend_from_slice(&some[..count]),
        }
    }
    assert!(
        all.len() == LENGTH
            && all
                .iter()
                .enumerate()
                .all(|(n, &byte)| byte == (n % 251) as u8)
    );
    writer.join().unwrap();
    assert!(runtime
        .watch(std::fs::File::open("/etc/hostname").unwrap())
        .is_err());
    drop(ours);
    runtime.end();
}

#[test]
fn a_core_that_is_wanted_back_at_once_is_given_back() {
    use std::io::{Read, Write};
    let path = std::env::temp_dir().join(format!("baton-runtime-{}-hasty", std::process::id()));
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    // The format of the messages: the kind, and two numbers.
    let server = std::thread::spawn(move || {
        let [join, request, park, granted, reclaim] = [1, 2, 3, 4, 5];
        let (mut peer, _) = listener.accept().unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut said = Vec::new();
        let mut hear = |peer: &mut std::os::unix::net::UnixStream| {
            let mut message = [0; 12];
            peer.read_exact(&mut message).unwrap();
            said.push(u32::from_le_bytes(message[..4].try_into().unwrap()));
            said.clone()
        };
        let message = |what: u32| [what, 0, 0].map(u32::to_le_bytes).concat();
        assert_eq!([hear(&mut peer), hear(&mut peer)][1], [join, request]);
        peer.write_all(&[message(granted), message(reclaim)].concat())
            .unwrap();
        // The process sends its request again when it begins to wait.
        while hear(&mut peer).last() != Some(&park) {}
        peer.write_all(&message(granted)).unwrap();
        peer
    });
    let runtime = Runtime::start(Options::of(Arbiter::Socket(path.clone()), 1)).unwrap();
    let peer = server.join().unwrap();
    assert_eq!(runtime.spawn(|| 7).join().unwrap(), 7);
    runtime.end();
    drop(peer);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn many_wait_for_one_file() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    const ROUNDS: u32 = 200;
    for cores in [1, 3] {
        let runtime = Runtime::start(Options::fixed(cores)).unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let ours = Arc::new(runtime.watch(ours).unwrap());
        // A reader, and a writer that tries at the same time: neither takes the other's news.
        let reader = Arc::clone(&ours);
        let reads = runtime.spawn(move || {
            for _ in 0..ROUNDS {
                let mut byte = [0];
                assert_eq!(
                    reader
                        .until_ready(|mut socket| socket.read(&mut byte))
                        .unwrap(),
                    1
                );
            }
        });
        let writes = runtime.spawn(move || {
            for _ in 0..ROUNDS {
                assert_eq!(
                    ours.until_ready(|mut socket| socket.write(&[1])).unwrap(),
                    1
                );
                yield_now();
            }
        });
        // An answer to each, so that what is read comes at any time.
        for _ in 0..ROUNDS {
            let mut byte = [0];
            theirs.read_exact(&mut byte).unwrap();
            theirs.write_all(&byte).unwrap();
        }
        reads.join().unwrap();
        writes.join().unwrap();
        runtime.end();
    }
}
