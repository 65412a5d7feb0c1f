// Vercel's AI SDK, by its provider for servers of OpenAI's API.
"use strict";

const assert = require("node:assert/strict");
const { generateText, streamText, Output, tool, stepCountIs, embed } = require("ai");
const { createOpenAICompatible } = require("@ai-sdk/openai-compatible");
const { z } = require("zod");
const { works, main, QUESTION, ANSWER, WEATHER, PERSON } = require("./calls.cjs");

const provider = (url) =>
  createOpenAICompatible({ name: "ox", baseURL: `${url}/v1`, supportsStructuredOutputs: true });
const asked = (url, prompt) => ({ model: provider(url)("scripted"), prompt, temperature: 0, maxRetries: 0 });
const tools = {
  get_weather: tool({
    description: "The weather of a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => `sunny in ${city}`,
  }),
};

works("text", "`generateText`", async (url) => {
  assert.equal((await generateText(asked(url, QUESTION))).text, ANSWER);
});

works("stream", "`streamText`", async (url) => {
  assert.equal(await streamText(asked(url, QUESTION)).text, ANSWER);
});

works("run_tools", "`generateText` and `streamText` with `tools`, in steps", async (url) => {
  const steps = { tools, stopWhen: stepCountIs(3) };
  const answer = await generateText({ ...asked(url, WEATHER), ...steps });
  assert.equal(answer.text, ANSWER);
  assert.equal(answer.steps[0].toolResults[0].output, "sunny in Bern");
  assert.equal((await streamText({ ...asked(url, WEATHER), ...steps }).text), ANSWER);
});

works("output", "`Output.object` with a Zod schema, beside tools", async (url) => {
  const output = Output.object({ schema: z.object({ name: z.string(), age: z.number() }) });
  for (const more of [{}, { tools, stopWhen: stepCountIs(2) }]) {
    const answer = await generateText({ ...asked(url, PERSON), output, ...more });
    assert.deepEqual(answer.output, { name: "Ada", age: 36 });
  }
});

works("embedding", "`embed`", async (url) => {
  const answer = await embed({ model: provider(url).embeddingModel("sentences"), value: "light", maxRetries: 0 });
  assert.equal(answer.embedding.length, 6);
});

main();
