// SPDX-License-Identifier: GPL-2.0-only
// The part of time that all timelines show, the selected interval, and the open groups. All are in
// the page's address after the #, so that it can be used as a link:
// from=10ms&to=12ms&select=10ms..11ms&open=GROUP&cpu=64. Times without a unit are ns.
"use strict";

// The shortest part of time that can be shown, ns.
const NARROWEST = 100;
const view = { end: 1, from: 0, to: 1, select: null, open: new Set(), cpu: 0 };

// A time of an address; NaN if it is invalid.
function readTime(text) {
  const [, number, unit] = /^(\d+(?:\.\d+)?)(ns|us|µs|ms|s)?$/.exec(text ?? "") ?? [];
  const scale = { ns: 1, us: 1e3, µs: 1e3, ms: 1e6, s: 1e9 }[unit ?? "ns"];
  return number === undefined ? NaN : Math.round(Number(number) * scale);
}

// A time with the precision of a pixel of `fine` ns.
function showAt(ns, fine) {
  const [scale, unit] = UNITS.findLast(([scale]) => Math.abs(ns) >= scale) ?? UNITS[0];
  const decimals = Math.min(
    Math.round(Math.log10(scale)),
    Math.max(0, Math.ceil(Math.log10(scale / Math.max(fine, 1)) - 1e-9)),
  );
  return ns === 0 ? "0 ns" : `${(ns / scale).toFixed(decimals)} ${unit}`;
}

const widthOfView = () => view.to - view.from;
const isWhole = () => view.from <= 0 && view.to >= view.end;

// Shows this part of time. It is limited to a possible width, and to the runs.
function showPart(from, to) {
  const width = Math.min(view.end, Math.max(Math.min(NARROWEST, view.end), to - from));
  const first = Math.min(
    view.end - width,
    Math.max(0, to - from < width ? (from + to - width) / 2 : from),
  );
  [view.from, view.to] = [Math.round(first), Math.round(first + width)];
  viewChanged();
}

// Multiplies the width of the shown part; the time `around` keeps its position.
function zoom(times, around = (view.from + view.to) / 2) {
  showPart(around - (around - view.from) * times, around + (view.to - around) * times);
}

const pan = (ns) =>
  showPart(
    Math.min(Math.max(0, view.from + ns), view.end - widthOfView()),
    Math.min(view.end, Math.max(widthOfView(), view.to + ns)),
  );

// Selects an interval; none if it is empty.
function select(one, other) {
  const [from, to] = [one, other]
    .map((ns) => Math.round(Math.min(view.end, Math.max(0, ns))))
    .sort((a, b) => a - b);
  view.select = from < to ? [from, to] : null;
  selectionChanged();
}

function readAddress() {
  const said = new URLSearchParams(location.hash.slice(1));
  const [from, to] = [readTime(said.get("from")), readTime(said.get("to"))];
  const width = Math.max(Math.min(NARROWEST, view.end), Math.min(to, view.end) - from);
  [view.from, view.to] =
    from < to && from < view.end
      ? [Math.max(0, Math.min(from, view.end - width)), Math.min(view.end, from + width)]
      : [0, view.end];
  const ends = (said.get("select") ?? "").split("..").map(readTime);
  view.select =
    ends.length === 2 && ends[0] < ends[1] ? [ends[0], Math.min(view.end, ends[1])] : null;
  view.open = new Set(said.getAll("open"));
  view.cpu = Math.max(0, Math.floor(Number(said.get("cpu")) || 0));
}

function writeAddress() {
  const said = new URLSearchParams();
  if (!isWhole()) {
    said.set("from", view.from);
    said.set("to", view.to);
  }
  if (view.select) said.set("select", view.select.join(".."));
  for (const group of view.open) said.append("open", group);
  if (view.cpu > 0) said.set("cpu", view.cpu);
  const hash = said.size > 0 ? `#${said}` : "#";
  if (hash !== (location.hash || "#")) history.replaceState(null, "", hash);
}

// Browsers limit how often a page may write its address.
let addressTimer = 0;

function writeAddressSoon() {
  clearTimeout(addressTimer);
  addressTimer = setTimeout(writeAddress, 200);
}

// Updates the description of the view, and the buttons that have an effect.
function readView() {
  const fine = widthOfView() / 1000;
  const [one, other] = (view.select ?? [0, 0]).map((ns) => showAt(ns, fine));
  const wide = showTime(widthOfView());
  const part = isWhole()
    ? `All of it, ${showTime(view.end)}.`
    : `${showAt(view.from, fine)} to ${showAt(view.to, fine)}, ${wide} of ${showTime(view.end)}.`;
  const interval = view.select
    ? ` Interval: ${one} to ${other}, ${showTime(view.select[1] - view.select[0])}.`
    : "";
  byId("view-read").textContent = part + interval;
  // Such a button keeps the focus, which a disabled one would lose.
  const leads = (id, does) => byId(id).setAttribute("aria-disabled", !does);
  for (const id of ["whole", "zoom-out"]) leads(id, !isWhole());
  leads("zoom-in", widthOfView() > Math.min(NARROWEST, view.end));
  leads("earlier", view.from > 0);
  leads("later", view.to < view.end);
  for (const id of ["to-interval", "no-interval"]) byId(id).hidden = !view.select;
}

function startView(end, details) {
  view.end = end;
  readAddress();
  const first = Math.min(...details.map((detail) => detail.from)),
    last = Math.max(...details.map((detail) => detail.to));
  byId("to-detail").hidden = details.length === 0;
  const does = {
    "zoom-in": () => zoom(0.5),
    "zoom-out": () => zoom(2),
    earlier: () => pan(-widthOfView() / 2),
    later: () => pan(widthOfView() / 2),
    whole: () => showPart(0, view.end),
    "to-detail": () => showPart(first, last),
    "to-interval": () => showPart(...view.select),
    "no-interval": () => select(0, 0),
  };
  for (const [id, act] of Object.entries(does)) byId(id).addEventListener("click", act);
  addEventListener("hashchange", () => {
    readAddress();
    viewChanged();
    selectionChanged();
  });
}
