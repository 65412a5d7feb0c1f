"""Functions and training steps as tasks for an engine, and the same in eager code beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import ox
from ox import nn, tolerance
from ox.engines.engine import Executable, Task
from ox.graph.record.recording import Recording, record

Arrays = dict[str, np.ndarray[Any, Any]]


class FusedRecording(Recording):
    """What `ox.compile` records: a fused function stays one node."""

    keeps_fused = True


def task_of(function: Callable[..., Any], inputs: dict[str, Any], updates: dict[str, str] | None = None) -> Task:
    """The recording of a function of tensors. `updates` names, for an output, the input whose next value it is."""
    graph = record(function, inputs, recording=FusedRecording())
    by_name = {v.name: v for v in (*graph.inputs, *graph.outputs)}
    return Task(graph, {by_name[new]: by_name[old] for new, old in (updates or {}).items()})


def training_state(model: Any, optimizer: Any) -> dict[str, Any]:
    """Every tensor that a step changes, and the optimizer's numbers, by name."""
    names = {id(p): name for name, p in model.named_parameters()}
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for p, held in optimizer.state.items():
        state |= {f"{names[id(p)]}.{key}": tensor for key, tensor in held.items()}
    for i, group in enumerate(optimizer.param_groups):
        state |= {f"group{i}.{key}": tensor for key, tensor in group.tensors.items()}
    return state


class Training:
    """A model, its optimizer, and the recording of one step after a first eager one, which makes the state. With
    `draws`, the counter of the random generator is state, too."""

    def __init__(
        self, model: Any, optimizer: Any, batch: tuple[Any, Any], clip: float | None = None, draws: bool = False
    ) -> None:
        self.model, self.optimizer, self.clip = model, optimizer, clip
        self.criterion = nn.CrossEntropyLoss()
        self.step(*batch)
        generator = ox.random.default_generator

        def state() -> dict[str, Any]:
            return {**training_state(model, optimizer), **({"counter": generator.counter} if draws else {})}

        def whole(x: Any, y: Any, *_: Any) -> dict[str, Any]:
            return {"loss": self.step(x, y), **{f"{name}.next": tensor for name, tensor in state().items()}}

        self.state = state()

        graph = record(
            whole,
            {"x": batch[0], "y": batch[1], **self.state},
            restore=list(self.state.values()),
            recording=FusedRecording(),
        )
        by_name = {v.name: v for v in graph.inputs}
        updates = {v: by_name[v.name.removesuffix(".next")] for v in graph.outputs if v.name.endswith(".next")}
        self.task = Task(graph, updates)

    def step(self, x: Any, y: Any) -> Any:
        self.optimizer.zero_grad()
        out = self.model(x)
        loss = self.criterion(out.reshape(-1, out.shape[-1]), y.reshape(-1))
        loss.backward()
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        return loss

    def arrays(self) -> list[Any]:
        """A copy of the state as it is now, in the order of the task's inputs behind the batch."""
        return [tensor.array.copy() for tensor in self.state.values()]

    def check(self, executable: Executable, batches: list[tuple[Any, Any]]) -> list[Any]:
        """Runs eager steps and the executable's side by side; losses and state must stay equal within the table."""
        arrays = self.arrays()
        for i, (x, y) in enumerate(batches):
            eager = self.step(x, y).array
            loss = executable([x.array, y.array, *arrays])[0]
            difference = tolerance.compare(loss, eager)
            assert difference.ok, f"loss of step {i}: eager {eager}, engine {loss}"
        for (name, tensor), array in zip(self.state.items(), arrays, strict=True):
            if name == "counter":
                assert array == ox.random.default_generator.counter.array
                continue
            difference = tolerance.compare(array, tensor.array)
            assert difference.ok, f"{name}: {difference}"
        return arrays


class LeNet(nn.Module):
    """A small network of images [N, 1, 8, 8]."""

    def __init__(self) -> None:
        super().__init__()
        # no bias before the batch norm, as that takes away whatever a bias adds
        self.strokes = nn.Sequential(
            nn.Conv2d(1, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.shapes = nn.Sequential(nn.Conv2d(6, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, image: Any) -> Any:
        return self.head(self.shapes(self.strokes(image)))


class Transformer(nn.Module):
    """A small network of tokens [N, 6]."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(11, 16), nn.Parameter(ox.randn(6, 16) * 0.1)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(16, 4, 32, dropout, activation="gelu", batch_first=True, norm_first=True)
            for _ in range(2)
        )
        self.head = nn.Linear(16, 11)

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens) + self.place
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Lstm(nn.Module):
    """A small recurrent network of tokens [N, 6]."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm, self.head = nn.Embedding(11, 8), nn.LSTM(8, 12, 2, batch_first=True), nn.Linear(12, 11)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.lstm(self.embed(tokens))[0])


class Mlp(nn.Sequential):
    """A small network of vectors [N, 20]."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(20, 33), nn.ReLU(), nn.Linear(33, 17), nn.Tanh(), nn.Linear(17, 10))


def images(random: np.random.Generator, n: int) -> tuple[Any, Any]:
    return ox.from_numpy(random.random((n, 1, 8, 8), dtype=np.float32)), ox.from_numpy(random.integers(0, 10, n))


def tokens(random: np.random.Generator, n: int) -> tuple[Any, Any]:
    text = random.integers(0, 11, (n, 6))
    return ox.from_numpy(text), ox.from_numpy((text + 1) % 11)


def vectors(random: np.random.Generator, n: int) -> tuple[Any, Any]:
    return ox.from_numpy(random.random((n, 20), dtype=np.float32)), ox.from_numpy(random.integers(0, 10, n))


MODELS: dict[str, tuple[Callable[[], Any], Callable[[np.random.Generator, int], tuple[Any, Any]]]] = {
    "MLP": (Mlp, vectors),
    "LeNet": (LeNet, images),
    "transformer": (Transformer, tokens),
    "LSTM": (Lstm, tokens),
}
# softmax does not see what a key's bias adds, so its gradient is rounding, of which Adam's default eps would make steps
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: ox.optim.SGD(p, lr=0.05, momentum=0.9),
    "Adam": lambda p: ox.optim.Adam(p, lr=1e-3, eps=1e-4),
    "AdamW": lambda p: ox.optim.AdamW(p, lr=1e-3, eps=1e-4, weight_decay=0.1),
}
