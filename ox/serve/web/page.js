"use strict";

// Elements are built, never parsed from text: names, labels and errors come from files and clients.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value === "boolean") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
function draw(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
const at = (id) => document.getElementById(id);
const sum = (list) => list.reduce((total, value) => total + value, 0);
const pathOf = (name, version) => `v2/models/${encodeURIComponent(name)}/versions/${encodeURIComponent(version)}`;

// Paths have no slash at their begin: a proxy may publish the server below another path than "/".
const addressOf = (path) => new URL(path, document.baseURI).href;

// ---- asking the server

let secret = "";
async function ask(path, options = {}) {
  const headers = { ...options.headers, ...(secret ? { authorization: `Bearer ${secret}` } : {}) };
  const reply = await fetch(path, { ...options, headers });
  if (reply.status === 401 || (reply.status === 403 && !secret)) at("key").hidden = false;
  return reply;
}
async function askJson(path, options) {
  const reply = await ask(path, options);
  if (!reply.ok) throw new Error(await reason(reply));
  return reply.json();
}
async function reason(reply) {
  const text = await reply.text();
  try {
    const { error } = JSON.parse(text);
    return (error && error.message) || error || text;
  } catch {
    return text || `${reply.status} ${reply.statusText}`;
  }
}
at("key").addEventListener("submit", (event) => {
  event.preventDefault();
  secret = at("secret").value.trim();
  at("key").hidden = true;
  poll();
});

// ---- numbers

function count(value) {
  if (value >= 1e6) return [(value / 1e6).toFixed(2), "M"];
  if (value >= 1e4) return [(value / 1e3).toFixed(1), "k"];
  return [value >= 100 || Number.isInteger(value) ? String(Math.round(value)) : value.toFixed(1), ""];
}
function seconds(value) {
  if (value === null) return ["–", ""];
  const [size, unit] = value < 1e-3 ? [value * 1e6, "µs"] : value < 1 ? [value * 1e3, "ms"] : [value, "s"];
  return [size < 10 ? size.toFixed(1) : size.toFixed(0), unit];
}
function bytes(value) {
  return value >= 2 ** 30 ? [(value / 2 ** 30).toFixed(1), "GiB"] : [(value / 2 ** 20).toFixed(0), "MiB"];
}
const said = ([number, unit]) => (unit ? `${number} ${unit}` : number);

// The value below which a share of what a histogram counted lies; within a bucket as if it were evenly filled.
function quantile(share, counts, bounds) {
  const total = sum(counts);
  if (!total) return null;
  let left = share * total;
  for (let place = 0; place < counts.length; place++) {
    if (left <= counts[place] && counts[place]) {
      const low = place ? bounds[place - 1] : 0;
      return place < bounds.length ? low + ((bounds[place] - low) * left) / counts[place] : low;
    }
    left -= counts[place];
  }
  return bounds[bounds.length - 1];
}
function grown(now, before) {
  if (!before) return now;
  const counts = now.counts.map((value, place) => value - before.counts[place]);
  return counts.some((value) => value < 0) ? now : { counts, total: now.total - before.total }; // it began anew
}
const added = (one, other) => ({ counts: one.counts.map((v, i) => v + other.counts[i]), total: one.total + other.total });

// ---- what is shown live

const KEPT = 121;
const WINDOW = 10;
const history = []; // {time, figures}
const points = []; // {rate, p50, p99} of each poll

function each(figures, call) {
  for (const [name, versions] of Object.entries(figures.models))
    for (const [version, model] of Object.entries(versions)) call(name, version, model);
}
const old = (figures, name, version) => figures && figures.models[name] && figures.models[name][version];

function whole(figures, before) {
  let request = null;
  let rows = null;
  each(figures, (name, version, model) => {
    const past = old(before, name, version);
    const its = grown(model.times.request, past && past.times.request);
    const batches = grown(model.batch_rows, past && past.batch_rows);
    request = request ? added(request, its) : its;
    rows = rows ? added(rows, batches) : batches;
  });
  const none = { counts: [], total: 0 };
  return { request: request || none, rows: rows || none };
}

function tile(label, [number, unit], hint) {
  return make("div", { title: hint }, make("dt", {}, label), make("dd", {}, number, ...(unit ? [make("small", {}, unit)] : [])));
}
function tiles(figures, before, span) {
  const recent = whole(figures, before);
  const runs = sum(recent.rows.counts);
  let depth = 0;
  let tokens = null;
  each(figures, (name, version, model) => {
    depth += model.depth;
    if (model.texts) tokens = (tokens || 0) + tokensOf(model, old(before, name, version));
  });
  const bounds = figures.bounds.seconds;
  at("tiles").replaceChildren(
    tile("requests/s", count(sum(recent.request.counts) / span), `answered in the last ${Math.round(span)} s`),
    tile("median latency", seconds(quantile(0.5, recent.request.counts, bounds)), "from the complete request to the written response"),
    tile("p99 latency", seconds(quantile(0.99, recent.request.counts, bounds)), "99 % of the requests were not slower"),
    tile("mean batch size", runs ? count(recent.rows.total / runs) : ["–", ""], "samples per batch in the same time"),
    ...(tokens === null ? [] : [tile("tokens/s", count(tokens / span), "of all texts in the same time")]),
    tile("waiting", count(depth), "requests in the queue"),
    tile("connections", count(figures.server.connections)),
    ...(figures.process.resident ? [tile("memory", bytes(figures.process.resident), `${figures.workers} process(es)`)] : []),
  );
}

const straight = (top) => (value) => value / top;
const logarithmic = (low, top) => (value) => Math.log(Math.max(value, low) / low) / Math.log(top / low);
function line(values, height) {
  let path = "";
  let pen = "M";
  values.forEach((value, place) => {
    if (value === null) { pen = "M"; return; }
    path += `${pen}${place},${(100 - 94 * height(value)).toFixed(2)}`;
    pen = "L";
  });
  return path;
}
function chart(title, series, form, legend, log) {
  const known = series.flat().filter((value) => value !== null);
  const top = Math.max(...known, 1e-5);
  const low = log ? Math.min(...known, top) / 2 : 0;
  const height = log ? logarithmic(low, top) : straight(top);
  const svg = draw("svg", { viewBox: `0 0 ${KEPT - 1} 100`, preserveAspectRatio: "none", role: "img",
    "aria-label": `${title}, the last two minutes; ${legend.map((name, i) => `${name} now ${said(form(series[i][KEPT - 1] || 0))}`).join(", ")}` });
  for (const height of [0, 50, 100]) svg.append(draw("line", { class: "axis", x1: 0, x2: KEPT - 1, y1: height, y2: height }));
  series.forEach((values, place) => {
    const path = line(values, height);
    const first = values.findIndex((value) => value !== null);
    if (place === 0 && first >= 0 && legend.length === 1)
      svg.append(draw("path", { class: "first", d: `${path}L${KEPT - 1},100L${first},100Z`, fill: "currentColor", opacity: 0.14 }));
    svg.append(draw("path", { class: place ? "other" : "first", d: path, fill: "none", stroke: "currentColor", "stroke-width": 2 }));
  });
  const names = legend.map((name, place) => make("span", {}, make("i", { class: `mark ${place ? "other" : "first"}` }), name, " "));
  return make("figure", { class: "chart" },
    make("figcaption", {}, make("span", {}, title, known.length ? ` · top ${said(form(top))}${log ? ", logarithmic" : ""}` : ""), make("span", {}, ...names)),
    svg, make("div", { class: "ends" }, make("span", {}, "2 minutes ago"), make("span", {}, "now")));
}
function charts() {
  const padded = [...Array(KEPT - points.length).fill({ rate: null, p50: null, p99: null }), ...points];
  at("charts").replaceChildren(
    chart("Requests per second", [padded.map((point) => point.rate)], count, ["answered"]),
    chart("Latency", [padded.map((point) => point.p50), padded.map((point) => point.p99)], seconds, ["median", "p99"], true),
  );
}

// ---- the models

const cards = new Map(); // "name version" -> what its card can do
const unavailable = new Map();

function show(figures, before, span) {
  const seen = new Set();
  each(figures, (name, version, model) => {
    const key = JSON.stringify([name, version]);
    seen.add(key);
    const known = cards.get(key);
    const what = JSON.stringify([model.info, model.start_s]);
    if (!known || known.what !== what) { // new, or another file under the same name
      const made = { ...card(name, version, model, known ? known.element.open : cards.size === 0), what };
      if (known) known.element.replaceWith(made.element);
      else at("list").append(made.element);
      cards.set(key, made);
    }
    cards.get(key).update(model, old(before, name, version), span, figures.bounds);
  });
  for (const [key, its] of cards) if (!seen.has(key)) { its.element.remove(); cards.delete(key); }
}
async function states() {
  let index;
  try {
    index = await askJson("v2/repository/index", { method: "POST", body: "{}" });
  } catch {
    return; // this page works without it
  }
  const gone = index.filter((entry) => !cards.has(JSON.stringify([entry.name, entry.version])) && entry.state !== "READY");
  for (const element of unavailable.values()) element.remove();
  unavailable.clear();
  for (const entry of gone) {
    const state = make("span", { class: `state ${entry.state === "LOADING" ? "warn" : "bad"}` }, (entry.state || "UNAVAILABLE").toLowerCase());
    const line = make("details", { class: "model" }, make("summary", {}, make("span", { class: "name" }, entry.name),
      make("span", { class: "version" }, entry.version ? `version ${entry.version}` : ""), state),
      make("p", { class: "note inside" }, entry.reason || "no reason given"));
    unavailable.set(`${entry.name} ${entry.version}`, line);
    at("list").append(line);
  }
}

const STAGES = ["parse", "queue", "run", "serialise"];
function card(name, version, model, open) {
  const numbers = make("span", { class: "numbers" });
  const bar = make("div", { class: "stages", role: "img" });
  const legend = make("div", { class: "legend" });
  const left = make("dd");
  const failures = make("dd");
  const facts = make("dl", { class: "facts" },
    make("dt", {}, "runs on"), make("dd", {}, `${model.info.device} · ${model.info.provider}`),
    make("dt", {}, "batching"), make("dd", {}, model.texts ? "tokens of many texts in one run" : model.info.batching === "off" ? `off: ${model.info.why}` : `batch size up to ${model.info.batching}, proven safe`),
    make("dt", {}, "batches started"), left, make("dt", {}, "failed requests"), failures);
  const texts = model.texts ? engine() : null;
  const about = make("div", {}, make("h3", {}, "Execution"), facts, ...(texts ? texts.elements : []), make("h3", {}, "Time of a request by stage"), bar, legend);
  const form = make("div");
  const inside = make("div", { class: "inside" }, about, form);
  const element = make("details", { class: "model" },
    make("summary", {}, make("span", { class: "name" }, name), make("span", { class: "version" }, `version ${version}`),
      make("span", { class: "state good" }, "ready"), numbers), inside);
  let filled = false;
  element.addEventListener("toggle", async () => {
    if (!element.open || filled) return;
    filled = true;
    try {
      const meta = await askJson(pathOf(name, version));
      about.append(...tensors("Inputs", meta.inputs), ...tensors("Outputs", meta.outputs));
      form.replaceWith(model.texts ? chat(name) : await trial(name, version, meta, Number(model.info.samples)));
    } catch (error) {
      filled = false;
      form.replaceChildren(make("p", { class: "error" }, error.message));
    }
  });
  element.open = open;

  function update(now, past, span, bounds) {
    const request = grown(now.times.request, past && past.times.request);
    const number = (text, value) => make("span", {}, make("b", {}, value), ` ${text}`);
    numbers.replaceChildren(number("requests/s", said(count(sum(request.counts) / span))),
      number("median", said(seconds(quantile(0.5, request.counts, bounds.seconds)))),
      number("answered", said(count(sum(now.times.request.counts)))));
    if (texts) texts.update(now, past, span, bounds);
    const totals = STAGES.map((stage) => now.times[stage].total);
    const all = sum(totals);
    const answered = sum(now.times.request.counts);
    bar.replaceChildren(...STAGES.map((stage, place) => {
      const part = make("i", { class: stage });
      part.style.width = all ? `${(100 * totals[place]) / all}%` : "0";
      return part;
    }));
    const mean = (place) => said(seconds(answered ? totals[place] / answered : null));
    bar.setAttribute("aria-label", STAGES.map((stage, place) => `${stage} ${mean(place)}`).join(", "));
    legend.replaceChildren(...STAGES.map((stage, place) => make("span", {}, make("i", { class: `mark ${stage}` }), `${stage} ${mean(place)}`)));
    const why = { full: "full", idle: "instance free", wait: "maximum wait", deadline: "deadline" };
    left.textContent = Object.entries(now.left).filter(([, many]) => many).map(([key, many]) => `${said(count(many))} ${why[key] || key}`).join(", ") || "none yet";
    failures.textContent = Object.entries(now.failures).filter(([, many]) => many).map(([key, many]) => `${many} ${key.toLowerCase()}`).join(", ") || "none";
  }
  return { element, update };
}
function tensors(title, list) {
  const rows = list.map((tensor) => {
    const extra = tensor.parameters || {};
    const labels = extra.labels ? [make("span", { class: "meaning" }, `${extra.labels.length} labels: ${extra.labels.slice(0, 12).join(", ")}${extra.labels.length > 12 ? ", …" : ""}`)] : [];
    const meaning = extra.meaning ? [make("span", { class: "meaning" }, extra.meaning)] : [];
    const shape = `[${tensor.shape.map((size) => (size < 0 ? "?" : size)).join(", ")}]`;
    return make("tr", {}, make("td", {}, make("code", {}, tensor.name), ...meaning, ...labels), make("td", {}, make("code", {}, tensor.datatype)), make("td", {}, make("code", {}, shape)));
  });
  const head = make("tr", {}, ...["name", "type", "shape"].map((word) => make("th", { scope: "col" }, word)));
  return [make("h3", {}, title), make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows))];
}

// ---- all of it, once a second while somebody looks

let polls = 0;
let polling = false;
async function poll() {
  if (polling || document.hidden) return;
  polling = true;
  try {
    const figures = await askJson("v2/ox/figures");
    const time = performance.now() / 1000;
    const last = history[history.length - 1];
    const early = history.find((entry) => time - entry.time <= WINDOW) || last;
    if (last) {
      const step = whole(figures, last.figures);
      points.push({ rate: sum(step.request.counts) / (time - last.time), p50: quantile(0.5, step.request.counts, figures.bounds.seconds),
        p99: quantile(0.99, step.request.counts, figures.bounds.seconds) });
      if (points.length > KEPT) points.shift();
      tiles(figures, early.figures, time - early.time);
    } else {
      tiles(figures, figures, 1);
    }
    charts();
    show(figures, early ? early.figures : figures, early ? time - early.time : 1);
    history.push({ time, figures });
    if (history.length > WINDOW + 2) history.shift();
    if (polls++ % 2 === 0) {
      const [about, ready] = await Promise.all([askJson("v2"), ask("v2/health/ready")]);
      const up = figures.process.start_s ? `, up ${lasted(Date.now() / 1000 - figures.process.start_s)}` : "";
      at("server").textContent = `${about.version} on ${location.host} · ${ready.ok ? "ready" : "not ready"}${up}`;
      document.title = `${about.name} · ${location.host}`;
      await states();
    }
  } catch (error) {
    at("server").textContent = `no response: ${error.message}`;
  } finally {
    polling = false;
  }
}
function lasted(span) {
  const minutes = Math.floor(span / 60);
  if (minutes < 1) return `${Math.max(1, Math.round(span))} s`;
  return minutes < 60 ? `${minutes} min` : minutes < 2880 ? `${Math.floor(minutes / 60)} h` : `${Math.floor(minutes / 1440)} days`;
}

// ---- dark or light

function theme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  at("theme").textContent = dark ? "Light" : "Dark";
}
const preference = matchMedia("(prefers-color-scheme: dark)");
theme(preference.matches);
preference.addEventListener("change", () => theme(preference.matches));
at("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme !== "dark"));

setInterval(poll, 1000);
document.addEventListener("visibilitychange", poll);
poll();
