"""What code asks tensors besides their shape and type: an argument, or a tensor of state, with another answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from beside_eager import reasons, recordings

import ox
from ox import nn

WEIGHT = ox.ones(1, requires_grad=True)
MATRIX = ox.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])


def retained() -> ox.Tensor:
    made = WEIGHT * 1
    made.retain_grad()
    return made


def columns() -> ox.Tensor:
    return MATRIX.T


def copied() -> ox.Tensor:
    return MATRIX.clone()


ASKED: dict[str, tuple[Callable[[Any], Any], list[Callable[[], Any]]]] = {
    "is_leaf": (lambda x: x.is_leaf, [lambda: WEIGHT, lambda: WEIGHT * 1]),
    "grad_fn": (lambda x: x.grad_fn is None, [lambda: WEIGHT, lambda: WEIGHT * 1]),
    "retains_grad": (lambda x: x.retains_grad, [lambda: WEIGHT * 1, retained]),
    "storage_offset": (lambda x: x.storage_offset(), [lambda: MATRIX[1], lambda: MATRIX[2]]),
    "that of a view": (lambda x: x[1:].storage_offset(), [copied, columns]),
    "stride": (lambda x: x.stride()[0], [copied, columns]),
    "is_contiguous": (lambda x: x.is_contiguous(), [copied, columns]),
    "that of a transpose": (lambda x: x.T.is_contiguous(), [copied, columns]),
    "_is_view": (lambda x: x._is_view(), [copied, lambda: MATRIX[:]]),
    "a computed name": (lambda x: getattr(x, "".join(["is_", "leaf"])), [lambda: WEIGHT, lambda: WEIGHT * 1]),
    "requires_grad": (lambda x: x.requires_grad, [lambda: WEIGHT, lambda: WEIGHT.detach().clone()]),
    "version": (lambda x: x.version, [copied, lambda: copied().add_(1)]),
    "_version": (lambda x: x._version, [copied, lambda: copied().add_(1)]),
    "data_ptr": (lambda x: x.data_ptr() == MATRIX.data_ptr(), [copied, lambda: MATRIX]),
    "is_set_to": (lambda x: x.is_set_to(MATRIX), [copied, lambda: MATRIX]),
}


@pytest.mark.parametrize("name", ASKED)
def test_an_argument(name: str) -> None:
    ask, makers = ASKED[name]

    def function(x: Any) -> Any:
        return x.detach().sum() * (float(ask(x)) + 1)

    compiled = ox.compile(function)
    for make in (makers[0], makers[0], makers[1], makers[1], makers[0]):
        x = make()
        assert compiled(x).item() == function(x).item()
    assert recordings(compiled) or reasons(compiled)


def test_a_tensor_of_state() -> None:
    net = nn.Module()
    net.weight = ox.ones(2, 3)
    compiled = ox.compile(lambda x: x * net.weight.stride()[0])
    for _ in range(2):
        assert compiled(ox.ones(1)).item() == 3
    net.weight.data = ox.ones(3, 2).T
    assert compiled(ox.ones(1)).item() == net.weight.stride()[0] == 1


def test_state_in_another_memory_order() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("buffer", ox.zeros(2, 3, 4, 5))

        def forward(self, x: Any) -> Any:
            self.buffer.reshape(-1).add_(1)
            return self.buffer.sum() * x

    eager, net = Net(), Net()
    compiled, x = ox.compile(net), ox.ones(1)
    for order in (None, None, ox.channels_last, None, ox.contiguous_format, None):
        if order is not None:
            for each in (eager, net):
                each.buffer.data = ox.zeros(2, 3, 4, 5).contiguous(memory_format=order)
        assert compiled(x).item() == eager(x).item()
    assert len(recordings(compiled)) == 2
    assert "has another memory order" in str(ox.compiler.explain(compiled))


def test_a_frozen_parameter_that_is_only_asked() -> None:
    net = nn.Sequential(nn.Linear(1, 1), nn.Dropout(0.5))
    compiled = ox.compile(lambda x: x * sum(p.requires_grad for p in net.parameters()) + sum(m.training for m in net))
    assert [compiled(ox.ones(1)).item() for _ in range(2)] == [4, 4]
    net[0].bias.requires_grad_(False)
    assert compiled(ox.ones(1)).item() == 3
    net[1].eval()
    assert compiled(ox.ones(1)).item() == 2


CHANNELS_LAST = ox.channels_last
VIEWS_OR_COPIES: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda x: x.contiguous(),
    "channels last": lambda x: x.contiguous(memory_format=CHANNELS_LAST),
    "to": lambda x: x.to(memory_format=CHANNELS_LAST),
    "float": lambda x: x.float(memory_format=CHANNELS_LAST),
    "reshape": lambda x: x.reshape(-1),
    "flatten": lambda x: ox.flatten(x),
}


@pytest.mark.parametrize("name", VIEWS_OR_COPIES)
@pytest.mark.parametrize("last_first", [False, True])
def test_a_view_or_a_copy_by_the_memory_order_of_an_argument(name: str, last_first: bool) -> None:
    def function(x: Any) -> Any:
        VIEWS_OR_COPIES[name](x).add_(1)
        return x.sum()

    compiled = ox.compile(function)
    for last in (last_first, last_first, not last_first, not last_first, last_first):
        one, other = (
            ox.zeros(2, 3, 4, 5).clone(memory_format=CHANNELS_LAST if last else ox.contiguous_format) for _ in range(2)
        )
        assert compiled(one).item() == function(other).item()
        assert (one == other).all()
    assert len(recordings(compiled)) == 2
    assert "argument 0 has another memory order" in str(ox.compiler.explain(compiled))


@pytest.mark.parametrize("sizes", [(2, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 1), (1, 3, 4, 5)])
def test_views_or_copies_of_arguments_that_are_views(sizes: tuple[int, ...]) -> None:
    def function(x: Any) -> Any:
        x.reshape(sizes[0] * sizes[1], -1).add_(1)
        return x.sum()

    a, b, c, d = sizes
    makers: list[Callable[[], Any]] = [
        lambda: ox.zeros(a, b, c, d)[:],
        lambda: ox.zeros(d, c, b, a).permute(3, 2, 1, 0),
        lambda: ox.zeros(a, 2 * b, c, d)[:, :b],
        lambda: ox.zeros(a, b, c, 2 * d)[..., ::2],
        lambda: ox.zeros(a, b, d, c).transpose(2, 3),
    ]
    compiled = ox.compile(function, recompile_limit=99)
    for make in [*makers, *makers]:
        assert compiled(make()).item() == function(make()).item()
    assert recordings(compiled)


def test_views_or_copies_of_arrays_of_numpy() -> None:
    """Their tensors are no views, whatever they show of other arrays."""

    def function(x: Any) -> Any:
        VIEWS_OR_COPIES["to"](x).add_(1)
        return x.sum()

    makers: list[Callable[[], Any]] = [
        lambda: np.zeros((2, 4, 5, 3)),
        lambda: np.zeros((2, 4, 5, 6))[..., ::2],  # channels last, with gaps
        lambda: np.zeros((2, 4, 5, 3))[::-1, ::-1, ::-1, ::-1],
        lambda: np.zeros((2, 3, 4, 5)).transpose(0, 2, 3, 1),  # row-major
        lambda: np.zeros((2, 4, 5, 1))[..., [0, 0, 0]],
    ]
    compiled = ox.compile(function, recompile_limit=99)
    for make in [*makers, *makers]:
        one, other = (ox.from_numpy(make().transpose(0, 3, 1, 2)) for _ in range(2))
        assert compiled(one).item() == function(other).item()
    assert len(recordings(compiled)) >= 4


def test_another_batch_size_of_a_transposed_argument_is_the_same_kind() -> None:
    compiled = ox.compile(lambda x: x * 2, recompile_limit=1)
    for size in (2, 3, 4):
        compiled(ox.ones(size, 3, 5).transpose(1, 2))
    assert len(recordings(compiled)) == 3 and not reasons(compiled)
