"""The API of Text Embeddings Inference: vectors, ranks, facts; the model that is meant where a request names none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import rows

from ox._version import __version__
from ox.serve import ModelConfig, Server
from ox.serve.access import keyfile
from ox.serve.access.key import Key, digest_of

Post = Callable[..., tuple[int, Any]]
Ask = Callable[..., tuple[int, Any]]
TEXTS = ["light", "the light and the darkness of the deep", "light and darkness"]
KEY = Key("alice", digest_of(b"ox_alice"), ("sentences",), ("infer", "read"))
ALICE = {"authorization": "Bearer ox_alice"}


def sender(server: Server, connect: Any, headers: dict[str, str] | None = None) -> Ask:
    def send(path: str, **fields: Any) -> tuple[int, Any]:
        with connect(server) as client:
            method, body = ("POST", json.dumps(fields).encode()) if fields else ("GET", b"")
            status, _, answer = client.ask(method, path, body, headers)
            return status, json.loads(answer)

    return send


@pytest.fixture(scope="module")
def one(sentences: Path, classes: Path, connect: Any) -> Iterator[Ask]:
    """Asks a server with one model that gives vectors, beside a classifier."""
    with Server([sentences, classes], options=ModelConfig("cpu", instances=1)) as running:
        yield sender(running, connect)


@pytest.fixture(scope="module")
def reranker(pairs: Path, connect: Any) -> Iterator[Ask]:
    with Server([pairs], options=ModelConfig("cpu", instances=1)) as running:
        yield sender(running, connect)


def test_vectors(one: Ask, vector: Any, pieces: Any) -> None:
    status, answer = one("/embed", inputs=TEXTS)
    assert status == 200 and np.allclose(answer, [vector(text) for text in TEXTS], atol=1e-6)
    assert np.allclose(one("/embed", inputs=TEXTS[0])[1], answer[:1], atol=1e-6)
    assert np.allclose(one("/embed", inputs=pieces.encode(TEXTS[0]).ids, truncate=True)[1], answer[:1], atol=1e-6)
    short = np.array(answer)[:, :4]
    short /= np.linalg.norm(short, axis=1, keepdims=True)
    assert np.allclose(one("/embed", inputs=TEXTS, dimensions=4)[1], short, atol=1e-6)


def test_lengths_of_vectors(post: Post, pieces: Any, table: Any) -> None:
    """A model that does not normalize: its own vectors, or such of length 1."""
    mean = table[pieces.encode("light").ids].mean(0)
    answer = post("/embed", model="unmasked", inputs="light", normalize=False)[1]
    assert np.allclose(answer, [mean], atol=1e-6)
    assert np.allclose(post("/embed", model="unmasked", inputs="light")[1], [mean / np.linalg.norm(mean)], atol=1e-6)


def test_ranks(reranker: Ask, pieces: Any) -> None:
    raw = [sum(pieces.encode("God", text).type_ids) / 10 for text in TEXTS]
    status, answer = reranker("/rerank", query="God", texts=TEXTS, raw_scores=True, return_text=True)
    assert status == 200 and [each["text"] for each in answer] == [TEXTS[i] for i in (1, 2, 0)]
    assert np.allclose([each["score"] for each in answer], [raw[i] for i in (1, 2, 0)])
    answer = reranker("/rerank", query="God", texts=TEXTS)[1]
    assert [list(each) for each in answer] == [["index", "score"]] * 3
    assert np.allclose([each["score"] for each in answer], [1 / (1 + np.exp(-raw[i])) for i in (1, 2, 0)])


def test_ranks_in_the_form_of_others(post: Post) -> None:
    asked = {"model": "pairs", "query": "God", "documents": TEXTS}
    assert post("/rerank", asked) == post("/v1/rerank", asked)


@rows(("path", "fields"), [
    ("/v1/embeddings", {"input": "light"}), ("/v1/rerank", {"query": "God", "documents": TEXTS}),
    ("/score", {"text_1": "God", "text_2": TEXTS}),
])  # fmt: skip
def test_the_only_model_on_other_paths(one: Ask, path: str, fields: dict[str, Any]) -> None:
    status, answer = one(path, **fields)
    assert (status, answer["model"]) == (200, "sentences")


def test_facts(one: Ask, reranker: Ask, post: Post) -> None:
    status, answer = one("/info")
    assert status == 200
    assert answer == {
        "model_id": "sentences", "model_type": {"embedding": {"pooling": "mean"}}, "max_input_length": 24,
        "max_client_batch_size": answer["max_client_batch_size"], "auto_truncate": False, "version": __version__,
    }  # fmt: skip
    assert one("/embed", inputs=["a"] * (answer["max_client_batch_size"] + 1))[0] == 413
    labels = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    assert reranker("/info")[1]["model_type"] == {"reranker": labels}


def test_facts_of_one_of_several(post: Post, server: Server, connect: Any) -> None:
    get = sender(server, connect)
    assert get("/info")[0] == get("/tokenizer_info")[0] == 400
    status, answer = get("/info?model=pairs")
    assert (status, answer["model_id"]) == (200, "pairs") and get("/tokenizer_info?model=pairs")[0] == 200
    assert get("/info?model=classes")[0] == 400 and get("/info?model=nope")[0] == 404


WRONG: dict[str, tuple[str, dict[str, Any], int, str]] = {
    "several models": ("/embed", {"inputs": "a"}, 400, "there are 2 models for embeddings; expected 'model' in"),
    "several rerankers": ("/rerank", {"query": "a", "texts": ["a"]}, 400, "one of pairs, sentences, unmasked"),
    "a classifier": ("/embed", {"model": "classes", "inputs": "a"}, 400, "'classes' is not for embeddings"),
    "an unknown model": ("/embed", {"model": "nothing", "inputs": "a"}, 404, "nothing"),
    "no texts": ("/embed", {"model": "unmasked"}, 400, "'inputs' is wrong"),
    "an empty text": ("/embed", {"model": "unmasked", "inputs": ["a", ""]}, 400, "none of them empty"),
    "normalized anyway": ("/embed", {"model": "sentences", "inputs": "a", "normalize": False}, 400, "are normalized"),
    "the other end": ("/embed", {"model": "unmasked", "inputs": "a", "truncation_direction": "left"}, 400, "its end"),
    "a prompt's name": ("/embed", {"model": "unmasked", "inputs": "a", "prompt_name": "query"}, 400, "'prompt_name'"),
    "no query": ("/rerank", {"model": "pairs", "texts": ["a"]}, 400, "'query' is wrong"),
    "nothing to rank": ("/rerank", {"model": "pairs", "query": "a", "texts": []}, 400, "'texts' is wrong"),
    "no texts to rank": ("/rerank", {"model": "pairs", "query": "a"}, 400, "'texts'"),
    "too long": ("/rerank", {"model": "pairs", "query": "a", "texts": ["light " * 30]}, 400, "24"),
}


@rows("name", WRONG)
def test_wrong_requests(post: Post, name: str) -> None:
    path, fields, status, words = WRONG[name]
    got, answer = post(path, fields)
    assert (got, answer["error_type"]) == (status, "Validation") and words in answer["error"], answer


def test_a_key_sees_its_models_alone(
    sentences: Path, unmasked: Path, pairs: Path, connect: Any, tmp_path: Path
) -> None:
    """Models that a key may not use are not among those that could be meant, and are not told."""
    keys = tmp_path / "keys.toml"
    keyfile.write(keys, [KEY])
    with Server([sentences, unmasked, pairs], options=ModelConfig("cpu", instances=1), keys=keys) as running:
        alice = sender(running, connect, ALICE)
        assert len(alice("/embed", inputs="light")[1]) == 1
        assert alice("/info")[1]["model_id"] == "sentences" and alice("/info?model=pairs")[0] == 403
        status, answer = alice("/embed", model="unmasked", inputs="light")
        assert status == 403 and "pairs" not in answer["error"]
        assert sender(running, connect)("/embed", inputs="light")[0] == 401
