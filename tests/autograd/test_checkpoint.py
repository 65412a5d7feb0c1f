"""Checkpoints: the same gradients from a second run, and less memory between the two."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from rows import rows

import ox
from ox import nn
from ox.errors import ArgumentError, GradientError
from ox.graph.record.recording import record
from ox.graph.writer.write import to_model
from ox.utils.checkpoint import checkpoint, checkpoint_sequential, set_checkpoint_early_stop


class Block(nn.Module):
    runs = 0

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Any, scale: Any = 1.0) -> Any:
        Block.runs += 1
        return x + self.fc2(self.drop(self.fc1(x).tanh())).sigmoid() * scale


def gradients(model: Any, call: Any, seed: int = 3) -> list[Any]:
    ox.manual_seed(seed)
    x = ox.randn(8, 16, requires_grad=True)
    call(x).square().mean().backward()
    found = [x.grad.numpy(), *(p.grad.numpy() for p in model.parameters()), ox.rand(1).numpy()]
    model.zero_grad()
    return found


def model(blocks: int = 4) -> Any:
    ox.manual_seed(0)
    return nn.Sequential(*(Block(16) for _ in range(blocks)))


def through(m: Any, **options: Any) -> Any:
    def call(x: Any) -> Any:
        for block in m:
            x = checkpoint(block, x, **options)
        return x

    return call


def nested(m: Any) -> Any:
    def half(blocks: Any) -> Any:
        def run(x: Any) -> Any:
            for block in blocks:
                x = checkpoint(block, x, use_reentrant=False)
            return x

        return run

    blocks = list(m)
    return lambda x: checkpoint(half(blocks[2:]), checkpoint(half(blocks[:2]), x))


@rows(
    "call",
    [
        through,
        lambda m: through(m, use_reentrant=True),
        lambda m: through(m, early_stop=False),
        lambda m: lambda x: checkpoint_sequential(m, 2, x, use_reentrant=False),
        lambda m: lambda x: checkpoint_sequential(list(m), 4, x),
        lambda m: lambda x: checkpoint(m, x),
        nested,
    ],
)
def test_the_same_gradients(call: Any) -> None:
    """Dropout draws the same numbers again, and the stream goes on as if it had drawn them once."""
    m = model()
    for got, expected in zip(gradients(m, call(m)), gradients(m, m), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_each_part_runs_twice_and_stops_early() -> None:
    m = model()
    Block.runs = 0
    gradients(m, through(m))
    assert Block.runs == 8
    with ox.no_grad():
        checkpoint(m, ox.ones(1, 16))
    assert Block.runs == 12
    reached: list[int] = []

    def function(x: Any) -> Any:
        y = x.exp()
        reached.append(1)
        return y + 1

    for stop, count in ((True, 1), (False, 2)):
        reached.clear()
        with set_checkpoint_early_stop(stop):
            checkpoint(function, ox.ones(2, requires_grad=True)).sum().backward()
        assert len(reached) == count


@pytest.mark.parametrize("momentum", [0.1, None])
def test_the_last_batch_norm_counts_a_batch_once(momentum: float | None) -> None:
    """The second run stops before it, so that count and statistics are those of the first one."""
    plain, inside = (nn.BatchNorm1d(4, momentum=momentum) for _ in range(2))
    for i in range(3):
        x = ox.randn(6, 4, 5) + i
        plain(x)
        checkpoint(inside, x.requires_grad_(), use_reentrant=False).sum().backward()
    for name, buffer in plain.named_buffers():
        np.testing.assert_allclose(inside.get_buffer(name).numpy(), buffer.numpy(), rtol=1e-6, err_msg=name)


def test_structures_and_keywords() -> None:
    x, w = ox.ones(2, requires_grad=True), ox.full((2,), 3.0, requires_grad=True)

    def function(pair: Any, *, more: Any, factor: float) -> Any:
        return {"a": [pair[0] * pair[1], None], "b": (more["w"].exp() * factor, "text")}

    result = checkpoint(function, (x, w), more={"w": w}, factor=2.0)
    assert result["b"][1] == "text"
    (result["a"][0] + result["b"][0]).sum().backward()
    assert x.grad.tolist() == [3, 3]
    np.testing.assert_allclose(w.grad.tolist(), 1 + 2 * np.exp([3.0, 3.0]), rtol=1e-6)


def live() -> int:
    """Bytes of arrays that tensors hold."""
    gc.collect()
    owners = {}
    for t in (o for o in gc.get_objects() if issubclass(type(o), ox.Tensor)):
        array = t.array
        while isinstance(array.base, np.ndarray):
            array = array.base
        owners[id(array)] = array.nbytes
    return sum(owners.values())


@pytest.fixture
def set_aside() -> Iterator[None]:
    """The collector walks only what is made from now on, and not what hundreds of tests before have left."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("set_aside")
def test_memory_falls() -> None:
    """A chain of 16 blocks of 4 operators on 400 kB: all of it against the inputs of the blocks, and one block."""

    def block(x: Any) -> Any:
        return x.tanh().exp().sigmoid().tanh()

    def peak(call: Any) -> tuple[int, int]:
        x = ox.ones(100_000, requires_grad=True)
        before, seen = live(), []
        x.register_hook(lambda g: seen.append(live()))
        y = x
        for _ in range(16):
            y = call(y)
            y.register_hook(lambda g: seen.append(live()))
        between = live() - before
        y.sum().backward()
        return between // 400_000, (max(seen) - before) // 400_000

    kept, most = peak(block)
    assert kept >= 64
    less_kept, less_most = peak(lambda x: checkpoint(block, x))
    assert less_kept <= 17
    assert less_most <= 17 + 8
    assert less_most < most / 2


def test_a_second_run_that_differs_is_an_error() -> None:
    x = ox.ones(4, requires_grad=True)
    turns: list[int] = []

    def fickle(x: Any, kinds: Any) -> Any:
        turns.append(1)
        return kinds[len(turns) - 1](x)

    for kinds in (
        (lambda x: x.exp().tanh(), lambda x: x.exp()),
        (lambda x: x.exp(), lambda x: x[:2].exp()),
        (lambda x: x.exp(), lambda x: x * 1),
    ):
        turns.clear()
        y = checkpoint(fickle, x, kinds)
        with pytest.raises((GradientError, ArgumentError)) as caught:
            y.sum().backward()
        assert "test_checkpoint.py" in caught.value.where
    turns.clear()
    y = checkpoint(fickle, x, (lambda x: x.exp(), lambda x: x.exp().tanh()), early_stop=False)
    with pytest.raises(GradientError, match="more tensors"):
        y.sum().backward()


def test_an_argument_that_was_written_is_an_error() -> None:
    h = ox.ones(4, requires_grad=True) * 2
    y = checkpoint(lambda x: x.exp(), h)
    h.add_(1)
    with pytest.raises(GradientError, match="checkpoint needs for its gradient was modified"):
        y.sum().backward()


def test_writes_inside() -> None:
    def function(x: Any, w: Any) -> Any:
        y = x * w
        y.mul_(w)
        y[0] += w.exp()
        return y.pow_(2)

    x, w = ox.tensor([1.0, 2.0], requires_grad=True), ox.tensor(3.0, requires_grad=True)
    expected = ox.autograd.grad(function(x, w).sum(), [x, w])
    for options in ({}, {"early_stop": False}):
        got = ox.autograd.grad(checkpoint(function, x, w, **options).sum(), [x, w])
        assert [g.tolist() for g in got] == [e.tolist() for e in expected]


def test_second_order_and_two_backwards() -> None:
    x = ox.tensor([0.5, -1.0], dtype=ox.float64, requires_grad=True)

    def function(x: Any) -> Any:
        return (x.tanh() * x).exp()

    assert ox.autograd.gradcheck(lambda x: checkpoint(function, x), [x], order=2)
    y = checkpoint(function, x).sum()
    y.backward(retain_graph=True)
    once = x.grad.numpy().copy()
    y.backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2 * once)


def test_what_is_no_number_of_segments() -> None:
    for segments in (0, 5):
        with pytest.raises(ArgumentError, match="so many segments"):
            checkpoint_sequential(model(), segments, ox.ones(1, 16))


def test_contexts() -> None:
    seen: list[str] = []

    class Note:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            seen.append(self.name)

        def __exit__(self, *_: object) -> None:
            pass

    x = ox.ones(2, requires_grad=True)
    y = checkpoint(lambda x: x.exp(), x, context_fn=lambda: (Note("forward"), Note("again")))
    assert seen == ["forward"]
    y.sum().backward()
    assert seen == ["forward", "again"]


def test_a_recording_has_both_runs() -> None:
    def slope(x: Any) -> Any:
        x = x.detach().requires_grad_()
        return ox.autograd.grad(checkpoint(lambda x: x.tanh().exp(), x).sum(), x)[0]

    def batch(rows: int) -> Any:
        return ox.from_numpy(np.random.default_rng(rows).random((rows, 3), dtype=np.float32))

    graph = record(slope, {"x": batch(2)}, dims={"x": ["batch", 3]})
    assert [node.op_type for node in graph.nodes].count("Tanh") == 2
    session = ort.InferenceSession(to_model(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    for count in (1, 4):
        (got,) = session.run(None, {"x": batch(count).numpy()})
        np.testing.assert_allclose(got, slope(batch(count)).numpy(), rtol=1e-5)
