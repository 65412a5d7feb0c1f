"""Gradients that add where positions repeat, at the size at which a racing kernel shows, on 2 threads.

ONNX Runtime's ScatterND with a reduction is wrong here in every run and right at small sizes; what ox emits may not be.
Each gradient is computed eagerly, and as a recorded graph on stock ONNX Runtime, against sums in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
from rows import rows

from ox import devices
from ox.autograd import grad
from ox.core.operator import OPS
from ox.dtypes import float32
from ox.graph.record.recording import record
from ox.graph.writer.write import to_model
from ox.tensors.tensor import Tensor, make_tensor

MANY, WIDE, FEW = 20_000, 64, 50
R = np.random.default_rng(11)
ROWS = R.integers(0, FEW, MANY)
COTANGENT = R.standard_normal((MANY, WIDE)).astype(float32)
REPEATED = np.repeat(ROWS[:, None], WIDE, axis=1)


def sums() -> np.ndarray[Any, Any]:
    """Rows of the cotangent added up by position, in float64."""
    exact = np.zeros((FEW, WIDE))
    np.add.at(exact, ROWS, COTANGENT.astype(np.float64))
    return exact


def windows() -> np.ndarray[Any, Any]:
    """The gradient of the overlapping MaxPool below by its definition, in float64."""
    x, exact = PLANES.astype(np.float64), np.zeros(PLANES.shape)
    view = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    best = view.reshape(*view.shape[:4], 9).argmax(-1)
    n, c, i, j = np.indices(best.shape)
    np.add.at(exact, (n, c, i + best // 3, j + best % 3), POOLED.astype(np.float64))
    return exact


PLANES = R.standard_normal((8, 64, 52, 52)).astype(float32)  # 8 * 64 * 50 * 50 windows: 20,000 by 64
POOLED = R.standard_normal((8, 64, 50, 50)).astype(float32)

# operator: call, data, cotangent, exact gradient
CASES: dict[str, tuple[Callable[[Any], Any], Any, Any, Callable[[], Any]]] = {
    "Gather": (lambda x: OPS["Gather"](x, ROWS, axis=0), np.ones((FEW, WIDE), float32), COTANGENT, sums),
    "Gather axis 1": (
        lambda x: OPS["Gather"](x, ROWS, axis=1),
        np.ones((WIDE, FEW), float32),
        np.ascontiguousarray(COTANGENT.T),
        lambda: sums().T,
    ),
    "GatherElements": (
        lambda x: OPS["GatherElements"](x, REPEATED, axis=0), np.ones((FEW, WIDE), float32), COTANGENT, sums,
    ),
    "GatherND": (lambda x: OPS["GatherND"](x, ROWS[:, None]), np.ones((FEW, WIDE), float32), COTANGENT, sums),
    "GatherND of elements": (
        lambda x: OPS["GatherND"](x, np.stack([REPEATED, np.broadcast_to(np.arange(WIDE), REPEATED.shape)], -1)),
        np.ones((FEW, WIDE), float32),
        COTANGENT,
        sums,
    ),
    "Tile": (
        lambda x: OPS["Tile"](x, np.array([MANY // FEW, 1])),
        np.ones((FEW, WIDE), float32),
        COTANGENT,
        lambda: COTANGENT.astype(np.float64).reshape(-1, FEW, WIDE).sum(0),
    ),
    "ScatterElements": (
        # its own forward adds where positions repeat; the gradient of the updates gathers
        lambda x: OPS["ScatterElements"](np.zeros((FEW, WIDE), float32), REPEATED, x, axis=0, reduction="add"),
        COTANGENT,
        np.ones((FEW, WIDE), float32),
        lambda: np.ones((MANY, WIDE)),
    ),
    "MaxPool": (lambda x: OPS["MaxPool"](x, kernel_shape=[3, 3]), PLANES, POOLED, windows),
    "Expand": (
        lambda x: OPS["Expand"](x, np.array([MANY, WIDE])),
        np.ones((1, WIDE), float32),
        COTANGENT,
        lambda: COTANGENT.astype(np.float64).sum(0, keepdims=True),
    ),
}  # fmt: skip


def check(got: np.ndarray[Any, Any], exact: np.ndarray[Any, Any]) -> None:
    """Rounding of float32 sums of 400 terms, far below one lost addend."""
    assert np.abs(got - exact).max() < 2e-3 if exact.shape[0] != 1 else np.abs(got - exact).max() < 0.05


@rows("executor", ["numpy", "onnxruntime", None], items=4)
@rows("name", CASES)
def test_eager(name: str, executor: str | None) -> None:
    call, data, cotangent, exact = CASES[name]
    expected = exact()
    for _ in range(3):
        x = make_tensor(data).requires_grad_()
        with devices.forced(executor):
            call(x).backward(make_tensor(cotangent))
        assert x.grad is not None
        check(x.grad.array, expected)


@rows("name", CASES)
def test_recorded(name: str) -> None:
    call, data, cotangent, exact = CASES[name]

    def step(x: Tensor, g: Tensor) -> Tensor:
        (found,) = grad(call(x.requires_grad_()), x, g)
        return found

    graph = record(step, {"x": make_tensor(data), "g": make_tensor(cotangent)})
    model = to_model(graph)
    assert not [n for n in model.graph.node if n.op_type == "ScatterND"]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    expected = exact()
    for _ in range(3):
        check(session.run(None, {"x": data, "g": cotangent})[0], expected)


def test_scatter_forward() -> None:
    """ScatterElements with repeated positions, forward."""
    for executor in ("numpy", "onnxruntime"):
        with devices.forced(executor):
            y = OPS["ScatterElements"](np.zeros((FEW, WIDE), float32), REPEATED, COTANGENT, axis=0, reduction="add")
        check(y.array, sums())


def test_no_rule_emits_a_racing_scatter() -> None:
    """ScatterND with a reduction may not appear in the sources of the operators at all."""
    from pathlib import Path

    import ox.ops

    for path in Path(ox.ops.__file__).parent.rglob("*.py"):
        for line in path.read_text().splitlines():
            assert not ("ScatterND" in line and "reduction=" in line), f"{path.name}: {line.strip()}"
