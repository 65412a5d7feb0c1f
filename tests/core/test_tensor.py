"""What operators need of a tensor: TensorBase and is_tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ox
from ox.autograd.graph import get_gradient_edge
from ox.core.symbolic import Dim
from ox.core.tensor import TensorBase, is_tensor
from ox.errors import DTypeError
from ox.graph.record.recording import record
from ox.nn import functional as F


def test_what_is_a_tensor() -> None:
    x = ox.ones(2, requires_grad=True)
    for thing in (x, ox.nn.Parameter(x), ox.fft.fft(ox.ones(4)), ox.nn.UninitializedParameter()):
        assert is_tensor(thing) and isinstance(thing, TensorBase)
    pairs = ox.eye(2).to_sparse()
    for other in (None, 1.0, np.ones(2), [x], {"x": x}, ox.Tensor, pairs, get_gradient_edge(x * 2), x.shape):
        assert not is_tensor(other)


def test_static_shape_is_of_plain_ints_under_a_recording() -> None:
    seen: list[Any] = []

    def step(x: Any) -> Any:
        seen.append((x.shape, x.static_shape))
        return x

    record(step, {"x": ox.ones(3, 4)}, dims={"x": ["n", 4]})
    shape, static = seen[0]
    assert isinstance(shape[0], Dim) and static == (3, 4) and type(static[0]) is int
    assert ox.ones(2, 3).static_shape == (2, 3) and ox.tensor(1).static_shape == ()


def test_what_has_none_is_no_tensor() -> None:
    for given, text in ((np.ones((2, 3)), "ox.from_numpy"), (ox.eye(3).to_sparse(), "to_dense")):
        with pytest.raises(DTypeError) as caught:
            F.pairwise_distance(ox.ones(2, 3), F.layer_norm(given, (3,)))
        assert text in str(caught.value.hint)
