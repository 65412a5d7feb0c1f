"""/v1/rerank, by a cross-encoder and by the vectors of an encoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from rows import rows

Post = Callable[..., tuple[int, Any]]
DOCUMENTS = ["light", "the light and the darkness of the deep", "light and darkness"]


def test_a_cross_encoder_reads_both(post: Post, pieces: Any) -> None:
    status, answer = post("/v1/rerank", model="pairs", query="God", documents=DOCUMENTS)
    assert status == 200
    scores = [sum(pieces.encode("God", text).type_ids) / 10 for text in DOCUMENTS]
    assert [each["index"] for each in answer["results"]] == [1, 2, 0]
    wanted = [1 / (1 + np.exp(-scores[i])) for i in (1, 2, 0)]
    assert np.allclose([each["relevance_score"] for each in answer["results"]], wanted)
    assert answer["usage"]["total_tokens"] == sum(len(pieces.encode("God", text).ids) for text in DOCUMENTS)


def test_an_encoder_compares_vectors(post: Post, vector: Any) -> None:
    status, answer = post(
        "/v1/rerank", model="sentences", query="light", documents=[*DOCUMENTS[1:], {"text": "light"}], top_n=2,
        return_documents=True,
    )  # fmt: skip
    assert status == 200
    cosines = {text: float(vector("light") @ vector(text)) for text in DOCUMENTS}
    best = sorted(DOCUMENTS, key=lambda text: -cosines[text])[:2]
    assert [each["document"]["text"] for each in answer["results"]] == best
    assert best[0] == "light" and np.isclose(answer["results"][0]["relevance_score"], 1)
    assert np.isclose(answer["results"][1]["relevance_score"], cosines[best[1]], atol=1e-5)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no query": ({"query": ""}, "query"),
    "no documents": ({"documents": []}, "documents"),
    "an empty document": ({"documents": ["a", ""]}, "documents"),
    "a document without text": ({"documents": [{"title": "a"}]}, "documents"),
    "none of the best": ({"top_n": 0}, "top_n"),
    "a classifier": ({"model": "classes"}, "model"),
}


@rows("name", WRONG)
def test_wrong_requests(post: Post, name: str) -> None:
    fields, param = WRONG[name]
    status, answer = post("/v1/rerank", {"model": "pairs", "query": "God", "documents": DOCUMENTS, **fields})
    assert (status, answer["error"]["param"]) == (400, param)
