"""What a constructor, a layer or a function refuses, it refuses with the user's line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
import ox.nn.functional as F
from ox import nn
from ox.errors import ArgumentError, DTypeError, OxError

ROWS = np.ones((2, 3), np.float32)
HERE = "test_factory_errors.py"

REFUSED: list[Callable[[], Any]] = [
    lambda: nn.Dropout(1.5),
    lambda: nn.Conv2d(3, 4, 3, groups=2),
    lambda: nn.Embedding(5, 3, padding_idx=7),
    lambda: nn.GroupNorm(2, 3),
    lambda: nn.MultiheadAttention(5, 2),
    lambda: nn.LSTM(3, 4, proj_size=5),
    lambda: nn.RNN(3, 4, nonlinearity="x"),
    lambda: nn.TransformerEncoderLayer(8, 2, activation="x"),
    lambda: nn.Sequential(3),  # type: ignore[arg-type]
    lambda: nn.Linear(-3, 4),
    lambda: nn.Linear(3.5, 4),  # type: ignore[arg-type]
    lambda: nn.Linear(3),  # type: ignore[call-arg]
    lambda: nn.init.calculate_gain("zz"),
    lambda: nn.utils.parameters_to_vector([3]),  # type: ignore[list-item]
    lambda: ox.optim.SGD([], lr=0.1),
    lambda: ox.optim.SGD(ox.ones(2), lr=0.1),
    lambda: ox.optim.SGD({ox.ones(2)}, lr=0.1),
    lambda: ox.optim.Adam([{"lr": 1}]),
    lambda: ox.ones(2**40, 2**40),
    lambda: ox.export.save(nn.Linear(3, 4), "never.onnx", ox.ones(2, 3), 3),
]


@rows("number", range(len(REFUSED)))
def test_what_is_refused_names_the_line(number: int) -> None:
    with pytest.raises(OxError) as caught:
        REFUSED[number]()
    assert HERE in (caught.value.where or "")


def test_a_constructor_keeps_the_kind_of_an_error() -> None:
    with pytest.raises(ValueError, match="Linear cannot be made"):
        nn.Linear(-3, 4)
    with pytest.raises(TypeError, match="missing 1 required") as caught:
        nn.Linear(3)  # type: ignore[call-arg]
    assert "Linear(in_features, out_features, bias=True, device=None, dtype=None)" in str(caught.value)


LAYERS: dict[str, Callable[[Any], Any]] = {
    "Linear": nn.Linear(3, 4), "Conv2d": nn.Conv2d(3, 4, 3), "LSTM": nn.LSTM(3, 4), "Embedding": nn.Embedding(5, 3),
    "BatchNorm1d": nn.BatchNorm1d(3), "LayerNorm": nn.LayerNorm(3), "Dropout": nn.Dropout(),
}  # fmt: skip
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "linear": lambda x: F.linear(x, ox.ones(4, 3)),
    "conv2d": lambda x: F.conv2d(x, ox.ones(4, 3, 1, 1)),
    "cross_entropy": lambda x: F.cross_entropy(ox.ones(2, 3), x),
    "layer_norm": lambda x: F.layer_norm(x, (3,)),
    "einsum": lambda x: ox.einsum("ij,jk->ik", x, x),
    "stack": lambda x: ox.stack([x]),
    "sum": ox.sum,
}


@rows("name", [*LAYERS, *FUNCTIONS])
@rows("given, told", [(ROWS, "a NumPy array"), ([[1.0]], "a list"), (None, "None")], ids=str)
def test_what_is_no_tensor_is_told_so(name: str, given: Any, told: str) -> None:
    with pytest.raises(DTypeError) as caught:
        (LAYERS | FUNCTIONS)[name](given)
    assert f"{name} takes tensors, got {told}" in str(caught.value) and HERE in (caught.value.where or "")
    assert caught.value.hint == {"None": None, "a list": "ox.tensor(x)"}.get(told, "ox.from_numpy(x)")


def test_the_innermost_layer_says_it() -> None:
    with pytest.raises(DTypeError, match=r"Linear takes tensors.*\n.*Sequential.0 \(Linear\)"):
        nn.Sequential(nn.Linear(3, 4))(ROWS)


def test_an_error_of_the_users_own_code_stays_what_it_is() -> None:
    class Mine(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.nothing + ROWS.array  # type: ignore[attr-defined]

    for x in (ROWS, ox.ones(2), type("Has", (), {"nothing": 1})()):
        with pytest.raises(AttributeError) as caught:
            Mine()(x)
        assert not isinstance(caught.value, OxError)
    with pytest.raises(ArgumentError, match="a group has no parameters"):
        ox.optim.Adam([{}])
