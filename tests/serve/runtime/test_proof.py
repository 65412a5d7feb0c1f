"""Batching is proven by running, or off with the reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from rows import rows

from ox.serve import ModelConfig
from ox.serve.config.request_limits import RequestLimits
from ox.serve.repository.configuration import configuration
from ox.serve.repository.model import Model
from ox.serve.runtime.proof import buckets, promise, prove
from ox.serve.runtime.session import Engine
from ox.serve.runtime.source import read

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


def model(path: Any, **options: Any) -> Model:
    return Model(path, ModelConfig(device="cpu", **options), RequestLimits())


def test_buckets() -> None:
    assert [buckets(n) for n in (1, 2, 6, 8)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]


def test_proven(mlp: Any) -> None:
    proven = model(mlp, max_rows=8)
    assert (proven.proof.max_rows, proven.proof.why) == (8, None)
    assert "batch size up to 8, proven safe" in proven.describe()


BATCH = ["batch", 4]
SUM = np.array([0], np.int64)
ROW_MIXERS: list[tuple[str, list[Any], dict[str, Any], list[Any], str]] = [
    ("mean over rows", [("ReduceMean", ["x", "axis"], ["m"], {"keepdims": 1}), ("Add", ["x", "m"], ["y"], {})],
     {"axis": SUM}, BATCH, "differs from it alone"),
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
    ("only pairs", [("Reshape", ["x", "shape"], ["y"], {})], {"shape": np.array([-1, 2])}, ["some", 2], "sample out"),
    ("random", [("RandomNormalLike", ["x"], ["y"], {})], {}, BATCH, "differs"),
    ("constant", [("Mul", ["x", "zero"], ["y"], {})], {"zero": np.zeros(1, np.float32)}, BATCH, "do not depend"),
]  # fmt: skip


@rows(("nodes", "weights", "out", "why"), [c[1:] for c in ROW_MIXERS], ids=[c[0] for c in ROW_MIXERS])
def test_not_provable(build: Any, nodes: Any, weights: Any, out: Any, why: str) -> None:
    """Found out by running alone, whatever the graph tells."""
    path = build("mixing", nodes, {"x": (FLOAT, BATCH)}, {"y": (FLOAT, out)}, weights)
    engine = Engine(read(path), "cpu", 1, 1)
    proof = prove(engine, (), 8, unwanted="")
    found = promise(engine.inputs, engine.outputs) or proof.why
    assert found is not None and why in found
    mixing = model(path)
    assert mixing.proof.max_rows == 1 and mixing.proof.why
    assert f"batching off: {mixing.proof.why}" in mixing.describe()


# What rows drawn from a normal distribution do not show: the graph does.
QUIET: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("threshold on the largest",
     [("ReduceMax", ["x"], ["m"], {"keepdims": 0}), ("Greater", ["m", "limit"], ["c"], {}),
      ("Where", ["c", "m", "none"], ["a"], {}), ("Add", ["x", "a"], ["y"], {})],
     {"limit": np.array(1000, np.float32), "none": np.array(0, np.float32)}, "ReduceMax 'm' mixes rows (reduces over"),
    ("threshold on the mean",
     [("ReduceMean", ["x", "axes"], ["m"], {"keepdims": 1}), ("Greater", ["m", "limit"], ["c"], {}),
      ("Where", ["c", "m", "none"], ["a"], {}), ("Add", ["x", "a"], ["y"], {})],
     {"axes": SUM, "limit": np.array(1000, np.float32), "none": np.array(0, np.float32)}, "ReduceMean 'm' mixes rows"),
    ("the first row, seldom",
     [("Gather", ["x", "first"], ["f"], {}), ("Greater", ["f", "limit"], ["c"], {}),
      ("Where", ["c", "f", "none"], ["a"], {}), ("Add", ["x", "a"], ["y"], {})],
     {"first": np.array([0]), "limit": np.array(1000, np.float32), "none": np.array(0, np.float32)},
     "Gather 'f' mixes rows (picks rows out of the batch)"),
    ("more than 40 rows",
     [("Shape", ["x"], ["s"], {"end": 1}), ("Greater", ["s", "many"], ["c"], {}),
      ("Cast", ["c"], ["a"], {"to": FLOAT}), ("Add", ["x", "a"], ["y"], {})],
     {"many": np.array([40])}, "the number of rows becomes data"),
]  # fmt: skip


@rows("rows", [None, 8], ids=["measured", "asked for"])
@rows(("nodes", "weights", "why"), [c[1:] for c in QUIET], ids=[c[0] for c in QUIET])
def test_drawn_rows_do_not_show_it(build: Any, nodes: Any, weights: Any, why: str, rows: int | None) -> None:
    path = build("quiet", nodes, {"x": (FLOAT, BATCH)}, {"y": (FLOAT, BATCH)}, weights)
    assert prove(Engine(read(path), "cpu", 1, 1), (), 8).why is None
    quiet = model(path, max_rows=rows)
    assert quiet.proof.max_rows == 1 and why in (quiet.proof.why or "")
    assert f"batching off: {quiet.proof.why}" in quiet.describe()
    assert configuration(quiet, None)["parameters"]["ox_batching_off"] == {"string_value": quiet.proof.why}


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


@pytest.mark.parametrize("dims", [("n", "m"), (None, None), ("n", None), (None, "batch")])
def test_two_first_dimensions(build: Any, dims: tuple[Any, Any]) -> None:
    """They count the same rows where somebody says so, and what runs agrees."""
    inputs = {"a": (FLOAT, [dims[0], 4]), "b": (FLOAT, [dims[1], 4])}
    path = build("two", [("Add", ["a", "b"], ["y"], {})], inputs, {"y": (FLOAT, ["k", 4])})
    assert model(path).proof.why == "the inputs do not share one named first dimension"
    asked = model(path, max_rows=4)
    assert asked.proof.why is None and {info.dims[0] for info in asked.inputs} == {"batch"}
    apart = build("apart", [("MatMul", ["a", "b"], ["y"], {})], inputs, {"y": (FLOAT, ["k", 4])})
    assert "mixes rows" in (model(apart, max_rows=4).proof.why or "")


def test_integers_are_valid_indices(build: Any) -> None:
    table = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    nodes = [("Gather", ["table", "x"], ["y"], {})]
    gather = build("gather", nodes, {"x": (INT, ["batch", "t"])}, {"y": (FLOAT, ["batch", "t", 3])}, {"table": table})
    assert model(gather).proof.why is None
