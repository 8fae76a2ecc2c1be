// A group: the samples of one drawn prompt, side by side.
import { address, get, h, number, put } from "./dom.js";

export async function groupPage(main, query) {
  const { run, group } = query;
  const samples = await get("group", { run, group });
  put(main, h("h1", { tabindex: -1 }, group));
  if (!samples.length) {
    put(main, h("p", {}, "Its samples are not kept yet, or their file was deleted."));
    return {};
  }
  const rewards = samples.flatMap((sample) => (sample.reward === null ? [] : [sample.reward]));
  const mean = rewards.reduce((sum, each) => sum + each, 0) / rewards.length;
  const [first] = samples;
  put(main, h("p", {}, `${samples.length} samples`, rewards.length ? `, mean reward ${number(mean)}` : "", first.drop_reason ? `, dropped: ${first.drop_reason}` : ""),
    h("h2", {}, "Prompt"), h("pre", {}, first.messages === null ? first.prompt : JSON.stringify(JSON.parse(first.messages), null, 1)),
    h("p", {}, first.label === null ? "" : `label ${first.label}`),
    h("div", { class: "beside" }, samples.map((sample) => h("article", {},
      h("h2", {}, h("a", { href: address("/sample", { run, file: sample.file, row: sample.row }) }, `#${sample.index ?? 0}`), ` reward ${number(sample.reward)}`),
      h("p", { class: "note" }, [sample.status, sample.failure_reason, `${sample.response_length} tokens`].filter(Boolean).join(", ")),
      h("pre", {}, sample.response)))));
  return {};
}
