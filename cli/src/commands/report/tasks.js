// SPDX-License-Identifier: GPL-2.0-only
// Below the CPUs: a row for each group, which opens to a row for each of its tasks.
"use strict";

const TASK_ROW = 18,
  GROUP_HEIGHT = 34,
  TASKS_AT_ONCE = 50;

class TasksView {
  constructor({ run, at, detail }) {
    Object.assign(this, { run, at, detail });
    this.groups = detail.byGroup.map((of) => this.group(of));
    this.read = make("p", { class: "read", "aria-live": "polite" });
    this.note = make("p", { class: "note" });
    this.element = make(
      "div",
      { class: "tasks" },
      this.note,
      ...this.groups.map((group) => group.element),
      this.read,
    );
  }

  group(of) {
    const group = {
      ...of,
      shown: TASKS_AT_ONCE,
      strip: new Strip(this, "group"),
      lanes: new Strip(this, "lanes"),
    };
    const title = of.name || "(no group)";
    group.button = make("button", { type: "button", class: "fold" });
    group.button.addEventListener("click", () => {
      if (!view.open.delete(of.name)) view.open.add(of.name);
      viewChanged();
      views.forEach((one) => one.interval?.show());
    });
    group.button.append(
      make("span", { class: "fold-mark", "aria-hidden": "true" }),
      make("i", { style: `background:var(--${colorOfGroup(of.name)})` }),
      title,
    );
    group.said = make("span", { class: "soft" });
    group.more = make("button", { type: "button" });
    group.more.addEventListener("click", () => {
      group.shown += TASKS_AT_ONCE;
      this.draw();
    });
    group.lanes.canvas.setAttribute(
      "aria-label",
      `Tasks of ${title}, ${runName(this.at)}. Arrow keys move a cursor.`,
    );
    group.opened = make("div", {}, group.lanes.element, group.more);
    group.element = make(
      "div",
      { class: "of-group", "data-group": of.name },
      make("div", { class: "head" }, group.button, group.said),
      group.strip.element,
      group.opened,
    );
    return group;
  }

  strips() {
    return this.groups.flatMap((group) =>
      view.open.has(group.name) ? [group.strip, group.lanes] : [group.strip],
    );
  }

  of(strip) {
    return this.groups.find((group) => group.strip === strip || group.lanes === strip);
  }

  rows(strip) {
    const group = this.of(strip);
    return strip === group.lanes ? Math.min(group.shown, group.members.length) : 1;
  }

  rowAt(strip, y) {
    return strip === this.of(strip).lanes ? Math.floor(y / TASK_ROW) : 0;
  }

  draw() {
    const part = this.detail.within(view.from, view.to);
    this.note.hidden = part !== null;
    const kept = `from ${showTime(this.detail.from)} to ${showTime(this.detail.to)}`;
    this.note.textContent = `No detail was kept of the shown part. The detail extends ${kept}.`;
    const sums = part && this.detail.numbers(...part).groups;
    for (const group of this.groups) {
      group.element.hidden = part === null;
      const isOpen = view.open.has(group.name);
      group.button.setAttribute("aria-expanded", isOpen);
      group.opened.hidden = !isOpen;
      if (!part) continue;
      const { run, wait, longest } = sums[group.group];
      const tasks = `${grouped(group.members.length)} task${group.members.length === 1 ? "" : "s"}`;
      const times = `ran ${showTime(run)}, waited ${showTime(wait)}, longest wait ${showTime(longest)}`;
      group.said.textContent = `${tasks}; in what is shown: ${times}`;
      group.strip.canvas.setAttribute(
        "aria-label",
        `${group.name}, ${runName(this.at)}: ${group.said.textContent}. Arrow keys move a cursor.`,
      );
      this.drawGroup(group, part);
      if (isOpen) this.drawTasks(group, part);
    }
    this.say();
  }

  // Draws the number of running tasks upwards and of waiting tasks downwards.
  drawGroup({ strip, name, running, waiting }, part) {
    const pen = strip.pen(GROUP_HEIGHT);
    if (!pen) return;
    const middle = GROUP_HEIGHT / 2,
      room = middle - 2,
      pixels = Math.ceil(((part[1] - part[0]) / widthOfView()) * strip.inner);
    const draw = (counts, fill, up) =>
      strip.clip(pen, 0, GROUP_HEIGHT, () => {
        pen.fillStyle = color(fill);
        eachStepOrPixel(counts, ...part, pixels, (from, to, count) => {
          const high = (count / counts.most) * room;
          strip.fill(pen, from, to, up ? middle - high : middle + 1, high);
        });
      });
    draw(running, colorOfGroup(name), true);
    draw(waiting, "waiting", false);
    pen.fillStyle = color("line");
    strip.fill(pen, ...part, middle, 1);
    pen.fillStyle = color("soft");
    pen.textAlign = "right";
    pen.fillText(`${running.most} run`, gutter() - 4, middle - 8);
    pen.fillText(`${waiting.most} wait`, gutter() - 4, middle + 9);
    strip.placeMarks();
  }

  drawTasks(group, part) {
    const { lanes: strip, members } = group,
      shown = members.slice(0, group.shown);
    const left = members.length - shown.length;
    group.more.hidden = left === 0;
    group.more.textContent = `${Math.min(left, TASKS_AT_ONCE)} more of ${left}`;
    const bottom = shown.length * TASK_ROW,
      pen = strip.pen(bottom + AXIS);
    if (!pen) return;
    const fills = {
      run: color(colorOfGroup(group.name)),
      wait: color("waiting"),
      ink: color("ink"),
      soft: color("soft"),
      line: color("line"),
    };
    shown.forEach((task, row) => {
      const top = row * TASK_ROW;
      pen.fillStyle = fills.soft;
      pen.textAlign = "right";
      pen.fillText(shorten(pen, task.name, gutter() - 8), gutter() - 6, top + TASK_ROW / 2);
      pen.textAlign = "left";
      strip.clip(pen, top, TASK_ROW, () => this.drawTask(pen, strip, task, part, top, fills));
    });
    drawAxis(pen, strip, bottom);
    strip.placeMarks();
  }

  // Draws a block with the CPU's number where the task runs, a block of half the height where it
  // waits, and a line where it sleeps.
  drawTask(pen, strip, task, [from, to], top, fills) {
    const exit = task.runs.at(-1)?.left === "exited" ? task.runs.at(-1).to : to;
    const fill = (one, other, y, high) => strip.fill(pen, one, other, top + y, high);
    pen.fillStyle = fills.line;
    if (from < exit) fill(from, Math.min(to, exit), TASK_ROW / 2, 1);
    const drawParts = (list, style, y, high, text) => {
      for (const one of inPart(list, from, to)) {
        const [begin, end] = [Math.max(one.from, from), Math.min(one.to, to)];
        pen.fillStyle = style;
        fill(begin, end, y, high);
        const room = strip.x(end) - strip.x(begin) - 5;
        if (!text || room < 6) continue;
        const names = [`CPU ${one.cpu}`, `${one.cpu}`];
        const label = names.find((name) => pen.measureText(name).width < room);
        pen.fillStyle = fills.ink;
        if (label) pen.fillText(label, strip.x(begin) + 3, top + TASK_ROW / 2);
      }
    };
    drawParts(task.waits, fills.wait, 5, TASK_ROW - 10, false);
    drawParts(task.runs, fills.run, 1, TASK_ROW - 2, true);
  }

  say() {
    const strip = this.strips().find((one) => one.cursor);
    if (!strip) {
      this.read.textContent = "Point at a group or a task, or use the arrow keys, to read it.";
      return;
    }
    const group = this.of(strip),
      { ns, row } = strip.cursor,
      fine = widthOfView() / 1000;
    const at = `, ${showAt(ns, fine)}: `;
    if (!this.detail.within(ns, ns + 1)) {
      this.read.textContent = `No detail was kept of ${showAt(ns, fine)}.`;
    } else if (strip === group.strip) {
      const [running, waiting] = [group.running, group.waiting].map((counts) =>
        countAt(counts, ns),
      );
      this.read.replaceChildren(
        make("b", { text: group.name }),
        `${at}${running} running, ${waiting} waiting, of ${grouped(group.members.length)}.`,
      );
    } else {
      const task = group.members[row];
      this.read.replaceChildren(make("b", { text: task.name }), at + this.sayTask(task, ns, fine));
    }
  }

  sayTask(task, ns, fine) {
    const { detail } = this;
    const when = (one) => showRange(one, fine);
    const [run] = inPart(task.runs, ns, ns + 1),
      [wait] = inPart(task.waits, ns, ns + 1);
    if (run)
      return `running on CPU ${run.cpu} ${when(run)}${run.left ? `; ${ENDS[run.left]}` : ""}.`;
    if (wait) {
      const then = wait.ranOn === null ? "" : `; then it ran on CPU ${wait.ranOn}`;
      return `waiting ${when(wait)}: ${sayWait(detail, wait)}${then}.`;
    }
    if (task.runs.at(-1)?.left === "exited" && ns >= task.runs.at(-1).to) return "it has exited.";
    const next = task.waits.find((one) => one.from > ns);
    return `sleeping${next ? ` until ${showAt(next.from, fine)}` : ""}.`;
  }
}
