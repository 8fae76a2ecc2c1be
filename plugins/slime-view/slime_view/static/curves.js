// Curves: every metric, the runs over one another, with marks where one was resumed or gave an alarm. New points come by themselves.
import { COLOURS, address, get, h, number, put } from "./dom.js";

const PANELS = [
  ["Reward", /^rollout\/(raw_reward|rewards|shaped_reward)$|^rollout\/reward\//],
  ["Evaluation", /^eval\/[^/]+$/],
  ["Pass rate", /^passrate\//],
  ["Length", /^rollout\/(response_len\/|truncated_ratio|repetition_frac)|^multi_turn\//],
  ["Training", /^train\/(?!train_rollout_)/],
  ["Trainer against sampler", /^train\/train_rollout_/],
  ["Staleness", /^rollout\/staleness\//],
  ["Errors and drops", /^rollout\/(errors|dynamic_filter|zero_std)\/|^plugin\/.*\/(errors|timeouts)$/],
  ["Times", /^perf\/.*(_time|time_ratio|tokens_per_sec|tok_per_s|tflops)$/],
  ["Everything else", /(?:)/],
];
const CLOSED = new Set(["Everything else", "Trainer against sampler", "Pass rate"]);
const HEIGHT = 170;

const panelOf = (name) => PANELS.find(([, pattern]) => pattern.test(name))[0];

/** The points of one run's metric; of two rows of one rollout, the later. */
class Points {
  x = [];
  y = [];
  add(x, y) {
    for (const [at, each] of x.entries()) {
      if (this.x.at(-1) === each) this.y[this.y.length - 1] = y[at];
      else this.x.push(each), this.y.push(y[at]);
    }
  }
}

/** What was fetched of one run. */
class Fetched {
  constructor(name) {
    this.name = name;
    this.clear(null);
  }
  clear(generation) {
    this.generation = generation;
    this.rows = new Map();
    this.points = new Map();
  }
  async fetch(state, names) {
    if (state.generation !== this.generation) this.clear(state.generation);
    const wanted = names.filter((name) => state.metrics.includes(name) && (this.rows.get(name) ?? -1) < state.rows);
    const known = Map.groupBy(wanted, (name) => this.rows.get(name) ?? 0);
    for (const [after, group] of known) {
      const found = await get("curves", { run: this.name, after, name: group });
      if (found.generation !== this.generation) return;
      for (const name of group) {
        if (!this.points.has(name)) this.points.set(name, new Points());
        const made = found.metrics[name];
        if (made) this.points.get(name).add(made.x, made.y);
        this.rows.set(name, found.rows);
      }
    }
  }
}

class Chart {
  constructor(name, runs) {
    this.name = name;
    this.runs = runs;
    this.last = h("span", { class: "last" });
    this.body = h("div", { class: "plot", role: "img" });
    this.element = h("figure", { "data-metric": name }, h("figcaption", {}, name, " ", this.last), this.body);
  }
  draw(fetched, states, hidden) {
    const tables = this.runs.map((run) => {
      const points = fetched.get(run).points.get(this.name);
      return points && !hidden.has(run) ? [points.x, points.y] : [[], []];
    });
    const data = uPlot.join(tables);
    this.lasts = tables.map(([x, y]) => [x.at(-1), y.at(-1)]);
    this.tell(null);
    this.body.setAttribute("aria-label", `${this.name}, ${this.last.textContent}`);
    this.marks = this.runs.flatMap((run, at) => (hidden.has(run) ? [] : [
      ...states.get(run).resumed.map((rollout) => [rollout - 0.5, at, [4, 4]]),
      ...states.get(run).alarms.map((alarm) => [alarm.rollout, at, [1, 3]]),
    ]));
    this.body.dataset.points = tables.reduce((sum, [x]) => sum + x.length, 0);
    this.body.dataset.marks = this.marks.length;
    if (this.plot) this.plot.setData(data);
    else this.plot = new uPlot(this.options(), data, this.body);
  }
  options() {
    const style = getComputedStyle(document.documentElement);
    const [ink, line] = ["--ink", "--line"].map((name) => style.getPropertyValue(name));
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line }, font: "11px system-ui" };
    return {
      width: this.body.clientWidth || 320,
      height: HEIGHT,
      scales: { x: { time: false } },
      cursor: { sync: { key: "rollouts" }, drag: { x: true, y: false } },
      legend: { show: false },
      axes: [{ ...axis }, { ...axis, size: 58, values: (_, ticks) => ticks.map((tick) => number(tick)) }],
      series: [{}, ...this.runs.map((run, at) => ({ label: run, stroke: COLOURS[at % COLOURS.length], width: 1.5, spanGaps: true }))],
      hooks: { draw: [(plot) => this.mark(plot)], setCursor: [(plot) => this.tell(plot.cursor.idx)] },
    };
  }
  /** The values under the pointer, or the last ones. */
  tell(at) {
    const under = at === null || at === undefined || !this.plot ? null : this.plot.data;
    const values = under ? this.runs.map((_, run) => [under[0][at], under[run + 1][at]]) : this.lasts;
    const latest = values.flatMap(([x, y], run) => (y === null || y === undefined ? [] : [[x, this.runs.length > 1 ? `${this.runs[run]} ${number(y)}` : number(y)]]));
    this.last.textContent = latest.length ? `${latest.map(([, text]) => text).join(", ")} at ${latest.at(-1)[0]}` : "";
  }
  mark(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    for (const [rollout, at, dash] of this.marks) {
      const x = plot.valToPos(rollout, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.setLineDash(dash);
      ctx.strokeStyle = COLOURS[at % COLOURS.length];
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }
  resize() {
    this.plot?.setSize({ width: this.body.clientWidth, height: HEIGHT });
  }
}

export async function curvesPage(main, query, { runs, replace }) {
  const names = runs.map((run) => run.name);
  const fetched = new Map(names.map((name) => [name, new Fetched(name)]));
  const charts = new Map();
  const hidden = new Set();
  const panels = new Map();
  let states = new Map(runs.map((run) => [run.name, run]));

  const filter = h("input", { type: "search", value: query.metric ?? "", placeholder: "part of a name", oninput: () => (replace(address("/", { metric: filter.value })), refresh()) });
  const switches = names.map((name, at) => h("label", { class: `colour${at % COLOURS.length}` },
    h("input", { type: "checkbox", checked: true, onchange: (event) => (event.target.checked ? hidden.delete(name) : hidden.add(name), refresh()) }), name));
  const alarms = h("ul", { class: "alarms", "aria-label": "Alarms" });
  put(main, h("h1", { tabindex: -1 }, "Curves"),
    h("form", { class: "bar", onsubmit: (event) => event.preventDefault() }, h("label", {}, "Metrics ", filter), ...(names.length > 1 ? switches : [])),
    h("p", { class: "note" }, "By rollout. Drag over a part to see it larger, click twice to go back. A dashed line is where a run was resumed, a dotted one where it gave an alarm."),
    alarms);
  for (const [title] of PANELS) {
    const grid = h("div", { class: "grid" });
    const panel = h("details", { open: !CLOSED.has(title), hidden: true, ontoggle: () => refresh() }, h("summary", {}, h("h2", {}, title)), grid);
    panels.set(title, { panel, grid });
    put(main, panel);
  }

  let underway = Promise.resolve();
  const refresh = () => (underway = underway.then(update));
  async function update() {
    const all = [...new Set([...states.values()].flatMap((state) => state.metrics))].sort().filter((name) => name !== "rollout/step");
    const messages = names.filter((run) => !hidden.has(run)).flatMap((run) => states.get(run).alarms.map(({ text }) => (names.length > 1 ? `${run}: ${text}` : text)));
    alarms.replaceChildren(...messages.map((text) => h("li", {}, text)));
    alarms.hidden = !messages.length;
    const shown = [];
    for (const name of all) {
      const { panel, grid } = panels.get(panelOf(name));
      if (!charts.has(name)) {
        charts.set(name, new Chart(name, names));
        grid.append(charts.get(name).element);
      }
      const fits = name.includes(filter.value);
      charts.get(name).element.hidden = !fits;
      if (fits && panel.open) shown.push(name);
    }
    for (const { panel, grid } of panels.values()) panel.hidden = ![...grid.children].some((each) => !each.hidden);
    await Promise.all(names.map((name) => fetched.get(name).fetch(states.get(name), shown)));
    for (const name of shown) charts.get(name).draw(fetched, states, hidden);
  }

  const resized = new ResizeObserver(() => charts.forEach((chart) => chart.resize()));
  resized.observe(main);
  await refresh();
  return {
    look: (found) => {
      states = new Map(found.map((run) => [run.name, run]));
      return refresh();
    },
    leave: () => {
      resized.disconnect();
      charts.forEach((chart) => chart.plot?.destroy());
    },
  };
}
