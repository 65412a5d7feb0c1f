"""A training step as one graph: recorded once, run on stock ONNX Runtime as often as one likes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ox.devices.node_session import runtime
from ox.graph.ir import Graph
from ox.graph.passes.shape_inference import simplify
from ox.graph.record.recording import record
from ox.graph.writer.write import to_model

State = dict[str, Any]  # name -> tensor
Arrays = dict[str, np.ndarray]


def snapshot(state: State) -> Arrays:
    return {name: tensor.array.copy() for name, tensor in state.items()}


def record_step(
    step: Callable[..., Any], batch: Mapping[str, Any], state: State, dims: Mapping[str, Any], extra: Any = dict
) -> Graph:
    """`step(*batch)`, which writes `state` in place and returns the loss, as a graph from (batch, state) to (loss, next
    state). `extra` gives further outputs by name after the step."""

    def whole(*tensors: Any) -> dict[str, Any]:
        loss = step(*tensors[: len(batch)])
        return {"loss": loss, **{f"{name}.next": tensor for name, tensor in state.items()}, **extra()}

    graph = record(whole, {**batch, **state}, dims=dims, restore=list(state.values()))
    simplify(graph)
    return graph


class Captured:
    """The graph in stock ONNX Runtime; every call feeds the last call's state."""

    def __init__(self, graph: Graph, start: Arrays) -> None:
        self.model = to_model(graph)
        ort = runtime().module  # the process gets its one pool first, which every session then shares
        self.session = ort.InferenceSession(self.model.SerializeToString(), providers=["CPUExecutionProvider"])
        self.state = dict(start)

    def __call__(self, **batch: np.ndarray) -> Any:
        names = [o.name for o in self.session.get_outputs()]
        results = dict(zip(names, self.session.run(names, {**batch, **self.state}), strict=True))
        loss = results.pop("loss")
        self.state = {name.removesuffix(".next"): array for name, array in results.items()}
        return loss
