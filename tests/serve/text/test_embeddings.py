"""/v1/embeddings: OpenAI's form of requests, answers and errors."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rows import rows

from ox.serve import Server

PATH = "/v1/embeddings"
Post = Callable[..., tuple[int, Any]]


def ask(post: Post, **fields: Any) -> tuple[int, Any]:
    return post(PATH, {"model": "sentences", **fields})


def test_one_text_and_several(post: Post, vector: Any, pieces: Any) -> None:
    status, answer = ask(post, input="And God said")
    count = len(pieces.encode("And God said").ids)
    assert (status, answer["object"], answer["model"]) == (200, "list", "sentences")
    assert answer["usage"] == {"prompt_tokens": count, "total_tokens": count}
    (one,) = answer["data"]
    assert (one["object"], one["index"]) == ("embedding", 0)
    assert np.allclose(one["embedding"], vector("And God said"), atol=1e-6)
    status, answer = ask(post, input=["light", "And God said"])
    assert [each["index"] for each in answer["data"]] == [0, 1]
    assert np.allclose(
        [each["embedding"] for each in answer["data"]], [vector("light"), vector("And God said")], atol=1e-6
    )


def test_tokens_in_place_of_texts(post: Post, vector: Any, pieces: Any) -> None:
    ids = [pieces.encode(text).ids for text in ("light", "And God said")]
    assert np.allclose(ask(post, input=ids[0])[1]["data"][0]["embedding"], vector("light"), atol=1e-6)
    answer = ask(post, input=ids)[1]
    assert np.allclose(answer["data"][1]["embedding"], vector("And God said"), atol=1e-6)
    assert answer["usage"]["total_tokens"] == sum(map(len, ids))


def test_base64_has_the_same_numbers(post: Post) -> None:
    (one,), (two,) = (ask(post, input="light", encoding_format=form)[1]["data"] for form in ("float", "base64"))
    assert np.array_equal(np.frombuffer(base64.b64decode(two["embedding"]), "<f4"), np.float32(one["embedding"]))


def test_fewer_dimensions(post: Post, vector: Any) -> None:
    answer = ask(post, input="light", dimensions=2)[1]
    first = vector("light")[:2]
    assert np.allclose(answer["data"][0]["embedding"], first / np.linalg.norm(first), atol=1e-6)


def test_a_long_text_is_cut_when_asked(post: Post) -> None:
    text = "And God said " * 12
    status, answer = ask(post, input=[text, "a"])
    assert status == 400 and "text 0 of 2" in answer["error"]["message"]
    status, answer = ask(post, input=text, truncate=True)
    assert (status, answer["usage"]["total_tokens"]) == (200, 24)
    cut, short = (ask(post, input=[[5] * count], truncate=True) for count in (25, 24))
    assert cut == short and cut[0] == 200  # tokens, too
    status, answer = ask(post, input=[[5] * 25])
    assert status == 400 and "at most 24 tokens" in answer["error"]["message"]


WRONG: dict[str, tuple[dict[str, Any], str | None, str]] = {
    "no input": ({}, "input", "a string, a list of strings"),
    "an empty text": ({"input": ""}, "input", "none of them empty"),
    "an empty list": ({"input": []}, "input", "none of them empty"),
    "a list of an empty list": ({"input": [[]]}, "input", "none of them empty"),
    "texts and tokens": ({"input": ["a", [1]]}, "input", "a string, a list of strings"),
    "fractions": ({"input": [1, 2.5]}, "input", "a list of tokens"),
    "truth": ({"input": [True]}, "input", "a list of tokens"),
    "an object": ({"input": {"a": 1}}, "input", "a list of tokens"),
    "a token that is not there": ({"input": [1, 3000]}, None, "0 to 2999"),
    "a negative token": ({"input": [-1]}, None, "0 to 2999"),
    "another encoding": ({"input": "a", "encoding_format": "int8"}, "encoding_format", "float or base64"),
    "too many dimensions": ({"input": "a", "dimensions": 7}, "dimensions", "from 1 to 6"),
    "no dimensions": ({"input": "a", "dimensions": 0}, "dimensions", "from 1 to 6"),
    "a classifier": ({"input": "a", "model": "classes"}, "model", "classifier"),
    "no model": ({"input": "a", "model": None}, "model", "models for embeddings; expected 'model'"),
    "too many texts": ({"input": ["a"] * 5000}, None, "at most 4096"),
}


@rows("name", WRONG)
def test_wrong_requests(post: Post, name: str) -> None:
    fields, param, message = WRONG[name]
    status, answer = ask(post, **fields)
    assert status == (413 if name == "too many texts" else 400)
    assert answer["error"]["type"] == "invalid_request_error"
    assert answer["error"]["param"] == param
    assert message in answer["error"]["message"]


def test_an_encoder_makes_no_texts(post: Post) -> None:
    status, answer = post("/v1/completions", model="sentences", prompt="a")
    assert status == 400 and "makes no texts; try /v1/embeddings" in answer["error"]["message"]


def test_an_unknown_model(post: Post) -> None:
    status, answer = ask(post, model="nothing", input="a")
    assert (status, answer["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'{"model": "sentences", "input": "\xff"}'])
def test_no_json(post: Post, body: bytes) -> None:
    status, answer = post(PATH, body or b" ")
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")


def test_the_package_openai(server: Any, vector: Any) -> None:
    openai = pytest.importorskip("openai", reason="the package openai is not installed")
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        found = client.embeddings.create(model="sentences", input=["light", "And God said"])  # asks for base64
        assert np.allclose(found.data[1].embedding, vector("And God said"), atol=1e-6)
        with pytest.raises(openai.BadRequestError, match="none of them empty"):
            client.embeddings.create(model="sentences", input="")


@rows(
    ("path", "fields", "status"),
    [(PATH, {"input": ""}, 400), (PATH, {"input": ["light " * 200]}, 400),
     (PATH, {"input": ["a"] * 5000}, 413), ("/v1/rerank", {"query": ""}, 400),
     ("/v1/rerank", {"query": "a", "documents": []}, 400)],
)  # fmt: skip
def test_refused_requests_count_as_failures(
    server: Server, post: Post, path: str, fields: dict[str, Any], status: int
) -> None:
    stages = server.service.repository.find("sentences").stages
    before = dict(stages.failures)
    assert post(path, {"model": "sentences", **fields})[0] == status
    assert stages.failures == before | {"OTHER": before["OTHER"] + 1}


def test_ollamas_form(post: Any) -> None:
    texts = ["the cat", "a dog " * 200]
    status, openai = post("/v1/embeddings", model="sentences", input=texts, truncate=True)
    vectors = [each["embedding"] for each in openai["data"]]
    status, reply = post("/api/embed", model="sentences:latest", input=texts, keep_alive="5m")
    assert status == 200 and reply["embeddings"] == vectors and reply["model"] == "sentences"
    assert reply["prompt_eval_count"] == openai["usage"]["prompt_tokens"] and type(reply["total_duration"]) is int
    assert post("/api/embed", model="sentences", input=texts[0])[1]["embeddings"] == vectors[:1]
    assert post("/api/embeddings", model="sentences", prompt=texts[0])[1]["embedding"] == vectors[0]
    _, small = post("/api/embed", model="sentences", input=texts[0], dimensions=2)
    assert len(small["embeddings"][0]) == 2
    for more, words in (({"truncate": False}, "tokens"), ({"input": []}, "'input'"), ({"model": "no"}, "'no'")):
        status, reply = post("/api/embed", **{"model": "sentences", "input": texts, **more})
        assert status in (400, 404) and list(reply) == ["error"] and words in reply["error"], reply
    _, shown = post("/api/show", model="sentences")
    assert shown["capabilities"] == ["embedding"]
