// The AI SDK: node ai_sdk.mjs URL stream|whole chat|compatible|responses|messages.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [url, how, kind] = process.argv.slice(2);
const where = { baseURL: `${url}/v1`, apiKey: "any" };
const model = {
  chat: () => createOpenAI(where).chat("policy"),
  compatible: () => createOpenAICompatible({ name: "gateway", ...where })("policy"),
  responses: () => createOpenAI(where).responses("policy"),
  messages: () => createAnthropic(where)("policy"),
}[kind]();
const add = tool({
  description: "Adds.",
  inputSchema: z.object({ a: z.number(), b: z.number() }),
  execute: async ({ a, b }) => String(a + b),
});
const asked = { model, tools: { add }, stopWhen: stepCountIs(6), prompt: "What is 17 + 25, and twice that?" };
if (how === "stream") {
  const told = streamText(asked);
  for await (const _ of told.textStream);
  console.log(await told.text);
} else {
  console.log((await generateText(asked)).text);
}
