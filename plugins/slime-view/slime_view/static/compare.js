// Two runs beside one another, as `slime diff` compares them.
import { address, get, h, number, put, table } from "./dom.js";

const shown = (value) => (value === null ? "" : typeof value === "number" ? number(value) : typeof value === "string" ? value : JSON.stringify(value));

export async function comparePage(main, query, { go, runs }) {
  const first = query.run ?? runs[0].name;
  const second = query.with ?? (runs.find((run) => run.name !== first) ?? runs[0]).name;
  const pick = (name, value) => h("select", { name, onchange: (event) => go(address("/compare", Object.fromEntries(new FormData(event.target.form)))) },
    runs.map((run) => h("option", { value: run.name, selected: run.name === value }, run.name)));
  put(main, h("h1", { tabindex: -1 }, `${first} and ${second}`), h("form", { class: "bar" }, h("label", {}, "First ", pick("run", first)), h("label", {}, "Second ", pick("with", second))));
  const found = await get("compare", { run: first, with: second });
  const pairs = (values) => Object.entries(values).map(([name, pair]) => [name, ...pair.map(shown)]);
  const same = found.same_until === null ? "The metrics of all rollouts that both have are the same." : `Metrics first differ in rollout ${found.same_until}.`;
  const prompts = found.prompts.map((each) => [h("a", { href: address("/group", { run: second, group: each.group }) }, each.group), each.rollout_id,
    ...each.rewards.map((value) => number(value)), number(each.rewards[1] - each.rewards[0])]);
  const sections = [
    ["Settings that differ", ["key", first, second], pairs(found.settings)],
    ["Plugins that differ", ["plugin", first, second], pairs(found.plugins)],
    ["Metrics that differ, means of the last rollouts that both have", ["metric", first, second, "more"],
      Object.entries(found.metrics).filter(([, [one, other]]) => one !== other).map(([name, pair]) => [name, ...pair.map((value) => number(value)), number(pair[1] - pair[0])])],
    [`Mean reward of the same prompts, those that differ most first (${found.prompts.length} of ${found.of_prompts})`, ["group", "rollout", first, second, "more"], prompts],
  ];
  put(main, h("p", {}, `${found.rollouts[0]} and ${found.rollouts[1]} rollouts. ${same}`),
    sections.filter(([, , rows]) => rows.length).map(([caption, heads, rows]) => table(caption, heads, rows)));
  return {};
}
