"""Inputs and outputs inside of lists, tuples, dicts and dataclasses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
import pytest
from rows import rows

import ox
from ox import nn
from ox.errors import ArgumentError, ExportError

RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype(np.float32)


@dataclass(frozen=True)
class Output:
    logits: Any
    hidden: Any = None


@dataclass
class Pair:
    a: Any
    b: Any


class Named(NamedTuple):
    a: Any
    b: Any


class Caches(nn.Module):
    """Attention with a cache of keys and values a layer."""

    def forward(self, x: Any, caches: Any) -> Any:
        kept = []
        for k, v in caches:
            k, v = ox.cat([k, x], 1), ox.cat([v, x], 1)
            x = nn.functional.scaled_dot_product_attention(x, k, v)
            kept.append((k, v))
        return x, kept


def x(rows: int) -> Any:
    return floats(rows, 3)


def cached(rows: int) -> Any:
    return floats(rows, 1, 8), [(floats(rows, 5, 8), floats(rows, 5, 8)) for _ in range(2)]


# function, example of so many rows, names of inputs and outputs
CASES: dict[str, tuple[Callable[..., Any], Callable[[int], Any], str, str]] = {
    "tuple in": (lambda p: p[0] - p[1], lambda n: ((x(n), x(n)),), "p_0 p_1", "output"),
    "dicts in": (lambda b: b["a"] - b["c"]["d"], lambda n: ({"a": x(n), "c": {"d": x(n)}},), "b_a b_c_d", "output"),
    "by keyword": (lambda x, p: x - p[0] * p[1], lambda n: {"p": [x(n), x(n)], "x": x(n)}, "p_0 p_1 x", "output"),
    "dataclass in": (lambda q: q.a - q.b, lambda n: (Pair(x(n), x(n)),), "q_a q_b", "output"),
    "named tuple in": (lambda q: q.a - q.b, lambda n: (Named(x(n), x(n)),), "q_0 q_1", "output"),
    "a None in": (lambda p: p[1] * 2 if p[0] is None else p[0], lambda n: ((None, x(n)),), "p_1", "output"),
    "tuples out": (lambda x: (x, (x + 1, [x + 2])), lambda n: (x(n),), "x", "output_0 output_1_0 output_1_1_0"),
    "lists in dict out": (lambda x: {"y": x, "z": [x + 1, x + 2]}, lambda n: (x(n),), "x", "y z_0 z_1"),
    "dataclass out": (lambda x: Output(x, (x + 1, x + 2)), lambda n: (x(n),), "x", "logits hidden_0 hidden_1"),
    "field of None out": (lambda x: Output(x + 1), lambda n: (x(n),), "x", "logits"),
    "caches": (
        Caches(),
        cached,
        "x caches_0_0 caches_0_1 caches_1_0 caches_1_1",
        "output_0 output_1_0_0 output_1_0_1 output_1_1_0 output_1_1_1",
    ),
}


def arrays(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, (Output, Pair)):
        tree = list(vars(tree).values())
    if isinstance(tree, (list, tuple)):
        return [x for each in tree for x in arrays(each)]
    return [] if tree is None else [tree.numpy() if isinstance(tree, ox.Tensor) else tree]


def as_tensors(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: as_tensors(each) for key, each in tree.items()}
    if isinstance(tree, (Pair, Named)):
        return type(tree)(as_tensors(tree.a), as_tensors(tree.b))
    if isinstance(tree, (list, tuple)):
        return type(tree)(as_tensors(each) for each in tree)
    return tree if tree is None else ox.tensor(tree)


@rows("name", CASES)
def test_a_structure_is_taken_apart(tmp_path: Path, name: str) -> None:
    function, example, inputs, outputs = CASES[name]
    ox.export.save(function, tmp_path / "m.onnx", example(4))
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    assert " ".join(i.name for i in session.get_inputs()) == inputs
    assert " ".join(o.name for o in session.get_outputs()) == outputs
    other = example(2)
    results = session.run(None, dict(zip(inputs.split(), arrays(other), strict=True)))
    given = as_tensors(other)
    expected = arrays(function(**given) if isinstance(given, dict) else function(*given))
    for result, y in zip(results, expected, strict=True):
        assert result.shape == y.shape and np.allclose(result, y, atol=1e-5)


def test_names_and_sizes_of_the_parts(tmp_path: Path) -> None:
    def example(length: int) -> Any:
        return floats(2, 1, 8), [(floats(2, length, 8), floats(2, length, 8))]

    report = ox.export.save(
        Caches(),
        tmp_path / "m.onnx",
        example(5),
        input_names=["x", "k", "v"],
        output_names=["y", "new_k", "new_v"],
        dims={"x": ["b", 1, 8], "k": ["b", "past", 8], "v": ["b", "past", 8]},
        examples=[example(9)],
    )
    assert report.dims.startswith("x [b, 1, 8], k [b, past, 8], v [b, past, 8] → y [b, 1, 8], new_k [b, ")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    feed = {"x": floats(1, 1, 8), "k": floats(1, 3, 8), "v": floats(1, 3, 8)}
    assert [y.shape for y in session.run(None, feed)] == [(1, 1, 8), (1, 4, 8), (1, 4, 8)]


def test_output_names_stand_for_the_keys_of_a_dict(tmp_path: Path) -> None:
    def model(x: Any) -> Any:
        return {"a": x, "b": x + 1}

    report = ox.export.save(model, tmp_path / "m.onnx", x(4), output_names=["one", "two"])
    assert [o.name for o in report.contract.outputs] == ["one", "two"]
    ox.export.save(model, tmp_path / "m.onnx", x(4), output_names=["b", "a"])  # which are the keys
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    rows = x(2)
    assert np.array_equal(session.run(["a"], {"x": rows})[0], rows)


def test_a_state_has_its_name_on_both_sides(tmp_path: Path) -> None:
    report = ox.export.save(lambda x, h: {"y": x + h, "h": x - h}, tmp_path / "m.onnx", (x(4), x(4)))
    assert [o.name for o in report.contract.outputs] == ["y", "h_out"]
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    a, b = x(2), x(2)
    assert np.allclose(session.run(["h_out"], {"x": a, "h": b})[0], a - b)
    with pytest.raises(ExportError, match="would be called 'h'"):
        ox.export.save(lambda x, h: (x + h, x - h), tmp_path / "m.onnx", (x(4), x(4)), output_names=["y", "h"])


def test_a_gradient_for_a_part(tmp_path: Path) -> None:
    ox.export.save(lambda p: (p[0] * p[1]).sum(1), tmp_path / "m.onnx", ((floats(4, 3), floats(4, 3)),), gradient="p_0")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    a, b = floats(2, 3), floats(2, 3)
    assert np.allclose(session.run(["p_0.gradient"], {"p_0": a, "p_1": b})[0], b)


def test_what_is_no_tensor_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="result 'b_1' is no tensor"):
        ox.export.save(lambda x: {"a": x, "b": [x, 3]}, tmp_path / "m.onnx", floats(4, 3))
    with pytest.raises(ExportError, match="two results have one name"):
        ox.export.save(lambda x: {"a_0": x, "a": [x]}, tmp_path / "m.onnx", floats(4, 3))
    with pytest.raises(ExportError, match="is no tensor, and holds none"):
        ox.export.save(lambda x: (None, []), tmp_path / "m.onnx", floats(4, 3))
    with pytest.raises(ArgumentError, match="an example is no array"):
        ox.export.save(lambda x: x, tmp_path / "m.onnx", ([[1.0, 2.0], [3.0]],))


def test_rows_that_are_written_out_are_one_array(tmp_path: Path) -> None:
    report = ox.export.save(lambda x: x * 2, tmp_path / "m.onnx", ([[1.0, 2.0], [3.0, 4.0]],))
    assert report.dims == "x [batch, 2] → output [batch, 2]"
