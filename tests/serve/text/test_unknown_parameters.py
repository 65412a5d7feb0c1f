"""Unknown parameters of the calls that read texts: ignored and counted, or refused by a strict server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rows import rows

from ox.serve import Server


@rows(
    ("path", "model", "body"),
    [("/v1/embeddings", "sentences", {"input": "a"}), ("/v1/rerank", "pairs", {"query": "a", "documents": ["b"]}),
     ("/score", "pairs", {"text_1": "a", "text_2": "b"}), ("/embed", "sentences", {"inputs": "a"}),
     ("/rerank", "pairs", {"query": "a", "texts": ["b"]})],
)  # fmt: skip
def test_they_are_counted_or_refused(
    server: Server, post: Callable[..., tuple[int, Any]], monkeypatch: pytest.MonkeyPatch, path: str, model: str,
    body: dict[str, Any],
) -> None:  # fmt: skip
    repository = server.service.repository
    stages = repository.find(model).stages
    before, body = stages.unknown_parameters, {"model": model, **body}
    assert post(path, body)[0] == post(path, {**body, "what": 1})[0] == 200
    assert stages.unknown_parameters == before + 1
    with monkeypatch.context() as patched:
        patched.setattr(repository, "strict", True)
        status, answer = post(path, {**body, "what": 1})
        assert status in (400, 422) and "Unknown parameter: 'what'" in str(answer)
        assert post(path, body)[0] == 200
    assert stages.unknown_parameters == before + 1
