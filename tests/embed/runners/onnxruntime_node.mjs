// Runs one file: node onnxruntime_node.mjs PACKAGE MODEL < inputs.json > outputs.json
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const [, , place, model] = process.argv;
const ort = createRequire(import.meta.url)(place);
const session = await ort.InferenceSession.create(model);
const feed = {};
for (const [name, { type, dims, data }] of Object.entries(JSON.parse(readFileSync(0, "utf8")))) {
  feed[name] = new ort.Tensor(type, type === "int64" ? data.map(BigInt) : data, dims);
}
const results = await session.run(feed);
const shown = session.outputNames.map((name) => {
  const { type, dims, data } = results[name];
  return { type, dims, data: Array.from(data, Number) };
});
process.stdout.write(JSON.stringify(shown));
