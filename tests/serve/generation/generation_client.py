"""What the tests of generation share: a tokenizer, and a client."""

from __future__ import annotations

import threading
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ox.errors import OxError
from ox.generation import SamplingParams
from ox.serve.generation.decoder import Decoder
from ox.serve.generation.engine import GenerationEngine
from ox.serve.generation.request import GenerationRequest, TokenEvent
from ox.serve.runtime.source import Source

VOCABULARY, CONTEXT, END = 100, 256, 99
LOADED: dict[Path, Decoder] = {}
GREEDY = SamplingParams(temperature=0)


def write_tokenizer(path: Path, count: int = VOCABULARY) -> Path:
    """A token for each printable character, some for bytes of others, and the last one, which ends a text."""
    tokenizers = pytest.importorskip("tokenizers")
    letters = ["\u0120", *(chr(33 + i) for i in range(94)), *(chr(0xC3 - i) for i in range(count - 96)), "<end>"]
    numbers = {letter: i for i, letter in enumerate(letters)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(numbers, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>"])
    tokenizer.save(str(path))
    return path


def loaded(source: Source, *more: Any, **named: Any) -> Decoder:
    """In place of `Decoder`, for files that stay: each is loaded once, and a copy belongs to its engine alone."""
    if source.path not in LOADED:
        LOADED[source.path] = Decoder(source, *more, **named)
    decoder = copy(LOADED[source.path])
    decoder.run = copy(decoder.run)
    return decoder


class Answer:
    """What came of a request."""

    def __init__(self) -> None:
        self.events: list[TokenEvent] = []
        self.error: OxError | None = None
        self.done = threading.Event()
        self.handle: Any = None

    def on_event(self, event: TokenEvent) -> None:
        self.events.append(event)
        if event.finish_reason is not None:
            self.done.set()

    def on_error(self, error: OxError) -> None:
        self.error = error
        self.done.set()

    def wait(self) -> Answer:
        assert self.done.wait(60)
        return self

    @property
    def tokens(self) -> list[int]:
        return [event.token for event in self.events if event.token is not None]

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events)


class Client:
    """Sends requests to an engine."""

    def __init__(self, engine: GenerationEngine) -> None:
        self.engine = engine

    def send(self, prompt: list[int], count: int | None = 20, **named: Any) -> Answer:
        answer = Answer()
        named.setdefault("sampling", GREEDY)
        request = GenerationRequest(prompt, max_tokens=count, **named)
        answer.handle = self.engine.submit(request, answer.on_event, answer.on_error)
        return answer

    def ask(self, prompt: list[int], count: int | None = 20, **named: Any) -> Answer:
        return self.send(prompt, count, **named).wait()


def prompts(count: int, longest: int = 40, seed: int = 0) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [random.integers(0, 95, random.integers(1, longest)).tolist() for _ in range(count)]


def assert_nothing_is_left(client: Client) -> None:
    """No text, and no memory but blocks for later."""
    scheduler = client.engine._scheduler
    assert not scheduler.texts and not len(scheduler.waiting) and not client.engine._incoming
    assert scheduler.used_blocks == scheduler.prefixes.blocks <= scheduler.most_blocks
    assert not scheduler.waiting._served and not scheduler.waiting._counts
