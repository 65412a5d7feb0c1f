"""Whole training steps as graphs, to try passes and engines on."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import ox
from ox.graph.ir import Graph, Value
from ox.graph.record.recording import Recording, record

PROOF = Path(__file__).parents[2] / "proof"


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"proof_{name}", PROOF / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


captured, whole_step = _load("captured"), _load("test_whole_step")
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD with momentum": lambda p: ox.optim.SGD(p, lr=0.05, momentum=0.9),
    # the gradient of the bias of attention's keys is nothing but rounding, of which a small eps makes whole steps
    "Adam": lambda p: ox.optim.Adam(p, lr=1e-3, eps=1e-5),
    "AdamW": lambda p: ox.optim.AdamW(p, lr=1e-3, eps=1e-5, weight_decay=0.1),
}


class FusedRecording(Recording):
    """Fused functions stay nodes, as in what `ox.compile` records."""

    keeps_fused = True


class Step:
    """A model, its optimizer and the graph of one step on `batch`; `state` are the tensors that the step changes."""

    def __init__(self, model: str, optimizer: str = "Adam", *, fused: bool = True, rows: int = 4) -> None:
        make, self.data, _ = whole_step.MODELS[model]
        self.random, self.rows = np.random.default_rng(0), rows
        ox.manual_seed(0)
        self.model = make()
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.eager: Callable[..., Any] = whole_step.training_step(self.model, self.optimizer)
        self.eager(*self.tensors())  # makes the optimizer's state
        self.state = captured.training_state(self.model, self.optimizer)
        x, y = self.tensors()

        def whole(*tensors: Any) -> dict[str, Any]:
            loss = self.eager(*tensors[:2])
            return {"loss": loss, **{f"{name}.next": tensor for name, tensor in self.state.items()}}

        inputs = {"x": x, "y": y, **self.state}
        recording = FusedRecording() if fused else None
        self.graph: Graph = record(whole, inputs, restore=list(self.state.values()), recording=recording)

    def arrays(self) -> tuple[Any, ...]:
        """A batch."""
        return tuple(self.data(self.random, self.rows))

    def tensors(self) -> list[Any]:
        return [ox.from_numpy(a) for a in self.arrays()]

    def updates(self, graph: Graph | None = None) -> dict[Value, Value]:
        """The state's next values, by output, as a Task names them."""
        graph = graph or self.graph
        inputs = {v.name: v for v in graph.inputs}
        return {v: inputs[v.name.removesuffix(".next")] for v in graph.outputs if v.name.endswith(".next")}
