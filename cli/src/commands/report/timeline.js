// SPDX-License-Identifier: GPL-2.0-only
// What each CPU did when, and the beginning of the page. The format of the cells is told in hosts/sim/src/timeline.rs.
"use strict";

const STATES = [
  ["waste", "idle while work waits"], ["busy", "busy"], ["higher", "higher class"], ["offline", "offline"], ["idle", "idle"],
];
const GUTTER = 74, STRIP = 34, AXIS = 22;

// The parts of each cell, one row after another: five numbers a cell, whose sum is 15.
function decodeCells(timeline) {
  const parts = new Uint8Array(timeline.rows.length * timeline.columns * 5);
  timeline.rows.forEach((row, at) => {
    let cell = at * timeline.columns * 5;
    for (const run of row.cells === "" ? [] : row.cells.split(",")) {
      const [digits4, count = "1"] = run.split("*");
      const four = [...digits4].map((digit) => parseInt(digit, 16));
      const five = [...four, 15 - four.reduce((sum, part) => sum + part, 0)];
      for (let n = Number(count); n > 0; n -= 1, cell += 5) parts.set(five, cell);
    }
  });
  return parts;
}

function rgb(name) {
  const context = make("canvas").getContext("2d");
  context.fillStyle = color(name);
  const hex = context.fillStyle;
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

// CPUs of a NUMA node, where the machine's name tells.
function cpusPerNode(topology) {
  const found = /^(\d+)x(\d+)x(\d+)/.exec(topology);
  return found && Number(found[1]) > 1 ? Number(found[2]) * Number(found[3]) : 0;
}

class TimelineView {
  constructor(run, at, end) {
    Object.assign(this, { run, at, end, timeline: run.timeline, cursor: null });
    this.canvas = make("canvas", { tabindex: 0, role: "img" });
    this.read = make("p", { class: "read", "aria-live": "polite" });
    const share = run.cpu.idle_while_waiting_ns / Math.max(1, run.cpu.idle_ns + run.cpu.busy_ns + run.cpu.higher_ns);
    const said = `idle while work waits: ${showTime(run.cpu.idle_while_waiting_ns)}, ${(share * 100).toFixed(2)} % of CPU time`;
    const title = make("h3", {}, make("span", { class: "dot", style: `--color:${runColor(at)}` }), runName(at));
    this.element = make("div", { class: "timeline" }, make("div", { class: "head" }, title, make("span", { text: said })));
    if (!this.timeline || this.timeline.columns === 0) {
      this.element.append(make("p", { class: "note", text: "This run has no timeline." }));
      this.timeline = null;
      return;
    }
    this.canvas.setAttribute("aria-label", `CPUs over time, ${runName(at)}: ${said}. Arrow keys move a cursor.`);
    this.element.append(this.canvas, this.read);
    this.parts = decodeCells(this.timeline);
    const rows = this.timeline.rows.length;
    this.rowHeight = Math.floor(Math.min(18, Math.max(2, 512 / rows)));
    this.height = STRIP + rows * this.rowHeight + AXIS;
    this.canvas.style.height = `${this.height}px`;
    this.listen();
  }

  listen() {
    const { canvas, timeline } = this;
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect();
      const column = Math.floor(((event.clientX - box.left - GUTTER) / (box.width - GUTTER)) * (this.end / timeline.column_ns));
      this.point(column, Math.floor((event.clientY - box.top - STRIP) / this.rowHeight));
    });
    const leave = () => { this.cursor = null; this.draw(); };
    canvas.addEventListener("pointerleave", leave);
    canvas.addEventListener("blur", leave);
    canvas.addEventListener("keydown", (event) => {
      const far = Math.max(1, Math.round(timeline.columns / 100));
      const step = { ArrowLeft: [-far, 0], ArrowRight: [far, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], Home: [-timeline.columns, 0], End: [timeline.columns, 0] }[event.key];
      if (!step) return;
      event.preventDefault();
      const [column, row] = this.cursor || [0, 0];
      this.point(column + step[0], row + step[1]);
    });
  }

  point(column, row) {
    const { columns, rows } = this.timeline;
    this.cursor = [Math.min(columns - 1, Math.max(0, column)), Math.min(rows.length - 1, Math.max(0, row))];
    this.draw();
  }

  // Each pixel is the mean of the cells under it; red is drawn by its root, so that a little of it is seen.
  image(width) {
    const { columns, rows, column_ns } = this.timeline;
    const [waste, ...others] = STATES.map(([name]) => rgb(name));
    const image = new ImageData(width, rows.length);
    const perPixel = this.end / column_ns / width;
    for (let row = 0; row < rows.length; row += 1) {
      for (let x = 0; x < width; x += 1) {
        const first = Math.floor(x * perPixel), last = Math.max(first + 1, Math.floor((x + 1) * perPixel));
        if (first >= columns) break;
        const sum = [0, 0, 0, 0, 0];
        let cells = 0;
        for (let column = first; column < Math.min(last, columns); column += 1, cells += 1) {
          const at = (row * columns + column) * 5;
          for (let kind = 0; kind < 5; kind += 1) sum[kind] += this.parts[at + kind];
        }
        const rest = cells * 15 - sum[0], red = Math.sqrt(sum[0] / (cells * 15));
        const at = (row * width + x) * 4;
        for (let channel = 0; channel < 3; channel += 1) {
          const mixed = rest === 0 ? 0 : others.reduce((all, one, kind) => all + one[channel] * sum[kind + 1], 0) / rest;
          image.data[at + channel] = waste[channel] * red + mixed * (1 - red);
        }
        image.data[at + 3] = 255;
      }
    }
    return image;
  }

  draw() {
    if (!this.timeline) return;
    const { canvas, timeline, rowHeight, height } = this;
    const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, inner = width - GUTTER;
    if (inner < 20) return;
    const wanted = Math.round(inner * ratio), theme = color("back");
    if (this.drawn !== `${wanted} ${theme}`) {
      this.drawn = `${wanted} ${theme}`;
      this.picture = make("canvas", { width: wanted, height: timeline.rows.length });
      this.picture.getContext("2d").putImageData(this.image(wanted), 0, 0);
    }
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.imageSmoothingEnabled = false;
    const bottom = STRIP + timeline.rows.length * rowHeight;
    pen.drawImage(this.picture, GUTTER, STRIP, inner, bottom - STRIP);
    // Rows are told apart where there is room, and nodes always.
    pen.fillStyle = color("card");
    if (rowHeight >= 6) timeline.rows.forEach((_, row) => pen.fillRect(GUTTER, STRIP + (row + 1) * rowHeight - 1, inner, 1));
    const node = cpusPerNode(this.run.topology);
    pen.fillStyle = color("ink");
    pen.globalAlpha = rowHeight >= 6 ? 1 : 0.5;
    if (node) timeline.rows.forEach((row, at) => {
      if (row.first > 0 && row.first % node < row.cpus) pen.fillRect(GUTTER - 6, STRIP + at * rowHeight - 1, inner + 6, 1);
    });
    pen.globalAlpha = 1;
    this.drawLabels(pen, inner, bottom);
    this.drawWaiting(pen, inner);
    this.drawCursor(pen, inner, bottom);
  }

  drawLabels(pen, inner, bottom) {
    pen.fillStyle = color("soft");
    pen.font = "12px system-ui, 'DejaVu Sans', sans-serif";
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    const { rows } = this.timeline;
    const each = [1, 2, 4, 8, 16, 32, 64].find((n) => n * this.rowHeight >= 14) || 64;
    rows.forEach((row, at) => {
      if (at % each === 0) pen.fillText(`CPU ${row.first}`, GUTTER - 8, STRIP + at * this.rowHeight + Math.max(this.rowHeight / 2, 5));
    });
    pen.textBaseline = "top";
    for (const ns of ticks(0, this.end, inner / 110)) {
      const x = GUTTER + (inner * ns) / this.end;
      pen.fillRect(x, bottom, 1, 4);
      pen.textAlign = ns === 0 ? "left" : x > GUTTER + inner - 30 ? "right" : "center";
      pen.fillText(showTick(ns), x, bottom + 7);
    }
  }

  // How many tasks waited at most, above the rows.
  drawWaiting(pen, inner) {
    const { waiting, column_ns } = this.timeline;
    const most = waiting.reduce((a, b) => Math.max(a, b), 1);
    const perPixel = this.end / column_ns / inner, room = STRIP - 8;
    pen.fillStyle = color("accent");
    for (let x = 0; x < inner; x += 1) {
      const first = Math.floor(x * perPixel), last = Math.max(first + 1, Math.floor((x + 1) * perPixel));
      const value = waiting.slice(first, last).reduce((a, b) => Math.max(a, b), 0);
      const high = (value / most) * room;
      if (high > 0) pen.fillRect(GUTTER + x, STRIP - 4 - high, 1, high);
    }
    pen.fillStyle = color("soft");
    pen.textAlign = "right";
    pen.textBaseline = "alphabetic";
    pen.fillText("waiting", GUTTER - 8, STRIP - 6);
    pen.fillText(`${grouped(most)} –`, GUTTER - 1, 12);
  }

  drawCursor(pen, inner, bottom) {
    if (!this.cursor) {
      this.read.textContent = "Point at a CPU, or use the arrow keys, to read it.";
      return;
    }
    const [column, row] = this.cursor, { column_ns, columns, rows, waiting } = this.timeline;
    const from = column * column_ns, to = Math.min(from + column_ns, Math.max(this.run.duration_ns, from + 1));
    const x = GUTTER + (inner * from) / this.end;
    pen.strokeStyle = color("ink");
    pen.lineWidth = 1;
    pen.strokeRect(Math.round(x) + 0.5, STRIP + 0.5, Math.max(1, (inner * column_ns) / this.end), bottom - STRIP - 1);
    pen.strokeRect(GUTTER + 0.5, STRIP + row * this.rowHeight + 0.5, inner - 1, Math.max(2, this.rowHeight - 1));
    const cell = this.parts.subarray((row * columns + column) * 5, (row * columns + column) * 5 + 5);
    const shares = STATES.map(([, title], kind) => [title, cell[kind]]).filter(([, part]) => part > 0);
    const said = shares.map(([title, part]) => `${title} ${Math.round((part / 15) * 100)} %`).join(", ");
    const { first, cpus } = rows[row];
    const who = cpus > 1 ? `CPUs ${first} to ${first + cpus - 1}` : `CPU ${first}`;
    const waited = `${waiting[column]} task${waiting[column] === 1 ? "" : "s"} waited at most`;
    this.read.replaceChildren(make("b", { text: who }), `, ${showTime(from)} to ${showTime(to)}: ${said}; ${waited}.`);
  }
}

let views = [];

function startTimelines() {
  byId("key").replaceChildren(...STATES.map(([name, title]) => make("li", {}, make("i", { style: `background:var(--${name})` }), title)));
  // One scale for all, so that they can be compared.
  const ends = RUNS.map(({ timeline, duration_ns }) => (timeline ? Math.min(timeline.columns * timeline.column_ns, duration_ns || Infinity) : 1));
  const end = Math.max(1, ...ends);
  views = RUNS.map((run, at) => new TimelineView(run, at, end));
  byId("timelines").replaceChildren(...views.map((view) => view.element));
}

function redraw() {
  drawCurves();
  views.forEach((view) => view.draw());
}

function startTheme() {
  const root = document.documentElement, button = byId("theme");
  const show = (theme) => {
    root.dataset.theme = theme;
    button.textContent = theme === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Change to ${theme === "dark" ? "light" : "dark"} colours`);
  };
  show(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  button.addEventListener("click", () => { show(root.dataset.theme === "dark" ? "light" : "dark"); redraw(); });
}

function start() {
  RUNS = JSON.parse(byId("data").textContent);
  startTheme();
  startNumbers();
  startCurves();
  startTimelines();
  let width = 0;
  new ResizeObserver(() => {
    if (width !== document.body.clientWidth) redraw();
    width = document.body.clientWidth;
  }).observe(document.body);
  redraw();
  document.documentElement.dataset.drawn = "yes";
}
