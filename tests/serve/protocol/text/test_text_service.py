"""Grammars are compiled beside the requests of others."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ox.serve.generation.constraint import Constraints

pytest.importorskip("llguidance", reason="the extra text is not installed")
PATH = "/v1/chat/completions"


def test_others_do_not_wait_for_grammars(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither short requests, which the event loop reads, nor long ones and those with log-probabilities, for which the
    loop has threads of its own."""
    go, began, compile = threading.Event(), threading.Event(), Constraints._compile

    def held(self: Constraints, constraint: Any) -> Any:
        began.set()
        assert go.wait(120)
        return compile(self, constraint)

    def chat(**more: Any) -> tuple[int, Any]:
        body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], **more}
        status, document = ask("POST", PATH, body)
        return status, document["choices"][0]["message"]["content"]

    monkeypatch.setattr(Constraints, "_compile", held)
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    with ThreadPoolExecutor(64) as clients:
        try:
            waiting = [clients.submit(chat, response_format=form, max_tokens=1) for _ in range(40)]
            assert began.wait(120)
            assert chat() == (200, "Hello there, friend.")
            assert chat(user="u" * 10_000, logprobs=True) == (200, "Hello there, friend.")
            assert not any(each.done() for each in waiting)
        finally:
            go.set()
        assert {each.result()[0] for each in waiting} == {200}
