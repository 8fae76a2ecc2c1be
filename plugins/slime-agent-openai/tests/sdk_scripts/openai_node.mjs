// OpenAI's SDK for Node: node openai_node.mjs URL stream|whole chat|responses.
import OpenAI from "openai";

const [url, how, kind] = process.argv.slice(2);
const streams = how === "stream";
const question = { role: "user", content: "What is 17 + 25, and twice that?" };
const parameters = { type: "object", properties: { a: { type: "integer" }, b: { type: "integer" } } };
const add = ({ a, b }) => String(a + b);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "any" });

async function chat() {
  const offered = { name: "add", description: "Adds.", parameters, function: add, parse: JSON.parse };
  const tools = [{ type: "function", function: offered }];
  const run = client.chat.completions.runTools({ model: "policy", messages: [question], tools, stream: streams });
  return run.finalContent();
}

async function responses() {
  const tools = [{ type: "function", name: "add", description: "Adds.", parameters, strict: false }];
  const input = [question];
  for (;;) {
    const asked = { model: "policy", input, tools };
    const made = await (streams ? client.responses.stream(asked).finalResponse() : client.responses.create(asked));
    const calls = made.output.filter((item) => item.type === "function_call");
    if (!calls.length) return made.output_text;
    input.push(...made.output);
    for (const call of calls) {
      const output = add(JSON.parse(call.arguments));
      input.push({ type: "function_call_output", call_id: call.call_id, output });
    }
  }
}

console.log(await { chat, responses }[kind]());
