// One sample: what is known of it, its prompt, its response token by token, its life, its record.
import { address, get, h, number, put } from "./dom.js";
import { tokensView } from "./tokens.js";

function facts(sample) {
  const { record } = sample;
  const reward = record.reward !== null && typeof record.reward === "object"
    ? Object.entries(record.reward).map(([name, value]) => `${name} ${number(value)}`).join(", ") : number(record.reward);
  const details = {
    reward, status: record.status, "failed because": record.failure_reason, "dropped because": sample.drop_reason,
    "left out": sample.left_out ? "it failed, and its group went on without it" : null,
    "removed": record.remove_sample ? "in the metrics alone; trained on with a mask of zeros" : null,
    label: record.label === null ? null : typeof record.label === "string" ? record.label : JSON.stringify(record.label),
    tokens: `${record.response_length} of the response, ${record.tokens.length - record.response_length} of the prompt`,
    "weight versions": record.weight_versions.join(", "), "data set": sample.source,
    "trained in rollout": sample.trained_in,
  };
  const kept = Object.entries(details).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", {}, kept.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

const message = (each) => h("div", { class: "message" }, h("div", { class: "who" }, each.role ?? ""),
  h("pre", {}, typeof each.content === "string" ? each.content : JSON.stringify(each.content ?? each, null, 2)),
  each.tool_calls ? h("pre", {}, JSON.stringify(each.tool_calls, null, 2)) : null);

function moves(life) {
  return h("ol", {}, life.map((move) => h("li", {}, `${move.state} in rollout ${move.rollout_id}`,
    move.use ? `, use ${move.use}, weight ${number(move.weight)}` : "", move.reason ? `: ${move.reason}` : "",
    move.step !== null && move.use ? `, step ${move.step}` : "",
    move.time ? `, reported ${new Date(move.time * 1000).toISOString().replace("T", " ").slice(0, 19)} UTC` : "")));
}

/** A link that whoever has the token can open. */
function share() {
  const status = h("span", { role: "status" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      status.textContent = " copied; the link asks for the token";
    } catch {
      status.textContent = ` ${location.href}`;
    }
  };
  return h("p", {}, h("button", { type: "button", onclick: copy }, "Copy link"), status);
}

export async function samplePage(main, query, { replace, runs }) {
  const { run, file, row } = query;
  const sample = await get("sample", { run, file, row });
  const title = sample.group ? `${sample.group}/${sample.record.index ?? 0}` : `${sample.source}, evaluation, ${row}`;
  const group = sample.group ? h("a", { href: address("/group", { run, group: sample.group }) }, "its group") : null;
  const isAgents = sample.group && "round_number" in sample.record.metadata && runs.some((each) => each.conversations);
  const conversations = isAgents ? h("a", { href: address("/conversations", { run, group: sample.group }), target: "_blank" }, "conversations") : null;
  const coloured = h("div", { id: "response" });
  const draw = (kind) => coloured.replaceChildren(...tokensView(sample.tokens, kind, (chosen) => {
    replace(address("/sample", { ...query, colour: chosen }));
    draw(chosen);
    document.getElementById("colour").focus();
  }));
  draw(query.colour);
  const prompt = typeof sample.record.prompt === "string" ? h("pre", {}, sample.record.prompt) : sample.record.prompt.map(message);
  put(main, h("h1", { tabindex: -1 }, title), h("p", {}, group, " ", conversations, " ", h("a", { href: address("/samples", { run }) }, "all samples")), share(), facts(sample),
    h("h2", {}, "Prompt"), prompt,
    h("h2", {}, "Response"), coloured,
    sample.no_tokenizer ? h("p", { class: "note" }, `Tokens are shown as ids: ${sample.no_tokenizer}`) : null,
    sample.keeps_train_data ? null : h("p", { class: "note" }, "Advantages and the trainer's log-probs by token are there if the run keeps what its ranks train on: save_debug_train_data in the run file."),
    h("details", {}, h("summary", {}, "As text"), h("pre", {}, sample.record.response)),
    h("details", {}, h("summary", {}, "The prompt's tokens, as text"), h("pre", {}, sample.tokens.prompt)),
    h("details", { id: "record" }, h("summary", {}, "The whole record"), h("pre", {}, JSON.stringify(sample.record, null, 1))));
  if (sample.group) {
    const life = await get("life", { run, group: sample.group }).catch((error) => error);
    put(main, h("h2", {}, "What became of its group"), life instanceof Error ? h("p", { class: "note" }, life.message) : moves(life));
  }
  return {};
}
