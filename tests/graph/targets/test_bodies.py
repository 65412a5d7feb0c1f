"""Each operator that is written in others: the same numbers in ONNX Runtime, and what is left as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from rows import rows

import ox
from ox import ops


def drawn(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def kinds(model: Callable[..., Any], path: Path, example: Any, target: str, **options: Any) -> set[str]:
    """The operators of a proven file for a target."""
    report = ox.export.save(model, path, example, target=target, **options)
    assert all(row.max_abs <= row.allowed for row in report.rows)
    return {node.op_type for node in onnx.load(path).graph.node}


def stft(step: int, window: Any, length: Any, onesided: int) -> Callable[..., Any]:
    def run(x: Any) -> Any:
        given = [None if v is None else ox.tensor(v) for v in (np.int64(step), window, length)]
        return ops.STFT(x, *given, onesided=onesided)

    return run


@rows("dtype", [np.float32, np.float64])
@rows("onesided", [0, 1])
@rows(("window", "length"), [(True, None), (False, 10), (True, 9)])
def test_stft(tmp_path: Path, dtype: Any, onesided: int, window: bool, length: int | None) -> None:
    shape = np.hanning(length or 12).astype(dtype) if window else None
    model = stft(5, shape, None if length is None else np.int64(length), onesided)
    found = kinds(model, tmp_path / "m.onnx", drawn(3, 40, 1, dtype=dtype), "openvino")
    assert "STFT" not in found and "Conv" in found


def test_a_complex_signal_stays(tmp_path: Path) -> None:
    model = stft(5, None, np.int64(10), 0)
    assert "STFT" in kinds(model, tmp_path / "m.onnx", drawn(3, 40, 2), "openvino")


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scatter_that_adds(tmp_path: Path, axis: int) -> None:
    """More indices than places, some of them twice."""
    shape = [4, 3, 5]
    shape[axis] = 9
    at = np.random.default_rng(1).integers(0, [4, 3, 5][axis], shape)

    def run(x: Any, updates: Any) -> Any:
        return ops.ScatterElements(x, ox.tensor(at), updates, axis=axis, reduction="add")

    dims = {"x": [4, 3, 5], "updates": shape}
    found = kinds(run, tmp_path / "m.onnx", (drawn(4, 3, 5), drawn(*shape)), "opencv", dims=dims)
    assert "ScatterElements" not in found


def test_scatter_that_leaves_rows_stays(tmp_path: Path) -> None:
    at = np.array([[0, 2], [1, 1]])

    def run(x: Any, updates: Any) -> Any:
        return ops.ScatterElements(x, ox.tensor(at), updates, axis=0, reduction="add")

    dims = {"x": [4, 3], "updates": [2, 2]}
    found = kinds(run, tmp_path / "m.onnx", (drawn(4, 3), drawn(2, 2)), "opencv", dims=dims)
    assert "ScatterElements" in found


@rows("direction", ["forward", "reverse", "bidirectional"])
@rows("kind", ["RNN", "GRU", "LSTM"])
def test_recurrent(tmp_path: Path, kind: str, direction: str) -> None:
    """With lengths, all outputs, and weights in ONNX's own layout."""
    count, gates = (2 if direction == "bidirectional" else 1), {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]
    weights = [ox.tensor(0.3 * drawn(count, gates * 5, n)) for n in (4, 5)]
    bias = ox.tensor(0.3 * drawn(count, 2 * gates * 5))

    def run(x: Any, lengths: Any) -> Any:
        call = getattr(ops, kind)
        many = 3 if kind == "LSTM" else 2
        return call(x, *weights, bias, lengths, hidden_size=5, direction=direction, outputs=many)

    example = drawn(3, 3, 4), np.array([3, 1, 2], np.int32)
    dims = {"x": [3, "batch", 4], "lengths": ["batch"]}
    found = kinds(run, tmp_path / "m.onnx", example, "tvm", dims=dims)
    assert not found & {kind, "Scan"}


def test_a_length_that_varies_keeps_the_loop(tmp_path: Path) -> None:
    weights = [ox.tensor(0.3 * drawn(1, 20, n)) for n in (4, 5)]

    def run(x: Any) -> Any:
        return ops.LSTM(x, *weights, hidden_size=5)

    assert "Scan" in kinds(run, tmp_path / "m.onnx", drawn(6, 3, 4), "tvm", dims={"x": ["time", 3, 4]})


def test_split_into_uneven_parts(tmp_path: Path) -> None:
    def run(x: Any) -> Any:
        a, b, c = ops.Split(x, axis=1, num_outputs=3, outputs=3)
        return a.sum(1) + b.sum(1) * 2 + c.sum(1) * 3

    kinds(run, tmp_path / "m.onnx", drawn(3, 8), "iree")
    (split,) = (node for node in onnx.load(tmp_path / "m.onnx").graph.node if node.op_type == "Split")
    assert len(split.input) == 2


def test_range_to_a_size(tmp_path: Path) -> None:
    def run(x: Any) -> Any:
        return x * ox.arange(x.shape[1])

    found = kinds(run, tmp_path / "m.onnx", drawn(3, 8), "tvm", dims={"x": ["batch", "length"]})
    assert "Range" not in found and "CumSum" in found


def test_inside_a_branch(tmp_path: Path) -> None:
    """An operator that the opset lacks is expanded in a branch, too."""
    scale, shift = ox.ones(4), ox.zeros(4)

    def run(x: Any, on: Any) -> Any:
        return ox.cond(on, lambda: ops.GroupNormalization(x, scale, shift, num_groups=2), lambda: x)

    example = drawn(3, 4, 5), np.array(True)
    ox.export.save(run, tmp_path / "m.onnx", example, target="mnn", dims={"x": ["batch", 4, 5], "on": []})
    model = onnx.load(tmp_path / "m.onnx")
    (choice,) = (node for node in model.graph.node if node.op_type == "If")
    inside = {node.op_type for attribute in choice.attribute for node in attribute.g.node}
    assert not model.functions and "GroupNormalization" not in inside and "ReduceMean" in inside


@rows("target", ["openvino", "tvm"])
@rows("pads", [(1, 1), (0, 2, 3, 0), (3, 2, 1, 0, 0, 1)])
def test_circular_padding(tmp_path: Path, target: str, pads: tuple[int, ...]) -> None:
    example = drawn(4, 2, *[5] * (len(pads) // 2))
    path = tmp_path / "m.onnx"
    found = kinds(lambda x: ox.nn.functional.pad(x, pads, mode="circular"), path, example, target, input_names=["x"])
    assert "Pad" not in found and "Concat" in found
    x = drawn(3, *example.shape[1:])
    (y,) = ort.InferenceSession(path).run(None, {"x": x})
    around = [(0, 0), (0, 0), *zip(pads[-2::-2], pads[::-2], strict=True)]
    assert np.array_equal(y, np.pad(x, around, mode="wrap"))


def test_other_padding_stays(tmp_path: Path) -> None:
    for pads, mode in (((1, 1), "reflect"), ((7, 0), "wrap")):
        there = [0, 0, pads[0], 0, 0, pads[1]]
        found = kinds(
            lambda x, there=there, mode=mode: ops.Pad(x, ox.tensor(np.array(there)), mode=mode),
            tmp_path / "m.onnx", drawn(4, 2, 5), "openvino",
        )  # fmt: skip
        assert "Pad" in found
