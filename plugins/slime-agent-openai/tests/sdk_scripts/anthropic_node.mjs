// Anthropic's SDK for Node, its tool runner: node anthropic_node.mjs URL stream|whole messages.
import Anthropic from "@anthropic-ai/sdk";

const [url, how] = process.argv.slice(2);
const input_schema = { type: "object", properties: { a: { type: "integer" }, b: { type: "integer" } } };
const run = ({ a, b }) => String(a + b);
const client = new Anthropic({ baseURL: url, apiKey: "any" });
const runner = client.beta.messages.toolRunner({
  model: "policy",
  max_tokens: 400,
  stream: how === "stream",
  messages: [{ role: "user", content: "What is 17 + 25, and twice that?" }],
  tools: [{ name: "add", description: "Adds.", input_schema, run, parse: (input) => input }],
});
console.log((await runner.runUntilDone()).content.at(-1).text);
