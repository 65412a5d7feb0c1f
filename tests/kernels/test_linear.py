"""A layer's product as one call: its gradients are those of Gemm, whichever inputs a gradient follows."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import ox
from ox import devices
from ox.core.node import Node
from ox.core.operator import OPS
from ox.kernels import Library
from ox.nn.functional import linear
from ox.tolerance import compare

# which inputs a gradient follows, and whether the layer has a bias
CHOICES = [
    (needs, bias) for needs in product((False, True), repeat=3) for bias in (True, False) if any(needs[: 2 + bias])
]


@pytest.fixture(autouse=True)
def with_kernels(library: Library) -> None:
    """Without compiled kernels `linear` calls Gemm."""


def tensors(lead: tuple[int, ...], needs: tuple[bool, ...], inside: int = 5, outside: int = 3) -> list[Any]:
    random = np.random.default_rng(len(lead))
    arrays = [random.standard_normal(shape, np.float32) for shape in ((*lead, inside), (outside, inside), (outside,))]
    return [ox.from_numpy(a).requires_grad_(need) for a, need in zip(arrays, needs, strict=True)]


def node_of(y: Any) -> Any:
    assert isinstance(y.node, Node)
    assert y.node.op is OPS["ox.Linear"]
    return y.node


@pytest.mark.parametrize("lead", [(4,), (1,), (2, 512), (2, 3, 4), (0, 2)])
@pytest.mark.parametrize(("needs", "bias"), CHOICES)
def test_its_gradients_are_those_of_gemm(lead: tuple[int, ...], needs: tuple[bool, ...], bias: bool) -> None:
    found = []
    for name in (None, "numpy"):
        x, w, b = tensors(lead, needs)
        with devices.forced(name):  # type: ignore[arg-type]
            y = linear(x, w, b if bias else None)
            (y * y).sum().backward()
        found.append([y.detach(), *(t.grad for t in (x, w, b))])
        if name is None and x.array.size:
            node_of(y)
    for here, there in zip(*found, strict=True):
        assert (here is None) == (there is None)
        assert here is None or compare(here.numpy(), there.numpy()).ok


def test_a_strided_input() -> None:
    x, w, b = tensors((4, 6), (True, True, True))
    turned = x.permute(1, 0, 2)
    linear(turned, w, b).square().sum().backward()
    found = [t.grad.numpy() for t in (x, w, b)]
    x.grad = w.grad = b.grad = None
    linear(x, w, b).square().sum().backward()
    for here, there in zip(found, (x, w, b), strict=True):
        assert compare(here, there.grad.numpy()).ok


def test_second_order() -> None:
    """The gradient of a sum of squared gradients, beside float64, which Gemm calculates."""
    found = []
    for dtype in (ox.float32, ox.float64):
        x, w, b = (t.detach().to(dtype).requires_grad_() for t in tensors((2, 4), (True, True, True)))
        first = ox.autograd.grad(linear(x, w, b).tanh().sum(), [x, w, b], create_graph=True)
        found.append(ox.autograd.grad(sum(g.square().sum() for g in first), [x, w, b]))
    for here, there in zip(*found, strict=True):
        assert np.allclose(here.numpy(), there.numpy(), rtol=1e-4, atol=1e-5)


def test_it_saves_only_what_a_gradient_needs() -> None:
    x, w, b = tensors((4,), (True, False, False))
    assert [kept[0] for kept in node_of(linear(x, w, b)).saved] == [w], "a frozen weight: not its input"
    x, w, b = tensors((4,), (False, True, True))
    y = linear(x, w, b)
    assert [kept[0] for kept in node_of(y).saved] == [x]
    with ox.no_grad():
        w.zero_()  # that gradient does not read the weight
    y.sum().backward()
    assert compare(w.grad.numpy(), np.tile(x.numpy().sum(0), (3, 1))).ok


def test_a_weight_that_was_written_is_found() -> None:
    x, w, b = tensors((4,), (True, True, True))
    y = linear(x, w, b)
    with ox.no_grad():
        w.zero_()
    with pytest.raises(ox.errors.GradientError, match="in-place"):
        y.sum().backward()


def test_a_recording_holds_gemm() -> None:
    from ox.graph.record.recording import record

    x, w, b = tensors((2, 4), (False, True, True))
    graph = record(lambda x: linear(x, w, b), {"x": x})
    assert "Gemm" in [node.op_type for node in graph.nodes]
    assert not [node.op_type for node in graph.nodes if node.op_type == "Linear"]


def test_without_features_there_is_the_bias() -> None:
    for lead in ((6,), (2, 3), (2, 0, 3)):
        y = ox.nn.functional.linear(ox.zeros(*lead, 0), ox.zeros(4, 0), ox.ones(4))
        np.testing.assert_array_equal(y.numpy(), np.ones((*lead, 4)))
