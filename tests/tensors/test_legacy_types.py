"""The older ways of making a tensor: classes that name a type, sizes instead of values."""

from __future__ import annotations

import numpy as np
import pytest

import ox
from ox.errors import ArgumentError, DTypeError


def test_a_tensor_of_sizes_or_of_values() -> None:
    assert ox.Tensor(2, 3).shape == (2, 3)
    assert ox.Tensor(4).shape == (4,)
    assert ox.Tensor().shape == (0,)
    assert ox.Tensor(ox.ones(2, 3).size()).shape == (2, 3) and ox.Tensor((2, 3)).tolist() == [2, 3]
    assert ox.Tensor([1, 2]).dtype == ox.Tensor(np.ones(2)).dtype == ox.Tensor((1, 2)).dtype == ox.float32
    shared = np.ones(2, np.float32)
    assert ox.Tensor(shared).array is shared
    assert ox.Tensor(ox.tensor([1, 2])).dtype == ox.int64
    with pytest.raises(ArgumentError, match=r"ox\.tensor\(2\.5\)"):
        ox.Tensor(2.5)


@pytest.mark.parametrize("name", ["FloatTensor", "DoubleTensor", "LongTensor", "ByteTensor", "BoolTensor"])
def test_typed_classes(name: str) -> None:
    kind = getattr(ox, name)
    made = kind([1, 0, 1])
    assert made.dtype == kind.dtype and made.tolist() == [1, 0, 1]
    assert kind(2, 3).shape == (2, 3)
    assert isinstance(made, kind) and isinstance(made, ox.Tensor)
    assert not isinstance(made, ox.IntTensor) and not isinstance(made, ox.cuda.FloatTensor)
    assert made.type() == f"torch.{name}"
    assert ox.ones(3).int().type(kind).dtype == ox.ones(3).type(f"torch.{name}").dtype == kind.dtype


def test_what_is_no_type() -> None:
    with pytest.raises(DTypeError, match="no tensor of another type"):
        ox.LongTensor(ox.ones(2))
    with pytest.raises(ArgumentError, match="no type of tensor"):
        ox.ones(2).type("numpy.FloatTensor")


def test_new_takes_type_and_device() -> None:
    x = ox.ones(2, dtype=ox.float64)
    assert x.new(2, 3).shape == (2, 3) and x.new(2, 3).dtype == ox.float64
    assert x.new([1, 2]).tolist() == [1.0, 2.0]
