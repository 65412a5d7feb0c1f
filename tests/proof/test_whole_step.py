"""The proof that the core is right: a whole training step as one plain graph.

Forward, backward and the optimizer's update are recorded once, at one batch size, and run on stock ONNX Runtime for
twenty steps at another, each step fed what the last one gave. The weights must end where eager training's end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from recorded_step import Transformer, training_state
from recorded_steps import MODELS, tokens, training_step
from rows import rows

import ox
from ox import tolerance
from ox.devices.onnxruntime.node_session import runtime
from ox.graph.ir import Graph
from ox.graph.passes.shape_inference import simplify
from ox.graph.record.recording import record
from ox.graph.writer.write import to_model

State = dict[str, Any]  # name -> tensor
Arrays = dict[str, np.ndarray]
STEPS, RECORDED_AT, RUN_AT = 20, 3, 5


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


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD with momentum": lambda p: ox.optim.SGD(p, lr=0.05, momentum=0.9),
    # softmax does not see what the key's bias adds, so its gradient is nothing but rounding, which differs between any
    # two machines; Adam's default eps of 1e-8 would make whole steps of it
    "Adam": lambda p: ox.optim.Adam(p, lr=1e-3, eps=1e-6),
    "AdamW": lambda p: ox.optim.AdamW(p, lr=1e-3, eps=1e-6, weight_decay=0.1),
}


@rows("name", MODELS)
@rows("optimizer_name", OPTIMIZERS)
def test_a_step_is_one_plain_graph(name: str, optimizer_name: str) -> None:
    make, data, dims = MODELS[name]
    random = np.random.default_rng(0)
    ox.manual_seed(0)
    model = make()
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    step = training_step(model, optimizer)
    step(*map(ox.from_numpy, data(random, 4)))  # makes the optimizer's state
    state = training_state(model, optimizer)
    start = snapshot(state)

    x, y = map(ox.from_numpy, data(random, RECORDED_AT))
    graph = record_step(step, {"x": x, "y": y}, state, dims)
    assert {node.domain for node in graph.nodes} == {""}, "only ai.onnx operators"
    for key, array in snapshot(state).items():
        np.testing.assert_array_equal(array, start[key], err_msg=f"recording changed {key}")

    run = Captured(graph, start)
    batches = [data(random, RUN_AT) for _ in range(STEPS)]
    eager = [step(*map(ox.from_numpy, batch)).item() for batch in batches]
    plain = [float(run(x=x, y=y)) for x, y in batches]

    assert eager[-1] != eager[0]
    for i, (a, b) in enumerate(zip(eager, plain, strict=True)):
        assert tolerance.compare(np.float32([b]), np.float32([a])).ok, f"loss of step {i}: eager {a}, captured {b}"
    for key, array in snapshot(state).items():
        difference = tolerance.compare(run.state[key], array)
        assert difference.ok, f"{key}: {difference}"


def test_dropout_draws_the_same_masks() -> None:
    """The generator's counter goes in and comes out like any other state, so every step has a mask of its own."""
    random = np.random.default_rng(0)
    ox.manual_seed(7)
    model = Transformer(dropout=0.3)
    optimizer = ox.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = training_step(model, optimizer)
    step(*map(ox.from_numpy, tokens(random, 4)))
    generator = ox.random.default_generator
    state = {**training_state(model, optimizer), "counter": generator.counter}
    start = snapshot(state)
    before = ox.random.get_state()

    x, y = map(ox.from_numpy, tokens(random, RECORDED_AT))
    graph = record_step(
        step, {"x": x, "y": y}, state, MODELS["transformer"][2], lambda: {"counter.next": generator.counter}
    )
    assert {node.domain for node in graph.nodes} == {"", "ox"}, "ai.onnx, and the random functions with their bodies"
    assert ox.random.get_state() == before

    run = Captured(graph, start)
    batches = [tokens(random, RUN_AT) for _ in range(STEPS)]
    for batch in batches:
        eager = step(*map(ox.from_numpy, batch)).item()
        plain = float(run(x=batch[0], y=batch[1]))
        assert tolerance.compare(np.float32([plain]), np.float32([eager])).ok
    assert run.state["counter"] == generator.counter.array
    for key, array in snapshot({k: v for k, v in state.items() if k != "counter"}).items():
        assert tolerance.compare(run.state[key], array).ok, key


def test_a_training_batch_norm_leaves_its_old_statistics_alone() -> None:
    """ONNX Runtime writes the new running statistics over the old ones; a written file shields them."""
    from ox import ops

    x = ox.tensor(np.random.default_rng(0).random((4, 3, 2), dtype=np.float32))
    ones, zeros = ox.ones(3), ox.zeros(3)
    mean, var = ox.full((3,), 0.25), ox.full((3,), 2.0)

    def moved(x: Any, mean: Any, var: Any) -> Any:
        y, new, _ = ops.BatchNormalization(x, ones, zeros, mean, var, training_mode=1, momentum=0.5, outputs=3)
        return {"y": y, "moved": new - mean}

    graph = record(moved, {"x": x, "mean": mean, "var": var}, dims={"x": ["batch", 3, 2]})
    run = Captured(graph, {})
    feed = {"x": x.numpy(), "mean": mean.numpy().copy(), "var": var.numpy().copy()}
    _, difference = run.session.run(None, feed)
    np.testing.assert_allclose(difference, 0.5 * (x.numpy().mean((0, 2)) - 0.25), rtol=1e-5)
    np.testing.assert_array_equal(feed["mean"], mean.numpy())
