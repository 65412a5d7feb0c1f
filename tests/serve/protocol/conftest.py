"""Servers without a GPU, also where there is one, except in tests for GPUs; generation engines that are held."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import orjson
import pytest
from scripted_decoder import HERMES, write_scripted_decoder

from ox import errors
from ox.serve import ModelConfig, RequestLimits, Server, service
from ox.serve.access import keyfile
from ox.serve.access.key import Key, digest_of
from ox.serve.generation.engine import GenerationEngine
from ox.serve.protocol.v2 import cuda_region


@pytest.fixture(autouse=True)
def without_a_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise errors.DeviceError("CuPy finds no CUDA device", got="0 devices")

    if request.node.get_closest_marker("gpu") is None:
        monkeypatch.setattr(cuda_region, "cupy", missing)
        monkeypatch.setattr(service, "extensions", lambda: service.EXTENSIONS)


@pytest.fixture
def hold_steps(monkeypatch: pytest.MonkeyPatch) -> Callable[[type, str], list[int]]:
    """From the fourth step on, generation engines wait until a method of a class has been called. Gives their steps."""

    def hold(owner: type, method: str) -> list[int]:
        steps: list[int] = []
        go, step, real = threading.Event(), GenerationEngine._step, getattr(owner, method)

        def held(self: GenerationEngine) -> bool:
            steps.append(len(steps))
            assert len(steps) <= 3 or go.wait(120)
            return step(self)

        def told(*arguments: Any, **named: Any) -> Any:
            value = real(*arguments, **named)
            go.set()
            return value

        monkeypatch.setattr(GenerationEngine, "_step", held)
        monkeypatch.setattr(owner, method, told)
        return steps

    return hold


CALL = ["<tool_call>", '{"name": "f", ', '"arguments": ', '{"x": ', '"y"}', "}", "</tool_call>"]
SCRIPTS = {
    "call": ["See ", "here. ", *CALL], "twice": CALL + CALL, "ends": ["one ", "STOP", "two"],
    "cut": ["See ", *CALL[:4]],
    "large": [*CALL[:3], '{"x": 123456789012345678901234567890', *CALL[-2:]],
    "half": [*CALL[:3], '{"x": "\\ud83d"', *CALL[-2:]],
    "thought": ["<think>", "hm ", "hm", "</think>", "done"],
}  # fmt: skip
# One whose template knows reasoning.
REASONING = HERMES.replace("assistant\n", "assistant\n{% if enable_thinking %}think{% endif %}") + "{# <think> #}"


@pytest.fixture(scope="session")
def scripted_folder(shared_folder: Callable[..., Path]) -> Path:
    """Decoders whose answers tests know, `tiny` and `thinking`; the last word of a conversation names its script."""
    pytest.importorskip("tokenizers", reason="the extra text is not installed")
    pytest.importorskip("jinja2", reason="the extra text is not installed")

    def write(folder: Path) -> None:
        write_scripted_decoder(folder / "tiny", SCRIPTS, temperature=0)
        write_scripted_decoder(folder / "thinking", SCRIPTS, REASONING, temperature=0)

    return shared_folder("dialects", write)


@pytest.fixture(scope="session")
def scripted(scripted_folder: Path) -> Iterator[Server]:
    """Serves them."""
    with Server(
        [scripted_folder / "tiny", scripted_folder / "thinking"],
        options=ModelConfig(threads=1),
        limits=RequestLimits(json=200_000),
    ) as running:
        yield running


@pytest.fixture
def guarded(scripted_folder: Path, tmp_path: Path) -> Iterator[Server]:
    """A server of `tiny` with two keys, of which the second may not use it."""
    path = tmp_path / "keys.toml"
    keyfile.write(path, [Key("a", digest_of(b"a")), Key("b", digest_of(b"b"), models=("other",))])
    with Server([scripted_folder / "tiny"], options=ModelConfig(threads=1), keys=path) as server:
        yield server


@pytest.fixture
def ask(scripted: Server) -> Callable[..., tuple[int, Any]]:
    """The status and the JSON of an answer, or the bytes of a stream."""

    def send(method: str, target: str, body: Any = None, server: Server = scripted, **headers: str) -> tuple[int, Any]:
        lines = {name.replace("_", "-"): value for name, value in headers.items()}
        with closing(HTTPConnection(server.host, server.port, timeout=300)) as connection:
            connection.request(
                method, target, body if isinstance(body, bytes | None) else json.dumps(body).encode(), lines
            )
            response = connection.getresponse()
            data = response.read()
        return response.status, orjson.loads(data) if response.getheader("content-type") == "application/json" else data

    return send


@pytest.fixture
def scripted_openai(scripted: Server) -> Iterator[Any]:
    """The client of OpenAI's package."""
    openai = pytest.importorskip("openai", reason="the package openai is not installed")
    with openai.OpenAI(base_url=f"{scripted.url}/v1", api_key="any", max_retries=0, timeout=300) as client:
        yield client
