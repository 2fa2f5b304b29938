// SPDX-License-Identifier: GPL-2.0-only
// The runs and their numbers, side by side.
"use strict";

// Rows: a title, the path of the number in a run, its format, and the better direction (-1 less, 1
// more, 0 neither).
const OF_TIMES = [["p50", -1], ["p90", -1], ["p99", -1], ["p99.9", -1], ["max", -1], ["mean", -1]];
const OF_MACHINE = [
  ["context switches", "cpu/switches", "count", 0],
  ["migrations within a core", "cpu/migrations/core", "count", 0],
  ["migrations within a cache", "cpu/migrations/llc", "count", 0],
  ["migrations within a node", "cpu/migrations/node", "count", 0],
  ["migrations between nodes", "cpu/migrations/machine", "count", 0],
  ["busy", "cpu/busy_ns", "ns", 0],
  ["idle", "cpu/idle_ns", "ns", 0],
  ["idle while work waits", "cpu/idle_while_waiting_ns", "ns", -1],
  ["idle that waiting tasks could use", "cpu/wasted_ns", "ns", -1],
  ["higher classes", "cpu/higher_ns", "ns", 0],
  ["offline", "cpu/offline_ns", "ns", 0],
  ["fairness (Jain's index)", "fairness/jain", "index", 1],
  ["furthest behind its share", "fairness/worst_lag_ns", "ns", -1],
  ["simulated time", "duration_ns", "ns", 0],
  ["events", "events", "count", 0],
  ["upgrades", "upgrades", "count", 0],
  ["tasks that were not made", "tasks_not_made", "count", 0],
];

// The number at a path of a run; undefined if there is none. A group is found by its name.
function numberAt(run, path) {
  let value = run;
  for (const name of path.split("/")) {
    if (value === undefined || value === null) return undefined;
    value = Array.isArray(value) ? value.find((one) => one.name === decodeURIComponent(name)) : value[name];
  }
  return value;
}

function groupNames() {
  return [...new Set(RUNS.flatMap((run) => run.groups.map((group) => group.name)))];
}

function sections() {
  const times = (path, title) =>
    OF_TIMES.map(([name, better]) => [`${title} ${name}`, `${path}/${name.replace(".", "")}`, "ns", better]);
  const found = groupNames().map((name) => {
    const path = `groups/${encodeURIComponent(name)}`;
    const rows = [
      ["tasks", `${path}/tasks`, "count", 0],
      ["CPU time", `${path}/cpu_ns`, "ns", 0],
      ["operations", `${path}/operations`, "count", 1],
      ["wakeups", `${path}/wakeup/count`, "count", 0],
      ...times(`${path}/wakeup`, "wakeup"),
      ["responses", `${path}/response/count`, "count", 0],
      ...times(`${path}/response`, "response"),
    ];
    return [name, rows];
  });
  return [...found, ["Machine", OF_MACHINE]];
}

// Do the confidence intervals of two means not overlap? Numbers of single runs always differ.
function differ(at, base, path) {
  const [one, other] = [at, base].map((run) => RUNS[run].confidence && numberAt(RUNS[run].confidence, path));
  return !one || !other || one[0] > other[1] || other[0] > one[1];
}

// The confidence interval of a mean, in per cent of it; nothing for a single run.
function within(at, path) {
  const interval = RUNS[at].confidence && numberAt(RUNS[at].confidence, path);
  if (!interval || interval[0] + interval[1] === 0) return null;
  const percent = ((interval[1] - interval[0]) / (interval[0] + interval[1])) * 100;
  return make("span", { class: "within", title: "the true mean is within that with a probability of 95 %", text: ` ± ${digits(percent)} %` });
}

function ratio(value, base, better, known) {
  if (base === 0 || value === undefined || base === undefined) return make("span", { class: "ratio", text: "" });
  const times = value / base;
  // A difference below 2 % is neither better nor worse.
  const way = Math.abs(times - 1) < 0.02 || !known ? 0 : Math.sign(times - 1) * better;
  const word = way > 0 ? "better" : way < 0 ? "worse" : "";
  const kind = way > 0 ? "ratio good" : way < 0 ? "ratio bad" : "ratio";
  return make("span", { class: kind, title: word, text: `× ${times >= 1000 ? grouped(Math.round(times)) : digits(times)}` });
}

function drawNumbers() {
  const base = Number(byId("base").value);
  // As wide as a ratio, to align numbers without a ratio.
  const gap = () => (RUNS.length > 1 ? [make("span", { class: "ratio" })] : []);
  const head = RUNS.map((_, at) =>
    make("th", { scope: "col" }, make("span", { class: "dot", style: `--color:${runColor(at)}` }), runName(at), ...gap()));
  const body = make("tbody");
  for (const [title, rows] of sections()) {
    const kept = rows.filter(([, path]) => RUNS.some((run) => numberAt(run, path) !== undefined));
    // A row of zeros is left out, unless zero is the desired value.
    const said = kept.filter(([, path, , better]) => better !== 0 || RUNS.some((run) => numberAt(run, path)));
    if (said.length > 0) body.append(make("tr", {}, make("th", { colspan: RUNS.length + 1, scope: "rowgroup", text: title })));
    for (const [label, path, kind, better] of said) {
      const row = make("tr", {}, make("th", { scope: "row", text: label }));
      RUNS.forEach((run, at) => {
        const value = numberAt(run, path);
        const cell = make("td", { "data-run": at, "data-key": path });
        if (value === undefined || value === null) cell.append("–");
        else {
          const [text, exact] = SHOW[kind](value);
          cell.dataset.value = value;
          if (exact) cell.title = exact;
          cell.append(make("span", { class: "value", text }));
          const mean = within(at, path);
          if (mean) cell.append(mean);
        }
        if (at === base) cell.append(...gap());
        else cell.append(ratio(value, numberAt(RUNS[base], path), better, differ(at, base, path)));
        row.append(cell);
      });
      body.append(row);
    }
  }
  const table = make("table", {}, make("thead", {}, make("tr", {}, make("td"), ...head)), body);
  byId("numbers").replaceChildren(table);
}

function drawRuns() {
  const cards = RUNS.map((run, at) => {
    const facts = [
      ["workload", run.workload], ["machine", run.topology], ["seed", run.seeds > 1 ? `${run.seed}, and ${run.seeds - 1} more` : run.seed], ["jitter", `${run.jitter_ppm / 1e4} %`],
      ["time", showTime(run.duration_ns)],
      ["hash", run.hash], ["events", grouped(run.events)],
    ];
    const list = facts.flatMap(([name, value]) => [
      make("dt", { text: name }),
      make("dd", { text: value, "data-run": at, "data-fact": name, class: name === "hash" || name === "seed" ? "mono" : "" }),
    ]);
    const wrong = [
      ...run.faults.map((fault) => `fault: ${fault}`),
      ...run.refused_upgrades.map((why) => `upgrade refused: ${why}`),
      ...(run.tasks_not_made > 0 ? [`tasks not made, as there was no slot: ${grouped(run.tasks_not_made)}`] : []),
    ];
    const notes = wrong.map((text, number) => make("p", { class: "wrong", text, "data-run": at, "data-fact": `wrong ${number}` }));
    return make("article", { class: "run", style: `--color:${runColor(at)}` }, make("h3", { text: runName(at) }), make("dl", {}, ...list), ...notes);
  });
  byId("runs").replaceChildren(...cards);
}

function startNumbers() {
  drawRuns();
  const base = byId("base");
  base.append(...RUNS.map((_, at) => make("option", { value: at, text: runName(at) })));
  byId("base-label").hidden = RUNS.length < 2;
  base.addEventListener("change", drawNumbers);
  drawNumbers();
}
