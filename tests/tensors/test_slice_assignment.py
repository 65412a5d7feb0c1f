"""Writes to blocks of a tensor in a recording: Slices and a Concat, right at every size."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox.errors import BoundsError, ShapeError
from ox.graph.passes.cleanup import remove_dead
from ox.graph.record.recording import record
from ox.graph.replay import replay


def written(index: Any, value: Callable[[Any], Any] = lambda x: 7.0) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        y = x * 2
        y[index] = value(x)
        return y

    return run


def in_place(index: Any) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        y = x * 2
        y[index] *= 3
        return y

    return run


def turned(x: Any) -> Any:
    y = x * 2
    y.transpose(0, 1)[1:2].unsqueeze(0).squeeze(0).add_(x[:, :1].T)
    return y


def through_a_view_of_a_view(x: Any) -> Any:
    y = x * 2
    part = y[:, 1:]
    part[:, 0] = -1
    part[-1] += 5
    return y, part


S = slice
BLOCKS: dict[str, Callable[[Any], Any]] = {
    "a slice": written((S(None), S(1, 3))),
    "from the start": written(S(None, 2)),
    "to the end": written(S(1, None)),
    "from the end": written(S(-2, None)),
    "all but the last": written(S(None, -1)),
    "two from the end": written(S(-3, -1)),
    "between, from both sides": written(S(1, -1)),
    "between, two axes": written((S(1, -1), S(1, -1))),
    "an empty one": written(S(2, 2)),
    "backwards is empty": written((S(None), S(3, 1))),
    "beyond the end": written((S(1, 99), S(2, 99))),
    "a row": written(0),
    "the last row": written(-1),
    "one element": written((0, -1)),
    "all": written(...),
    "a column": written((..., 2), lambda x: x[:, 0] + 1),
    "of its own": written((S(None), S(0, 2)), lambda x: x[:, 1:3]),
    "in place": in_place(S(1, -1)),
    "a column in place": in_place((S(None), 1)),
    "a leading 1 of the value": written((S(None), S(1, 3)), lambda x: x[None, :, :1]),
    "turned": turned,
    "through a view of a view": through_a_view_of_a_view,
}
OTHERS: dict[str, Callable[[Any], Any]] = {
    "every second": written((S(None), S(None, None, 2))),
    "places": written((S(None), [2, 0])),
    "from the end to a place": written(S(-3, 2)),
}


def graph_of(function: Callable[[Any], Any]) -> Any:
    graph = record(function, {"x": examples(4)}, dims={"x": ["batch", 4]})
    remove_dead(graph)
    return graph


def examples(count: int) -> Any:
    return ox.from_numpy(np.random.default_rng(count).normal(size=(count, 4)).astype(np.float32))


@rows("name", [*BLOCKS, *OTHERS])
def test_at_every_size(name: str) -> None:
    """Also where a slice is cut off, and where nothing stands between its ends."""
    function = {**BLOCKS, **OTHERS}[name]
    graph = graph_of(function)
    assert (name in OTHERS) == any(node.op_type == "ScatterElements" for node in graph.nodes)
    for count in (1, 2, 3, 4, 7):
        expected = function(examples(count))
        for got, wanted in zip(
            replay(graph, [examples(count)]), expected if isinstance(expected, tuple) else (expected,), strict=True
        ):
            np.testing.assert_array_equal(got.numpy(), wanted.numpy())


@pytest.mark.parametrize("name", ["a slice", "between, two axes", "a row", "of its own", "turned"])
def test_gradients(name: str) -> None:
    function = BLOCKS[name]

    def slope(x: Any) -> Any:
        x = x.detach().requires_grad_()
        return ox.autograd.grad(function(x).square().sum(), x)[0]

    graph = graph_of(slope)
    for count in (3, 5):
        np.testing.assert_allclose(
            replay(graph, [examples(count)])[0].numpy(), slope(examples(count)).numpy(), rtol=1e-6
        )


def test_errors_are_those_of_eager_code() -> None:
    for error, index, value in (
        (BoundsError, (0, 9), lambda x: 1.0),
        (ShapeError, (S(None), S(1, 3)), lambda x: x[:, :3]),
    ):
        messages = []
        for run in (lambda f: f(examples(4)), graph_of):
            with pytest.raises(error) as caught:
                run(written(index, value))
            messages.append(caught.value.what)
        assert messages[0] == messages[1]


@pytest.mark.parametrize("name", ["a slice", "a column in place", "between, two axes"])
def test_a_recording_does_not_depend_on_the_garbage_collector(name: str) -> None:
    """A temporary view that still lives when memory is written would be computed again, and export compares two
    recordings."""

    def three_writes(x: Any, collect: Callable[[], object]) -> Any:
        y = BLOCKS[name](x)
        y = y[0] if isinstance(y, tuple) else y
        assert y[:, 1:3].shape[0] == 4
        collect()
        y[:, 1:2] = x[:, :1]
        collect()
        y[0:1] *= 2
        return y

    counts = []
    gc.disable()
    try:
        for collect in (int, gc.collect):  # never, and before each write
            function = partial(three_writes, collect=collect)
            counts.append(len(record(function, {"x": examples(4)}, dims={"x": ["batch", 4]}).nodes))
    finally:
        gc.enable()
    assert counts[0] == counts[1]
