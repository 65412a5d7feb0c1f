"""What is asked of a decoder, and what is right: what it answers to the same request when nobody else asks."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from others import call

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
PROMPTS = ("In the beginning", "And it came to pass, that when the king", "the cat sat on the mat. " * 3, "A")
END = ("stop", "length")
Choices = list[tuple[str, str]]  # text and finish_reason of each


@dataclass
class TextCase:
    """A request with a seed; `answer` is what `ask_alone` got."""

    path: str
    body: dict[str, Any]
    answer: Choices = field(default_factory=list)

    def problem(self, choices: Choices) -> str | None:
        """What is wrong with an answer, or None."""
        if choices == self.answer:
            return None
        wrong = next((pair for pair in zip(choices, self.answer, strict=False) if pair[0] != pair[1]), None)
        return f"{self.path} {json.dumps(self.body)[:200]}: {len(choices)} choices, not the same as alone: {wrong}"[
            :900
        ]


class TextCases:
    """All that is asked of one decoder.

    Attributes:
        usual: requests with a seed.
        long: with so many events that they do not fit into the buffers of a client that stops reading.
        bad: path, body and the status of the refusal.
    """

    def __init__(self, model: str, context: int) -> None:
        self.model = model
        self.usual = _usual_cases(model, context)
        self.long = _long_cases(model, context)
        self.bad = _bad_requests(model, context)

    async def ask_alone(self, port: int) -> list[str]:
        """Asks one after the other. The first time it sets the answers; then it says which have become others."""
        wrong = []
        for case in (*self.usual, *self.long):
            status, body = await call(port, "POST", case.path, case.body)
            if status != 200:
                wrong.append(f"alone: {status} {body[:300]!r} to {json.dumps(case.body)[:200]}")
                continue
            choices = whole_choices(case.path, body)
            if any(reason not in END for _, reason in choices):
                wrong.append(f"alone: {choices}")
            case.answer = case.answer or choices
            problem = case.problem(choices)
            wrong += [f"afterwards: {problem}"] if problem else []
        return wrong


def _usual_cases(model: str, context: int) -> list[TextCase]:
    """Greedy and drawn, short and longer, one text and several, free and of a form."""
    seeds: list[dict[str, Any]] = [{"temperature": 0}] + [{"seed": seed, "temperature": 0.9} for seed in (1, 2)]
    cases = []
    for number, prompt in enumerate(PROMPTS):
        for place, sampling in enumerate(seeds):
            length = (8, context // 16, context // 8)[(number + place) % 3]
            body = {"model": model, "max_tokens": length, "ignore_eos": place == 2, **sampling}
            cases.append(TextCase(COMPLETIONS, {**body, "prompt": prompt}))
            message = {"role": "user", "content": prompt}
            cases.append(TextCase(CHAT, {**body, "messages": [message], "top_p": 0.95}))
    seed: dict[str, Any] = {"model": model, "seed": 3, "max_tokens": context // 16}
    cases += [
        TextCase(COMPLETIONS, {**seed, "prompt": [PROMPTS[0], PROMPTS[3]], "n": 3, "frequency_penalty": 0.5}),
        TextCase(COMPLETIONS, {**seed, "prompt": PROMPTS[1], "stop": ["e", "th"], "echo": True}),
        TextCase(COMPLETIONS, {**seed, "prompt": PROMPTS[1], "guided_choice": ["yes", "no", "perhaps"]}),
        TextCase(CHAT, {**seed, "messages": [{"role": "user", "content": "Hello"}], "n": 2, "min_p": 0.01}),
    ]
    return cases


def _long_cases(model: str, context: int) -> list[TextCase]:
    body = {"model": model, "max_tokens": context // 4, "logprobs": 20, "ignore_eos": True, "n": 3}
    return [TextCase(COMPLETIONS, {**body, "prompt": prompt, "seed": 4}) for prompt in PROMPTS[:2]]


def _bad_requests(model: str, context: int) -> list[tuple[str, bytes, int]]:
    good: dict[str, Any] = {"model": model, "prompt": "a", "stream": True}
    wrong: list[tuple[str, dict[str, Any], int]] = [
        (COMPLETIONS, {"prompt": [-1]}, 400),
        (COMPLETIONS, {"prompt": ""}, 400),
        (COMPLETIONS, {"temperature": 9}, 400),
        (COMPLETIONS, {"prompt": "a" * (400 * context)}, 400),
        (COMPLETIONS, {"max_tokens": 2 * context}, 400),
        (COMPLETIONS, {"model": "nobody"}, 404),
        (COMPLETIONS, {"model": "stable"}, 400),
        (COMPLETIONS, {"guided_regex": "("}, 400),
        (COMPLETIONS, {"guided_json": {"type": 3}}, 400),
        (CHAT, {}, 400),
        (CHAT, {"prompt": None, "messages": [{"role": "nobody", "content": "a"}]}, 400),
    ]
    made = [(path, json.dumps({**good, **change}).encode(), status) for path, change, status in wrong]
    return [*made, (COMPLETIONS, b'{"model": "\xff"}', 400), (COMPLETIONS, b"{", 400)]


def refusal_problem(status: int, body: bytes, expected: int) -> str | None:
    """What is wrong with a refusal, or None."""
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = ""
    if status != expected or not message or "Traceback" in message:
        return f"refused with {status} instead of {expected}: {body[:300]!r}"
    return None


def whole_choices(path: str, body: bytes) -> Choices:
    """The texts of an answer that is one JSON document; raises KeyError or ValueError if it is none."""
    found = json.loads(body)["choices"]
    ordered = sorted(found, key=lambda choice: choice["index"])
    texts = [each["message"]["content"] if path == CHAT else each["text"] for each in ordered]
    return [(text, each["finish_reason"]) for text, each in zip(texts, ordered, strict=True)]


class StreamedChoices:
    """The texts of an answer in events, from pieces of the stream. `problem` is set once something is wrong."""

    def __init__(self, path: str) -> None:
        self._path, self._held = path, b""
        self._texts: dict[int, list[str]] = {}
        self._reasons: dict[int, str] = {}
        self.done = False
        self.problem: str | None = None

    def add(self, data: bytes) -> None:
        *events, self._held = (self._held + data).split(b"\n\n")
        for event in events:
            self._event(event)

    def _event(self, event: bytes) -> None:
        if event.startswith(b":"):  # a heartbeat
            return
        if self.done or not event.startswith(b"data: "):
            self.problem = f"an event that may not be: {event[:200]!r}"
        elif event == b"data: [DONE]":
            self.done = True
        else:
            document = json.loads(event[6:])
            if "error" in document:
                self.problem = f"an error in the stream: {document}"
                return
            for choice in document["choices"]:
                index = choice["index"]
                if index in self._reasons:
                    self.problem = f"an event after the end of its text: {event[:200]!r}"
                text = choice["delta"].get("content") if self._path == CHAT else choice["text"]
                self._texts.setdefault(index, []).append(text or "")
                if choice["finish_reason"] is not None:
                    self._reasons[index] = choice["finish_reason"]

    def choices(self) -> Choices:
        """All of them; a text without an end has no reason."""
        return [("".join(self._texts[index]), self._reasons.get(index, "none")) for index in sorted(self._texts)]
