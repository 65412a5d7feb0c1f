"""What is sent: every type, drawn or read, and bytes that come back as they went."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import rows

from ox.bench.inputs import TYPES, VARIANTS, draw, from_bytes, read, to_bytes
from ox.bench.model import Model, Tensor
from ox.errors import ArgumentError


def model(*inputs: tuple[str, str, tuple[int, ...]]) -> Model:
    return Model("m", tuple(Tensor(*entry) for entry in inputs), ())


@rows("kind", TYPES)
def test_every_type(kind: str) -> None:
    feeds = draw(model(("x", kind, (-1, 3, -1))), 2, {})
    assert len(feeds) == VARIANTS
    for feed in feeds:
        x = feed["x"]
        assert x.shape == (2, 3, 1) and x.dtype == TYPES[kind]
        back = from_bytes(to_bytes(x), kind, x.shape)
        same = [text.decode() for text in back.ravel()] if kind == "BYTES" else back.ravel().tolist()
        assert same == x.ravel().tolist()
        if kind[-2:] in ("32", "64") and x.dtype.kind in "iu":
            assert set(x.ravel().tolist()) <= {0, 1}
    with pytest.raises(ValueError):
        from_bytes(to_bytes(x)[:-1], kind, x.shape)


def test_shapes() -> None:
    described = model(("a", "FP32", (-1, -1)), ("b", "FP32", (2,)), ("c", "FP32", ()))
    feed = draw(described, 1, {"a": (4, 7)})[0]
    assert feed["a"].shape == (4, 7) and feed["b"].shape == (2,) and feed["c"].shape == ()
    for shapes in ({"a": (4,)}, {"b": (3,)}, {"z": (1,)}):
        with pytest.raises(ArgumentError):
            draw(described, 1, shapes)
    with pytest.raises(ArgumentError, match="cannot be sent"):
        draw(model(("x", "FP8", (1,))), 1, {})


def test_files(tmp_path: Path) -> None:
    described = model(("x", "FP32", (-1, 2)), ("t", "BYTES", (-1,)))
    lists = {"x": [[1, 2]], "t": ["é"]}
    inputs = [{"name": "x", "shape": [1, 2], "data": [1, 2]}, {"name": "t", "shape": [1], "data": ["é"]}]
    for document in (lists, {"inputs": inputs}):
        path = tmp_path / "x.json"
        path.write_text(json.dumps(document))
        (feed,) = read(path, described)
        assert (
            feed["x"].dtype == np.float32 and feed["x"].tolist() == [[1, 2]] and to_bytes(feed["t"])[4:] == "é".encode()
        )
    np.savez(tmp_path / "x.npz", x=np.ones((3, 2)), t=np.array([b"a"], "S1"))
    assert read(tmp_path / "x.npz", described)[0]["x"].shape == (3, 2)


@rows(
    ("name", "document", "words"),
    [
        ("x.json", {}, "lacks the input 'x'"),
        ("x.json", {"x": [[1, 2]], "y": [1]}, "has 'y', which is not an input that .* needs"),
        ("x.json", [1], "cannot be read"),
        ("x.json", {"inputs": [{"data": [1]}]}, "cannot be read"),
        ("x.json", {"x": [["a", "b"]]}, "not of its type"),
        ("x.json", {"x": [1, 2]}, "does not fit"),
        ("x.json", None, "cannot be read"),
        ("x.csv", [], "unknown file type"),
        ("x.npz", [], "cannot be read"),
        ("missing.json", ..., "cannot be read"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, name: str, document: Any, words: str) -> None:
    path = tmp_path / name
    if document is not ...:
        path.write_text("{" if document is None else json.dumps(document))
    with pytest.raises(ArgumentError, match=words):
        read(path, model(("x", "FP32", (-1, 2))))


def test_pickles_are_not_opened(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.array([{}], object))
    with pytest.raises(ArgumentError, match="cannot be read"):
        read(tmp_path / "x.npz", model(("x", "FP32", (-1, 2))))
