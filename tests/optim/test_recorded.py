"""Forward, backward and update recorded as one graph, run by ONNX Runtime at another batch size, against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from optimizer_cases import CASES, MUON, OWN, Case, ids
from rows import rows

import ox
from ox import nn, optim
from ox.graph.passes.shape_inference import simplify
from ox.graph.record.recording import record
from ox.graph.writer.write import to_model
from ox.tolerance import compare

ort = pytest.importorskip("onnxruntime")
STEPS, BATCH = 6, 7


def small_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 4)
    )


def encoder() -> nn.Module:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(9, 8)
            self.layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
            self.head = nn.Linear(8, 4)

        def forward(self, x: ox.Tensor) -> ox.Tensor:
            return self.head(self.layer(self.embed(x), is_causal=True).mean(1))

    return Encoder()


def images(rng: np.random.Generator, n: int) -> Any:
    return rng.standard_normal((n, 1, 4, 4)).astype(np.float32)


def tokens(rng: np.random.Generator, n: int) -> Any:
    return rng.integers(0, 9, (n, 5))


def state_of(model: nn.Module, optimizer: Any) -> dict[str, ox.Tensor]:
    """Everything that a step reads and writes, by name."""
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    for i, group in enumerate(optimizer.param_groups):
        tensors |= {f"group{i}.{name}": t for name, t in group.tensors.items()}
    for i, state in enumerate(optimizer.state.values()):
        tensors |= {f"state{i}.{name}": t for name, t in state.items()}
    return tensors


def linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 4, bias=False))


def records(make: Callable[[], nn.Module], optimizer_of: Any) -> None:
    ox.manual_seed(0)
    model = make()
    optimizer = optimizer_of(model.parameters())
    inputs = tokens if make is encoder else images
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    rng = np.random.default_rng(0)

    def step(x: ox.Tensor, y: ox.Tensor) -> ox.Tensor:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    # one eager step, so that the optimizer has its state
    step(ox.tensor(inputs(rng, 3)), ox.tensor(rng.integers(0, 4, 3)))
    tensors = state_of(model, optimizer)
    names = list(tensors)

    def whole(x: ox.Tensor, y: ox.Tensor, *state: ox.Tensor) -> dict[str, ox.Tensor]:
        loss = step(x, y)
        return {"loss": loss, **{f"{name}.new": t for name, t in tensors.items()}}

    x, y = ox.tensor(inputs(rng, 3)), ox.tensor(rng.integers(0, 4, 3))
    graph = record(
        whole,
        {"x": x, "y": y, **tensors},
        dims={"x": ("batch", *x.shape[1:]), "y": ("batch",)},
        restore=tensors.values(),
    )
    simplify(graph)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(to_model(graph).SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = {i.name for i in session.get_inputs()}
    state = {name: t.array.copy() for name, t in tensors.items()}
    for i in range(STEPS):
        optimizer.param_groups[0]["lr"] = 0.01 / (i + 1)  # the recorded step follows, for the rate is a tensor
        state["group0.lr"] = np.asarray(0.01 / (i + 1))
        x, y = inputs(rng, BATCH), rng.integers(0, 4, BATCH)
        loss = step(ox.tensor(x), ox.tensor(y))
        feeds = {k: v for k, v in {"x": x, "y": y, **state}.items() if k in wanted}
        results = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))
        assert compare(results["loss"], loss.array).ok
        state = {name: results[f"{name}.new"] for name in names}
    for name, tensor in tensors.items():
        difference = compare(state[name], tensor.array)
        assert difference.ok, (name, difference)


@rows("case", [c for c in [*CASES, *OWN, *MUON] if "dampening" not in c[1]], ids=ids)
def test_every_optimizer_records(case: Case) -> None:
    name, options = case
    records(linear, lambda p: getattr(optim, name)(p, **options))


@rows("make", [small_cnn, encoder])
@rows(
    "optimizer_of",
    [
        lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
        # some gradients are 0 but for rounding (a bias before a normalization, a key's bias): a usual eps blows that up
        lambda p: optim.AdamW(p, 0.01, weight_decay=0.1, eps=1e-3),
        lambda p: optim.Adam(p, 0.01, amsgrad=True, weight_decay=0.1, eps=1e-3),
    ],
    ids=["SGD", "AdamW", "Adam"],
)
def test_one_graph_a_step(make: Callable[[], nn.Module], optimizer_of: Any) -> None:
    records(make, optimizer_of)


def test_dropout_draws_the_same_when_recorded() -> None:
    ox.manual_seed(3)
    layer = nn.Dropout(0.4)
    x = ox.tensor(np.ones((3, 5), np.float32))
    graph = record(layer, {"x": x}, dims={"x": ("batch", 5)})
    simplify(graph)
    session = ort.InferenceSession(to_model(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    wide = np.ones((8, 5), np.float32)
    assert (session.run(None, {"x": wide})[0] == layer(ox.tensor(wide)).array).all()


@rows(
    ("layer", "shape"),
    [
        (nn.Linear(4, 3), ("batch", 6, 4)),
        (nn.AdaptiveAvgPool2d(1), ("batch", 2, 6, 6)),
        (nn.AdaptiveAvgPool2d((4, 5)), ("batch", 2, 6, 6)),
        (nn.BatchNorm2d(2), ("batch", 2, 6, 6)),
        (nn.BatchNorm1d(4), ("batch", 4)),
        (nn.LayerNorm((6, 4)), ("batch", 6, 4)),
        (nn.TransformerEncoderLayer(4, 2, 8), ("time", "batch", 4)),
        (nn.Flatten(), ("batch", 3, 2)),
        (nn.Flatten(0, 1), ("batch", 3, 2)),
        (nn.Unflatten(-1, (2, 3)), ("batch", 6)),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, nn.Module) else str(v),
)
def test_layers_recorded_at_one_size_run_at_another(layer: Any, shape: Any) -> None:
    rng = np.random.default_rng(0)
    named = {"batch": 3, "time": 5}
    x = rng.standard_normal([named.get(s, s) for s in shape]).astype(np.float32)
    graph = record(layer.eval(), {"x": ox.tensor(x)}, dims={"x": shape})
    simplify(graph)
    session = ort.InferenceSession(to_model(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    named = {"batch": 1, "time": 2}
    x = rng.standard_normal([named.get(s, s) for s in shape]).astype(np.float32)
    difference = compare(session.run(None, {"x": x})[0], layer(ox.tensor(x)).array)
    assert difference.ok, difference


@pytest.mark.parametrize("causal", [True, False])
def test_attention_recorded_at_one_length_runs_at_another(causal: bool) -> None:
    layer = nn.MultiheadAttention(4, 2, batch_first=True)
    rng = np.random.default_rng(0)

    def run(q: ox.Tensor, k: ox.Tensor, padding: ox.Tensor) -> Any:
        return layer(q, k, k, key_padding_mask=padding, is_causal=causal)[0]

    def inputs(n: int, t: int, s: int) -> dict[str, Any]:
        padding = rng.random((n, s)) > 0.6
        padding[:, 0] = False
        q, k = (rng.standard_normal((n, m, 4)).astype(np.float32) for m in (t, s))
        return {"q": q, "k": k, "padding": padding}

    given = {name: ox.tensor(a) for name, a in inputs(2, 3, 4).items()}
    dims = {"q": ("batch", "t", 4), "k": ("batch", "s", 4), "padding": ("batch", "s")}
    graph = record(run, given, dims=dims)
    simplify(graph)
    session = ort.InferenceSession(to_model(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = inputs(3, 6, 5)
    difference = compare(session.run(None, feeds)[0], run(*map(ox.tensor, feeds.values())).array)
    assert difference.ok, difference
