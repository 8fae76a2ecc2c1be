// Offline: answers what pages ask for from what a file of one page has in it, instead of a server.
// Only in a page that `slime report` wrote; there it takes the place of fetching, and an address is behind a #.
const held = JSON.parse(document.getElementById("held").textContent);
const PAGE = 50;

const ORDERS = {
  newest: (one, other) => other.rollout_id - one.rollout_id,
  oldest: (one, other) => one.rollout_id - other.rollout_id,
  best: (one, other) => (other.reward ?? -Infinity) - (one.reward ?? -Infinity),
  worst: (one, other) => (one.reward ?? Infinity) - (other.reward ?? Infinity),
  longest: (one, other) => other.response_length - one.response_length,
  shortest: (one, other) => one.response_length - other.response_length,
};
const within = (value, low, high) => (!low || value >= Number(low)) && (!high || value <= Number(high));

function isReason(reason, wanted) {
  if (!wanted) return true;
  if (wanted === "none" || wanted === "any") return (reason === null) === (wanted === "none");
  return reason === wanted;
}

function fits(row, query) {
  const wanted = isReason(row.failure_reason ?? row.drop_reason, query.reason);
  const ranged = row.reward !== null || (!query.reward_min && !query.reward_max);
  return wanted && ranged && (!query.kind || row.file.startsWith(query.kind)) && (!query.source || row.source === query.source) &&
    (!query.status || row.status === query.status) && within(row.rollout_id, query.rollout_min, query.rollout_max) &&
    within(row.reward, query.reward_min, query.reward_max) &&
    (!query.text || `${row.prompt}\n${row.full}`.toLowerCase().includes(query.text.toLowerCase()));
}

const ANSWERS = {
  runs: () => held.runs.map((run) => run.state),
  curves: (run, query) => ({ generation: run.state.generation, rows: run.state.rows, metrics: Object.fromEntries([query.name].flat().map((name) => [name, run.curves[name]])) }),
  choices: (run) => run.choices,
  samples: (run, query) => {
    const rows = run.samples.map(listed).filter((row) => fits(row, query)).sort(ORDERS[query.sort ?? "newest"]);
    if (query.text) return { rows, searched: run.samples.length, after: null };
    const offset = Number(query.offset ?? 0);
    return { rows: rows.slice(offset, offset + PAGE), count: rows.length, offset };
  },
  sample: (run, query) => run.samples.find((each) => each.file === query.file && each.row === Number(query.row)),
  group: (run, query) => run.samples.filter((each) => each.group === query.group).map(listed),
  life: (run, query) => run.lives[query.group] ?? [],
  compare: (run, query) => held.comparisons[`${run.state.name}\n${query.with}`],
};

/** A sample as tables have it. */
function listed(sample) {
  const { record } = sample;
  const reward = record.reward !== null && typeof record.reward === "object" ? record.reward.score ?? Object.values(record.reward)[0] : record.reward;
  return { ...sample, rollout_id: Number(sample.file.split("_")[1]), index: record.index, status: record.status, failure_reason: record.failure_reason, reward, response_length: record.response_length,
    prompt: sample.prompt_text, response: record.response.slice(0, 160), full: record.response, label: record.label, messages: null };
}

export function answer(path, query) {
  const run = held.runs.find((each) => each.state.name === (query.run ?? held.runs[0].state.name));
  const found = run && ANSWERS[path](run, query);
  if (!found) throw new Error("This file does not have it: it holds a part of the samples. slime view shows all.");
  return structuredClone(found);
}
