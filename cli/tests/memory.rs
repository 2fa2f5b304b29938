// SPDX-License-Identifier: GPL-2.0-only
//! What a policy in C does to memory, and what C does not define: in the simulator and the checker
//! each mistake is a fault of the policy with the line, where the kernel would be at its mercy.

mod mine;

use std::process::Command;

use mine::Mine;

fn baton(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_baton"))
        .args(arguments)
        .output()
        .expect("baton runs");
    let said =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    (output.status.success(), said.concat())
}

/// The mistakes, as statements of `schedule`, and what is said of them.
const MISTAKES: [(&str, &str); 8] = [
    // Behind the threads, the cores and the policy, before memory, and far away.
    (
        "sum += thread_at(policy, policy->nr_threads)->pid;",
        "memory at",
    ),
    (
        "sum += core_at(policy, policy->nr_cores)->cpu;",
        "memory at",
    ),
    ("sum += ((u64 *)(policy + 1))[16];", "memory at"),
    ("sum += *(u32 *)(number << 44 | 8);", "memory at"),
    // In a block that is free.
    (
        "u64 *block = baton_host_alloc(64, 8); baton_host_free(block); sum += *block;",
        "memory at",
    ),
    // Behind one that is not.
    (
        "u64 *block = baton_host_alloc(64, 8); sum += block[number + 7]; baton_host_free(block);",
        "memory at",
    ),
    ("sum += table[number * 8];", "what C does not define"),
    ("sum += 1 << (number * 40);", "what C does not define"),
];

#[test]
fn each_mistake_has_its_line() {
    let mine = Mine::new();
    let begin = "static void mine_schedule(struct policy *policy, struct core *core)\n{\n";
    let path = mine.path();
    for (statement, expected) in MISTAKES {
        // `number` is 1, which the compiler cannot know.
        let with = format!(
            "static volatile u64 sum;\nstatic volatile u64 one = 1;\n\
             static const u64 table[8] __maybe_unused;\n\
             {begin}\tu64 number __maybe_unused = one;\n\n\t{{\n\t\t{statement}\n\t}}\n"
        );
        let source = mine.change(&[(begin, &with)]);
        let line = source.lines().position(|line| line.contains(statement));
        let place = format!("mine.c:{}", 1 + line.expect("its line"));
        for run in [
            ["sim", &path, "-w", "hogs:n=2", "--duration", "20ms"],
            ["check", &path, "--schedules", "20", "--first", "1"],
        ] {
            let (ok, said) = baton(&run);
            assert!(
                !ok && said.contains(expected) && said.contains(&place),
                "{run:?}, {statement}: {place} is not in: {said}"
            );
        }
    }
}
