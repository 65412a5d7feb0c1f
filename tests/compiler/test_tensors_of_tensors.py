"""Tensors that a call makes of tensors, and their text, are those of each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from beside_eager import reasons, recordings

import ox
from ox import nn

RECORDED: dict[str, Callable[[Any], Any]] = {
    "tensor of a tensor": lambda x: ox.tensor(x),
    "tensor of a number": lambda x: ox.tensor(x.sum()),
    "tensor of a list": lambda x: ox.tensor([x.sum(), x.mean() * 2]),
    "tensor of lists": lambda x: ox.tensor([[x[0], x[1]], [x[1], 3]]),
    "tensor of rows": lambda x: ox.tensor([x, x + 1]),
    "another type": lambda x: ox.tensor([x.sum(), 2], dtype=ox.float64),
    "integers": lambda x: ox.tensor([x.argmax(), 2]),
    "as_tensor": lambda x: ox.as_tensor([x[0], x[1]]),
    "asarray": lambda x: ox.asarray([x[0], x[1]]),
    "new_tensor": lambda x: x.new_tensor(x),
    "scalar_tensor": lambda x: ox.scalar_tensor(x[0]),
    "as weights": lambda x: x / ox.tensor([each.abs() + 1 for each in x]),
}
EAGER: dict[str, Callable[[Any], Any]] = {
    "Tensor": lambda x: ox.Tensor([x[0], x[1]]),
    "FloatTensor": lambda x: ox.FloatTensor([x[0]]),
    "Parameter": lambda x: nn.Parameter(x * 2).detach() + 0,
    "full": lambda x: ox.full((2,), x[0]),
    "text": lambda x: x * len(f"{x}"),
    "str": lambda x: (x, str(x.mean(0, keepdim=True))),
    "repr": lambda x: (x, repr([x + 1])),
}


@pytest.mark.parametrize("name", [*RECORDED, *EAGER])
def test_they_are_those_of_each_call(name: str) -> None:
    function = {**RECORDED, **EAGER}[name]
    compiled = ox.compile(function)
    for value in (1.0, 2.5, 30.0, -4.0):
        x = ox.tensor([value, value + 1])
        wanted, got = function(x), compiled(x)
        if isinstance(wanted, tuple):
            assert got[1] == wanted[1]
            wanted, got = wanted[0], got[0]
        assert got.dtype == wanted.dtype and got.shape == wanted.shape
        np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-6)
    if name in RECORDED:
        assert len(recordings(compiled)) == 1, reasons(compiled)


def test_a_copy_has_memory_of_its_own() -> None:
    compiled = ox.compile(lambda x: ox.tensor(x))
    for _ in range(3):
        x = ox.ones(2)
        y = compiled(x)
        y.zero_()
        assert x.tolist() == [1, 1] and not y.requires_grad


def test_a_file_holds_them_too() -> None:
    class Model(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * ox.tensor([x.sum(), x.mean()])

    graph = ox.graph.record.recording.record(lambda x: {"y": Model()(x)}, {"x": ox.ones(2)})
    assert sum(node.op_type == "Concat" for node in graph.nodes) == 1
