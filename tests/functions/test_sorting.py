"""Order and rank: what a sort promises, without another library."""

from __future__ import annotations

import numpy as np
import pytest
from rows import rows

import ox
from ox.errors import BoundsError

DTYPES = [ox.float16, ox.bfloat16, ox.float32, ox.float64, ox.int8, ox.uint8, ox.int16, ox.int64, ox.uint64]


@rows("dtype", DTYPES, ids=str)
@rows("descending", [False, True])
def test_sorted_values_stand_where_the_indices_say(dtype: ox.dtype, descending: bool) -> None:
    x = ox.tensor(np.random.default_rng(0).integers(0, 9, (4, 30)).astype(dtype))
    values, indices = x.sort(1, descending)
    steps = np.diff(values.numpy().astype(np.float64), axis=1)
    assert (steps <= 0).all() if descending else (steps >= 0).all()
    assert values.dtype == dtype and indices.dtype == ox.int64
    assert x.gather(1, indices).tolist() == values.tolist()
    equal = steps == 0  # of equals the first stands first
    assert (np.diff(indices.numpy(), axis=1)[equal] > 0).all()


@rows("k", [1, 3, 50])
@rows("largest", [False, True])
def test_topk_is_the_beginning_of_a_sort(k: int, largest: bool) -> None:
    """Few of many are chosen by another way than all are; ties make the difference."""
    x = ox.tensor(np.random.default_rng(1).integers(0, 20, (3, 400)).astype(np.float32))
    whole, part = x.sort(1, largest), x.topk(k, 1, largest)
    assert part.values.tolist() == whole.values[:, :k].tolist()
    assert part.indices.tolist() == whole.indices[:, :k].tolist()


def test_extreme_integers_and_nan() -> None:
    low = np.iinfo(np.int64).min
    assert ox.tensor([0, low, 5]).sort(descending=True).values.tolist() == [5, 0, low]
    x = ox.tensor([1.0, float("nan"), float("inf")])
    assert x.argsort().tolist() == [0, 2, 1]
    assert x.topk(2).indices.tolist() == [1, 2]


def test_kthvalue_and_msort() -> None:
    x = ox.tensor([[3.0, 1.0, 2.0], [9.0, 7.0, 8.0]])
    assert [part.tolist() for part in x.kthvalue(2)] == [[2.0, 8.0], [2, 2]]
    assert x.kthvalue(1, 1, True).values.tolist() == [[1.0], [7.0]]
    assert x.T.msort().tolist() == [[1.0, 7.0], [2.0, 8.0], [3.0, 9.0]]


def test_gradients_go_to_the_places() -> None:
    x = ox.tensor([3.0, 1.0, 2.0], requires_grad=True)
    (x.sort().values * ox.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert x.grad.tolist() == [100.0, 1.0, 10.0]
    assert ox.autograd.gradcheck(lambda x: x.topk(2, 0).values, [ox.randn(4, 3, dtype=ox.float64, requires_grad=True)])


def test_refused() -> None:
    x = ox.ones(3, 2)
    with pytest.raises(BoundsError, match="choose 3 of 2") as caught:
        x.topk(3)
    assert "test_sorting.py" in str(caught.value)
    with pytest.raises(BoundsError, match="0th of 2"):
        x.kthvalue(0)
    with pytest.raises(BoundsError):
        x.sort(2)
