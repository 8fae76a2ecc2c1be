// Samples: a table of them by conditions, all of which are in the address.
import { address, get, h, number, put, table } from "./dom.js";

const SORTS = { newest: "newest first", oldest: "oldest first", best: "highest reward", worst: "lowest reward", longest: "longest", shortest: "shortest" };
const PAGE = 50;
const LONG = 20; // rows from which on the links to other pages are below the table, too

const choice = (name, value, options) =>
  h("select", { name }, Object.entries(options).map(([key, text]) => h("option", { value: key, selected: key === (value ?? "") }, text)));
const those = (names, first) => ({ "": first, ...Object.fromEntries(names.map((name) => [name, name])) });
const field = (name, value, kind, width) => h("input", { name, type: kind, value: value ?? "", class: width, step: kind === "number" ? "any" : null });

function form(query, runs, choices, go) {
  const submit = (event) => {
    event.preventDefault();
    go(address("/samples", Object.fromEntries(new FormData(event.target.closest("form")))));
  };
  return h("form", { class: "bar", role: "search", "aria-label": "Samples", onsubmit: submit, onchange: (event) => event.target.tagName === "SELECT" && submit(event) },
    h("label", {}, "Run ", choice("run", query.run ?? runs[0].name, Object.fromEntries(runs.map((run) => [run.name, run.name])))),
    h("label", {}, "Of ", choice("kind", query.kind, { "": "all", rollout: "training", eval: "evaluation" })),
    h("label", {}, "Data set ", choice("source", query.source, those(choices.source, "all"))),
    h("label", {}, "Status ", choice("status", query.status, those(choices.status, "all"))),
    h("label", {}, "Reason ", choice("reason", query.reason, { "": "all", none: "kept", any: "failed or dropped", ...those(choices.reason, "all") })),
    h("label", {}, "Rollouts ", field("rollout_min", query.rollout_min, "number", "short")), h("label", {}, "to ", field("rollout_max", query.rollout_max, "number", "short")),
    h("label", {}, "Reward ", field("reward_min", query.reward_min, "number", "short")), h("label", {}, "to ", field("reward_max", query.reward_max, "number", "short")),
    h("label", {}, "Text ", field("text", query.text, "search", "long")),
    h("label", {}, "Order ", choice("sort", query.sort ?? "newest", SORTS)),
    h("button", {}, "Show"), h("a", { href: address("/samples", { run: query.run }) }, "all samples"));
}

const why = (row) => row.failure_reason ?? row.drop_reason ?? (row.left_out ? "left out" : "");

function cells(run, row) {
  const here = address("/sample", { run, file: row.file, row: row.row });
  const group = row.group ? h("a", { href: address("/group", { run, group: row.group }) }, row.group) : row.source;
  return [h("a", { href: here, class: "open" }, `${row.file.startsWith("eval") ? "eval " : ""}${row.rollout_id}`), group, row.group ? row.index : row.row, number(row.reward),
    row.status, why(row), row.response_length, h("span", { class: "text" }, row.prompt), h("span", { class: "text" }, row.response)];
}

function around(query, found) {
  const at = (more) => address("/samples", { ...query, ...more });
  if (query.text) {
    const summary = `${found.rows.length} found in ${found.searched} samples that were searched`;
    return h("p", { class: "pages" }, summary, found.after ? h("a", { href: at({ after: found.after }), rel: "next" }, " continue the search") : ", to the end");
  }
  const last = found.offset + found.rows.length;
  return h("p", { class: "pages" }, found.count ? `${found.offset + 1} to ${last} of ${found.count}` : "no sample is like that", " ",
    found.offset ? h("a", { href: at({ offset: Math.max(0, found.offset - PAGE) }), rel: "prev" }, "before ") : null,
    last < found.count ? h("a", { href: at({ offset: last }), rel: "next" }, "next") : null);
}

export async function samplesPage(main, query, { go, runs }) {
  const run = query.run ?? runs[0].name;
  const asked = { ...query, run };
  const result = h("div", { id: "result" });
  put(main, h("h1", { tabindex: -1 }, `Samples of ${run}`), form(asked, runs, await get("choices", { run }), go), result);

  function draw(found) {
    const heads = ["rollout", "group", "#", "reward", "status", "reason", "tokens", "prompt", "response"];
    result.replaceChildren(around(asked, found), table("", heads, found.rows.map((row) => cells(run, row))), found.rows.length > LONG ? around(asked, found) : "");
  }
  async function load() {
    const found = await get("samples", asked);
    draw(found);
    return found;
  }

  /** A search answers with what it has after a while; it goes on until a page is full. */
  async function goOn(found) {
    while (isShown && asked.text && found.after && found.rows.length < PAGE) {
      const more = await get("samples", { ...asked, after: found.after });
      found = { rows: [...found.rows, ...more.rows], after: more.after, searched: found.searched + more.searched };
      if (isShown) draw(found);
    }
  }

  let isShown = true;
  goOn(await load()).catch((error) => result.append(error.message));
  let samples = runs.find((each) => each.name === run)?.samples;
  return {
    look: async (states) => {
      const now = states.find((each) => each.name === run).samples;
      const isFirst = !asked.text && !asked.offset;
      if (now !== samples && isFirst && !result.contains(document.activeElement)) await load();
      samples = now;
    },
    leave: () => {
      isShown = false;
    },
  };
}
