"""Training a loaded file past inputs that are read for their type, or that a runtime treats as constants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from rows import rows

import ox

R = np.random.default_rng(0)
Case = tuple[list[onnx.NodeProto], dict[str, Any]]


def scaled(*nodes: onnx.NodeProto) -> list[onnx.NodeProto]:
    """m = x · w, and what follows."""
    return [helper.make_node("Mul", ["x", "w"], ["m"]), *nodes]


def microsoft(kind: str, *inputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, list(inputs), ["y"], domain="com.microsoft", **attributes)


def node(kind: str, *inputs: str, output: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, list(inputs), [output], **attributes)


W = np.linspace(0.5, 1.5, 8, dtype=np.float32)
CASES: dict[str, Case] = {
    "CastLike": (scaled(node("CastLike", "two", "m", output="k"), node("Mul", "m", "k")), {"two": np.float64(2)}),
    "QuickGelu": (scaled(microsoft("QuickGelu", "m")), {}),
    "FusedMatMul with alpha": (scaled(microsoft("FusedMatMul", "m", "v", alpha=0.5)), {"v": np.eye(8, dtype="f")}),
    "Clip by constants": (scaled(node("Clip", "m", "lo", "hi")), {"lo": np.float32(-1), "hi": np.float32(1)}),
    "OneHot of two values": (
        scaled(node("OneHot", "index", "depth", "values", output="h"), node("Mul", "m", "h")),
        {"index": np.int64(3), "depth": np.int64(8), "values": np.array([0, 1], np.float32)},
    ),
    "Dropout with a ratio": (scaled(node("Dropout", "m", "r")), {"r": np.float32(0.5)}),
    "Resize by scales": (scaled(node("Resize", "m", "", "s")), {"s": np.array([1, 2], np.float32)}),
    "EyeLike of a computed value": (scaled(node("EyeLike", "m", output="e"), node("Mul", "m", "e")), {}),
}


@rows("name", CASES)
def test_the_weight_alone_learns(name: str, tmp_path: Path) -> None:
    nodes, constants = CASES[name]
    stored = [numpy_helper.from_array(np.asarray(array), key) for key, array in {"w": W, **constants}.items()]
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [tensor("x", 1, ["n", 8])], [tensor("y", 1, None)], stored)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    net = ox.export.load(tmp_path / "m.onnx").train()
    ox.manual_seed(0)
    net(ox.from_numpy(R.standard_normal((2, 8)).astype(np.float32))).square().sum().backward()
    learning = {key: p.grad for key, p in net.named_parameters()}
    assert set(learning) == {"w", *({"v"} & set(constants))}
    assert all(g is not None and np.isfinite(g.numpy()).all() and g.numpy().any() for g in learning.values())


def test_bounds_that_are_computed_have_the_gradient_of_clamp() -> None:
    """`torch.clamp` of 2.13 gives these for bounds that are tensors; where min is above max, max has all of it."""
    x = ox.tensor([-2.0, 0.5, 3.0, 0.0]).requires_grad_()
    low, high = ox.tensor(-1.0).requires_grad_(), ox.tensor(1.0).requires_grad_()
    ox.ops.Clip(x, low, high).backward(ox.tensor([1.0, 2.0, 4.0, 8.0]))
    assert [t.grad.tolist() for t in (x, low, high)] == [[0.0, 2.0, 0.0, 8.0], 1.0, 4.0]
    x, low, high = (ox.tensor(v).requires_grad_() for v in ([-2.0, 0.5, 3.0], 1.0, -1.0))
    ox.ops.Clip(x, low, high).sum().backward()
    assert [t.grad.tolist() for t in (x, low, high)] == [[0.0, 0.0, 0.0], 0.0, 3.0]
