// node train.mjs step.onnx batches.safetensors [trained.safetensors]
//
// Trains on arrays [steps, batch, ...] and prints the loss of each step. Needs `npm install onnxruntime-node`.

import { readFileSync, writeFileSync } from "node:fs";
import * as ort from "onnxruntime-node";
import { Trainer, readState, writeState } from "./step.mjs";

const [path, data, trained] = process.argv.slice(2);
const bytes = (file) => new Uint8Array(readFileSync(file)).buffer;
const session = await ort.InferenceSession.create(path);
const trainer = new Trainer(ort, session, bytes(path.replace(/\.onnx$/, ".safetensors")));
const batches = Object.entries(readState(ort, bytes(data)).tensors);

for (let i = 0; i < batches[0][1].dims[0]; i++) {
  const batch = batches.map(([name, { type, dims: [steps, ...shape], data }]) => {
    const size = data.length / steps;
    return [name, new ort.Tensor(type, data.slice(i * size, (i + 1) * size), shape)];
  });
  const results = await trainer.step(Object.fromEntries(batch));
  console.log(i + 1, ...Object.entries(results).map(([name, value]) => `${name} ${value.toFixed(6)}`));
}
if (trained) writeFileSync(trained, writeState(trainer.state));
