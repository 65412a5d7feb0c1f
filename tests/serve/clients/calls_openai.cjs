// OpenAI's package for Node.js.
"use strict";

const assert = require("node:assert/strict");
const OpenAI = require("openai").default;
const { zodResponseFormat, zodFunction } = require("openai/helpers/zod");
const { z } = require("zod");
const { works, refused, main, QUESTION, ANSWER, WEATHER, PERSON } = require("./calls.cjs");

const client = (url) => new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const asked = (content) => ({ model: "scripted", temperature: 0, messages: [{ role: "user", content }] });
const weather = zodFunction({
  name: "get_weather",
  parameters: z.object({ city: z.string() }),
  function: ({ city }) => `sunny in ${city}`,
});

works("chat", "`chat.completions.create`, also with `stream: true`", async (url) => {
  const answer = await client(url).chat.completions.create(asked(QUESTION));
  assert.equal(answer.choices[0].message.content, ANSWER);
  let text = "";
  for await (const piece of await client(url).chat.completions.create({ ...asked(QUESTION), stream: true })) {
    text += piece.choices[0]?.delta?.content ?? "";
  }
  assert.equal(text, ANSWER);
});

works("stream", "`chat.completions.stream`, the helper", async (url) => {
  const stream = client(url).chat.completions.stream(asked(QUESTION));
  assert.equal(await stream.finalContent(), ANSWER);
});

works("parse", "`chat.completions.parse` with a Zod schema", async (url) => {
  const format = zodResponseFormat(z.object({ name: z.string(), age: z.number().int() }), "person");
  const answer = await client(url).chat.completions.parse({ ...asked(PERSON), response_format: format });
  assert.deepEqual(answer.choices[0].message.parsed, { name: "Ada", age: 36 });
});

works("run_tools", "`chat.completions.runTools`, also with `stream: true`", async (url) => {
  for (const stream of [false, true]) {
    const runner = client(url).chat.completions.runTools({ ...asked(WEATHER), tools: [weather], stream });
    assert.equal(await runner.finalContent(), ANSWER);
    assert.ok(runner.messages.some((each) => each.role === "tool" && each.content === "sunny in Bern"));
  }
});

works("embeddings", "`embeddings.create`, which asks for base64", async (url) => {
  const answer = await client(url).embeddings.create({ model: "sentences", input: ["light"] });
  assert.equal(answer.data[0].embedding.length, 6);
});

refused("images", "`images.generate`", "404", async (url) => {
  await assert.rejects(client(url).images.generate({ model: "scripted", prompt: "a" }), OpenAI.NotFoundError);
});

main();
