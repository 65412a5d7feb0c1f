"""Whole training steps as graphs, to try passes and engines on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from recorded_step import FusedRecording, LeNet, Transformer, training_state

import ox
from ox import nn
from ox.graph.ir import Graph, Value
from ox.graph.record.recording import record


def images(random: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    return random.random((n, 1, 8, 8), dtype=np.float32), random.integers(0, 10, n)


def tokens(random: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    text = random.integers(0, 11, (n, 6))
    return text, (text + 1) % 11


MODELS: dict[str, tuple[Callable[[], Any], Any, Any]] = {
    "LeNet": (LeNet, images, {"x": ["batch", 1, 8, 8], "y": ["batch"]}),
    "transformer": (Transformer, tokens, {"x": ["batch", 6], "y": ["batch", 6]}),
}
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD with momentum": lambda p: ox.optim.SGD(p, lr=0.05, momentum=0.9),
    # the gradient of the bias of attention's keys is nothing but rounding, of which a small eps makes whole steps
    "Adam": lambda p: ox.optim.Adam(p, lr=1e-3, eps=1e-5),
    "AdamW": lambda p: ox.optim.AdamW(p, lr=1e-3, eps=1e-5, weight_decay=0.1),
}


def training_step(model: Any, optimizer: Any) -> Callable[..., Any]:
    criterion = nn.CrossEntropyLoss()

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        out = model(x)
        loss = criterion(out.reshape(-1, out.shape[-1]), y.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    return step


class Step:
    """A model, its optimizer and the graph of one step on `batch`; `state` are the tensors that the step changes."""

    def __init__(self, model: str, optimizer: str = "Adam", *, fused: bool = True, rows: int = 4) -> None:
        make, self.data, _ = MODELS[model]
        self.random, self.rows = np.random.default_rng(0), rows
        ox.manual_seed(0)
        self.model = make()
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.eager: Callable[..., Any] = training_step(self.model, self.optimizer)
        self.eager(*self.tensors())  # makes the optimizer's state
        self.state = training_state(self.model, self.optimizer)
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
