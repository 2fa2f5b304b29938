// SPDX-License-Identifier: GPL-2.0-only
// The zoomed timeline: the task that each CPU runs, and the wakeups.
"use strict";

const TASK_COLORS = 8;
// The index of each group by name. Groups have the same colours and order in all runs.
let groupPlaces = new Map();

const colorOfGroup = (name) => `task${groupPlaces.get(name) % TASK_COLORS}`;

function startTaskKey() {
  const names = RUNS.flatMap((run) => run.detail?.groups ?? []);
  groupPlaces = new Map(
    [...new Set([...groupNames().filter((name) => names.includes(name)), ...names])].map(
      (name, at) => [name, at],
    ),
  );
  const item = (style, title) => make("li", {}, make("i", { style }), title);
  const groups = [...groupPlaces.keys()]
    .slice(0, 12)
    .map((name) => item(`background:var(--${colorOfGroup(name)})`, name || "(no group)"));
  byId("task-key").hidden = groups.length === 0;
  byId("task-key").replaceChildren(...groups, item("background:var(--waiting)", "task that waits"));
}

// Draws the runs of the shown CPUs. The background shows the state of an idle CPU: red while a task
// waits.
function drawSpans(pen, { detail, strip, part, shown, rowHeight }) {
  const [from, to] = part,
    height = shown.length * rowHeight;
  const colors = detail.groups.map((name) => color(colorOfGroup(name)));
  const fill = (one, other, top, high) => strip.fill(pen, one, other, top, high);
  pen.fillStyle = color("card");
  fill(from, to, STRIP, height);
  pen.fillStyle = color("idle");
  fill(from, to, STRIP, height);
  pen.fillStyle = color("waste");
  eachStep(detail.waiting, from, to, (one, other) => fill(one, other, STRIP, height));
  pen.textAlign = "left";
  const ink = color("ink");
  shown.forEach(({ first }, row) => {
    const top = STRIP + row * rowHeight;
    for (const one of inPart(detail.cpus[first], from, to)) {
      const task = one.kind === "run" ? detail.tasks[one.task] : null;
      const [begin, end] = [Math.max(one.from, from), Math.min(one.to, to)];
      pen.fillStyle = task ? colors[task.group] : color(one.kind);
      fill(begin, end, top, rowHeight);
      const left = strip.x(begin),
        room = strip.x(end) - left;
      // A gap separates runs that follow each other immediately.
      if (room > 4) {
        pen.fillStyle = color("card");
        pen.fillRect(Math.round(left), top, 1, rowHeight);
      }
      pen.fillStyle = ink;
      if (task && room > 20)
        pen.fillText(
          shorten(pen, task.name, room - 7),
          left + 4,
          top + Math.min(10, rowHeight / 2),
        );
    }
  });
}

// The wakeups that are shown as arrows: those with an end in the shown part, or none if there are
// too many.
function shownWakeups({ detail, part, strip, shown }) {
  const isShown = (ns) => ns >= part[0] && ns <= part[1];
  const found = detail.waits.filter(
    (wait) => wait.woken && wait.ranOn !== null && (isShown(wait.to) || isShown(wait.from)),
  );
  return found.length <= Math.min(strip.inner / 12, 12 + 4 * shown.length) ? found : [];
}

// Draws arrows from the waker to the woken task, at the CPUs and times of wakeup and run; dashed if
// an interrupt was the waker. If the task waited for long, the arrow first goes to its CPU, and
// then along it.
function drawWakeups(pen, timeline) {
  const { detail, strip, shown, rowHeight } = timeline;
  // The names are above the arrow.
  const y = (cpu) => STRIP + (cpu - shown[0].first + 0.72) * rowHeight;
  const wakeups = shownWakeups(timeline);
  strip.canvas.dataset.arrows = wakeups.length;
  pen.strokeStyle = pen.fillStyle = color("arrow");
  for (const { woken, from, to, ranOn } of wakeups) {
    const [x1, y1, x2, y2] = [strip.x(from), y(woken.cpu), strip.x(to), y(ranOn)];
    const isLong = x2 - x1 > 60;
    pen.globalAlpha = isLong ? 0.55 : 0.9;
    pen.setLineDash(woken.task === null ? [3, 3] : []);
    pen.beginPath();
    pen.moveTo(x1, y1);
    if (isLong) pen.lineTo(x1, y2);
    pen.lineTo(x2, y2);
    pen.stroke();
    pen.setLineDash([]);
    const way = isLong ? 0 : Math.atan2(y2 - y1, x2 - x1);
    pen.beginPath();
    pen.moveTo(x2, y2);
    for (const side of [-0.4, 0.4])
      pen.lineTo(x2 - 7 * Math.cos(way + side), y2 - 7 * Math.sin(way + side));
    pen.fill();
    pen.beginPath();
    pen.arc(x1, y1, 2, 0, 7);
    pen.fill();
  }
  pen.globalAlpha = 1;
}

// The ends of a run, as parts of a sentence.
const ENDS = {
  blocked: "then it blocked",
  preempted: "then it was preempted",
  yielded: "then it yielded",
  exited: "then it exited",
};

const named = (detail, task) =>
  `${detail.tasks[task].name} (${detail.groups[detail.tasks[task].group] || "no group"})`;

function sayWait(detail, wait) {
  const { woken, left, from, to, ranOn } = wait;
  const waker = woken && (woken.task === null ? "an interrupt" : detail.tasks[woken.task].name);
  const cause = woken
    ? `woken by ${waker} on CPU ${woken.cpu}`
    : left
      ? `since it ${left === "yielded" ? "yielded" : "was preempted"}`
      : "since before the detail";
  const end = ranOn === null ? ", to the end of the detail" : "";
  return `waited ${showTime(to - from)}, ${cause}${end}`;
}

// An interval and its length.
const showRange = ({ from, to }, fine) =>
  `from ${showAt(from, fine)} to ${showAt(to, fine)}, ${showTime(to - from)}`;

function sayCpu(detail, cpu, ns) {
  const one = inPart(detail.cpus[cpu], ns, ns + 1)[0];
  const waiting = countAt(detail.waiting, ns);
  const waits = `${waiting} task${waiting === 1 ? " waits" : "s wait"}`;
  const begin = make("b", { text: `CPU ${cpu}` }),
    fine = widthOfView() / 1000;
  const at = `, ${showAt(ns, fine)}: `;
  if (!one) return [begin, `${at}idle; ${waits}.`];
  const when = showRange(one, fine);
  if (one.kind !== "run")
    return [
      begin,
      `${at}${one.kind === "higher" ? "a higher class" : "offline"} ${when}; ${waits}.`,
    ];
  const before =
    one.wait && one.wait.to > one.wait.from ? `; before, it ${sayWait(detail, one.wait)}` : "";
  return [
    begin,
    at,
    make("b", { text: named(detail, one.task) }),
    ` ran ${when}${one.left ? `; ${ENDS[one.left]}` : ""}${before}; ${waits}.`,
  ];
}
