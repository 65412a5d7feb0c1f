"""Memory shared with NumPy, and with PyTorch where it is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox.errors import ArgumentError, GradientError

TYPES = ["float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool"]


@rows("dtype", TYPES)
@rows("shape", [(2, 3), (), (0, 2)], ids=str)
def test_numpy_takes_a_tensor(dtype: str, shape: tuple[int, ...]) -> None:
    x = ox.tensor(np.ones(shape, dtype))
    assert x.__dlpack_device__() == (1, 0)
    array = np.from_dlpack(x)
    assert array.dtype == dtype and array.shape == shape
    if array.size:
        x.array[...] = 0
        assert not array.any()


@rows("dtype", TYPES)
def test_a_tensor_over_numpys_memory(dtype: str) -> None:
    array = np.ones((2, 3), dtype)
    x = ox.from_dlpack(array)
    array[0, 0] = 0
    assert x.dtype == dtype and not x[0, 0].item()
    x = ox.from_dlpack(array, copy=True)
    array[0, 1] = 0
    assert x[0, 1].item()


def test_views_keep_their_strides() -> None:
    x = ox.tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert np.from_dlpack(x.t()).tolist() == x.t().tolist()
    assert ox.utils.dlpack.from_dlpack(x[:, ::2]).tolist() == [[0, 2], [3, 5]]


def test_what_it_refuses() -> None:
    with pytest.raises(GradientError, match="requires a gradient"):
        np.from_dlpack(ox.ones(2, requires_grad=True))
    with pytest.raises(ArgumentError, match="takes what has __dlpack__"):
        ox.from_dlpack([1, 2])
    with pytest.raises(ArgumentError, match="cannot be shared"):
        ox.from_dlpack(ox.ones(2, dtype=ox.bfloat16))


@rows("dtype", TYPES)
def test_pytorch_and_back(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    x: Any = ox.tensor(np.ones((2, 3), dtype))
    there = torch.from_dlpack(x)
    there[0, 0] = 0
    assert not x[0, 0].item() and str(there.dtype) == f"torch.{dtype}"
    back = ox.from_dlpack(there)
    there[1, 1] = 0
    assert not back[1, 1].item() and back.dtype == x.dtype
    assert torch.utils.dlpack.from_dlpack(ox.utils.dlpack.to_dlpack(x)).shape == (2, 3)
    if dtype.startswith("float"):
        with pytest.raises((RuntimeError, ValueError, BufferError)):
            ox.from_dlpack(there.requires_grad_())
