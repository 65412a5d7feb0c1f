
// ---- a conversation with a model that makes texts

function chat(name) {
  const messages = [];
  const log = make("div", { class: "talk", role: "log", tabindex: "0", "aria-label": `Conversation with ${name}` });
  const text = make("textarea", { id: `message-${id()}`, rows: "2", placeholder: "Message" });
  const label = make("label", { for: text.id }, make("h3", {}, "Chat"));
  const send = make("button", { type: "submit", class: "main" }, "Send");
  const stop = make("button", { type: "button", hidden: true, onclick: () => running.abort() }, "Stop");
  const reset = make("button", { type: "button", onclick: () => { messages.length = 0; log.replaceChildren(); took.textContent = ""; text.focus(); } }, "New conversation");
  const took = make("span", { class: "note", role: "status" });
  let running = null;

  text.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  function line(role, content) {
    const words = make("p", { class: role }, content);
    log.append(words);
    log.scrollTop = log.scrollHeight;
    return words;
  }
  async function say(event) {
    event.preventDefault();
    const content = text.value.trim();
    if (!content || running) return;
    text.value = "";
    messages.push({ role: "user", content });
    line("user", content);
    const answer = { role: "assistant", content: "" };
    const words = line("assistant", "");
    running = new AbortController();
    send.hidden = !(stop.hidden = false);
    reset.disabled = true;
    const begun = performance.now();
    try {
      const body = JSON.stringify({ model: name, messages, stream: true, stream_options: { include_usage: true } });
      const reply = await ask("v1/chat/completions", { method: "POST", body, headers: { "content-type": "application/json" }, signal: running.signal });
      if (!reply.ok) throw new Error(await reason(reply));
      for await (const part of events(reply)) {
        if (part.error) throw new Error(part.error.message);
        for (const choice of part.choices) answer.content += choice.delta.content || "";
        if (words.textContent !== answer.content) {
          words.textContent = answer.content;
          log.scrollTop = log.scrollHeight;
        }
        if (part.usage) took.textContent = `${part.usage.completion_tokens} tokens in ${said(seconds((performance.now() - begun) / 1000))}`;
      }
      messages.push(answer);
    } catch (error) {
      if (error.name === "AbortError") {
        messages.push(answer);
        took.textContent = "stopped";
      } else {
        messages.pop(); // it was not answered
        words.className = "error";
        words.textContent = error.message;
      }
    } finally {
      running = null;
      send.hidden = !(stop.hidden = true);
      reset.disabled = false;
      text.focus();
    }
  }
  const form = make("form", { onsubmit: say, "aria-label": `Chat with ${name}` }, label, log, text, make("div", { class: "go" }, send, stop, reset, took));
  return form;
}

// The documents of a stream of server-sent events, up to [DONE].
async function* events(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("the server ended in the middle of its answer");
    held += value;
    const blocks = held.split("\n\n");
    held = blocks.pop();
    for (const block of blocks) {
      if (block === "data: [DONE]") return;
      if (block.startsWith("data: ")) yield JSON.parse(block.slice(6));
    }
  }
}
