// SPDX-License-Identifier: GPL-2.0-only
//! Events as JSON, one per line, with named fields.

use baton_abi::{BatonHint, BatonTask};
use baton_trace::{
    fault_name, method_name, About, Call, Carried, Event, Item, Question, Recording, Return,
};
use serde_json::{json, Value};

use baton_control::error::Result;

pub fn print(recording: &Recording) -> Result<()> {
    super::written(|out| {
        for told in recording.merged() {
            let mut line = value(&told.item);
            line["cpu"] = told.cpu.into();
            if let Item::Event(event) = &told.item {
                line["number"] = told.number.into();
                event
                    .stamp()
                    .inspect(|stamp| line["stamp"] = (*stamp).into());
            }
            writeln!(out, "{line}")?;
        }
        Ok(())
    })
}

fn value(item: &Item) -> Value {
    let event = match item {
        Item::Event(event) => event,
        Item::Gap { lost, blocks } => {
            return json!({"event": "gap", "lost": lost, "blocks": blocks})
        }
        Item::Malformed => return json!({"event": "malformed"}),
    };
    match event {
        Event::Call(call) => self::call(call),
        Event::Return(Return {
            answer,
            carried: after,
            ..
        }) => {
            json!({"event": "return", "answer": answer, "carried": carried(after)})
        }
        Event::Abandoned { kind, .. } => json!({"event": "abandoned", "fault": fault_name(*kind)}),
        Event::Lock { id, .. } => json!({"event": "lock", "id": id}),
        Event::Busy { id } => json!({"event": "busy", "id": id}),
        Event::Now(now) => json!({"event": "now", "now_ns": now}),
        Event::Random(number) => json!({"event": "random", "value": number}),
        Event::Read(value) => json!({"event": "read", "value": value}),
        Event::MayRun { slot, cpu, yes } => {
            json!({"event": "may_run", "slot": slot, "which": cpu, "yes": yes})
        }
        Event::Cpu { question, cpu, yes } => {
            let name = match question {
                Question::Online => "is_online",
                Question::Idle => "is_idle",
                Question::Claim => "claim_idle",
            };
            json!({"event": name, "which": cpu, "yes": yes})
        }
        Event::AnyIdle(yes) => json!({"event": "any_idle", "yes": yes}),
        Event::ArmTimer(after) => json!({"event": "arm_timer", "after_ns": after}),
        Event::CancelTimer => json!({"event": "cancel_timer"}),
        Event::NoMemory { after } => json!({"event": "no_memory", "after": after}),
        Event::Dropped(token) => json!({"event": "dropped", "token": token}),
        Event::Reply {
            slot,
            reply,
            answer,
        } => {
            json!({"event": "reply", "slot": slot, "reply": hint(reply), "answer": answer})
        }
        Event::End { .. } => json!({"event": "end"}),
    }
}

fn call(call: &Call) -> Value {
    let mut value = json!({
        "event": "call",
        "method": method_name(call.method),
        "now_ns": call.now,
        "on": call.cpu,
        "flags": call.flags,
        "carried": carried(&call.carried),
    });
    call.about.task().inspect(|it| value["task"] = task(it));
    match &call.about {
        About::Waking(_, wake) => {
            value["wake"] = json!({"prev_cpu": wake.prev_cpu, "waker_cpu": wake.waker_cpu, "flags": wake.flags});
        }
        About::Given(_, token) => value["token"] = (*token).into(),
        About::Task(_) => {}
        About::Pick(which, _) | About::Cpu(which) => value["which"] = (*which).into(),
        About::Refused(token, why) => {
            value["token"] = (*token).into();
            value["why"] = (*why).into();
        }
        About::Hint(_, said) => value["hint"] = hint(said),
    }
    value
}

fn task(task: &BatonTask) -> Value {
    let BatonTask {
        slot,
        pid,
        cpu,
        nice,
        runtime,
    } = task;
    json!({"slot": slot, "pid": pid, "cpu": cpu, "nice": nice, "runtime_ns": runtime})
}

/// The thread is a slot plus one; 0 stands for none.
fn hint(hint: &BatonHint) -> Value {
    json!({"tag": hint.tag, "thread": hint.thread, "words": hint.words})
}

fn carried(carried: &Carried) -> Value {
    let kicks: Vec<u16> = carried
        .kicks
        .into_iter()
        .take(usize::from(carried.nr_kicks))
        .collect();
    json!({"slice_ns": carried.slice, "kicks": kicks})
}
