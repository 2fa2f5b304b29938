// SPDX-License-Identifier: GPL-2.0-only
//! `baton upgrade` and `baton rollback`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::{print, print_json};
use crate::cli::{Rollback, Upgrade};
use baton_control::device::Device;
use baton_control::error::{Error, Result};
use baton_control::exchange::{self, exchange};
use baton_control::kernel::{self, Lock};
use baton_control::latency::{self, Latency};
use baton_control::modules::{module_of, Search, LATENCY};
use baton_control::status::Change;

/// Interval at which the condition of a probation is checked.
const LOOK: Duration = Duration::from_millis(250);

#[derive(Serialize)]
struct Done {
    policy: String,
    #[serde(flatten)]
    change: Change,
    /// Duration of the whole command, on this machine's clock.
    command_ms: f64,
}

pub fn upgrade(search: &Search, args: &Upgrade) -> Result<ExitCode> {
    let begin = Instant::now();
    kernel::require_root("upgrading a policy")?;
    let lock = Lock::take()?;
    let device = Device::open()?;
    let file = match &args.module {
        Some(file) => file.clone(),
        None => search.find(&module_of(&args.policy))?,
    };
    let done = exchange(
        &device,
        &args.policy,
        &file,
        args.options.as_deref(),
        args.probation,
    )?;
    report(&args.policy, &done, begin, args.output.json)?;
    let Some(probation) = args.probation else {
        return Ok(ExitCode::SUCCESS);
    };
    drop(lock);
    let limit = args
        .max_p99_wakeup
        .map(|limit| Ok((limit, Latency::start(&search.find(LATENCY)?)?)))
        .transpose()?;
    watch(&device, &args.policy, &done, probation, limit)
}

pub fn rollback(args: &Rollback) -> Result<ExitCode> {
    let begin = Instant::now();
    kernel::require_root("rolling a policy back")?;
    let _lock = Lock::take()?;
    let device = Device::open()?;
    let change = exchange::rollback(&device, &args.policy)?;
    report(&args.policy, &change, begin, args.output.json)?;
    Ok(ExitCode::SUCCESS)
}

fn report(policy: &str, change: &Change, begin: Instant, json: bool) -> Result<()> {
    let command_ms = begin.elapsed().as_secs_f64() * 1e3;
    if json {
        return print_json(&Done {
            policy: policy.into(),
            change: change.clone(),
            command_ms,
        });
    }
    let held = match change.held_ns {
        0 => "no CPU was held".to_owned(),
        ns => format!("all CPUs were held for {:.1} us", ns as f64 / 1e3),
    };
    let state = if change.anew {
        "a new state"
    } else {
        "the state of the previous version"
    };
    if change.to_version == change.from_version {
        eprintln!(
            "baton: both versions have the number {}: is the new one built (baton build)?",
            change.to_version
        );
    }
    print(format!(
        "{policy}: version {} replaced version {}, with {state}; {held}; {} bytes allocated \
         for it\n",
        change.to_version, change.from_version, change.memory_bytes
    ))
}

/// Waits for the end of a probation. After a fault the core brings the old version back without
/// this command. The condition is checked here.
fn watch(
    device: &Device,
    policy: &str,
    done: &Change,
    probation: Duration,
    limit: Option<(Duration, Latency)>,
) -> Result<ExitCode> {
    let (from, to) = (done.from_version, done.to_version);
    eprintln!(
        "baton: on probation for {:.1} s; a fault brings version {from} back",
        probation.as_secs_f64()
    );
    let changes = device.policy(policy)?.map_or(0, |info| info.changes);
    let changed = || {
        Ok(device
            .policy(policy)?
            .is_none_or(|info| info.changes != changes))
    };
    let failed = |why: &str, next: &str| {
        Err(Error::policy(
            policy,
            format!("version {to} of {policy} did not pass its probation: {why}"),
            next,
        ))
    };
    let end = Instant::now() + probation;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if kernel::wait_until(left.min(LOOK), changed)? {
            return failed(
                "it is not running any more",
                "see baton status for the fault",
            );
        }
        if let Some((limit, latency)) = &limit {
            let p99 = latency::percentile(&latency.waits()?, 99).filter(|p99| p99 > limit);
            if let Some(p99) = p99 {
                exchange::bring_back(device, policy)?;
                let why = format!(
                    "1 % of wakeups waited for {:.3} ms or longer",
                    p99.as_secs_f64() * 1e3
                );
                return failed(
                    &why,
                    &format!("version {from} is back; baton upgrade tries again"),
                );
            }
        }
        if left.is_zero() {
            eprintln!("baton: version {to} has passed its probation");
            return Ok(ExitCode::SUCCESS);
        }
    }
}
