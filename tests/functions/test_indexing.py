"""x[...] and x[...] = v, eager, differentiated and recorded. Parity with PyTorch is in tests/parity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox.errors import BoundsError, GradientError, ShapeError
from ox.graph.record.recording import record
from ox.graph.replay import replay

A = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
MASK = np.arange(24).reshape(2, 3, 4) % 5 == 0

# indices where NumPy means the same; PyTorch differs from it only for an int beside arrays
INDICES: list[Any] = [
    0, -1, (1, 2), (1, 2, 3), slice(1, None), slice(None, None, 2), (slice(None), -1), (..., 0), (0, ...), ..., None,
    (None, 0, None), (slice(0, 0),), (slice(5, 9),), (slice(-2, None), slice(None, -1)), [0, 1, 1], ([0, 1], [2, 0]),
    (slice(None), [2, 0, 0]), (..., [3, 1]), ([0, 1], slice(None), [1, 2]),
    ([[0], [1]], [[0, 1, 2]], 0),
    (slice(None), [0, 1], [2, 3]), np.array([1, 0], np.int8),
    (slice(None), np.array([[0, 1], [2, 0]])), MASK,
    MASK[:, :, 0], (0, MASK[0]), (slice(None), MASK[0, :, 0]), (..., MASK[0, 0]), [True, False], (None, MASK),
    [], (-1, [-1, -3], -2),
    ([0, 1], None, [0, 1]), (np.int64(1), np.array(2)),
]  # fmt: skip


def tensors(index: Any) -> Any:
    """The same index with tensors for arrays."""
    if isinstance(index, tuple):
        return tuple(tensors(i) for i in index)
    return ox.tensor(index) if isinstance(index, np.ndarray) else index


@rows("index", INDICES, ids=str)
def test_reading(index: Any) -> None:
    x = ox.tensor(A)
    expected = A[index]
    for form in (index, tensors(index)):
        got = x[form]
        assert got.shape == expected.shape
        assert got.tolist() == expected.tolist()


@rows("index", INDICES, ids=str)
@rows("tracked", [False, True])
def test_writing(index: Any, tracked: bool) -> None:
    """A number, and a tensor of the part's shape; with the gradients of the whole and of the part."""
    places = np.arange(24).reshape(A.shape)
    for whole in (False, True):
        expected = A.copy()
        value = -np.arange(1.0, 1 + expected[index].size, dtype=np.float32).reshape(expected[index].shape)
        if not whole:
            value = np.float32(-7)
        expected[index] = value
        x, v = ox.tensor(A, requires_grad=tracked), ox.tensor(value, requires_grad=tracked)
        y = x * 1 if tracked else x
        y[tensors(index)] = v
        assert y.tolist() == expected.tolist()
        if tracked:
            (y * y).sum().backward()
            left = np.where(expected < 0, 0, A)
            assert x.grad.tolist() == (2 * left).tolist()
            if np.unique(places[index]).size == places[index].size:  # else all that compete get one, as in PyTorch
                assert v.grad.numpy().sum() == 2 * expected[expected < 0].sum()


def has_mask(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return any(np.asarray(part).dtype == bool for part in parts if isinstance(part, (list, np.ndarray)))


@rows("index", INDICES, ids=str)
def test_recorded(index: Any) -> None:
    """Reading and writing at one batch size, replayed at another."""

    def function(x: ox.Tensor) -> Any:
        y = x * 1
        y[index] = 5.0
        return x[index], y

    given = ox.tensor(A)
    graph = record(function, {"x": given}, dims={"x": ["n", "m", "k"]})
    shape = A.shape if has_mask(index) else (3, 4, 5)  # a mask that is a constant fits one size
    larger = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    part, whole = replay(graph, [ox.tensor(larger)])
    expected = larger.copy()
    expected[index] = 5
    assert part.tolist() == larger[index].tolist()
    assert whole.tolist() == expected.tolist()


@pytest.mark.parametrize("dims", [["n", "m", "k"], [2, 3, 4]], ids=str)
def test_a_mask_is_recorded_with_the_size_that_it_gives(dims: list[Any]) -> None:
    def function(x: ox.Tensor) -> Any:
        chosen = x[x > 12]
        rows = x[x[:, 0, 0] >= 0]
        return chosen / chosen.shape[0], rows.reshape(rows.shape[0], -1), x[:, x[0, :, 0] > 3, 1], x[x.sum() > 0]

    graph = record(function, {"x": ox.tensor(A)}, dims={"x": dims})
    other = np.random.default_rng(0).normal(10, 9, size=A.shape).astype(np.float32)
    expected = function(ox.tensor(other))
    for got, want in zip(replay(graph, [ox.tensor(other)]), expected, strict=True):
        assert got.tolist() == want.tolist()


def test_a_list_of_lists_stands_for_a_tuple() -> None:
    x = ox.tensor(A)
    assert x[[[0, 1], [1, 2]]].tolist() == A[[0, 1], [1, 2]].tolist()
    assert x[[None, 0]].tolist() == A[None, 0].tolist()


def test_a_single_bool() -> None:
    x = ox.tensor(A)
    assert x[True].shape == x[ox.tensor(True)].shape == (1, 2, 3, 4)
    assert x[False].shape == x[ox.tensor(False)].shape == (0, 2, 3, 4)


def test_an_int_beside_index_tensors_is_taken_first_in_reading_and_writing() -> None:
    x = ox.tensor(A)
    assert x[0, :, [1, 2]].shape == (3, 2)  # NumPy: (2, 3)
    x[0, :, [1, 2]] = ox.tensor([[1.0, 2.0]] * 3)
    assert x[0, :, 1].tolist() == [1, 1, 1]
    y = ox.tensor(A, requires_grad=True) * 1
    y[0, :, [1, 2]] = ox.tensor([[1.0, 2.0]] * 3)
    assert y.tolist() == x.tolist()


@rows(
    "index, text",
    [
        (2, "outside dimension 0"), (-3, "outside dimension 0"), ((0, 3), "outside dimension 1"),
        ((0, 0, 0, 0), "4 indices for a tensor of 3"), ([2], "points outside"), ([[-3]], "points outside"),
        (([0], [7]), "points outside"), ((slice(None), [0, 3]), "points outside"), (1.0, "indexed by float"),
        ("a", "indexed by str"), (["a"], "no index"), ([0.5], "no index"), (np.ones(2), "no index"),
        ((..., ...), "one ... at most"), (slice(None, None, -1), "step above 0"),
        (slice(None, None, 0), "step above 0"),
        (slice(0.5, None), "sliced by float"), (MASK[0], "does not have the sizes"),
        ([True, False, True], "does not have the sizes"), ([[[1], [2, 3]]], "no index"), ({1}, "indexed by set"),
    ],
    ids=str,
)  # fmt: skip
def test_refused(index: Any, text: str) -> None:
    """Reading and writing refuse alike, with the user's line, and nothing is written."""
    for action in ("x[i]", "x[i] = 0.0"):
        x = ox.tensor(A)
        with pytest.raises(BoundsError, match=text.replace("...", r"\.\.\.")) as caught:
            exec(compile(action, "mine.py", "exec"), {"x": x, "i": tensors(index)})
        assert caught.value.where.startswith("mine.py:1")
        assert isinstance(caught.value, IndexError)
        assert x.tolist() == A.tolist()


def test_index_tensors_that_do_not_broadcast() -> None:
    for action in ("x[[0, 1], [0, 1, 2]]", "x[[0, 1], [0, 1, 2]] = 0"):
        with pytest.raises(ShapeError, match="broadcast"):
            exec(action, {"x": ox.tensor(A)})


@pytest.mark.parametrize("tracked", [False, True])
def test_values_that_do_not_broadcast(tracked: bool) -> None:
    x = ox.tensor(A, requires_grad=tracked) * 1
    for index, shape in ((0, (5,)), ([0, 1], (3, 3, 4)), (MASK, (2,)), (0, (2, 3, 4)), ((0, 0, 0), (2,))):
        with pytest.raises(ShapeError, match="broadcast"):
            x[tensors(index)] = ox.ones(*shape)
    x[0] = ox.ones(1, 1, 3, 4)  # leading ones are dropped
    x[0] = [1.0, 2.0, 3.0, 4.0]
    assert x[0, 2].tolist() == [1, 2, 3, 4]


def test_gradients_of_repeated_places_add_up() -> None:
    x = ox.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (x[[0, 0, -3, 2]] * ox.tensor([1.0, 10.0, 100.0, 1000.0])).sum().backward()
    assert x.grad.tolist() == [111, 0, 1000]


def test_a_leaf_is_not_written_where_a_gradient_follows() -> None:
    x = ox.tensor(A, requires_grad=True)
    with pytest.raises(GradientError, match="leaf"):
        x[0] = 1.0
    with ox.no_grad():
        x[0] = 1.0
        x[MASK] += 1
    assert x.is_leaf
    assert x.version == 2


def test_reading_a_part_is_a_view_and_picking_is_not() -> None:
    x = ox.tensor(A)
    assert np.shares_memory(x[0, 1:].numpy(), x.numpy())
    assert not np.shares_memory(x[[0, 1]].numpy(), x.numpy())


def test_sizes_as_indices_under_a_recording() -> None:
    graph = record(lambda x: x[x.shape[0] - 1, : x.shape[1] // 2], {"x": ox.ones(2, 4)}, dims={"x": ["n", "m"]})
    x = ox.arange(24).float().reshape(4, 6)
    assert replay(graph, [x])[0].tolist() == [18, 19, 20]


def test_an_index_that_is_computed_under_a_recording() -> None:
    graph = record(
        lambda x: (x[x.argmax()], x[x.argmax(), None], x[x.argmax(0, keepdim=True)]), {"x": ox.tensor([1.0, 5.0, 3.0])}
    )
    x = ox.tensor([7.0, 5.0, 3.0])
    assert [y.tolist() for y in replay(graph, [x])] == [7.0, [7.0], [7.0]]
