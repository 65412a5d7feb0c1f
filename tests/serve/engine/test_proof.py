"""Batching is proven by running, or off with the reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from ox.serve import Options
from ox.serve.engine.proof import buckets
from ox.serve.limits import Limits
from ox.serve.repository.model import Model

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


def model(path: Any, **options: Any) -> Model:
    return Model(path, Options(device="cpu", **options), Limits())


def test_buckets() -> None:
    assert [buckets(n) for n in (1, 2, 6, 8)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]


def test_proven(mlp: Any) -> None:
    proven = model(mlp, max_rows=8)
    assert (proven.proof.max_rows, proven.proof.why) == (8, None)
    assert "batches up to 8, proven row by row" in proven.describe()


BATCH = ["batch", 4]
SUM = np.array([0], np.int64)
ROW_MIXERS: list[tuple[str, list[Any], dict[str, Any], list[Any], str]] = [
    ("mean over rows", [("ReduceMean", ["x", "axis"], ["m"], {"keepdims": 1}), ("Add", ["x", "m"], ["y"], {})],
     {"axis": SUM}, BATCH, "differs from the same row alone"),
    ("softmax over rows", [("Softmax", ["x"], ["y"], {"axis": 0})], {}, BATCH, "depend"),
    ("running sum", [("CumSum", ["x", "axis"], ["y"], {})], {"axis": np.array(0)}, BATCH, "differs"),
    ("reversed", [("Slice", ["x", "start", "end", "axes", "steps"], ["y"], {})],
     {"start": np.array([-1]), "end": np.array([-1000]), "axes": SUM, "steps": np.array([-1])}, BATCH, "differs"),
    ("pairs of rows", [("Reshape", ["x", "shape"], ["y"], {})],
     {"shape": np.array([-1, 8])}, ["half", 8], "no valid inputs"),
    ("total", [("ReduceSum", ["x", "axis"], ["y"], {"keepdims": 1})],
     {"axis": SUM}, ["one", 4], "fixed first dimension 1"),
    ("pairs, padded", [("Reshape", ["x", "shape"], ["p"], {}), ("ReduceMax", ["p", "axis"], ["y"], {"keepdims": 1})],
     {"shape": np.array([-1, 1, 4]), "axis": SUM}, ["some", 1, 4], "fixed first dimension 1"),
    ("only pairs", [("Reshape", ["x", "shape"], ["y"], {})], {"shape": np.array([-1, 2])}, ["some", 2], "one row out"),
    ("random", [("RandomNormalLike", ["x"], ["y"], {})], {}, BATCH, "differs"),
    ("constant", [("Mul", ["x", "zero"], ["y"], {})], {"zero": np.zeros(1, np.float32)}, BATCH, "do not depend"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "weights", "out", "why"), [c[1:] for c in ROW_MIXERS], ids=[c[0] for c in ROW_MIXERS]
)
def test_not_provable(build: Any, nodes: Any, weights: Any, out: Any, why: str) -> None:
    mixing = model(build("mixing", nodes, {"x": (FLOAT, BATCH)}, {"y": (FLOAT, out)}, weights))
    assert mixing.proof.max_rows == 1 and why in (mixing.proof.why or "")
    assert f"batching off: {mixing.proof.why}" in mixing.describe()


@pytest.mark.parametrize(
    ("inputs", "outputs", "why"),
    [
        ({"x": (FLOAT, [1, 4])}, {"y": (FLOAT, [1, 4])}, "input 'x' has the fixed first dimension 1"),
        ({"x": (FLOAT, ["n", 4])}, {"y": (FLOAT, [2, 4])}, "output 'y' has the fixed first dimension 2"),
        ({"x": (FLOAT, ["n", "n"])}, {"y": (FLOAT, ["n", "n"])}, "'n' is more than the first dimension"),
        ({"x": (FLOAT, [])}, {"y": (FLOAT, [])}, "input 'x' has no dimensions"),
    ],
)
def test_interface_that_does_not_promise_batches(build: Any, inputs: Any, outputs: Any, why: str) -> None:
    proof = model(build("plain", [("Identity", ["x"], ["y"], {})], inputs, outputs)).proof
    assert proof.max_rows == 1 and proof.why == why


def test_two_first_dimensions(build: Any) -> None:
    inputs = {"a": (FLOAT, ["n", 4]), "b": (FLOAT, ["m", 4])}
    proof = model(build("two", [("Add", ["a", "b"], ["y"], {})], inputs, {"y": (FLOAT, ["k", 4])})).proof
    assert proof.why == "the inputs do not share one named first dimension"


def test_integers_are_valid_indices(build: Any) -> None:
    table = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    nodes = [("Gather", ["table", "x"], ["y"], {})]
    gather = build("gather", nodes, {"x": (INT, ["batch", "t"])}, {"y": (FLOAT, ["batch", "t", 3])}, {"table": table})
    assert model(gather).proof.why is None
