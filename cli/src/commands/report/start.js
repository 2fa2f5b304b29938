// SPDX-License-Identifier: GPL-2.0-only
// The start of the page, and the parts that are redrawn after a change.
"use strict";

let views = [];

function startTimelines() {
  byId("key").replaceChildren(
    ...STATES.map(([name, title]) =>
      make("li", {}, make("i", { style: `background:var(--${name})` }), title),
    ),
  );
  // A common scale, so that runs can be compared.
  const ends = RUNS.map(({ timeline, duration_ns }) =>
    timeline ? Math.min(timeline.columns * timeline.column_ns, duration_ns || Infinity) : 1,
  );
  startTaskKey();
  views = RUNS.map((run, at) => new TimelineView(run, at));
  byId("timelines").replaceChildren(...views.map((one) => one.element));
  startView(
    Math.max(1, ...ends),
    views.flatMap((one) => one.detail ?? []),
  );
}

const strips = () => views.flatMap((one) => [one.strip ?? [], one.tasks?.strips() ?? []].flat());

// The frame in which timelines are redrawn. Several events of a wheel may precede it.
let frame = 0;

function drawViews() {
  cancelAnimationFrame(frame);
  frame = 0;
  views.forEach((one) => one.draw());
}

// Called when another interval, other groups or other CPUs are to be shown.
function viewChanged() {
  frame ||= requestAnimationFrame(drawViews);
  readView();
  writeAddressSoon();
}

// Called while an interval is being selected.
function selectionMoves() {
  strips().forEach((strip) => strip.placeMarks());
  readView();
}

function selectionChanged() {
  selectionMoves();
  views.forEach((one) => one.interval?.show());
  writeAddressSoon();
}

function redraw() {
  drawCurves();
  drawViews();
}

function startTheme() {
  const root = document.documentElement,
    button = byId("theme");
  const show = (theme) => {
    root.dataset.theme = theme;
    button.textContent = theme === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Change to ${theme === "dark" ? "light" : "dark"} colours`);
  };
  show(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  button.addEventListener("click", () => {
    show(root.dataset.theme === "dark" ? "light" : "dark");
    redraw();
  });
}

function start() {
  RUNS = JSON.parse(byId("data").textContent);
  startTheme();
  startNumbers();
  startCurves();
  startTimelines();
  let width = document.body.clientWidth;
  new ResizeObserver(() => {
    if (width !== document.body.clientWidth) redraw();
    width = document.body.clientWidth;
  }).observe(document.body);
  drawViews();
  selectionChanged();
  document.documentElement.dataset.drawn = "yes";
}
