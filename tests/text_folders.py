"""Fixtures that write folders of models that read texts, whose answers are known: a table of vectors, looked up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from ox.export.model_folder import write_json
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
