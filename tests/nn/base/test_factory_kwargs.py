"""Every layer takes `device=` and `dtype=`, whoever calls its constructor."""

from __future__ import annotations

from typing import Any

import pytest
from rows import rows

import ox
from ox import nn

LAYERS: dict[str, tuple[Any, ...]] = {
    "Linear": (2, 3), "Bilinear": (2, 3, 4), "Embedding": (3, 4), "Conv2d": (1, 2, 3), "ConvTranspose1d": (1, 2, 3),
    "BatchNorm2d": (3,), "GroupNorm": (2, 4), "LayerNorm": (3,), "RMSNorm": (3,), "LSTM": (2, 3), "GRUCell": (2, 3),
    "MultiheadAttention": (4, 2), "TransformerEncoderLayer": (8, 2), "PReLU": (),
}  # fmt: skip


@rows("name", LAYERS)
def test_layers_are_made_in_a_type_and_on_a_device(name: str) -> None:
    layer = getattr(nn, name)(*LAYERS[name], device="cpu", dtype=ox.float64)
    assert {p.dtype for p in layer.parameters()} == {ox.float64}
    assert {p.dtype for p in getattr(nn, name)(*LAYERS[name], device=None).parameters()} == {ox.float32}


def test_counts_stay_integers() -> None:
    buffers = dict(nn.BatchNorm2d(3, dtype=ox.float64).named_buffers())
    assert buffers["running_mean"].dtype == ox.float64 and buffers["num_batches_tracked"].dtype == ox.int64


def test_a_subclass_passes_them_on() -> None:
    class Own(nn.Linear):
        def __init__(self, device: Any = None, dtype: Any = None) -> None:
            super().__init__(2, 3, device=device, dtype=dtype)

    assert Own(dtype=ox.float64).weight.dtype == ox.float64


def test_other_arguments_are_refused_as_before() -> None:
    with pytest.raises(TypeError, match="devise"):
        nn.Linear(2, 3, devise="cpu")  # type: ignore[call-arg]
    with pytest.raises(ox.OxError):
        nn.Linear(2, 3, device="gpu")


@rows(
    "make",
    [
        lambda: nn.Linear(3, 4, True, None, ox.float64),
        lambda: nn.Conv2d(3, 4, 1, 1, 0, 1, 1, True, "zeros", "cpu", ox.float64),
        lambda: nn.LayerNorm(3, 1e-5, True, True, None, ox.float64),
        lambda: nn.BatchNorm1d(3, 1e-5, 0.1, True, True, None, ox.float64),
        lambda: nn.LSTM(3, 4, 1, True, False, 0.0, False, 0, None, ox.float64),
        lambda: nn.MultiheadAttention(4, 2, 0.0, True, False, False, None, None, False, "cpu", ox.float64),
    ],
)
def test_device_and_dtype_by_position(make: Any) -> None:
    assert {p.dtype for p in make().parameters()} == {ox.float64}


def test_wrong_positions_of_device_and_dtype_are_refused() -> None:
    with pytest.raises(ox.errors.CallError, match="Linear got 'device' twice"):
        nn.Linear(3, 4, True, "cpu", device="cpu")
    with pytest.raises(TypeError, match=r"Linear\(in_features, out_features, bias=True, device=None, dtype=None\)"):
        nn.Linear(3, 4, True, None, ox.float32, 1)
    with pytest.raises(TypeError):
        nn.ReLU(False, "cpu")  # which has no types
