// SPDX-License-Identifier: GPL-2.0-only
// A canvas whose width is the shown part of time, to the right of a gutter with names. Handles
// pointer, fingers and keys, and draws the cursor and the selected interval over it.
"use strict";

const gutter = () => (document.body.clientWidth < 600 ? 74 : 110);
const FONT = "12px system-ui, 'DejaVu Sans', sans-serif";

class Strip {
  // The owner has `rows`, the number of rows; `rowAt`, the row at a height; `draw`, which draws
  // all; and `say`, which writes into `read` what is at the cursor, if there is a cursor.
  constructor(owner, kind) {
    Object.assign(this, { owner, cursor: null });
    this.canvas = make("canvas", { tabindex: 0, role: "img", class: kind });
    this.shade = make("div", { class: "shade", hidden: "" });
    this.line = make("div", { class: "line", hidden: "" });
    this.element = make("div", { class: "strip" }, this.canvas, this.shade, this.line);
    this.listenToPointer();
    this.listenToKeys();
  }

  get inner() {
    return this.canvas.clientWidth - gutter();
  }

  x(ns) {
    return gutter() + ((ns - view.from) / widthOfView()) * this.inner;
  }

  // Fills a part of time. Wide parts have edges at pixels, so that there is no seam between
  // neighbours. Parts narrower than a pixel are fainter in proportion.
  fill(pen, from, to, top, height) {
    const ratio = window.devicePixelRatio || 1,
      snap = (x) => Math.round(x * ratio) / ratio;
    let [left, right] = [this.x(from), this.x(to)];
    if (right - left > 1.5) [left, right] = [snap(left), snap(right)];
    pen.fillRect(left, top, right - left, height);
  }

  // The time at a position of the window, limited to the shown part.
  timeAt(clientX) {
    const part =
      (clientX - this.canvas.getBoundingClientRect().left - gutter()) / Math.max(1, this.inner);
    return view.from + Math.min(1, Math.max(0, part)) * widthOfView();
  }

  // A pen for a canvas of this height; null if there is no room.
  pen(height) {
    const { canvas } = this;
    canvas.style.height = `${height}px`;
    const ratio = window.devicePixelRatio || 1,
      width = canvas.clientWidth;
    if (width - gutter() < 20) return null;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = FONT;
    pen.textBaseline = "middle";
    return pen;
  }

  // Draws clipped to the shown part of time.
  clip(pen, top, height, draw) {
    pen.save();
    pen.beginPath();
    pen.rect(gutter(), top, this.inner, height);
    pen.clip();
    draw();
    pen.restore();
  }

  point(ns, row) {
    const rows = this.owner.rows(this);
    this.cursor = {
      ns: Math.round(Math.min(view.to, Math.max(view.from, ns))),
      row: Math.min(rows - 1, Math.max(0, row)),
    };
    this.placeMarks();
    this.owner.say(this);
  }

  leave() {
    this.cursor = null;
    this.placeMarks();
    this.owner.say(this);
  }

  placeMarks() {
    const place = (element, from, to) => {
      element.hidden = to < view.from || from > view.to;
      if (element.hidden) return;
      const left = Math.max(gutter(), this.x(from)),
        right = Math.min(gutter() + this.inner, this.x(to));
      element.style.left = `${left}px`;
      element.style.width = `${Math.max(1, right - left)}px`;
    };
    if (view.select) place(this.shade, ...view.select);
    else this.shade.hidden = true;
    if (this.cursor) place(this.line, this.cursor.ns, this.cursor.ns);
    else this.line.hidden = true;
  }

  listenToPointer() {
    const { canvas } = this;
    // The time under each finger, by pointer. With two fingers, both times stay under them.
    const fingers = new Map();
    let begin = null;
    const move = (event) => {
      if (!fingers.has(event.pointerId)) return;
      const finger = fingers.get(event.pointerId);
      finger.x = event.clientX;
      if (fingers.size === 2) return this.pinch(...fingers.values());
      if (begin && Math.abs(event.clientX - begin.x) > 4) {
        view.select = [begin.ns, this.timeAt(event.clientX)].sort((a, b) => a - b);
        selectionMoves();
      }
    };
    const up = (event) => {
      fingers.delete(event.pointerId);
      if (begin && event.type === "pointerup" && Math.abs(event.clientX - begin.x) > 4)
        select(begin.ns, this.timeAt(event.clientX));
      begin = null;
      if (fingers.size > 0) return;
      for (const [name, act] of [
        ["pointermove", move],
        ["pointerup", up],
        ["pointercancel", up],
      ])
        removeEventListener(name, act);
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || fingers.size > 1) return;
      const ns = this.timeAt(event.clientX);
      begin = fingers.size === 0 ? { x: event.clientX, ns } : null;
      fingers.set(event.pointerId, { x: event.clientX, ns });
      for (const [name, act] of [
        ["pointermove", move],
        ["pointerup", up],
        ["pointercancel", up],
      ])
        addEventListener(name, act);
    });
    canvas.addEventListener("pointermove", (event) => {
      const y = event.clientY - canvas.getBoundingClientRect().top;
      this.point(this.timeAt(event.clientX), this.owner.rowAt(this, y));
    });
    canvas.addEventListener("pointerleave", () => this.leave());
    canvas.addEventListener(
      "wheel",
      (event) => {
        const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
        // Without Ctrl a wheel scrolls the page, unless the timeline has the focus.
        if (!sideways && !event.ctrlKey && !event.metaKey && document.activeElement !== canvas)
          return;
        event.preventDefault();
        const lines = event.deltaMode === 1 ? 30 : 1;
        if (sideways) pan(((event.deltaX * lines) / this.inner) * widthOfView());
        else
          zoom(
            Math.exp(Math.min(1, Math.max(-1, event.deltaY * lines * 0.004))),
            this.timeAt(event.clientX),
          );
      },
      { passive: false },
    );
  }

  pinch(one, other) {
    const left = this.canvas.getBoundingClientRect().left + gutter();
    const [a, b] = [one, other].map(({ x }) => (x - left) / this.inner);
    if (Math.abs(a - b) < 0.02 || one.ns === other.ns) return;
    const width = Math.abs((other.ns - one.ns) / (b - a));
    showPart(one.ns - a * width, one.ns + (1 - a) * width);
  }

  listenToKeys() {
    const { canvas } = this;
    canvas.addEventListener("blur", () => this.leave());
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const { ns, row } = this.cursor ?? { ns: view.from, row: 0 };
      const acts = {
        ArrowLeft: () => this.step(-0.01, event.shiftKey),
        ArrowRight: () => this.step(0.01, event.shiftKey),
        ArrowUp: () => this.point(ns, row - 1),
        ArrowDown: () => this.point(ns, row + 1),
        Home: () => this.point(view.from, row),
        End: () => this.point(view.to, row),
        PageUp: () => pan(-widthOfView() / 2),
        PageDown: () => pan(widthOfView() / 2),
        "+": () => zoom(0.5, this.cursor?.ns),
        "=": () => zoom(0.5, this.cursor?.ns),
        "-": () => zoom(2, this.cursor?.ns),
        0: () => showPart(0, view.end),
        Escape: () => select(0, 0),
      };
      if (!Object.hasOwn(acts, event.key)) return;
      event.preventDefault();
      acts[event.key]();
    });
  }

  // Moves the cursor by a fraction of the shown part, which follows it; with Shift, moves an end of
  // the interval.
  step(part, selects) {
    const { ns, row } = this.cursor ?? { ns: view.from, row: 0 };
    const way = part * widthOfView();
    const then = Math.min(view.end, Math.max(0, ns + (Math.abs(way) < 1 ? Math.sign(way) : way)));
    if (selects) {
      const [from, to] = view.select ?? [ns, ns];
      // The end at the cursor moves.
      select(Math.abs(ns - from) < Math.abs(ns - to) ? to : from, then);
    }
    if (then < view.from || then > view.to)
      pan(then < view.from ? then - view.from : then - view.to);
    this.point(then, row);
  }
}

// Draws the ticks of the time axis, with lines down to a height of the axis.
function drawAxis(pen, strip, top) {
  const found = ticks(view.from, view.to, strip.inner / 120),
    step = found[1] - found[0] || widthOfView();
  pen.fillStyle = color("soft");
  pen.textBaseline = "top";
  for (const ns of found) {
    const x = strip.x(ns),
      right = gutter() + strip.inner;
    pen.fillRect(x, top, 1, 4);
    pen.textAlign = x < gutter() + 30 ? "left" : x > right - 40 ? "right" : "center";
    pen.fillText(ns === 0 ? "0" : showAt(ns, step), x, top + 7);
  }
  pen.textBaseline = "middle";
}

// A name, shortened in the middle if there is little room, as the end often has the number that
// distinguishes it. Empty if there is hardly any room.
function shorten(pen, name, room) {
  let shown = name;
  for (let left = name.length - 2; pen.measureText(shown).width > room; left -= 1) {
    if (left < 2) return "";
    shown = `${name.slice(0, left >> 1)}…${name.slice(-(left - (left >> 1)))}`;
  }
  return shown;
}
