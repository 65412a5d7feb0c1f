"""Every engine computes what eager code computes, and keeps the contract of `ox.engines.engine`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Thread
from typing import Any

import numpy as np
import pytest
from recorded_step import FusedRecording
from recorded_steps import OPTIMIZERS, Step

import ox
from ox import nn, ops, tolerance
from ox.dtypes import bfloat16
from ox.engines import ENGINES, find
from ox.engines.engine import Executable, Task
from ox.errors import ArgumentError, BoundsError, DeviceError, DTypeError, OxError, ShapeError
from ox.graph.ir import Graph
from ox.graph.passes.optimize import optimize
from ox.graph.record.recording import record
from ox.graph.replay import replay

NAMES = ["onnxruntime", "openvino"]


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param, reason=f"{request.param} is not installed")
    return str(request.param)


def graph_of(function: Callable[..., Any], *tensors: Any, dims: Any = None) -> Graph:
    return record(function, {f"x{i}": t for i, t in enumerate(tensors)}, dims=dims, recording=FusedRecording())


def build(name: str, function: Callable[..., Any], *tensors: Any) -> Executable:
    return find(name).build(Task(graph_of(function, *tensors)))


@pytest.mark.parametrize("model", ["LeNet", "transformer"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_twenty_steps_end_at_eager_weights(name: str, model: str, optimizer: str) -> None:
    step = Step(model, optimizer)
    optimize(step.graph)
    run = find(name).build(Task(step.graph, step.updates()))
    state = {key: t.array.copy() for key, t in step.state.items()}
    for i in range(20):
        x, y = step.arrays()
        loss, *state_after = run([x, y, *state.values()])
        assert all(a is b for a, b in zip(state_after, state.values(), strict=True)), "the state's own memory"
        eager = step.eager(ox.from_numpy(x), ox.from_numpy(y)).detach().numpy()
        assert tolerance.compare(loss, eager).ok, f"step {i}: eager {eager}, {name} {loss}"
    for key, tensor in step.state.items():
        difference = tolerance.compare(state[key], tensor.array)
        assert difference.ok, f"{key}: {difference}"


def convnet() -> tuple[Any, Any]:
    layers = [
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 4, 3, stride=2),
    ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5), nn.Softmax(-1)), (
        2,
        3,
        12,
        12,
    )


MODELS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "convolutions": convnet,
    "encoder": lambda: (nn.TransformerEncoderLayer(16, 4, 32, 0.0, batch_first=True), (2, 5, 16)),
    "LSTM": lambda: (nn.LSTM(4, 6, batch_first=True), (2, 5, 4)),
    "GRU": lambda: (nn.GRU(4, 6, num_layers=2), (5, 2, 4)),
    "norms": lambda: (
        nn.Sequential(nn.GroupNorm(2, 4), nn.GELU(), nn.LayerNorm(3), nn.RMSNorm(3), nn.SiLU()),
        (2, 4, 3),
    ),
    "transposed convolution": lambda: (nn.ConvTranspose2d(3, 2, 3, stride=2), (1, 3, 4, 4)),
}


@pytest.mark.parametrize("model", MODELS)
def test_forward_passes(name: str, model: str) -> None:
    ox.manual_seed(0)
    module, shape = MODELS[model]()
    module.eval()
    x = ox.randn(*shape)

    def forward(x: Any) -> Any:
        y = module(x)
        return y[0] if isinstance(y, tuple) else y

    with ox.no_grad():
        expected = forward(x).numpy()
        run = build(name, forward, x)
    (got,) = run([x.array])
    assert tolerance.compare(got, expected).ok


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_gradients_of_recurrent_layers(name: str, kind: str) -> None:
    """Their loops read weights from outside."""
    ox.manual_seed(0)
    layer, x = getattr(nn, kind)(4, 6, 2, bidirectional=True), ox.randn(5, 2, 4)
    parameters = dict(layer.named_parameters())

    def step(x: Any, *_: Any) -> dict[str, Any]:
        loss = (layer(x)[0] ** 2).mean()
        gradients = ox.autograd.grad(loss, list(parameters.values()))
        return {"loss": loss, **dict(zip(parameters, gradients, strict=True))}

    expected = [t.detach().numpy() for t in step(x).values()]
    names = [f"{each}.value" for each in parameters]
    inputs = {"x": x, **dict(zip(names, parameters.values(), strict=True))}
    graph = record(step, inputs, recording=FusedRecording())
    results = find(name).build(Task(graph))([t.array for t in inputs.values()])
    assert all(tolerance.compare(a, b).ok for a, b in zip(results, expected, strict=True))


KINDS: dict[str, tuple[Callable[..., Any], Sequence[Any]]] = {
    "float16": (lambda x: (x * 3).exp(), [ox.ones(3).half()]),
    "bfloat16": (lambda x: (x * 3).exp(), [ox.ones(3).bfloat16()]),
    "booleans": (lambda x: (x > 0, ops.Not(x > 0)), [ox.tensor([1.0, -1.0])]),
    "no elements": (lambda x: (x + 1, x.sum()), [ox.zeros(0, 3)]),
    "no dimensions": (lambda x: x + 1, [ox.tensor(2.0)]),
    "a transposed input": (lambda x: x + 1, [ox.arange(6).float().reshape(2, 3).t()]),
    "sizes that values decide": (lambda x: ops.NonZero(x), [ox.tensor([1.0, 0.0, 2.0])]),
    "a branch": (lambda x: ox.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)), [ox.ones(3)]),
    "an input given back": (lambda x: (x, x + 1, x), [ox.ones(3)]),
    "an input that nothing reads": (lambda x, y: x + 1, [ox.ones(3), ox.ones(2)]),
    "a constant given back": (lambda x: (x + 1, ox.ones(2)), [ox.ones(3)]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_values_of_all_kinds(name: str, kind: str) -> None:
    function, tensors = KINDS[kind]
    if (name, kind) == ("openvino", "no elements"):
        pytest.skip("refused; see test_openvino.py")
    graph = graph_of(function, *tensors)
    expected = [t.numpy() if t.dtype != ox.bfloat16 else t.array for t in replay(graph, list(tensors))]
    given = [t.array for t in tensors]
    kept = [a.copy() for a in given]
    results = find(name).build(Task(graph))(given)
    for got, wanted in zip(results, expected, strict=True):
        assert tolerance.compare(got, wanted).ok and got.flags.writeable
    for i, got in enumerate(results):
        assert not any(np.shares_memory(got, other) for other in [*given, *results[:i], *graph.constants.values()])
    assert all(np.array_equal(a, b) for a, b in zip(given, kept, strict=True)), "inputs stay"


def test_results_are_the_callers_to_keep(name: str) -> None:
    run = build(name, lambda x: (x * 2, ops.NonZero(x)), ox.ones(3))
    first = run([np.float32([1, 2, 3])])
    run([np.float32([7, 0, 0])])
    assert first[0].tolist() == [2, 4, 6] and first[1].tolist() == [[0, 1, 2]]


def test_building_has_no_effect_on_the_graph(name: str) -> None:
    graph = Step("LeNet").graph

    def seen() -> Any:
        nodes = [(n.key, n.name, [v and v.name for v in n.inputs], [v.name for v in n.outputs]) for n in graph.nodes]
        return nodes, [(v.name, v.dims, v.shape) for v in graph.values()], repr([v.name for v in graph.outputs])

    before = seen()
    find(name).build(Task(graph))
    assert seen() == before


def test_state_is_read_before_it_is_written(name: str) -> None:
    """Two state tensors that change places, one that stays, one read after its next value is known."""

    def swap(a: Any, b: Any, lr: Any) -> Any:
        return {"a.next": b * 1.0, "b.next": a + lr, "lr.next": ops.Identity(lr), "sum": a + b, "moved": (a + lr) * 2}

    tensors = [ox.ones(3), ox.full((3,), 2.0), ox.tensor(0.5)]
    graph = record(swap, dict(zip(("a", "b", "lr"), tensors, strict=True)))
    a, b, lr = graph.inputs
    task = Task(graph, dict(zip(graph.outputs[:3], (a, b, lr), strict=True)))
    run = find(name).build(task)
    state = [np.ones(3, np.float32), np.full(3, 2, np.float32), np.array(0.5, np.float32)]
    results = run(state)
    assert all(x is y for x, y in zip(results[:3], state, strict=True))
    assert [x.tolist() for x in results] == [[2] * 3, [1.5] * 3, 0.5, [3] * 3, [3] * 3]
    state[0] = np.full(3, 10, np.float32)  # another array, as after load_state_dict
    assert [x.tolist() for x in run(state)] == [[1.5] * 3, [10.5] * 3, 0.5, [11.5] * 3, [21] * 3]


def test_state_that_is_not_contiguous(name: str) -> None:
    graph = record(lambda x: {"x.next": x * 2}, {"x": ox.ones(2, 3)})
    run = find(name).build(Task(graph, {graph.outputs[0]: graph.inputs[0]}))
    state = np.arange(6, dtype=np.float32).reshape(3, 2).T
    for _ in range(2):
        assert run([state])[0] is state
    assert state.tolist() == [[0, 8, 16], [4, 12, 20]]


def test_bfloat16_state(name: str) -> None:
    graph = record(lambda x: {"x.next": x * 2}, {"x": ox.ones(2).bfloat16()})
    run = find(name).build(Task(graph, {graph.outputs[0]: graph.inputs[0]}))
    state = np.array([1, 3], bfloat16)
    assert run([state])[0] is state and state.astype(np.float32).tolist() == [2, 6]


def test_a_named_size_differs_from_call_to_call(name: str) -> None:
    graph = graph_of(lambda x: (x * 2).sum(0), ox.ones(2, 3), dims={"x0": ["batch", 3]})
    run = find(name).build(Task(graph))
    for rows in (5, 1, 2):
        assert run([np.ones((rows, 3), np.float32)])[0].tolist() == [2.0 * rows] * 3


def test_inputs_are_checked(name: str) -> None:
    run = build(name, lambda x: x + 1, ox.ones(2, 3))
    with pytest.raises(ShapeError, match="input 'x0' has another shape") as caught:
        run([np.ones((3, 2), np.float32)])
    assert "[2, 3]" in str(caught.value) and "[3, 2]" in str(caught.value)
    with pytest.raises(DTypeError, match="input 'x0' has another type"):
        run([np.ones((2, 3), np.float64)])
    with pytest.raises(ShapeError, match="another number of arrays"):
        run([])
    with pytest.raises(DeviceError, match="not on the CPU"):
        run([object()])
    assert run([np.ones((2, 3), np.float32)])[0].tolist() == [[2] * 3] * 2, "after errors, too"


@pytest.mark.parametrize(
    "call",
    [
        lambda m, v: ops.Transpose(m, perm=[1, 0]) @ v,
        lambda m, v: (m * 2).t().mv(v * 2),
        lambda m, v: ox.stack([m, -m]).transpose(1, 2) @ v,
    ],
)
def test_a_transposed_matrix_times_a_vector(name: str, call: Any) -> None:
    m, v = ox.arange(12).float().reshape(3, 4), ox.tensor([1.0, 2.0, 4.0])
    run = build(name, call, m, v)
    np.testing.assert_array_equal(run([m.numpy(), v.numpy()])[0], call(m, v).numpy())


def test_what_is_held_between_limits_may_be_infinite(name: str) -> None:
    x = ox.tensor([np.inf, -np.inf, -3.0, 2.0])
    run = build(name, lambda x: (x.clamp(min=-1), x.clamp(max=1)), x)
    low, high = run([x.numpy()])
    assert low.tolist() == [np.inf, -1, -1, 2] and high.tolist() == [1, -np.inf, -3, 1]


def test_an_index_out_of_range_names_the_line(name: str) -> None:
    table = ox.ones(5, 2)

    def look_up(i: Any) -> Any:
        return ops.Gather(table, i.reshape(-1))

    run = build(name, look_up, ox.tensor([[0, 1]]))
    with pytest.raises(BoundsError) as caught:
        run([np.array([[0, 5]])])
    assert "ops.Gather(table, i.reshape(-1))" in str(caught.value) and "5" in str(caught.value)
    assert run([np.array([[4, -5]])])[0].shape == (2, 2)


def test_a_class_out_of_range(name: str) -> None:
    def loss(scores: Any, target: Any) -> Any:
        return nn.functional.cross_entropy(scores, target)

    scores, target = ox.randn(3, 4), ox.tensor([0, 3, -100])
    run = build(name, loss, scores, target)
    assert tolerance.compare(run([scores.array, target.array])[0], loss(scores, target).numpy()).ok
    with pytest.raises(ShapeError, match="cross_entropy met a class out of range"):
        run([scores.array, np.array([0, 4, 1])])


def test_a_failed_step_leaves_the_state_alone(name: str) -> None:
    def step(w: Any, i: Any) -> Any:
        return {"w.next": w + ops.Gather(w, i).sum()}

    graph = record(step, {"w": ox.ones(3), "i": ox.tensor([0, 1])})
    run = find(name).build(Task(graph, {graph.outputs[0]: graph.inputs[0]}))
    w = np.ones(3, np.float32)
    with pytest.raises(BoundsError):
        run([w, np.array([0, 3])])
    assert w.tolist() == [1, 1, 1]
    run([w, np.array([0, 2])])
    assert w.tolist() == [3, 3, 3]


@pytest.mark.parametrize("fused", [True, False], ids=["fused functions", "ai.onnx"])
def test_random_numbers_are_eager_ones(name: str, fused: bool) -> None:
    """The generator's counter is state like any other; the backward pass draws the forward's numbers again."""
    key, sixteen = ox.from_numpy(np.array(7, np.uint64)), ox.from_numpy(np.array(16, np.uint64))

    def step(x: Any, counter: Any, w: Any) -> dict[str, Any]:
        w.requires_grad_()
        second = ops.Add(counter, sixteen)
        y = ops.PhiloxDropout(ops.PhiloxDropout(x * w, key, counter, p=0.4).exp(), key, second, p=0.3)
        (slope,) = ox.autograd.grad(y.sum(), [w])
        drawn, following = ops.RandomUniform(key, ops.Add(second, sixteen), ox.tensor([3]))
        return {"y": y.detach(), "counter.next": following, "slope": slope, "drawn": drawn}

    x, w = ox.randn(8, 8), ox.ones(8)
    start = np.array(5, np.uint64)
    inputs = {"x": x, "counter": ox.from_numpy(start), "w": w.clone()}
    graph = record(step, inputs, recording=FusedRecording() if fused else None)
    task = Task(graph, {graph.outputs[1]: graph.inputs[1]})
    run = find(name).build(task)
    counter, eager_counter = start.copy(), start.copy()
    for _ in range(3):
        eager = step(x, ox.from_numpy(eager_counter), w.clone())
        results = dict(zip((v.name for v in graph.outputs), run([x.array, counter, w.array]), strict=True))
        assert results["counter.next"] is counter
        for each in ("y", "slope", "drawn"):
            assert tolerance.compare(results[each], eager[each].numpy()).ok, each
        eager_counter = eager["counter.next"].numpy()
        assert counter == eager_counter
    assert counter != start


def test_threads_may_call_at_once(name: str) -> None:
    run = build(name, lambda x: (x @ x).sin(), ox.ones(16, 16))
    wrong: list[float] = []

    def calls(value: float) -> None:
        x = np.full((16, 16), value, np.float32)
        wrong.extend(value for _ in range(20) if not np.allclose(run([x])[0], np.sin(x @ x), atol=1e-5))

    threads = [Thread(target=calls, args=(v,)) for v in (0.1, 0.2, 0.3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_explanations_name_the_engine(name: str) -> None:
    step = Step("LeNet")
    lines = find(name).build(Task(step.graph, step.updates())).explain()
    assert {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}[name] in lines[0]
    assert all(line and "\n" not in line for line in lines)


def test_an_unknown_engine_names_those_there_are() -> None:
    with pytest.raises(ArgumentError, match="no engine 'inductor'") as caught:
        find("inductor")
    assert all(name in str(caught.value) for name in ENGINES)
    assert isinstance(caught.value, OxError)


def test_options_that_an_engine_does_not_have() -> None:
    with pytest.raises(ArgumentError, match="does not take these options"):
        find("onnxruntime", precision="bfloat16")
