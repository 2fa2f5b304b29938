// SPDX-License-Identifier: GPL-2.0-only
// The numbers of the selected interval: of each group, of each task of open groups, and of each
// CPU.
"use strict";

const OF_INTERVAL = [
  ["ran", "run", "ns"],
  ["waited", "wait", "ns"],
  ["waits", "waits", "count"],
  ["longest wait", "longest", "ns"],
  ["migrations", "migrations", "count"],
];
const TASKS_IN_TABLE = 100;

class IntervalView {
  constructor({ at, detail }) {
    Object.assign(this, { at, detail });
    this.said = make("p", { class: "read", "aria-live": "polite" });
    this.body = make("div");
    this.element = make("div", { class: "interval", hidden: "" }, this.said, this.body);
  }

  show() {
    this.element.hidden = !view.select;
    if (view.select) this.fill(...view.select);
    else this.said.textContent = "";
  }

  fill(from, to) {
    const part = this.detail.within(from, to),
      fine = (to - from) / 1000;
    const title = make("b", { text: `Interval ${showAt(from, fine)} to ${showAt(to, fine)}` });
    if (!part) {
      this.said.replaceChildren(title, ": no detail was kept of it; see baton sim --detail.");
      this.body.replaceChildren();
      return;
    }
    const numbers = this.detail.numbers(...part),
      width = part[1] - part[0];
    const sum = (key) => showTime(numbers.groups.reduce((all, group) => all + group[key], 0));
    const busy = numbers.cpus.reduce((a, b) => a + b, 0) / width / numbers.cpus.length;
    const isCut = part[0] > from || part[1] < to;
    const kept = `${showAt(part[0], fine)} to ${showAt(part[1], fine)}`;
    this.said.replaceChildren(
      title,
      `: tasks ran ${sum("run")} and waited ${sum("wait")};`,
      ` CPUs were busy ${(busy * 100).toFixed(1)} % of their time.`,
      isCut ? ` Detail was kept only of ${kept}, and the numbers refer to that part.` : "",
      " Of longer runs and waits only the part within the interval counts.",
    );
    this.body.replaceChildren(this.table(numbers), this.cpus(numbers.cpus, width));
  }

  table(numbers) {
    const head = make(
      "tr",
      {},
      make("td"),
      ...OF_INTERVAL.map(([title]) => make("th", { scope: "col", text: title })),
    );
    const body = make("tbody");
    for (const { name, group, members } of this.detail.byGroup) {
      body.append(
        this.row(name || "(no group)", numbers.groups[group], `group/${name}`, "of-groups"),
      );
      if (!view.open.has(name)) continue;
      // The tasks that waited longest come first.
      const sorted = [...members].sort(
        (a, b) =>
          numbers.tasks[b.place].longest - numbers.tasks[a.place].longest || a.number - b.number,
      );
      for (const task of sorted.slice(0, TASKS_IN_TABLE)) {
        body.append(
          this.row(task.name, numbers.tasks[task.place], `task/${task.number}`, "of-tasks"),
        );
      }
      const left = sorted.length - TASKS_IN_TABLE;
      if (left > 0)
        body.append(
          make(
            "tr",
            {},
            make("th", {
              colspan: OF_INTERVAL.length + 1,
              class: "of-tasks",
              scope: "row",
              text: `and ${grouped(left)} that waited less`,
            }),
          ),
        );
    }
    const table = make("table", {}, make("thead", {}, head), body);
    return make(
      "div",
      {
        class: "wide",
        tabindex: 0,
        role: "region",
        "aria-label": `Numbers of the interval, ${runName(this.at)}`,
      },
      table,
    );
  }

  row(title, numbers, path, kind) {
    const cells = OF_INTERVAL.map(([, key, how]) => {
      const [text, exact] = SHOW[how](numbers[key]);
      return make("td", {
        "data-run": this.at,
        "data-interval": `${path}/${key}`,
        "data-exact": numbers[key],
        title: exact ?? "",
        text,
      });
    });
    return make("tr", { class: kind }, make("th", { scope: "row", text: title }), ...cells);
  }

  // The part of the interval in which each CPU ran tasks.
  cpus(busy, width) {
    const items = busy.map((ns, cpu) => {
      const share = `${((ns / width) * 100).toFixed(1)} %`;
      const bar = make("i", { style: `--share:${ns / width}`, "aria-hidden": "true" });
      return make(
        "li",
        {
          "data-run": this.at,
          "data-interval": `cpu/${cpu}`,
          "data-exact": ns,
          title: `${grouped(ns)} ns`,
        },
        bar,
        `CPU ${cpu} `,
        make("b", { text: share }),
      );
    });
    const list = make("ul", { class: "busy" }, ...items);
    const fold = make("details", {}, make("summary", { text: "How busy each CPU was" }), list);
    fold.open = busy.length <= 64;
    return fold;
  }
}
