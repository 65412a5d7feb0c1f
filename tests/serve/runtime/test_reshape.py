"""Tensors in another shape: which sizes go where, and instances that take and give what clients see."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ox.clock import SYSTEM
from ox.errors import ServeError
from ox.graph.contract import Sample
from ox.serve.runtime.instance import Instance
from ox.serve.runtime.reshape import Reshape, Reshaped, Reshapes, segments


def test_segments() -> None:
    assert segments((3, 224, 224)) == [150528] == segments((1, 3, 224, 224))
    assert segments((2, 4, -1, 6)) == [8, 6] == segments((8, -1, 1, 6))
    assert segments((-1, 1)) == [1, 1] == segments((-1,))
    assert segments(()) == [1] == segments((1,))


@pytest.mark.parametrize(
    ("before", "after", "shape", "expected"),
    [
        ((3, 4), (1, 3, 4), (3, 4), (1, 3, 4)),
        ((-1, 1), (-1,), (5, 1), (5,)),
        ((1,), (), (1,), ()),
        ((-1, 2, -1, 6), (-1, 1, 2, -1, 3, 2), (3, 2, 5, 6), (3, 1, 2, 5, 3, 2)),
        ((-1, 2), (-1, 2, 1), (0, 2), (0, 2, 1)),
    ],
)  # fmt: skip
def test_there_and_back(before: Any, after: Any, shape: Any, expected: Any) -> None:
    reshape = Reshape("x", before, after)
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    got = reshape(array)
    assert got.shape == expected and np.array_equal(got.ravel(), array.ravel())
    assert np.array_equal(reshape.inverse()(got), array) and reshape.inverse()(got).shape == shape


@pytest.mark.parametrize("shape", [(4, 3), (3,), (3, 4, 1)])
def test_what_the_model_gives_is_held_against_the_configuration(shape: Any) -> None:
    with pytest.raises(ServeError, match="another shape than in the configuration") as caught:
        Reshape("y", (3, 4), (12,))(np.zeros(shape))
    assert caught.value.status == 500 and caught.value.expected == "[3, 4]" and caught.value.got == str(list(shape))


def test_an_instance() -> None:
    seen = []

    def run(feed: Any, control: Any) -> Any:
        seen.append({name: array.shape for name, array in feed.items()})
        return [feed["other"], feed["x"] + 1]

    reshapes = Reshapes({"x": Reshape("x", (-1, 4), (-1, 2, 2))}, {"y": Reshape("y", (-1, 2, 2), (-1, 4))})
    instance = Reshaped(Instance(run, lambda: SimpleNamespace(terminate=False), SYSTEM.now), reshapes, ["z", "y"])
    feeds = [{"x": np.full((rows, 4), rows), "other": np.zeros((rows, 3))} for rows in (1, 2)]
    other, y = instance(feeds)
    assert seen == [{"x": (3, 2, 2), "other": (3, 3)}] and other.shape == (3, 3)
    assert np.array_equal(y, [[2] * 4, [3] * 4, [3] * 4])
    assert instance.gathered_at and instance.control().terminate is False
    instance.gathered_at = 7.0
    assert instance.gathered_at == 7.0
    assert reshapes and not Reshapes({}, {})


def test_a_golden_sample() -> None:
    reshapes = Reshapes({"x": Reshape("x", (4,), (1, 4))}, {"y": Reshape("y", (1, 2, 1), (2,))})
    golden = Sample({"x": np.ones((1, 4)), "o": np.ones(3)}, {"y": np.ones((1, 2, 1))})
    shown = reshapes.sample(golden)
    assert shown.inputs["x"].shape == (4,) and shown.inputs["o"].shape == (3,) and shown.outputs["y"].shape == (2,)
