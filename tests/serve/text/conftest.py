"""Models that read texts, whose answers are known: a table of vectors, looked up and averaged."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
from text_folders import FLOAT, LONGEST, SIZE, TABLE, Folder
from text_folders import folder as folder
from text_folders import pairs as pairs
from text_folders import pieces as pieces
from text_folders import sentences as sentences

from ox.serve import ModelConfig, Server

CLASSES = ["law", "letters", "neither"]


@pytest.fixture(scope="session")
def classes(folder: Folder) -> Path:
    """Scores of three classes: the first three numbers of the sum of the vectors of all tokens that are there."""
    nodes = [
        ("Cast", ["attention_mask"], ["m"], {"to": FLOAT}), ("Unsqueeze", ["m", "last"], ["n"], {}),
        ("Mul", ["v", "n"], ["u"], {}), ("ReduceSum", ["u", "one"], ["s"], {"keepdims": 0}),
        ("Slice", ["s", "zero", "three", "one"], ["logits"], {}),
    ]  # fmt: skip
    weights = {"last": np.array([-1]), "one": np.array([1]), "zero": np.array([0]), "three": np.array([3])}
    labels = {str(i): name for i, name in enumerate(CLASSES)}
    return folder(
        "classes", nodes, {"logits": (FLOAT, ["batch", 3])}, weights=weights,
        config={"id2label": labels, "max_position_embeddings": LONGEST},
    )  # fmt: skip


@pytest.fixture(scope="session")
def unmasked(folder: Folder) -> Path:
    """A model that averages over padding, too: texts of several lengths cannot share a run."""
    nodes = [("ReduceMean", ["v", "one"], ["sentence_embedding"], {"keepdims": 0})]
    return folder("unmasked", nodes, {"sentence_embedding": (FLOAT, ["batch", SIZE])}, weights={"one": np.array([1])})


@pytest.fixture(scope="session")
def server(sentences: Path, classes: Path, pairs: Path, unmasked: Path) -> Iterator[Server]:
    options = ModelConfig(device="cpu", instances=1, max_rows=8)
    with Server([sentences, classes, pairs, unmasked], options=options) as running:
        yield running


@pytest.fixture(scope="session")
def post(server: Server) -> Callable[..., tuple[int, Any]]:
    """Sends JSON; status and answer."""

    def send(path: str, document: Any = None, **fields: Any) -> tuple[int, Any]:
        body = document if isinstance(document, bytes) else json.dumps(document or fields).encode()
        request = Request(server.url + path, body, {"content-type": "application/json"})
        try:
            with urlopen(request, timeout=60) as reply:
                return reply.status, json.loads(reply.read())
        except HTTPError as error:
            return error.code, json.loads(error.read())

    return send


@pytest.fixture(scope="session")
def vector(pieces: Any) -> Callable[[str], np.ndarray[Any, Any]]:
    """The vector that the model `sentences` should give."""

    def of(text: str) -> np.ndarray[Any, Any]:
        mean = TABLE[pieces.encode(text).ids].mean(0)
        return mean / np.linalg.norm(mean)

    return of


@pytest.fixture(scope="session")
def table() -> np.ndarray[Any, Any]:
    """The vectors of the tokens."""
    return TABLE
