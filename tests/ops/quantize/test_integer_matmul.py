"""Products of quantized values: the same integers as in ONNX Runtime, also halfway between two steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from rows import rows

import ox

Array = np.ndarray[Any, Any]


def both(path: Path, kind: str, x: Array, w: Array, scales: tuple[float, float], zero: int) -> tuple[Array, Array]:
    """What ONNX Runtime and ox give."""
    numbers = {"s": np.float32(scales[0]), "t": np.float32(scales[1]), "z": np.uint8(zero), "w": w}
    ends = [helper.make_tensor_value_info(n, TensorProto.UINT8, [None] * x.ndim) for n in "xy"]
    node = helper.make_node(kind, ["x", "s", "z", "w", "s", "z", "t", "z"], ["y"])
    stored = [numpy_helper.from_array(np.asarray(a), n) for n, a in numbers.items()]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    (y,) = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    return y, ox.export.load(path)(ox.from_numpy(x)).numpy()


@rows("zero", [100, 101])
@rows("scales", [(0.05, 0.3), (0.0123, 0.07), (0.05, 1.6)])
def test_halves_are_rounded_as_in_onnx_runtime(tmp_path: Path, scales: tuple[float, float], zero: int) -> None:
    random = np.random.default_rng(0)
    x, w = (random.integers(0, 255, shape).astype(np.uint8) for shape in ((300, 16), (16, 30)))
    theirs, ours = both(tmp_path / "m.onnx", "QLinearMatMul", x, w, scales, zero)
    assert np.array_equal(theirs, ours) and len(np.unique(ours)) > 20
    x, w = random.integers(90, 112, (20, 3, 8, 8)).astype(np.uint8), random.integers(0, 255, (6, 3, 3, 3))
    theirs, ours = both(tmp_path / "m.onnx", "QLinearConv", x, w.astype(np.uint8), scales, zero)
    assert np.array_equal(theirs, ours) and len(np.unique(ours)) > 20
