"""vLLM's /score, and reranking under Cohere's newer path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from rows import rows

Post = Callable[..., tuple[int, Any]]
TEXTS = ["light", "the light and the darkness of the deep", "light and darkness"]


def scores(answer: Any) -> list[float]:
    assert [each["index"] for each in answer["data"]] == list(range(len(answer["data"])))
    assert {each["object"] for each in answer["data"]} == {"score"} and answer["object"] == "list"
    return [each["score"] for each in answer["data"]]


@rows("path", ["/score", "/v1/score"])
def test_a_cross_encoder(post: Post, pieces: Any, path: str) -> None:
    raw = np.array([sum(pieces.encode("God", text).type_ids) / 10 for text in TEXTS])
    status, answer = post(path, model="pairs", text_1="God", text_2=TEXTS)
    assert status == 200 and np.allclose(scores(answer), 1 / (1 + np.exp(-raw)))
    assert answer["usage"]["prompt_tokens"] == sum(len(pieces.encode("God", text).ids) for text in TEXTS)
    answer = post(path, model="pairs", text_1=["God"] * 3, text_2=TEXTS, use_activation=False)[1]
    assert np.allclose(scores(answer), raw)
    answer = post(path, model="pairs", queries="God", documents=TEXTS[0])[1]
    assert np.allclose(scores(answer), 1 / (1 + np.exp(-raw[:1])))


def test_an_encoder(post: Post, vector: Any) -> None:
    cosines = [[float(vector(a) @ vector(b)) for b in TEXTS] for a in TEXTS]
    answer = post("/score", model="sentences", text_1=TEXTS[0], text_2=TEXTS)[1]
    assert np.allclose(scores(answer), cosines[0], atol=1e-5)
    answer = post("/score", model="sentences", text_1=TEXTS, text_2=TEXTS[::-1])[1]
    assert np.allclose(scores(answer), [cosines[i][2 - i] for i in range(3)], atol=1e-5)


def test_coheres_newer_path(post: Post) -> None:
    asked = {"model": "pairs", "query": "God", "documents": TEXTS, "top_n": 2}
    assert post("/v2/rerank", asked) == post("/v1/rerank", asked)
    status, answer = post("/v2/rerank", {**asked, "top_n": 0})
    assert (status, answer["error"]["param"]) == (400, "top_n")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no first text": ({"text_2": "a"}, "text_1"),
    "no second text": ({"text_1": "a"}, "text_2"),
    "an empty list": ({"text_1": "a", "text_2": []}, "text_2"),
    "an empty text": ({"text_1": "a", "text_2": [""]}, "text_2"),
    "two for three": ({"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "text_1"),
    "a number": ({"text_1": 1, "text_2": "a"}, "text_1"),
    "no flag": ({"text_1": "a", "text_2": "a", "use_activation": 1}, "use_activation"),
    "a classifier": ({"model": "classes", "text_1": "a", "text_2": "a"}, "model"),
}


@rows("name", WRONG)
def test_wrong_requests(post: Post, name: str) -> None:
    fields, param = WRONG[name]
    status, answer = post("/score", {"model": "pairs", **fields})
    assert (status, answer["error"]["param"]) == (400, param)


def test_a_model_of_several(post: Post) -> None:
    status, answer = post("/score", text_1="a", text_2="b")
    assert (status, answer["error"]["param"]) == (400, "model") and "models for scores" in answer["error"]["message"]
    assert post("/score", model="nothing", text_1="a", text_2="b")[0] == 404
    assert post("/score", model="pairs", text_1="a", text_2=["b"] * 10_001)[0] == 413
