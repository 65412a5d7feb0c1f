"""What tests of control flow share: a function, recorded, beside its eager self; its gradients of two orders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

import ox
from ox.autograd import grad
from ox.graph.ir import Graph
from ox.graph.passes.shape_inference import simplify
from ox.graph.reader.read import from_model
from ox.graph.record.recording import record
from ox.graph.replay import replay
from ox.graph.writer.write import to_model
from ox.tolerance import compare

R = np.random.default_rng(3)
W = ox.from_numpy(R.standard_normal((4, 4)).astype(np.float32) / 2).requires_grad_()


def x(rows: int, columns: int = 4) -> Any:
    return ox.from_numpy(np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32))


def number(n: int) -> Any:
    return ox.tensor(n)


def session_of(graph: Graph) -> ort.InferenceSession:
    model = to_model(graph)
    onnx.checker.check_model(model, full_check=True)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def runs(session: ort.InferenceSession, inputs: Sequence[Any]) -> list[np.ndarray]:
    feeds = {i.name: t.detach().numpy() for i, t in zip(session.get_inputs(), inputs, strict=True)}
    return session.run(None, feeds)  # type: ignore[no-any-return]


def check(function: Callable[..., Any], *calls: tuple[Any, ...]) -> Graph:
    """Recorded with the first inputs, the graph gives what the function gives for all of them; simplified, and read
    back from the file, too."""
    names = [f"in{i}" for i in range(len(calls[0]))]
    dims = {
        n: [f"{n}_{a}" if a == 0 else s for a, s in enumerate(t.array.shape)]
        for n, t in zip(names, calls[0], strict=True)
    }
    graph = record(function, dict(zip(names, calls[0], strict=True)), dims=dims, constants={"w": W})
    small = graph.copy()
    simplify(small)
    again, session = from_model(to_model(small)), session_of(small)
    for inputs in calls:
        expected = function(*inputs)
        expected = [y.detach().numpy() for y in (expected if isinstance(expected, tuple) else (expected,))]
        for how, got in (
            ("replay", replay(graph, inputs, {"w": W})),
            ("simplified", replay(small, inputs)),
            ("read back", replay(again, inputs)),
            ("ONNX Runtime", runs(session, inputs)),
        ):
            for i, (y, e) in enumerate(zip(got, expected, strict=True)):
                y = y if isinstance(y, np.ndarray) else y.detach().numpy()
                assert y.shape == e.shape and y.dtype == e.dtype, f"{how}, output {i}: {y.shape}, not {e.shape}"
                assert compare(y, e).ok, f"{how}, output {i}: {compare(y, e)}"
    return graph


def twice(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function's value with its gradients of first and second order."""

    def step(x: Any, *more: Any) -> Any:
        x = x.detach().requires_grad_()
        y = function(x, *more)
        first = grad((y * y).sum(), [x, W], create_graph=True)
        second = grad(sum((g * g).sum() for g in first), [x, W])
        return (y.detach(), *(g.detach() for g in first), *second)

    return step


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function's value with its gradient."""

    def step(x: Any, *more: Any) -> Any:
        x = x.detach().requires_grad_()
        y = function(x, *more)
        return (y.detach(), *grad((y * y).sum(), [x, W]))

    return step
