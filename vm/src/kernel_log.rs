// SPDX-License-Identifier: GPL-2.0-only
//! Finds complaints in a kernel log.

/// Parts of lines that the kernel prints only when something is wrong. Two kinds are left out on
/// purpose: taint by out-of-tree or unsigned modules, and complaints about the host's slowness
/// (clocksource watchdog, long interrupts).
const SIGNS: &[&str] = &[
    // WARN(), lockdep's reports and everything in their style
    "WARNING:",
    "BUG:",
    "kernel BUG at",
    "possible recursive locking",
    "possible circular locking",
    "possible deadlock",
    "inconsistent lock state",
    "bad unlock balance",
    "suspicious RCU usage",
    // dying
    "Oops:",
    "Kernel panic",
    "general protection fault",
    "unable to handle",
    "divide error:",
    "invalid opcode:",
    "double fault",
    "stack guard page was hit",
    "Kernel stack is corrupted",
    // no progress
    "detected stall",
    "self-detected stall",
    "detected expedited stalls",
    "blocked for more than",
    "soft lockup",
    "hard LOCKUP",
    "Hard LOCKUP",
    "workqueue lockup",
    // wrong context
    "scheduling while atomic",
    "sleeping function called from invalid context",
    "enqueued on deprecated workqueue",
    // checkers and self-checks
    "KASAN:",
    "KCSAN:",
    "KFENCE:",
    "UBSAN:",
    "refcount_t:",
    "list_add corruption",
    "list_del corruption",
    // sched_ext disabled a scheduler
    "disabled (runtime error)",
    "disabled (runnable task stall)",
    "disabled (scx_bpf_error)",
    "disabled (unregistered from the main kernel)",
];

/// The first lines of a dying kernel's report, or of a CPU's report after an NMI.
const DYING: &[&str] = &[
    "BUG: unable to handle",
    "BUG: kernel NULL",
    "BUG: TASK stack guard",
    "stack guard page was hit",
    "kernel BUG at",
    "Oops:",
    "double fault",
    "general protection fault",
    "NMI backtrace for cpu",
    "NMI: Not continuing",
    "soft lockup",
    "hard LOCKUP",
];

/// A call trace belongs to the complaint before it, unless it is more than this many lines away.
const TRACE_DISTANCE: usize = 40;

/// The lines of `log` in which the kernel complains, in order, without their time stamps. A
/// complaint of several lines (a warning with its call trace, a report by lockdep) gives its first
/// line, and any of its later lines that name a fault again. A race that KCSAN finds between
/// functions of the kernel alone is no complaint: the kernel has many, which it tolerates.
pub fn complaints(log: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut last = None;
    let lines: Vec<&str> = log.lines().map(without_time_stamp).collect();
    for (number, &text) in lines.iter().enumerate() {
        let is_foreign = text.contains("KCSAN: data-race") && !names_module(&lines[number + 1..]);
        let sign = !is_foreign && SIGNS.iter().any(|s| text.contains(s));
        let lone_trace = text == "Call Trace:" && last.is_none_or(|l| number - l > TRACE_DISTANCE);
        if sign || lone_trace {
            last = Some(number);
            found.push(text.to_owned());
        }
    }
    found
}

/// Do these lines, up to the end of a report of KCSAN's, name a function of a module?
fn names_module(lines: &[&str]) -> bool {
    let report = lines.iter().take_while(|line| !line.starts_with("====="));
    let mut functions = report.filter(|line| line.contains("+0x"));
    functions.any(|line| line.contains(" [baton"))
}

/// The code in which a kernel died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Culprit<'a> {
    /// Name of the module.
    pub module: &'a str,
    /// The function and the offset in it, as the kernel prints them.
    pub place: &'a str,
}

/// The module whose code a kernel executed when it died or hung. It is determined by the first
/// instruction pointer of the kernel's last words. If that is in no module, as in a copy by a wrong
/// pointer, the first function of a module in the trace determines it.
pub fn culprit(log: &str) -> Option<Culprit<'_>> {
    let dying = |line: &&str| DYING.iter().any(|sign| line.contains(sign));
    let mut words = log
        .lines()
        .map(without_time_stamp)
        .skip_while(|line| !dying(line));
    words.find_map(|line| {
        // Stale entries of the stack, left by earlier calls, begin with a question mark.
        let text = line
            .strip_prefix("RIP: 0010:")
            .or_else(|| (!line.starts_with('?')).then_some(line))?;
        let (place, module) = text.split_once(" [")?;
        let is_place = place.contains("+0x") && !place.contains(' ');
        let module = module
            .strip_suffix(']')
            .filter(|module| is_place && !module.contains(' '))?;
        Some(Culprit { module, place })
    })
}

/// A part of a log for an error message: the first `n` lines of the kernel's last words; without
/// any, its complaints and its last lines. Each line is indented by two spaces.
pub fn excerpt(log: &str, n: usize) -> String {
    let lines: Vec<_> = log.lines().filter(|l| !l.trim().is_empty()).collect();
    if lines.is_empty() {
        return "  (nothing: the kernel did not get as far as its first message)".into();
    }
    let dying =
        |line: &&str| line.contains("Kernel panic") || DYING.iter().any(|sign| line.contains(sign));
    if let Some(first) = lines.iter().position(dying) {
        return lines[first..]
            .iter()
            .take(n)
            .map(|line| format!("  {line}"))
            .collect::<Vec<_>>()
            .join("\n");
    }
    let (before, tail) = lines.split_at(lines.len().saturating_sub(n));
    let mut shown = complaints(&before.join("\n"));
    if !shown.is_empty() {
        shown.push("...".into());
    }
    shown.extend(tail.iter().map(|l| l.to_string()));
    shown
        .iter()
        .map(|l| format!("  {l}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Converts `[   12.345678] text`, also with a thread or CPU between, to `text`.
fn without_time_stamp(line: &str) -> &str {
    let mut text = line.trim();
    while let Some(rest) = text.strip_prefix('[') {
        match rest.split_once(']') {
            Some((stamp, rest))
                if stamp
                    .bytes()
                    .all(|b| b" .TC".contains(&b) || b.is_ascii_digit()) =>
            {
                text = rest.trim_start();
            }
            _ => break,
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(log: &str, expected: &[&str]) {
        assert_eq!(complaints(log), expected, "in:\n{log}");
    }

    #[test]
    fn races_of_the_kernel_itself() {
        let report = |function: &str| {
            format!(
                "[    9.1] ==================================================================\n\
                 [    9.1] BUG: KCSAN: data-race in tick_nohz_next_event / update_process_times\n\
                 \n\
                 [    9.1] write to 0xffffffff82a01140 of 8 bytes by interrupt on cpu 0:\n\
                 [    9.1]  {function}\n\
                 [    9.1] ==================================================================\n\
                 [    9.2]  baton_other+0x1/0x2 [baton]\n"
            )
        };
        check(&report("update_process_times+0x23/0x90"), &[]);
        check(
            &report("baton_calls_tick+0x23/0x90 [baton]"),
            &["BUG: KCSAN: data-race in tick_nohz_next_event / update_process_times"],
        );
    }

    #[test]
    fn clean_log() {
        check(
            "[    0.000000] Linux version 7.2.12 (gcc) #1 SMP PREEMPT_DYNAMIC\n\
             [    4.100000] baton: loading out-of-tree module taints kernel.\n\
             [    4.100001] baton: module verification failed: signature and/or required key \
             missing - tainting\n\
             [    5.000000] clocksource: timekeeping watchdog on CPU1: Marking clocksource 'tsc' \
             as unstable\n\
             [    5.000000] sched_ext: BPF scheduler \"baton\" enabled\n\
             [    6.000000] sched_ext: BPF scheduler \"baton\" disabled (unregistered from user \
             space)\n",
            &[],
        );
        check("", &[]);
    }

    #[test]
    fn each_kind() {
        for line in [
            "WARNING: kernel/sched/core.c:2345 at set_task_cpu+0x10/0x20, CPU#1: swapper/1/0",
            "WARNING: possible circular locking dependency detected",
            "BUG: unable to handle page fault for address: ffffffffc0000000",
            "BUG: kernel NULL pointer dereference, address: 0000000000000008",
            "kernel BUG at kernel/sched/ext.c:99!",
            "Oops: Oops: 0000 [#1] SMP NOPTI",
            "Oops: general protection fault, probably for non-canonical address 0xdead: 0000 [#1] \
             SMP",
            "Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100",
            "watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [hackbench:77]",
            "watchdog: CPU2: Watchdog detected hard LOCKUP on cpu 2",
            "rcu: INFO: rcu_preempt self-detected stall on CPU",
            "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            "INFO: task stress-ng:91 blocked for more than 122 seconds.",
            "BUG: scheduling while atomic: hackbench/55/0x00000002",
            "BUG: sleeping function called from invalid context at mm/slab.h:411",
            "inconsistent lock state",
            "BUG: KASAN: slab-out-of-bounds in baton_enqueue+0x1/0x2 [baton]",
            "UBSAN: array-index-out-of-bounds in drivers/x.c:1:2",
            "refcount_t: underflow; use-after-free.",
            "list_del corruption. prev->next should be ffff, but was 0",
            "divide error: 0000 [#1] SMP",
            "sched_ext: BPF scheduler \"baton\" disabled (runtime error)",
            "sched_ext: BPF scheduler \"baton\" disabled (runnable task stall)",
        ] {
            check(
                &format!("[    1.000000] fine\n[   12.345678][  T91] {line}\nfine\n"),
                &[line],
            );
            check(line, &[line]);
        }
    }

    #[test]
    fn a_trace_belongs_to_the_complaint_before_it() {
        let trace = "[ 1.0] Call Trace:\n[ 1.0]  <TASK>\n[ 1.0]  dump_stack+0x1/0x2\n";
        check(
            &format!("[ 1.0] WARNING: a.c:1 at f\n[ 1.0] RIP: 0010:f\n{trace}"),
            &["WARNING: a.c:1 at f"],
        );
        check(trace, &["Call Trace:"]);
        let far = "[ 1.0] fine\n".repeat(TRACE_DISTANCE);
        check(
            &format!("[ 1.0] WARNING: a.c:1 at f\n{far}{trace}"),
            &["WARNING: a.c:1 at f", "Call Trace:"],
        );
    }

    #[test]
    fn culprits() {
        let check = |log: &str, expected| {
            assert_eq!(
                culprit(log).map(|found| found.module),
                expected,
                "in:\n{log}"
            )
        };
        let words =
            "[ 1.0] Oops: 0000 [#1] SMP NOPTI\n[ 1.0] CPU: 0 UID: 0 PID: 7 Comm: a [b] Tainted: \
             [O]=OOT_MODULE\n";
        check(
            &format!("{words}[ 1.0] RIP: 0010:pick+0x1/0x2 [baton_faulty]\n"),
            Some("baton_faulty"),
        );
        let trace =
            "[ 1.0] Call Trace:\n[ 1.0]  <TASK>\n[ 1.0]  ? old+0x1/0x2 [baton_wfq]\n[ 1.0]  \
             pick+0x1/0x2 [baton_c]\n\
                     [ 1.0]  baton_guard+0x4/0x5 [baton]\n";
        check(
            &format!("{words}[ 1.0] RIP: 0010:memcpy+0x1/0x2\n{trace}"),
            Some("baton_c"),
        );
        check(
            &format!(
                "{words}[ 1.0] RIP: 0010:memcpy+0x1/0x2\n[ 1.0] Modules linked in: baton_wfq(OE) \
                 [last unloaded: x]\n"
            ),
            None,
        );
        // Lines before it died do not count.
        check(
            &format!("[ 0.9] RIP: 0010:a+0x1/0x2 [baton_a]\n{words}"),
            None,
        );
        check("", None);
    }

    #[test]
    fn excerpts() {
        assert_eq!(excerpt("a\nb\n\nc\n", 2), "  b\n  c");
        assert_eq!(excerpt("a", 2), "  a");
        assert_eq!(
            excerpt("[ 1.0] WARNING: 0\na\nb\n", 1),
            "  WARNING: 0\n  ...\n  b"
        );
        assert_eq!(
            excerpt("a\n[ 1.0] Oops: 0\nb\nc\n", 2),
            "  [ 1.0] Oops: 0\n  b"
        );
        assert!(excerpt("\n", 2).contains("first message"));
    }
}
