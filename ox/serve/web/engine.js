
// ---- the engine of a model that makes texts

const tokensOf = (model, past) => Math.max(0, model.texts.completion_tokens - (past && past.texts ? past.texts.completion_tokens : 0));

function engine() {
  const values = new Map();
  const facts = make("dl", { class: "facts engine" });
  for (const label of ["first token", "between tokens", "tokens/s", "running", "waiting", "cache", "preemptions"]) {
    const value = make("dd", {}, "–");
    values.set(label, value);
    facts.append(make("dt", {}, label), value);
  }

  function update(now, past, span, bounds) {
    const texts = now.texts;
    const times = (name) => {
      const recent = grown(texts.times[name], past && past.texts && past.texts.times[name]);
      const of = (share) => said(seconds(quantile(share, recent.counts, bounds.seconds)));
      return sum(recent.counts) ? `median ${of(0.5)}, p99 ${of(0.99)}` : "–";
    };
    const inSlots = texts.blocks - texts.kept_blocks;
    const show = {
      "first token": times("first_token"),
      "between tokens": times("between_tokens"),
      "tokens/s": said(count(tokensOf(now, past) / span)),
      running: said(count(texts.running)),
      waiting: said(count(texts.waiting)),
      cache: `${Math.round((100 * texts.blocks) / texts.most_blocks)} % of ${said(count(texts.most_blocks))} blocks: ${inSlots} in slots, ${texts.kept_blocks} kept for later prompts`,
      preemptions: said(count(texts.preemptions)),
    };
    for (const [label, text] of Object.entries(show)) values.get(label).textContent = text;
  }
  return { elements: [make("h3", {}, "Generation"), facts], update };
}
