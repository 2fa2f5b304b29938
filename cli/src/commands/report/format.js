// SPDX-License-Identifier: GPL-2.0-only
// Elements and numbers of the page.
"use strict";

let RUNS = [];

// An element with its attributes (`text` sets its text, `on…` its handlers) and children. Texts are
// never parsed as HTML.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") element.style.cssText = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const byId = (id) => document.getElementById(id);
const runColor = (at) => `var(--run${at % 6})`;
const DASHES = ["", "8 4", "2 4", "10 3 2 3", "4 4", "1 3"];

// A short name of a run. Runs of one policy differ in their number.
function runName(at) {
  const policy = RUNS[at].policy;
  return RUNS.filter((run) => run.policy === policy).length > 1 ? `${at + 1}: ${policy}` : policy;
}

// Three digits, enough for a comparison. The exact number is in the title.
function digits(value) {
  const size = Math.abs(value);
  return value.toFixed(size >= 99.95 || value === 0 ? 0 : size >= 9.995 ? 1 : 2);
}

const UNITS = [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]];

function showTime(ns) {
  let [scale, unit] = UNITS[0];
  // 999.6 µs would be shown as 1000 µs.
  for (const [s, u] of UNITS) if (Math.abs(ns) >= s * 0.9995) [scale, unit] = [s, u];
  const value = ns / scale;
  return scale === 1 || value >= 999.5 ? `${grouped(Math.round(value))} ${unit}` : `${digits(value)} ${unit}`;
}

const grouped = (n) => String(n).replace(/\B(?=(\d{3})+(?!\d))/g, " ");

const SHOW = {
  ns: (value) => [showTime(value), `${grouped(value)} ns`],
  count: (value) => [grouped(value), null],
  rate: (value) => [`${grouped(value < 100 ? digits(value) : Math.round(value))} /s`, `${value} per second`],
  share: (value) => [`${(value * 100).toFixed(2)} %`, String(value)],
  index: (value) => [value.toFixed(4), String(value)],
};

// About so many numbers 1, 2, 5 times powers of ten between two numbers.
function ticks(low, high, about) {
  const rough = (high - low) / Math.max(1, about);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const found = [];
  for (let at = Math.ceil(low / step); at * step <= high * (1 + 1e-9); at += 1) found.push(at * step);
  return found;
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// A time on a scale, without the digits that all of its ticks share.
const showTick = (ns) => (ns === 0 ? "0" : showTime(ns).replace(/(\.\d*?)0+ /, "$1 ").replace(/\. /, " "));
