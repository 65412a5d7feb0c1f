"""Places are sorted on a GPU, stably, also in a CUDA graph."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import ox
from ox.devices.gpu import index as cuda_index
from ox.devices.gpu.cupy_device import cupy
from ox.devices.gpu.index import SORTED_FROM
from ox.devices.gpu.sort import TILE, sorted_places

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("count", [1, 2, 3, 1000, TILE, TILE + 1, 4 * TILE, 5 * TILE + 3])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_the_order_is_that_of_a_stable_sort(count: int, dtype: type) -> None:
    n = 97
    places = np.random.default_rng(0).integers(-n - 5, n + 5, count).astype(dtype)
    keys, bits = sorted_places(cupy().asarray(places), n)
    wanted = np.where(places < 0, places + n, places)
    wanted[(wanted < 0) | (wanted >= n)] = n
    found = keys.get()[:count]
    order = np.argsort(wanted, kind="stable")
    np.testing.assert_array_equal(found >> bits, wanted[order])
    np.testing.assert_array_equal(found & ((1 << bits) - 1), order)


def test_keys_that_have_more_than_63_bits_are_left_to_cupy() -> None:
    rows, places = cupy().zeros((SORTED_FROM, 0), np.float32), cupy().zeros(SORTED_FROM, np.int64)
    sums = SimpleNamespace(shape=(1 << 62, 0))
    assert cuda_index._added(rows, places, sums, None) is None


def test_gradients_of_embeddings_in_a_graph_have_the_bits_of_eager_calls() -> None:
    tokens = ox.tensor(np.random.default_rng(0).integers(0, 50, 5000)).cuda()

    def gradient(weight: ox.Tensor) -> ox.Tensor:
        (found,) = ox.autograd.grad(ox.nn.functional.embedding(tokens, weight).sin().sum(), weight)
        return found

    weight = ox.randn(50, 8, device="cuda", requires_grad=True)
    wanted, run = gradient(weight), ox.compile(gradient)
    for _ in range(4):
        np.testing.assert_array_equal(run(weight).cpu().numpy(), wanted.cpu().numpy())
    assert "one CUDA graph" in str(run.explain()), run.explain()
