// SPDX-License-Identifier: GPL-2.0-only
//! Finds errors that rt-app leaves undefined, or would find only at run time: unlocking a mutex
//! that is not locked, waiting without the mutex, forking a task that does not exist.

use std::collections::BTreeSet;

use super::event::What;
use super::parse::{File, Phase, Place, Task};

pub(super) fn tasks(file: &File) -> Result<(), String> {
    let mut forked = BTreeSet::new();
    for task in &file.tasks {
        locks(task)?;
        for (phase, event) in task
            .phases
            .iter()
            .flat_map(|phase| phase.events.iter().map(move |event| (phase, event)))
        {
            if let What::Hint(_, Some(whom)) = &event.what {
                if !file
                    .tasks
                    .iter()
                    .any(|other| other.name == *whom && other.instances > 0)
                {
                    let why = format!("there is no task '{whom}' from the beginning");
                    return Err(place(task, phase).wrong(&event.key, why));
                }
            }
            let What::Fork(whom) = &event.what else {
                continue;
            };
            if !file.tasks.iter().any(|other| other.name == *whom) {
                return Err(
                    place(task, phase).wrong(&event.key, format!("there is no task '{whom}'"))
                );
            }
            forked.insert(whom.as_str());
        }
    }
    for task in file
        .tasks
        .iter()
        .filter(|task| forked.contains(task.name.as_str()))
    {
        for (phase, event) in task
            .phases
            .iter()
            .flat_map(|phase| phase.events.iter().map(move |event| (phase, event)))
        {
            if matches!(event.what, What::Barrier(_)) {
                let why = "a task that is forked cannot have one: how many come to it is counted \
                    in the file";
                return Err(place(task, phase).wrong(&event.key, why));
            }
        }
    }
    Ok(())
}

fn place<'a>(task: &'a Task, phase: &'a Phase) -> Place<'a> {
    Place {
        task: &task.name,
        phase: Some(phase.name.as_str()).filter(|name| !name.is_empty()),
    }
}

/// Checks the order in which a task takes and releases its own mutexes. A phase or a task that
/// repeats must end with the mutexes that it began with.
fn locks(task: &Task) -> Result<(), String> {
    let mut held: BTreeSet<&str> = BTreeSet::new();
    for phase in &task.phases {
        let before = held.clone();
        for event in &phase.events {
            let wrong = |why: String| place(task, phase).wrong(&event.key, why);
            match &event.what {
                What::Lock(name) if !held.insert(name) => {
                    return Err(wrong(format!(
                        "the task has '{name}' already, and would wait for itself for ever"
                    )))
                }
                What::Unlock(name) if !held.remove(name.as_str()) => {
                    return Err(wrong(format!("the task does not have '{name}'")))
                }
                What::Wait(condition) if !held.contains(condition.mutex.as_str()) => {
                    return Err(wrong(format!(
                        "the task does not have '{}', which it gives back to wait",
                        condition.mutex
                    )))
                }
                _ => {}
            }
        }
        if phase.loops != Some(1) && held != before {
            let names: Vec<_> = held.symmetric_difference(&before).copied().collect();
            return Err(place(task, phase).wrong(
                "loop",
                format!("'{}' is not as it was at the end", names.join("', '")),
            ));
        }
    }
    match held.first() {
        Some(name) => {
            Err(place(task, &task.phases[0]).wrong("lock", format!("'{name}' is never unlocked")))
        }
        None => Ok(()),
    }
}
