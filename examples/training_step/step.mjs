// A training step that `ox export --train step.onnx` or `ox.export.save_step` wrote, for node and for browsers.
// `ort` is the module onnxruntime-node or onnxruntime-web.

const ARRAYS = { F32: Float32Array, F64: Float64Array, I64: BigInt64Array, U64: BigUint64Array, I32: Int32Array };
const TYPES = { F32: "float32", F64: "float64", I64: "int64", U64: "uint64", I32: "int32" };

/** Tensors by name, and the metadata, of a safetensors file: the length of a JSON header, the header, the numbers. */
export function readState(ort, buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const { __metadata__: metadata, ...entries } = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const tensors = {};
  for (const [name, { dtype, shape, data_offsets: [first, last] }] of Object.entries(entries)) {
    const numbers = new ARRAYS[dtype](buffer.slice(8 + length + first, 8 + length + last));
    tensors[name] = new ort.Tensor(TYPES[dtype], numbers, shape);
  }
  return { tensors, metadata };
}

/** The same file from tensors: `ox.load(path)` reads it. */
export function writeState(tensors) {
  const header = {};
  let end = 0;
  for (const [name, { type, dims, data }] of Object.entries(tensors)) {
    const dtype = Object.keys(TYPES).find((key) => TYPES[key] === type);
    header[name] = { dtype, shape: dims, data_offsets: [end, (end += data.byteLength)] };
  }
  let text = JSON.stringify(header);
  text += " ".repeat((8 - (text.length % 8)) % 8);
  const head = new TextEncoder().encode(text);
  const bytes = new Uint8Array(8 + head.length + end);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(head.length), true);
  bytes.set(head, 8);
  for (const [name, { data }] of Object.entries(tensors)) {
    const place = 8 + head.length + header[name].data_offsets[0];
    bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), place);
  }
  return bytes;
}

/** A training step and its state. `lr` holds the learning rates and may be changed between steps. */
export class Trainer {
  constructor(ort, session, state) {
    this.ort = ort;
    this.session = session;
    const { tensors, metadata } = readState(ort, state);
    this.state = tensors;
    this.layout = JSON.parse(metadata["ox.step"]);
    this.lr = { ...this.layout.lr };
  }

  /** One step on a batch of tensors by name. Returns the loss and the metrics as numbers. */
  async step(batch) {
    const { state, loss, metrics } = this.layout;
    const rates = Object.entries(this.lr).map(([name, rate]) => [
      name, new this.ort.Tensor("float32", Float32Array.of(rate), []),
    ]);
    const results = await this.session.run({ ...batch, ...Object.fromEntries(rates), ...this.state });
    for (const [name, next] of Object.entries(state)) this.state[name] = results[next];
    return Object.fromEntries([loss, ...metrics].map((name) => [name, results[name].data[0]]));
  }

  /** Loss, metrics and outputs of a batch in eval mode, by the session of the file `layout.evaluation`. */
  evaluate(session, batch) {
    const read = session.inputNames.filter((name) => name in this.state).map((name) => [name, this.state[name]]);
    return session.run({ ...batch, ...Object.fromEntries(read) });
  }
}
