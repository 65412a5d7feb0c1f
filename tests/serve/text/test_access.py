"""Keys and tokens per minute hold for texts, and refused requests count."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from rows import rows

from ox.serve import ModelConfig, Server
from ox.serve.access import keyfile
from ox.serve.access.key import Key, digest_of

KEYS = [
    Key("few", digest_of(b"ox_few"), ("sentences",), ("infer",), tokens_per_minute=30.0),
    Key("reader", digest_of(b"ox_reader"), ("*",), ("read",)),
]


@pytest.fixture
def keyed(sentences: Path, pairs: Path, tmp_path: Path) -> Iterator[Server]:
    path = tmp_path / "keys.toml"
    keyfile.write(path, KEYS)
    with Server([sentences, pairs], options=ModelConfig(device="cpu", instances=1, max_rows=4), keys=path) as running:
        yield running


def ask(server: Server, key: str | None, path: str, **document: Any) -> tuple[int, Any]:
    request = Request(server.url + path, json.dumps(document).encode())
    if key is not None:
        request.add_header("authorization", f"Bearer ox_{key}")
    try:
        with urlopen(request, timeout=60) as reply:
            return reply.status, json.loads(reply.read())
    except HTTPError as error:
        return error.code, json.loads(error.read())


def test_a_key_is_for_its_models_and_actions(keyed: Server) -> None:
    text = {"model": "sentences", "input": "light"}
    assert ask(keyed, "few", "/v1/embeddings", **text)[0] == 200
    assert ask(keyed, None, "/v1/embeddings", **text)[0] == 401
    assert ask(keyed, "reader", "/v1/embeddings", **text)[0] == 403
    status, answer = ask(keyed, "few", "/v1/rerank", model="pairs", query="a", documents=["b"])
    assert (status, answer["error"]["type"]) == (403, "permission_error")
    assert ask(keyed, "few", "/tokenize", model="pairs", prompt="a")[0] == 403


@rows(("path", "fields"), [
    ("/v1/completions", {"prompt": "a"}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
    ("/v1/messages", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}),
    ("/v1/responses", {"input": "a"}), ("/api/generate", {"prompt": "a"}), ("/v1/embeddings", {"input": ""}),
])  # fmt: skip
def test_a_request_that_the_model_cannot_answer_is_one_failure(
    server: Server, post: Callable[..., tuple[int, Any]], path: str, fields: dict[str, Any]
) -> None:
    def failures() -> int:
        with urlopen(f"{server.url}/v2/models/sentences/stats", timeout=60) as reply:
            return int(json.load(reply)["model_stats"][0]["inference_stats"]["fail"]["count"])

    before = failures()
    assert post(path, model="sentences", **fields)[0] == 400
    assert failures() == before + 1


def test_tokens_per_minute(keyed: Server) -> None:
    text = {"model": "sentences", "input": [" ".join(["light"] * 15)] * 2}  # 34 tokens
    assert ask(keyed, "few", "/v1/embeddings", **text)[0] == 200
    status, answer = ask(keyed, "few", "/v1/embeddings", **text)
    assert status == 429 and "30 tokens a minute" in answer["error"]["message"]
