// SPDX-License-Identifier: GPL-2.0-only
// A part of a run in full detail. The format of its events is documented in
// hosts/sim/src/detail/mod.rs.
"use strict";

const LEFT = { B: "blocked", P: "preempted", Y: "yielded", X: "exited" };

class Detail {
  constructor({ from_ns, to_ns, cpus, groups, tasks, events }) {
    Object.assign(this, { from: from_ns, to: to_ns, groups });
    // The runs of each CPU in the order of time: of a task, of a higher class, or of none
    // (offline).
    this.cpus = Array.from({ length: cpus }, () => []);
    // Two tasks can have the same name.
    const times = new Map();
    for (const [, , name] of tasks) times.set(name, (times.get(name) ?? 0) + 1);
    const title = (name, number) =>
      times.get(name) === 1 && name !== "" ? name : `${name} ${number}`.trim();
    this.tasks = tasks.map(([number, group, name], place) => ({
      number,
      group,
      place,
      name: title(name, number),
      runs: [],
      waits: [],
    }));
    this.waits = [];
    this.read(events);
    this.starts = Float64Array.from(
      this.tasks.flatMap((task) => task.runs.map((run) => run.from)),
    ).sort();
    this.waits.sort((a, b) => a.from - b.from);
    this.waiting = steps(this.waits);
    const ofGroup = (group) => this.tasks.filter((task) => task.group === group);
    this.byGroup = groups
      .map((name, group) => {
        const members = ofGroup(group).sort((a, b) => a.number - b.number);
        const running = steps(members.flatMap((task) => task.runs)),
          waiting = steps(members.flatMap((task) => task.waits));
        return { name, group, members, running, waiting };
      })
      .sort((a, b) => groupPlaces.get(a.name) - groupPlaces.get(b.name));
  }

  read(events) {
    let now = this.from;
    const runs = this.cpus.map(() => null),
      taken = this.cpus.map(() => null),
      waits = this.tasks.map(() => null);
    const wait = (task, woken, left) => {
      waits[task] = { task, from: now, to: this.to, woken, left, ranOn: null };
    };
    const endsRun = (cpu, left) => {
      const run = runs[cpu];
      runs[cpu] = null;
      Object.assign(run, { to: now, left });
      return run.task;
    };
    // A higher class can have a CPU that is offline at the same time.
    const take = (cpu, kind, begins) => {
      taken[cpu] ??= {};
      if (begins) this.cpus[cpu].push((taken[cpu][kind] = { kind, from: now, to: this.to }));
      else if (taken[cpu][kind]) taken[cpu][kind].to = now;
    };
    for (const [, kind, text] of events.matchAll(/([A-Z+])([0-9a-z.]*)/g)) {
      const [first, second, third] = text.split(".").map((digits) => parseInt(digits, 36));
      if (kind === "+") now += first;
      else if (kind === "W")
        wait(first, second === undefined ? null : { cpu: second, task: third ?? null }, null);
      else if (kind === "R" || kind === "M") {
        const run = {
          kind: "run",
          cpu: first,
          task: second,
          from: now,
          to: this.to,
          moved: kind === "M",
          left: null,
          wait: waits[second],
        };
        if (run.wait) {
          Object.assign(run.wait, { to: now, ranOn: first });
          this.keep(run.wait);
        }
        waits[second] = null;
        runs[first] = run;
        this.cpus[first].push(run);
        this.tasks[second].runs.push(run);
      } else if (LEFT[kind]) {
        const task = endsRun(first, LEFT[kind]);
        if (kind === "P" || kind === "Y") wait(task, null, LEFT[kind]);
      } else if (kind === "H" || kind === "L") take(first, "higher", kind === "H");
      else take(first, "offline", kind === "F");
    }
    waits.forEach((one) => one && this.keep(one));
  }

  keep(wait) {
    this.waits.push(wait);
    this.tasks[wait.task].waits.push(wait);
  }

  // The part of an interval for which there are events; null if there is none.
  within(from, to) {
    const part = [Math.max(from, this.from), Math.min(to, this.to)];
    return part[0] < part[1] ? part : null;
  }

  // The number of times that a task began to run in an interval.
  count(from, to) {
    return after(this.starts, to) - after(this.starts, from);
  }

  // The numbers of an interval. Only what is within it counts.
  numbers(from, to) {
    const inside = (one) => Math.max(0, Math.min(one.to, to) - Math.max(one.from, from));
    const empty = () => ({ run: 0, wait: 0, waits: 0, longest: 0, migrations: 0 });
    const groups = this.groups.map(empty),
      cpus = this.cpus.map(() => 0);
    const tasks = this.tasks.map((task) => {
      const sum = empty();
      for (const run of task.runs) {
        sum.run += inside(run);
        cpus[run.cpu] += inside(run);
        if (run.moved && run.from >= from && run.from < to) sum.migrations += 1;
      }
      for (const length of task.waits.map(inside).filter((length) => length > 0)) {
        sum.wait += length;
        sum.waits += 1;
        sum.longest = Math.max(sum.longest, length);
      }
      const of = groups[task.group];
      for (const key of ["run", "wait", "waits", "migrations"]) of[key] += sum[key];
      of.longest = Math.max(of.longest, sum.longest);
      return sum;
    });
    return { groups, tasks, cpus };
  }
}

// The number of intervals that are open from each time on: `at` and `count`.
function steps(intervals) {
  const changes = intervals
    .flatMap(({ from, to }) =>
      from < to
        ? [
            [from, 1],
            [to, -1],
          ]
        : [],
    )
    .sort((a, b) => a[0] - b[0]);
  const at = [],
    count = [];
  let now = 0;
  for (const [ns, change] of changes) {
    now += change;
    if (at.at(-1) === ns) count[count.length - 1] = now;
    else {
      at.push(ns);
      count.push(now);
    }
  }
  return { at, count, most: count.reduce((a, b) => Math.max(a, b), 0) };
}

// The index of the first greater number.
function after(numbers, number) {
  let low = 0,
    high = numbers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] > number) high = middle;
    else low = middle + 1;
  }
  return low;
}

// The count at a time.
const countAt = ({ at, count }, ns) => count[after(at, ns) - 1] ?? 0;

// Calls `act` for each step of a count in an interval: from, to, count.
function eachStep({ at, count }, from, to, act) {
  for (
    let place = Math.max(0, after(at, from) - 1);
    place < at.length && at[place] < to;
    place += 1
  ) {
    if (count[place] > 0)
      act(Math.max(from, at[place]), Math.min(to, at[place + 1] ?? to), count[place]);
  }
}

// As eachStep, but if there are many more steps than pixels, once for each pixel with the mean.
function eachStepOrPixel(counts, from, to, pixels, act) {
  if (after(counts.at, to) - after(counts.at, from) < pixels) {
    eachStep(counts, from, to, act);
    return;
  }
  const wide = (to - from) / pixels, sums = new Float64Array(pixels);
  eachStep(counts, from, to, (one, other, count) => {
    const last = Math.min(pixels - 1, Math.floor((other - from) / wide));
    for (let at = Math.floor((one - from) / wide); at <= last; at += 1) {
      const begin = Math.max(one, from + at * wide), end = Math.min(other, from + (at + 1) * wide);
      sums[at] += count * Math.max(0, end - begin);
    }
  });
  sums.forEach((sum, at) => {
    if (sum > 0) act(from + at * wide, from + (at + 1) * wide, sum / wide);
  });
}

// The parts of a list that are in an interval. The list is in the order of time, and its parts do
// not overlap.
function inPart(list, from, to) {
  let low = 0,
    high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle].to > from) high = middle;
    else low = middle + 1;
  }
  const found = [];
  for (; low < list.length && list[low].from < to; low += 1) found.push(list[low]);
  return found;
}
