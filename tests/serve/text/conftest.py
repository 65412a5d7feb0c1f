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
from onnx import TensorProto

from ox.export.model_folder import write_json
from ox.serve import ModelConfig, Server
from ox_models.kjv_data import word_pieces

INT, FLOAT = TensorProto.INT64, TensorProto.FLOAT
TOKENS, SIZE, LONGEST = 3000, 6, 24
TABLE = np.random.default_rng(3).standard_normal((TOKENS, SIZE)).astype(np.float32)
BOTH = ("input_ids", "attention_mask")
Folder = Callable[..., Path]


@pytest.fixture(scope="session")
def pieces() -> Any:
    pytest.importorskip("tokenizers", reason="the extra text is not installed")
    return word_pieces()


@pytest.fixture(scope="session")
def folder(build: Any, pieces: Any, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Writes a folder: nodes that make the output of ``v`` [batch, length, 6], the vectors of the tokens."""

    def write(
        name: str,
        nodes: Any = (("Identity", ["v"], ["last_hidden_state"], {}),),
        outputs: Any = None,
        inputs: tuple[str, ...] = BOTH,
        weights: Any = None,
        inside: str = "",
        table: Any = TABLE,
        **files: Any,
    ) -> Path:
        path = tmp_path_factory.mktemp("texts") / name
        (path / inside).mkdir(parents=True)
        build(
            "model",
            [("Gather", ["table", "input_ids"], ["v"], {}), *nodes],
            {each: (INT, ["batch", "length"]) for each in inputs},
            outputs or {"last_hidden_state": (FLOAT, ["batch", "length", SIZE])},
            {"table": table, **(weights or {})},
            folder=path / inside,
        )
        pieces.save(str(path / "tokenizer.json"))
        write_json(path / "config.json", {"max_position_embeddings": LONGEST})
        for file, content in files.items():
            target = path / (file.replace("__", "/") + ".json")
            target.parent.mkdir(exist_ok=True)
            write_json(target, content)
        return path

    return write


@pytest.fixture(scope="session")
def sentences(folder: Folder) -> Path:
    """sentence-transformers' layout: mean pooling, normalized."""
    kinds = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(kinds.items())
    ]
    pooling = {"word_embedding_dimension": SIZE, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    return folder("sentences", inside="onnx", modules=modules, **{"1_Pooling__config": pooling})


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
def pairs(folder: Folder) -> Path:
    """A cross-encoder: the score is the number of tokens of the second text by ten."""
    nodes = [
        ("ReduceSum", ["token_type_ids", "one"], ["c"], {"keepdims": 1}), ("Cast", ["c"], ["f"], {"to": FLOAT}),
        ("Div", ["f", "ten"], ["d"], {}), ("ReduceSum", ["v", "all"], ["s"], {"keepdims": 1}),
        ("Squeeze", ["s", "one"], ["t"], {}), ("Mul", ["t", "none"], ["z"], {}), ("Add", ["d", "z"], ["logits"], {}),
    ]  # fmt: skip
    weights = {"one": np.array([1]), "ten": np.float32(10), "all": np.array([1, 2]), "none": np.float32(0)}
    return folder(
        "pairs", nodes, {"logits": (FLOAT, ["batch", 1])}, (*BOTH, "token_type_ids"), weights,
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
