"""Sparse tensors by hand and against dense ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ox
from ox import nn, optim
from ox.errors import ArgumentError, BoundsError, DTypeError, GradientError, ShapeError
from ox.graph.record.recording import record


def small(**options: Any) -> ox.sparse.SparseTensor:
    return ox.sparse_coo_tensor([[1, 0, 1], [2, 1, 2]], [3.0, 4.0, 5.0], (2, 3), **options)


def test_entries_at_one_place_add_up() -> None:
    s = small()
    assert s.to_dense().tolist() == [[0, 4, 0], [0, 0, 8]] and s._nnz() == 3 and not s.is_coalesced()
    made = s.coalesce()
    assert made.indices().tolist() == [[0, 1], [1, 2]] and made.values().tolist() == [4, 8] and made.coalesce() is made
    with pytest.raises(GradientError, match="neither sorted nor added up"):
        s.indices()


def test_there_and_back() -> None:
    rng = np.random.default_rng(0)
    for shape in [(4,), (3, 4), (2, 3, 4), (0, 3), ()]:
        array = np.asarray(np.where(rng.random(shape) > 0.5, rng.standard_normal(shape), 0), np.float32)
        for dims in range(1, len(shape) + 1) or [None]:  # type: ignore[attr-defined]
            made = ox.tensor(array).to_sparse(dims)
            assert made.shape == shape and np.array_equal(made.to_dense().array, array)
    assert ox.ones(2).to_dense().tolist() == [1, 1] and not ox.ones(2).is_sparse


def test_products_and_sums_are_those_of_the_dense() -> None:
    s, d = small(), ox.randn(3, 4)
    dense = s.to_dense()
    assert np.allclose((s @ d).array, (dense @ d).array)
    assert np.allclose((s @ d[:, 0]).array, (dense @ d[:, 0]).array)
    assert np.allclose((ox.ones(2) @ s).array, (ox.ones(2) @ dense).array)
    assert np.allclose((s + s.coalesce() * 2).to_dense().array, (dense * 3.0).array)
    assert np.allclose(ox.sparse.sum(s, 0).to_dense().array, dense.sum(0).array)
    assert np.allclose((s * s).to_dense().array, (dense * dense).array)
    assert np.allclose(
        ox.sparse.sampled_addmm(s.coalesce(), ox.ones(2, 1), ox.ones(1, 3)).to_dense().array, [[0, 5, 0], [0, 0, 9]]
    )
    rows = ox.sparse.softmax(s, 1).to_dense()
    assert rows.tolist() == [[0, 1, 0], [0, 0, 1]]
    assert s.norm().item() == pytest.approx(np.sqrt(80)) and s.abs().sum().item() == 12


def test_gradients_run_through_the_values() -> None:
    s, d = small(requires_grad=True), ox.randn(3, 2).requires_grad_()
    (s @ d).sum().backward()
    assert s.grad.is_coalesced() and s.grad._nnz() == 2
    assert np.allclose(s.grad.values().array, d.array.sum(1)[[1, 2]])
    assert np.allclose(d.grad.array, s.detach().to_dense().array.sum(0)[:, None] * np.ones((1, 2)))
    (again,) = ox.autograd.grad((small(requires_grad=True).to_dense() ** 2).sum() * d.sum(), [d])
    assert np.allclose(again.array, 80)


def test_products_with_constant_coordinates_record() -> None:
    s = small()
    graph = record(lambda x: s @ x, {"x": ox.ones(3, 2)}, dims={"x": (3, "columns")})
    assert {node.domain for node in graph.nodes} == {""}


def test_the_gradient_of_an_embedding_has_only_the_rows_that_were_read() -> None:
    table = nn.Embedding(1000, 2, sparse=True, padding_idx=7)
    table(ox.tensor([5, 7, 5])).sum().backward()
    grad = table.weight.grad
    assert grad.is_sparse and grad.shape == (1000, 2) and grad._indices().tolist() == [[5, 5]]
    assert grad.coalesce().values().tolist() == [[2, 2]]
    table(ox.tensor([1])).sum().backward()
    assert table.weight.grad.coalesce().indices().tolist() == [[1, 5]]
    table.zero_grad(set_to_none=False)
    assert table.weight.grad._nnz() == 0
    # a table that was computed, and one that is used densely too, get an ordinary one
    weight = nn.Parameter(np.ones((4, 2), np.float32))
    nn.functional.embedding(ox.tensor([1, 1]), weight * 2.0, sparse=True).sum().backward()
    assert weight.grad.tolist() == [[0, 0], [4, 4], [0, 0], [0, 0]]
    weight.grad = None
    (nn.functional.embedding(ox.tensor([1]), weight, sparse=True).sum() + weight.sum()).backward()
    assert weight.grad.tolist() == [[1, 1], [2, 2], [1, 1], [1, 1]]
    with pytest.raises(ArgumentError):
        nn.functional.embedding(ox.tensor([1]), weight, sparse=True, scale_grad_by_freq=True)


@pytest.mark.parametrize("name", ["SGD", "SparseAdam", "Adagrad"])
def test_rows_that_were_not_read_stay(name: str) -> None:
    table = nn.Embedding(6, 3, sparse=True)
    start = table.weight.array.copy()
    optimizer = getattr(optim, name)(table.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (table(ox.tensor([1, 4, 1])) ** 2).sum().backward()
        optimizer.step()
    changed = (table.weight.array != start).any(1)
    assert changed.tolist() == [False, True, False, False, True, False]


def test_one_step_of_sparse_adam() -> None:
    p = nn.Parameter(np.zeros((3, 1), np.float32))
    p.grad = ox.sparse_coo_tensor([[1]], [[4.0]], (3, 1))
    optim.SparseAdam([p], lr=0.5).step()
    assert np.allclose(p.array, [[0], [-0.5], [0]])


def test_what_it_refuses() -> None:
    with pytest.raises(ShapeError, match="do not fit"):
        ox.sparse_coo_tensor([[0, 1]], [1.0])
    with pytest.raises(BoundsError, match="outside the size"):
        ox.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (3,))
    with pytest.raises(BoundsError, match="not negative"):
        ox.sparse_coo_tensor([[0, -1]], [1.0, 2.0])
    with pytest.raises(DTypeError, match="integers"):
        ox.sparse_coo_tensor(ox.ones(1, 2), [1.0, 2.0])
    with pytest.raises(ShapeError, match="cannot multiply"):
        small() @ ox.ones(2, 2)
    with pytest.raises(ShapeError, match="do not broadcast"):
        small() + ox.ones(3)
    with pytest.raises(DTypeError, match="no such form"):
        small().numpy()
    with pytest.raises(ArgumentError, match="positive powers"):
        small() ** 0
    weight = nn.Parameter(np.ones((2, 2), np.float32))
    with pytest.raises(ShapeError):
        weight.grad = small()
    weight.grad = ox.sparse_coo_tensor([[0]], [[1.0, 1.0]], (2, 2))
    with pytest.raises(GradientError, match="Adam does not take sparse gradients"):
        optim.Adam([weight]).step()


def test_repr() -> None:
    assert repr(small()).startswith("tensor(indices=[[1, 0, 1], [2, 1, 2]],\n       values=[3.0, 4.0, 5.0],")
