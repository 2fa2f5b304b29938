// SPDX-License-Identifier: GPL-2.0-only
// Latency curves: the share of times that do not exceed a time. The tail is logarithmic: 99 % and
// 99.9 % are one step apart.
"use strict";

const MARGIN = { left: 52, leftOfTail: 76, right: 12, top: 10, bottom: 28 };
// Position of the crosshair as a part of the width; null if there is none.
let curveCursor = null;
let curvePlace = null;

function curveChoices() {
  const found = [];
  for (const name of groupNames()) {
    for (const what of ["wakeup", "response"]) {
      const key = `${what}_curve`;
      const curves = RUNS.map((run) => (run.groups.find((group) => group.name === name) || {})[key] || []);
      if (curves.some((curve) => curve.length > 0)) found.push({ title: `${what}, ${name}`, curves });
    }
  }
  return found;
}

// The share at a time: that of the last point at or before it.
function shareAt(curve, ns) {
  let share = 0;
  for (const [time, upTo] of curve) {
    if (time > ns) break;
    share = upTo;
  }
  return share;
}

// Adds a shape to an svg element, in its namespace.
function shape(svg, tag, attributes, text) {
  const element = document.createElementNS(svg.namespaceURI, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  svg.append(element);
  return element;
}

function drawCurves() {
  const svg = byId("curves");
  svg.replaceChildren();
  const choice = curveChoices()[byId("curve").value];
  curvePlace = null;
  if (!choice) {
    shape(svg, "text", { x: 10, y: 24 }, "None of these runs has a curve.");
    return;
  }
  const width = svg.clientWidth, height = svg.clientHeight;
  const tail = document.querySelector("input[name=scale]:checked").value === "tail";
  const left = tail ? MARGIN.leftOfTail : MARGIN.left;
  const inner = { x: left, y: MARGIN.top, w: width - left - MARGIN.right, h: height - MARGIN.top - MARGIN.bottom };
  const points = choice.curves.flat().map(([time]) => Math.max(1, time));
  const low = 10 ** Math.floor(Math.log10(Math.min(...points)) + 1e-9);
  const high = 10 ** Math.ceil(Math.log10(Math.max(...points, low * 10)) - 1e-9);
  // The tail extends to the rarest time of all curves.
  const rarest = Math.min(...choice.curves.flatMap((curve) => curve.slice(-2, -1).map(([, share]) => 1 - share)), 0.01);
  const decades = Math.ceil(-Math.log10(Math.max(rarest, 1e-9)));
  const x = (ns) => inner.x + (inner.w * Math.log(Math.max(ns, low) / low)) / Math.log(high / low);
  const y = (share) => tail
    ? inner.y + (inner.h * Math.min(-Math.log10(Math.max(1 - share, 1e-12)), decades)) / decades
    : inner.y + inner.h * (1 - share);

  const steps = Math.round(Math.log10(high / low));
  const each = Math.max(1, Math.ceil((steps * 58) / inner.w));
  for (let step = 0; step <= steps; step += 1) {
    const at = x(low * 10 ** step);
    shape(svg, "line", { class: "grid", x1: at, x2: at, y1: inner.y, y2: inner.y + inner.h });
    const anchor = step === steps ? "end" : "middle";
    if (step % each === 0) shape(svg, "text", { x: at, y: height - 8, "text-anchor": anchor }, showTick(low * 10 ** step));
  }
  const levels = tail
    ? Array.from({ length: decades + 1 }, (_, n) => [1 - 10 ** -n, n === 0 ? "0 %" : n === 1 ? "90 %" : `99${n > 2 ? `.${"9".repeat(n - 2)}` : ""} %`])
    : [0, 0.25, 0.5, 0.75, 1].map((share) => [share, `${share * 100} %`]);
  for (const [share, label] of levels) {
    shape(svg, "line", { class: "grid", x1: inner.x, x2: inner.x + inner.w, y1: y(share), y2: y(share) });
    shape(svg, "text", { x: inner.x - 8, y: y(share) + 4, "text-anchor": "end" }, label);
  }
  choice.curves.forEach((curve, at) => {
    if (curve.length === 0) return;
    const places = [`M${x(low)} ${y(0)}`];
    for (const [time, share] of curve) places.push(`H${x(time).toFixed(1)}`, `V${y(share).toFixed(1)}`);
    if (!tail) places.push(`H${inner.x + inner.w}`);
    shape(svg, "path", { class: "curve", d: places.join(""), style: `stroke:${runColor(at)}`, "stroke-dasharray": DASHES[at % 6] });
  });
  curvePlace = { choice, inner, low, high };
  readCurves();
}

function readCurves() {
  const svg = byId("curves"), read = byId("curves-read");
  svg.querySelector(".cursor")?.remove();
  if (!curvePlace) return;
  const { choice, inner, low, high } = curvePlace;
  const named = (text) => choice.curves.flatMap((curve, at) => curve.length === 0 ? [] : [
    make("span", { class: "dot", style: `--color:${runColor(at)};margin-left:12px` }), `${runName(at)} `, make("b", { text: text(curve, at) }),
  ]);
  if (curveCursor === null) {
    read.replaceChildren("Point at the curves, or use the arrow keys, to read them.", ...named(() => ""));
    return;
  }
  const ns = low * (high / low) ** curveCursor;
  const at = inner.x + inner.w * curveCursor;
  shape(svg, "line", { class: "cursor", x1: at, x2: at, y1: inner.y, y2: inner.y + inner.h });
  const percent = (share) => `${(share * 100).toFixed(share > 0.99 && share < 1 ? 3 : 1)} %`;
  read.replaceChildren(`Not above ${showTime(ns)}:`, ...named((curve) => percent(shareAt(curve, ns))));
}

function startCurves() {
  const svg = byId("curves"), select = byId("curve");
  select.append(...curveChoices().map(({ title }, at) => make("option", { value: at, text: title })));
  select.addEventListener("change", drawCurves);
  byId("scale").addEventListener("change", drawCurves);
  svg.addEventListener("pointermove", (event) => {
    if (!curvePlace) return;
    const { x, w } = curvePlace.inner;
    curveCursor = Math.min(1, Math.max(0, (event.clientX - svg.getBoundingClientRect().left - x) / w));
    readCurves();
  });
  svg.addEventListener("pointerleave", () => { curveCursor = null; readCurves(); });
  svg.addEventListener("blur", () => { curveCursor = null; readCurves(); });
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -0.01, ArrowRight: 0.01, PageUp: -0.1, PageDown: 0.1, Home: -1, End: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    curveCursor = curveCursor === null ? (step > 0 ? 0 : 1) : Math.min(1, Math.max(0, curveCursor + step));
    readCurves();
  });
  drawCurves();
}
