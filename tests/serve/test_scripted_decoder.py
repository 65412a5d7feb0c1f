"""The scripted decoder says what its script says, alone and beside others."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from scripted_decoder import write_scripted_decoder

from ox.serve import ModelConfig, Server

SCRIPTS = {
    "call": ["<tool_call>", '{"name": ', '"f"}', "</tool_call>"],
    "twice": ["tick ", "tick ", "tick "],
    "special": ["[CALL]", "tick "],
}


def test_answers_follow_their_scripts(shared_folder: Callable[..., Path]) -> None:
    pytest.importorskip("jinja2", reason="the extra text is not installed")

    def write(folder: Path) -> Path:
        return write_scripted_decoder(folder / "scripted", SCRIPTS, special=["[CALL]"])

    folder = shared_folder("scripted_decoder", write) / "scripted"
    with Server([folder], options=ModelConfig(threads=1)) as server:

        def ask(content: str) -> Any:
            body = {"model": "scripted", "temperature": 0, "messages": [{"role": "user", "content": content}]}
            head = {"content-type": "application/json"}
            with closing(HTTPConnection(server.host, server.port, timeout=60)) as connection:
                connection.request("POST", "/v1/chat/completions", json.dumps(body), head)
                response = connection.getresponse()
                return json.loads(response.read())["choices"][0]["message"]["content"]

        expected = {name: "".join(script) for name, script in SCRIPTS.items()}
        expected |= {"special": "tick ", "none": "Hello there, friend."}
        asked = [f"{'word ' * length}{name}" for length in (0, 3, 40) for name in expected]
        with ThreadPoolExecutor(len(asked)) as threads:
            answers = list(threads.map(ask, asked))
    assert answers == [expected[content.split(" ")[-1]] for content in asked]
