"""/v1/models: the models that read texts, beside those that write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from ox.serve import Server


def listed(server: Server, name: str = "") -> Any:
    with urlopen(f"{server.url}/v1/models{name}", timeout=60) as reply:
        return json.loads(reply.read())


def test_those_that_answer_embeddings_or_rerank(server: Server, post: Callable[..., tuple[int, Any]]) -> None:
    answer = listed(server)
    names = [entry["id"] for entry in answer["data"]]
    assert answer["object"] == "list" and set(names) == {"sentences", "pairs", "unmasked"}  # none answers for `classes`
    for name in names:
        embeds = post("/v1/embeddings", {"model": name, "input": "light"})[0] == 200
        ranks = post("/v1/rerank", {"model": name, "query": "light", "documents": ["a"]})[0] == 200
        assert embeds or ranks, name
    assert post("/v1/embeddings", {"model": "classes", "input": "light"})[0] == 400


def test_one_of_them(server: Server) -> None:
    entry = listed(server, "/sentences")
    assert entry in listed(server)["data"]
    assert (entry["object"], entry["max_model_len"]) == ("model", 24) and entry["created"] > 0
    for name, word in (("classes", "neither texts nor vectors"), ("nobody", "nobody")):
        with pytest.raises(HTTPError) as caught:
            listed(server, f"/{name}")
        error = json.loads(caught.value.read())["error"]
        assert caught.value.code == 404 and error["code"] == "model_not_found" and word in error["message"]


def test_the_package_openai(server: Server) -> None:
    openai = pytest.importorskip("openai", reason="the package openai is not installed")
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        assert "sentences" in [model.id for model in client.models.list()]
        assert client.models.retrieve("pairs").id == "pairs"
