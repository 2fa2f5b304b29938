// SPDX-License-Identifier: GPL-2.0-only
// The activity of each CPU over time: as a picture of cells, whose format is documented in
// hosts/sim/src/timeline.rs, or, zoomed in a run with a detail, as the tasks that it ran.
"use strict";

const STATES = [
  ["waste", "idle while work waits"],
  ["busy", "busy"],
  ["higher", "higher class"],
  ["offline", "offline"],
  ["idle", "idle"],
];
const STRIP = 34,
  AXIS = 22;
// Number of CPUs that the zoomed timeline shows at once.
const BLOCK = 64,
  ROW = 18;

// The parts of each cell, row by row: five numbers for each cell, with the sum 15.
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

// CPUs of a NUMA node, if the machine's name contains the number.
function cpusPerNode(topology) {
  const found = /^(\d+)x(\d+)x(\d+)/.exec(topology);
  return found && Number(found[1]) > 1 ? Number(found[2]) * Number(found[3]) : 0;
}

class TimelineView {
  constructor(run, at) {
    Object.assign(this, { run, at, timeline: run.timeline });
    const share =
      run.cpu.idle_while_waiting_ns /
      Math.max(1, run.cpu.idle_ns + run.cpu.busy_ns + run.cpu.higher_ns);
    const red = showTime(run.cpu.idle_while_waiting_ns);
    const said = `idle while work waits: ${red}, ${(share * 100).toFixed(2)} % of CPU time`;
    const title = make(
      "h3",
      {},
      make("span", { class: "dot", style: `--color:${runColor(at)}` }),
      runName(at),
    );
    const head = make("div", { class: "head" }, title, make("span", { text: said }));
    this.element = make("div", { class: "timeline", "data-run": at }, head);
    if (!this.timeline || this.timeline.columns === 0) {
      this.element.append(make("p", { class: "note", text: "This run has no timeline." }));
      this.timeline = null;
      return;
    }
    this.strip = new Strip(this, "cpus");
    this.strip.canvas.setAttribute(
      "aria-label",
      `CPUs over time, ${runName(at)}: ${said}. Arrow keys move a cursor.`,
    );
    this.read = make("p", { class: "read", "aria-live": "polite" });
    this.element.append(this.strip.element, this.read);
    this.parts = decodeCells(this.timeline);
    this.detail = run.detail ? new Detail(run.detail) : null;
    if (!this.detail) return;
    head.append(
      make("span", {
        text: `in detail: ${showTime(this.detail.from)} to ${showTime(this.detail.to)}`,
      }),
      this.blocks(),
    );
    this.tasks = new TasksView(this);
    this.interval = new IntervalView(this);
    this.element.append(this.tasks.element, this.interval.element);
  }

  // The choice of CPUs in the zoomed timeline, if there are too many for one picture.
  blocks() {
    const cpus = this.detail.cpus.length,
      choice = make("select");
    for (let first = 0; first < cpus; first += BLOCK) {
      choice.append(
        make("option", { value: first, text: `${first} to ${Math.min(cpus, first + BLOCK) - 1}` }),
      );
    }
    choice.addEventListener("change", () => {
      view.cpu = Number(choice.value);
      viewChanged();
    });
    this.choice = choice;
    this.choiceLabel = make("label", { hidden: "" }, "CPUs ", choice);
    return this.choiceLabel;
  }

  // The part of time in which tasks are drawn: there are events, and each run has a few pixels.
  near() {
    const part = this.detail?.within(view.from, view.to);
    if (!part) return null;
    const pixels =
      ((part[1] - part[0]) / widthOfView()) * this.strip.inner * this.detail.cpus.length;
    return pixels >= 3 * this.detail.count(...part) ? part : null;
  }

  // Lays out the rows: those of the timeline, or single CPUs when zoomed.
  layRows() {
    const { rows } = this.timeline;
    this.part = this.near();
    if (this.part) {
      const cpus = this.detail.cpus.length;
      const first = Math.min(Math.floor(view.cpu / BLOCK), Math.ceil(cpus / BLOCK) - 1) * BLOCK;
      const each = rows[0].cpus;
      this.shown = Array.from({ length: Math.min(BLOCK, cpus - first) }, (_, at) => ({
        first: first + at,
        cpus: 1,
        row: Math.floor((first + at) / each),
      }));
      // A small number of rows leaves room for arrows below the names.
      this.rowHeight = this.shown.length <= 16 ? 26 : ROW;
      this.choice.value = first;
    } else {
      this.shown = rows.map((row, at) => ({ ...row, row: at }));
      this.rowHeight = Math.floor(Math.min(ROW, Math.max(2, 512 / rows.length)));
    }
    if (this.choice) this.choiceLabel.hidden = !this.part || this.detail.cpus.length <= BLOCK;
  }

  rows() {
    return this.shown.length;
  }

  rowAt(_, y) {
    return Math.floor((y - STRIP) / this.rowHeight);
  }

  // Each pixel is the mean of the cells under it. Red is drawn by its square root, so that a small
  // part stays visible.
  image(width) {
    const { columns, column_ns } = this.timeline;
    const [waste, ...others] = STATES.map(([name]) => rgb(name));
    const image = new ImageData(width, this.shown.length);
    const perPixel = widthOfView() / column_ns / width,
      begin = view.from / column_ns;
    this.shown.forEach(({ row }, y) => {
      let before = [-1, -1];
      for (let x = 0; x < width; x += 1) {
        const first = Math.floor(begin + x * perPixel),
          last = Math.max(first + 1, Math.floor(begin + (x + 1) * perPixel));
        if (first >= columns) break;
        const pixel = (y * width + x) * 4;
        if (before[0] === first && before[1] === last) {
          image.data.copyWithin(pixel, pixel - 4, pixel);
          continue;
        }
        before = [first, last];
        const sum = [0, 0, 0, 0, 0];
        let cells = 0;
        for (let column = first; column < Math.min(last, columns); column += 1, cells += 1) {
          const at = (row * columns + column) * 5;
          for (let kind = 0; kind < 5; kind += 1) sum[kind] += this.parts[at + kind];
        }
        const rest = cells * 15 - sum[0],
          red = Math.sqrt(sum[0] / (cells * 15));
        for (let channel = 0; channel < 3; channel += 1) {
          const mixed =
            rest === 0
              ? 0
              : others.reduce((all, one, kind) => all + one[channel] * sum[kind + 1], 0) / rest;
          image.data[pixel + channel] = waste[channel] * red + mixed * (1 - red);
        }
        image.data[pixel + 3] = 255;
      }
    });
    return image;
  }

  draw() {
    if (!this.timeline) return;
    const { strip } = this;
    this.layRows();
    const { shown, rowHeight } = this,
      bottom = STRIP + shown.length * rowHeight;
    const pen = strip.pen(bottom + AXIS);
    if (!pen) return;
    const left = gutter(),
      { inner } = strip,
      ratio = window.devicePixelRatio || 1;
    const wanted = Math.round(inner * ratio),
      key = [wanted, color("back"), view.from, view.to, shown.length, shown[0].first].join();
    if (this.drawn !== key) {
      this.drawn = key;
      this.picture = make("canvas", { width: wanted, height: shown.length });
      this.picture.getContext("2d").putImageData(this.image(wanted), 0, 0);
    }
    pen.imageSmoothingEnabled = false;
    pen.drawImage(this.picture, left, STRIP, inner, bottom - STRIP);
    if (this.part) strip.clip(pen, STRIP, bottom - STRIP, () => drawSpans(pen, this));
    // Lines separate rows where there is room, and nodes always.
    pen.fillStyle = color("card");
    if (rowHeight >= 6)
      shown.forEach((_, row) => pen.fillRect(left, STRIP + (row + 1) * rowHeight - 1, inner, 1));
    if (this.part) strip.clip(pen, STRIP, bottom - STRIP, () => drawWakeups(pen, this));
    const node = cpusPerNode(this.run.topology);
    pen.fillStyle = color("ink");
    pen.globalAlpha = rowHeight >= 6 ? 1 : 0.5;
    if (node)
      shown.forEach((row, at) => {
        if (row.first > 0 && row.first % node < row.cpus)
          pen.fillRect(left - 6, STRIP + at * rowHeight - 1, inner + 6, 1);
      });
    pen.globalAlpha = 1;
    this.drawLabels(pen);
    this.drawWaiting(pen);
    drawAxis(pen, strip, bottom);
    strip.placeMarks();
    this.say();
    this.tasks?.draw();
  }

  drawLabels(pen) {
    pen.fillStyle = color("soft");
    pen.textAlign = "right";
    const each = [1, 2, 4, 8, 16, 32, 64].find((n) => n * this.rowHeight >= 14) || 64;
    this.shown.forEach((row, at) => {
      if (at % each === 0)
        pen.fillText(
          `CPU ${row.first}`,
          gutter() - 8,
          STRIP + at * this.rowHeight + Math.max(this.rowHeight / 2, 5),
        );
    });
  }

  // The maximum number of waiting tasks, above the rows; when zoomed, their number.
  drawWaiting(pen) {
    const { waiting, column_ns } = this.timeline,
      { strip, part } = this;
    const most = waiting.reduce((a, b) => Math.max(a, b), 1),
      room = STRIP - 8;
    const bar = (from, to, value) => {
      const high = (value / most) * room;
      if (high > 0) strip.fill(pen, from, to, STRIP - 4 - high, high);
    };
    pen.fillStyle = color("accent");
    const first = Math.floor(view.from / column_ns),
      last = Math.min(waiting.length, Math.ceil(view.to / column_ns));
    const perPixel = Math.max(1, Math.floor(widthOfView() / column_ns / strip.inner));
    strip.clip(pen, 0, STRIP, () => {
      for (let column = first; column < last; column += perPixel) {
        const from = column * column_ns,
          to = from + perPixel * column_ns;
        if (part && from < part[1] && to > part[0]) continue;
        bar(
          from,
          to,
          waiting.slice(column, column + perPixel).reduce((a, b) => Math.max(a, b), 0),
        );
      }
      if (part) eachStep(this.detail.waiting, ...part, bar);
    });
    pen.fillStyle = color("soft");
    pen.textAlign = "right";
    pen.textBaseline = "alphabetic";
    pen.fillText("waiting", gutter() - 8, STRIP - 6);
    pen.fillText(`${grouped(most)} –`, gutter() - 1, 12);
    pen.textBaseline = "middle";
  }

  say() {
    const { cursor } = this.strip;
    if (!cursor) {
      this.read.textContent = "Point at a CPU, or use the arrow keys, to read it.";
      return;
    }
    const { first, row, cpus } = this.shown[Math.min(cursor.row, this.shown.length - 1)];
    if (this.part && cursor.ns >= this.part[0] && cursor.ns <= this.part[1]) {
      this.read.replaceChildren(...sayCpu(this.detail, first, cursor.ns));
      return;
    }
    const { column_ns, columns, waiting } = this.timeline;
    const column = Math.min(columns - 1, Math.floor(cursor.ns / column_ns));
    const from = column * column_ns,
      to = Math.min(from + column_ns, Math.max(this.run.duration_ns, from + 1));
    const cell = this.parts.subarray(
      (row * columns + column) * 5,
      (row * columns + column) * 5 + 5,
    );
    const shares = STATES.map(([, title], kind) => [title, cell[kind]]).filter(
      ([, part]) => part > 0,
    );
    const said = shares
      .map(([title, part]) => `${title} ${Math.round((part / 15) * 100)} %`)
      .join(", ");
    const who = cpus > 1 ? `CPUs ${first} to ${first + cpus - 1}` : `CPU ${first}`;
    const waited = `${waiting[column]} task${waiting[column] === 1 ? "" : "s"} waited at most`;
    this.read.replaceChildren(
      make("b", { text: who }),
      `, ${showAt(from, column_ns)} to ${showAt(to, column_ns)}: ${said}; ${waited}.`,
    );
  }
}
