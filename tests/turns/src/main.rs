// SPDX-License-Identifier: GPL-2.0-only
//! `baton-turns --list` prints the names of the policies in Rust. `baton-turns POLICY|FILE.so`
//! simulates a policy with 100,000 tasks on 4,096 CPUs, and prints the largest number of turns of
//! loops in a call: that of blocks of code which were executed, as each turn is one at least. The
//! functions of the host that the policy calls are counted, too, if the policy is linked in.
//!
//! `cargo xtask turns` compiles this program and the policies so that each block of code calls
//! `__sanitizer_cov_trace_pc`.

use std::{
    env,
    path::Path,
    process::ExitCode,
    sync::{
        atomic::{AtomicU64, Ordering::Relaxed},
        OnceLock,
    },
};

use baton_abi::{BatonCtx, BatonMethod, BatonPolicy};
use baton_native::{NativePolicy, Policy};
use baton_sim::{topology::Topology, workloads, world::World, Config, PolicySpec};

const TOPOLOGY: &str = "16x128x2";

/// Hogs, and threads that sleep and wake each other.
const WORKLOAD: &str = "hogs:n=50000+schbench:messengers=50,workers=999,work=100us";

/// Simulated, ns.
const DURATION: u64 = 12_000_000;

/// More than the workload has.
const MAX_TASKS: u32 = 1 << 17;

/// Blocks that were executed.
#[no_mangle]
static BATON_BLOCKS: AtomicU64 = AtomicU64::new(0);

// In assembler, so that it does not call itself. It may change no register. Simulations have one
// thread.
std::arch::global_asm!(
    ".globl __sanitizer_cov_trace_pc",
    ".type __sanitizer_cov_trace_pc, @function",
    "__sanitizer_cov_trace_pc:",
    "incq BATON_BLOCKS(%rip)",
    "ret",
    options(att_syntax)
);

/// The policy whose calls are counted.
static POLICY: OnceLock<&'static NativePolicy> = OnceLock::new();

/// For each method, the largest number in a call, and the number of calls.
static METHODS: [(AtomicU64, AtomicU64); BatonMethod::ALL.len()] =
    [const { (AtomicU64::new(0), AtomicU64::new(0)) }; BatonMethod::ALL.len()];

/// Calls the policy.
extern "C" fn counted(method: BatonMethod, this: usize, ctx: *mut BatonCtx, a: u64, b: u64) -> u64 {
    let policy = POLICY.get().expect("it is set before any call");
    let before = BATON_BLOCKS.load(Relaxed);
    let answer = (policy.call)(method, this, ctx, a, b);
    let (largest, calls) = &METHODS[method as usize];
    largest.fetch_max(BATON_BLOCKS.load(Relaxed) - before, Relaxed);
    calls.fetch_add(1, Relaxed);
    answer
}

fn main() -> ExitCode {
    let Some(name) = env::args().nth(1) else {
        eprintln!("baton-turns --list|POLICY|FILE.so");
        return ExitCode::from(2);
    };
    if name == "--list" {
        let sound = baton_linked::POLICIES.iter().filter(|linked| linked.sound);
        sound.for_each(|linked| println!("{}", linked.name));
        return ExitCode::SUCCESS;
    }
    match measure(&name) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{name}: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Returns a line of a table.
fn measure(name: &str) -> Result<String, String> {
    let policy = if name.ends_with(".so") {
        Policy::open(Path::new(name))?
    } else {
        let linked = baton_linked::POLICIES
            .iter()
            .find(|linked| linked.name == name);
        (linked.ok_or("there is no such policy")?.policy)()
    };
    let native = POLICY.get_or_init(|| policy.native());
    let ops: &'static BatonPolicy = native.ops;
    let wrapped: &'static NativePolicy = Box::leak(Box::new(NativePolicy {
        ops,
        call: counted,
        ..**native
    }));
    let spec = PolicySpec {
        policy: Policy::linked(wrapped),
        options: String::new(),
    };
    let config = Config {
        policies: vec![spec],
        duration: DURATION,
        max_tasks: MAX_TASKS,
        ..Config::new(TOPOLOGY.parse::<Topology>()?)
    };
    let mut world = World::new();
    let nr_cpus = config.topology.cpus().len();
    workloads::build(
        WORKLOAD,
        config.seed,
        nr_cpus,
        &workloads::no_files,
        &mut world,
    )?;
    let outcome = baton_sim::run(&config, world, None).map_err(|e| format!("{e:?}"))?;
    if let Some(fault) = outcome.faults.first() {
        return Err(String::from_utf8_lossy(&fault.message).into_owned());
    }
    if BATON_BLOCKS.load(Relaxed) == 0 {
        return Err("nothing is counted; run it by `cargo xtask turns`".into());
    }
    let with_interrupts_off = BatonMethod::ALL.iter().filter(|method| !method.may_sleep());
    let (method, largest) = with_interrupts_off
        .map(|method| (method, METHODS[*method as usize].0.load(Relaxed)))
        .max_by_key(|&(_, largest)| largest)
        .ok_or("no method was called")?;
    let calls: u64 = METHODS.iter().map(|(_, calls)| calls.load(Relaxed)).sum();
    let name = policy.name();
    Ok(format!("{name} | {largest} | {} | {calls}", method.name()))
}
