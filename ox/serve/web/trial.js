
// ---- trying a model: a golden sample, random numbers, an image, or a request typed by hand

const TYPED = { FP32: Float32Array, FP64: Float64Array, INT8: Int8Array, INT16: Int16Array, INT32: Int32Array, INT64: BigInt64Array,
  UINT8: Uint8Array, UINT16: Uint16Array, UINT32: Uint32Array, UINT64: BigUint64Array, BOOL: Uint8Array, BF16: Uint16Array };
const EDITABLE = 2048; // numbers of a request that is shown as text; larger ones travel as bytes
const FREE = 224; // the side that an image gets where the model leaves it open

async function trial(name, version, meta, samples) {
  const path = pathOf(name, version);
  const beside = `v2/ox/models/${encodeURIComponent(name)}/versions/${encodeURIComponent(version)}`;
  const url = addressOf(path);
  // Outputs of BF16 are asked for as bytes, since JSON does not have them.
  const half = meta.outputs.some((tensor) => tensor.datatype === "BF16");
  const requested = half ? { outputs: meta.outputs.map((tensor) => ({ name: tensor.name, parameters: { binary_data: tensor.datatype === "BF16" } })) } : {};
  let inputs = null; // what is sent
  let rest = {}; // of the request, beside its inputs
  let expected = null; // what a golden sample promises
  let pipe = null; // the command that makes the request, if it is not the text

  const text = make("textarea", { id: `request-${id()}`, spellcheck: "false", rows: "5" });
  const label = make("label", { for: text.id }, make("h3", {}, "Request"));
  const note = make("p", { class: "note" });
  const go = make("button", { type: "submit", class: "main" }, "Run");
  const took = make("span", { class: "note", role: "status" });
  const result = make("div", { class: "result", "aria-live": "polite" });
  const command = make("pre", {});
  const copy = make("button", { type: "button", onclick: () => copied(copy, command.textContent) }, "Copy");
  const save = make("a", { class: "button", download: "request.bin", hidden: true }, "Save");
  const softmax = make("input", { type: "checkbox", id: `softmax-${id()}` });
  let last = null; // the outputs that are shown
  softmax.addEventListener("change", () => last && outputs(last));

  function fill(request, promise, from, source) {
    const { inputs: tensors, ...others } = request;
    const numbers = sum(tensors.map((tensor) => tensor.data.length));
    const raw = numbers > EDITABLE || tensors.some((tensor) => tensor.datatype === "BF16"); // which JSON does not have
    inputs = tensors;
    rest = { ...others, ...requested };
    expected = promise;
    pipe = raw && numbers <= EDITABLE ? null : source;
    text.hidden = label.hidden = raw;
    text.value = raw ? "" : JSON.stringify({ inputs: tensors.map((tensor) => ({ ...tensor, data: Array.from(tensor.data, plain) })), ...rest }, null, 1).replace(/\n\s*(?=[-\d\]"tf])/g, " ").replace(/\n\s*/g, "\n");
    note.textContent = from + (raw ? ` · ${numbers.toLocaleString("en")} numbers, sent as bytes` : "");
    result.replaceChildren();
    took.textContent = "";
    last = null;
    if (drop) drop.show(tensors[0]);
    curl();
  }
  function curl() {
    save.hidden = !text.hidden || pipe !== null;
    URL.revokeObjectURL(save.href);
    if (!save.hidden) save.href = URL.createObjectURL(binary(inputs, rest)[0]);
    if (pipe) command.textContent = `${pipe} |\n  curl -s ${url}/infer -d @-`;
    else if (text.hidden) command.textContent = `curl -s ${url}/infer \\\n  -H 'Inference-Header-Content-Length: ${binary(inputs, rest)[1]}' \\\n  --data-binary @request.bin`;
    else command.textContent = `curl -s ${url}/infer -d '${compact(text.value).replaceAll("'", "'\\''")}'`;
  }
  text.addEventListener("input", () => { inputs = expected = pipe = null; for (const other of chosen) other.setAttribute("aria-pressed", "false"); curl(); });

  async function run(event) {
    event.preventDefault();
    go.disabled = true;
    const begun = performance.now();
    try {
      let body = text.value;
      let headers = { "content-type": "application/json" };
      if (text.hidden) {
        let length;
        [body, length] = binary(inputs, rest);
        headers = { "content-type": "application/octet-stream", "inference-header-content-length": String(length) };
      }
      const reply = await ask(`${path}/infer`, { method: "POST", body, headers });
      if (!reply.ok) throw new Error(await reason(reply));
      const answer = await decoded(reply);
      took.textContent = `answered in ${said(seconds((performance.now() - begun) / 1000))}, with the way there and back`;
      outputs(answer.outputs);
    } catch (error) {
      took.textContent = "";
      result.replaceChildren(make("p", { class: "error" }, error.message));
    } finally {
      go.disabled = false;
    }
  }
  function outputs(list) {
    last = list;
    const kept = softmax.checked;
    const children = list.map((tensor) => output(tensor, (meta.outputs.find((its) => its.name === tensor.name) || {}).parameters || {}, kept));
    const proof = expected ? [verdict(list, expected)] : [];
    const flat = list.some(ranked) ? [make("p", { class: "note" }, softmax, make("label", { for: softmax.id }, " as shares of 1 (softmax)"))] : [];
    result.replaceChildren(...proof, ...children, ...flat);
    softmax.checked = kept;
  }

  const chosen = [];
  function choice(word, call) {
    const button = make("button", { type: "button", "aria-pressed": "false", onclick: async () => {
      try {
        await call();
        for (const other of chosen) other.setAttribute("aria-pressed", String(other === button));
      } catch (error) {
        result.replaceChildren(make("p", { class: "error" }, error.message));
      }
    } }, word);
    chosen.push(button);
    return button;
  }
  for (let number = 0; number < Math.min(samples, 8); number++) {
    choice(`Golden ${number + 1}`, async () => {
      const where = `${beside}/samples/${number}`;
      const { expected: promise, ...golden } = await askJson(where);
      fill(golden, promise, `Golden sample ${number + 1} of the file`, `curl -s ${addressOf(where)}`);
    });
  }
  // The server draws them: it knows what the model takes. One that it cannot draw is not offered.
  let drawn = null;
  let unknown = "";
  try {
    drawn = await askJson(`${beside}/random`);
  } catch (error) {
    unknown = error.message;
  }
  const random = choice("Random", async () => {
    fill(drawn || await askJson(`${beside}/random`), null, "Random values", null);
    drawn = null;
  });
  random.disabled = unknown !== "";
  const why = unknown ? [make("p", { class: "note" }, `Random is not offered: ${unknown}`)] : [];
  const drop = imageOf(meta.inputs) ? dropped(meta.inputs[0], imageOf(meta.inputs), (tensor, from) => {
    for (const other of chosen) other.setAttribute("aria-pressed", "false");
    fill({ inputs: [tensor] }, null, from, null);
  }) : null;
  chosen[0].click();
  return make("form", { onsubmit: run, "aria-label": `Try ${name}` }, make("h3", {}, "Try it"), make("div", { class: "choices" }, ...chosen), ...why, ...(drop ? [drop.area] : []),
    label, text, note, make("div", { class: "go" }, go, took), result, make("div", { class: "curl" }, command, make("div", {}, copy, save)));
}

let ids = 0;
const id = () => ++ids;
const plain = (value) => (typeof value === "bigint" ? Number(value) : value);
function compact(value) {
  try {
    return JSON.stringify(JSON.parse(value));
  } catch {
    return value;
  }
}
async function copied(button, value) {
  try {
    await navigator.clipboard.writeText(value);
    button.textContent = "Copied";
  } catch { // not on a page without TLS
    getSelection().selectAllChildren(button.closest(".curl").firstElementChild);
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

// The protocol's binary form: JSON, then each tensor's bytes. Strings have none here and stay in the JSON.
function binary(tensors, rest) {
  const blobs = [];
  const heads = tensors.map(({ data, ...head }) => {
    const kind = TYPED[head.datatype];
    if (!kind) return { ...head, data };
    const big = kind === BigInt64Array || kind === BigUint64Array;
    const element = head.datatype === "BF16" ? toBfloat16 : big ? BigInt : Number;
    const blob = data instanceof kind ? data : kind.from(data, (value) => element(value));
    blobs.push(blob);
    return { ...head, parameters: { binary_data_size: blob.byteLength } };
  });
  const head = new TextEncoder().encode(JSON.stringify({ inputs: heads, ...rest }));
  return [new Blob([head, ...blobs]), head.length];
}

// The upper half of a float32, rounded to the nearest.
function toBfloat16(value) {
  const [bits] = new Uint32Array(Float32Array.of(value).buffer);
  return Number.isNaN(value) ? 0x7fc0 : (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}
const fromBfloat16 = (bits) => new Float32Array(Uint32Array.of(bits << 16).buffer)[0];

// An answer; outputs of BF16 come as bytes after the JSON.
async function decoded(reply) {
  const length = Number(reply.headers.get("inference-header-content-length"));
  if (!length) return reply.json();
  const bytes = await reply.arrayBuffer();
  const answer = JSON.parse(new TextDecoder().decode(bytes.slice(0, length)));
  let begin = length;
  for (const tensor of answer.outputs) {
    const size = tensor.parameters ? tensor.parameters.binary_data_size : undefined;
    if (size === undefined) continue;
    tensor.data = Array.from(new Uint16Array(bytes.slice(begin, begin + size)), fromBfloat16);
    begin += size;
  }
  return answer;
}

// ---- images

// How an image enters, if it can: [batch, C, H, W], [batch, H, W, C], [batch, H, W], or H·W numbers in a row.
function imageOf(list) {
  if (list.length !== 1 || !/^(FP32|FP64|UINT8|FP16)$/.test(list[0].datatype)) return null;
  const [, ...rest] = list[0].shape;
  const side = (size) => (size < 0 ? FREE : size);
  const few = (size) => size === 1 || size === 3 || size === 4;
  if (rest.length === 3 && few(rest[0])) return { channels: rest[0], height: side(rest[1]), width: side(rest[2]), first: true };
  if (rest.length === 3 && few(rest[2])) return { channels: rest[2], height: side(rest[0]), width: side(rest[1]), first: false };
  if (rest.length === 2 && rest[0] > 7 && rest[1] > 7) return { channels: 1, height: rest[0], width: rest[1], first: true };
  const root = Math.sqrt(rest[0]);
  if (rest.length === 1 && rest[0] >= 64 && Number.isInteger(root)) return { channels: 1, height: root, width: root, first: true };
  return null;
}
function dropped(tensor, form, take) {
  const canvas = make("canvas", { width: form.width, height: form.height, "aria-hidden": "true" });
  const file = make("input", { type: "file", accept: "image/*", id: `file-${id()}` });
  const scaled = make("input", { type: "checkbox", id: `scaled-${id()}`, checked: tensor.datatype !== "UINT8" });
  const inverted = make("input", { type: "checkbox", id: `inverted-${id()}` });
  let picture = null;
  let title = "";

  function read() {
    if (!picture) return;
    const pen = canvas.getContext("2d", { willReadFrequently: true });
    pen.fillStyle = "#fff";
    pen.fillRect(0, 0, form.width, form.height);
    pen.drawImage(picture, 0, 0, form.width, form.height);
    const { data } = pen.getImageData(0, 0, form.width, form.height);
    const area = form.width * form.height;
    const values = new Array(area * form.channels);
    const scale = scaled.checked ? 1 / 255 : 1;
    for (let pixel = 0; pixel < area; pixel++) {
      for (let channel = 0; channel < form.channels; channel++) {
        const at = 4 * pixel;
        let value = form.channels === 1 ? Math.round(0.299 * data[at] + 0.587 * data[at + 1] + 0.114 * data[at + 2]) : data[at + channel];
        if (inverted.checked && channel < 3) value = 255 - value;
        values[form.first ? channel * area + pixel : pixel * form.channels + channel] = scale === 1 ? value : Math.round(value * scale * 1e6) / 1e6;
      }
    }
    const shape = tensor.shape.length === 4 ? (form.first ? [1, form.channels, form.height, form.width] : [1, form.height, form.width, form.channels])
      : tensor.shape.length === 3 ? [1, form.height, form.width] : [1, area];
    take({ name: tensor.name, shape, datatype: tensor.datatype, data: values }, `${title}, drawn at ${form.width} × ${form.height}`);
  }
  async function load(blob) {
    if (!blob || !blob.type.startsWith("image/")) return;
    picture = await createImageBitmap(blob);
    title = blob.name || "An image";
    read();
  }
  file.addEventListener("change", () => load(file.files[0]));
  for (const box of [scaled, inverted]) box.addEventListener("change", read);
  const area = make("div", { class: "drop" }, canvas, make("div", {},
    make("div", {}, file, make("label", { class: "button", for: file.id }, "Choose an image"), ` or drop one here: it becomes ${form.channels === 1 ? "grey, " : ""}${form.width} × ${form.height}`),
    make("div", {}, scaled, make("label", { for: scaled.id }, " ÷ 255"), inverted, make("label", { for: inverted.id }, " inverted"))));
  for (const kind of ["dragenter", "dragover"]) area.addEventListener(kind, (event) => { event.preventDefault(); area.classList.add("over"); });
  for (const kind of ["dragleave", "drop"]) area.addEventListener(kind, () => area.classList.remove("over"));
  area.addEventListener("drop", (event) => { event.preventDefault(); load(event.dataTransfer.files[0]); });
  // What is about to be sent, as a picture.
  function show({ data }) {
    const pixels = new ImageData(form.width, form.height);
    const area = form.width * form.height;
    if (data.length !== area * form.channels) return;
    const low = data.reduce((least, value) => Math.min(least, value), Infinity);
    const span = data.reduce((most, value) => Math.max(most, value), -Infinity) - low || 1;
    for (let pixel = 0; pixel < area; pixel++) {
      for (let colour = 0; colour < 3; colour++) {
        const channel = form.channels === 1 ? 0 : colour;
        pixels.data[4 * pixel + colour] = (255 * (data[form.first ? channel * area + pixel : pixel * form.channels + channel] - low)) / span;
      }
      pixels.data[4 * pixel + 3] = 255;
    }
    canvas.getContext("2d").putImageData(pixels, 0, 0);
  }
  return { area, show };
}

// ---- answers

// One row of scores is shown as bars.
function ranked(tensor) {
  return /^(FP|BF)/.test(tensor.datatype) && tensor.shape.length === 2 && tensor.shape[0] === 1 && tensor.shape[1] > 1;
}
function output(tensor, parameters, softmax) {
  const title = make("h3", {}, `${tensor.name} `, make("code", {}, `${tensor.datatype} [${tensor.shape.join(", ")}]`));
  if (!ranked(tensor)) {
    const shown = tensor.data.slice(0, 256).map((value) => (typeof value === "number" ? short(value) : JSON.stringify(value))).join(", ");
    return make("div", {}, title, make("div", { class: "values", tabindex: "0" }, make("code", {}, shown + (tensor.data.length > 256 ? ", …" : ""))));
  }
  let values = tensor.data;
  if (softmax) {
    const peak = Math.max(...values);
    const powers = values.map((value) => Math.exp(value - peak));
    values = powers.map((power) => power / sum(powers));
  }
  const order = values.map((value, place) => place).sort((one, other) => values[other] - values[one]);
  const best = order[0];
  const shown = values.length > 12 ? order.slice(0, 10) : values.map((value, place) => place);
  const low = Math.min(0, ...values);
  const high = Math.max(0, ...values);
  const span = high - low || 1;
  const bars = shown.flatMap((place) => {
    const bar = make("i");
    bar.style.left = `${(100 * (Math.min(values[place], 0) - low)) / span}%`;
    bar.style.width = `${(100 * Math.abs(values[place])) / span}%`;
    const word = (parameters.labels || [])[place] || String(place);
    return [make("span", { class: "label", title: word }, place === best ? make("b", {}, word) : word),
      make("span", { class: place === best ? "bar best" : "bar", "aria-hidden": "true" }, bar), make("span", { class: "value" }, short(values[place]))];
  });
  const rest = values.length - shown.length;
  return make("div", {}, title, make("div", { class: "bars" }, ...bars), ...(rest ? [make("p", { class: "note" }, `and ${rest} smaller ones`)] : []));
}
const short = (value) => (Number.isInteger(value) ? String(value) : Math.abs(value) >= 1e-3 && Math.abs(value) < 1e5 ? value.toFixed(4) : value.toExponential(2));
function verdict(list, expected) {
  let worst = 0;
  let alike = true;
  for (const promise of expected) {
    const tensor = list.find((its) => its.name === promise.name);
    if (!tensor || tensor.data.length !== promise.data.length) { alike = false; continue; }
    promise.data.forEach((value, place) => {
      if (typeof value === "number") worst = Math.max(worst, Math.abs(value - tensor.data[place]));
      else if (value !== tensor.data[place]) alike = false;
    });
  }
  const peak = Math.max(1, ...expected.flatMap((promise) => promise.data.filter((value) => typeof value === "number").map(Math.abs)));
  const good = alike && worst <= 1e-3 * peak;
  const text = good ? `✓ expected output, max |Δ| ${worst ? worst.toExponential(1) : "0"}` : "✗ not the expected output";
  return make("p", { class: `note ${good ? "good" : "bad"}` }, text);
}
