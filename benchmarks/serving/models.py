"""The two models of the comparison: one whose front end is the limit, one that has something to compute.

python benchmarks/serving/models.py FOLDER    # writes mlp.onnx, cnn.onnx and, beside each, an input and its answer
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

SHAPES = {"mlp": (64,), "cnn": (3, 32, 32)}
CLASSES = 10


def write(folder: Path) -> None:
    """x [batch, ...] to y [batch, 10], both; NAME.npz holds the row `x` that everybody is asked for, and its `y`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, build in (("mlp", _mlp), ("cnn", _cnn)):
        path = folder / f"{name}.onnx"
        random = np.random.default_rng(0)
        nodes, weights = build(random)
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *SHAPES[name]])
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", CLASSES])
        constants = [numpy_helper.from_array(value.astype(np.float32), key) for key, value in weights.items()]
        graph = helper.make_graph(nodes, name, [x], [y], constants)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
        row = random.standard_normal((1, *SHAPES[name])).astype(np.float32).round(4)  # as short in JSON as it looks
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        np.savez(folder / f"{name}.npz", x=row, y=session.run(["y"], {"x": row})[0])


def _mlp(random: np.random.Generator) -> tuple[list[Any], dict[str, Any]]:
    """64-64-10."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "w2"], ["y"]),
    ]
    return nodes, {"w1": random.standard_normal((64, 64)) / 8, "w2": random.standard_normal((64, CLASSES)) / 8}


def _cnn(random: np.random.Generator) -> tuple[list[Any], dict[str, Any]]:
    """Three convolutions, 15 million multiplications and as many additions a row; then a mean and one product."""
    nodes, weights, channels = [], {}, 3
    for number, (wide, stride) in enumerate(((32, 1), (64, 2), (64, 1)), 1):
        weights[f"k{number}"] = random.standard_normal((wide, channels, 3, 3)) * (2 / (9 * channels)) ** 0.5
        weights[f"b{number}"] = random.standard_normal(wide) / 10
        before = "x" if number == 1 else f"r{number - 1}"
        nodes += [
            helper.make_node(
                "Conv", [before, f"k{number}", f"b{number}"], [f"c{number}"], pads=[1, 1, 1, 1], strides=[stride] * 2
            ),
            helper.make_node("Relu", [f"c{number}"], [f"r{number}"]),
        ]
        channels = wide
    nodes += [
        helper.make_node("GlobalAveragePool", ["r3"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["y"]),
    ]
    return nodes, {**weights, "w": random.standard_normal((channels, CLASSES)) / 8}


if __name__ == "__main__":
    write(Path(sys.argv[1]))
