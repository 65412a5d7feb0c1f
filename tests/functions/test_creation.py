"""Tensors from Python values."""

from __future__ import annotations

import numpy as np
import pytest
from rows import rows

import ox
from ox.errors import ArgumentError, DTypeError, ShapeError


@rows(
    "data, dtype",
    [
        (1, ox.int64), (1.5, ox.float32), (True, ox.bool), ([1, 2.5], ox.float32), ([True, 2], ox.int64),
        ([], ox.float32),
        (np.float64(1), ox.float64), (np.ones(2, np.int8), ox.int8), (range(3), ox.int64), ((1, (2)), ox.int64),
    ],
)  # fmt: skip
def test_types_of_values(data: object, dtype: ox.dtypes.DType) -> None:
    t = ox.tensor(data)
    assert t.dtype == dtype
    assert t.tolist() == np.asarray(data).tolist()


def test_tensors_inside_lists() -> None:
    t = ox.tensor([[ox.tensor(1), 2], [3, ox.tensor(4.5)]])
    assert t.tolist() == [[1, 2], [3, 4.5]]
    assert ox.tensor([ox.ones(2), ox.zeros(2)]).shape == (2, 2)


def test_tensor_copies() -> None:
    a = ox.ones(2)
    b = ox.tensor(a)
    b.zero_()
    assert a.tolist() == [1, 1]
    assert ox.as_tensor(a) is a
    assert ox.Tensor(a).array is ox.from_numpy(a.array).array is a.array


def test_other_libraries_arrays_and_byte_orders() -> None:
    class Other:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            return np.arange(3, dtype=np.int16)

    assert ox.tensor(Other()).dtype == ox.int16
    assert ox.tensor(np.arange(3, dtype=">f4")).tolist() == [0, 1, 2]
    with pytest.raises(DTypeError, match="cannot share"):
        ox.from_numpy(np.arange(3, dtype=">f4"))
    assert type(ox.tensor(np.ma.masked_array([1, 2])).array) is np.ndarray


@rows("data", [[1, "a"], "abc", [None], object(), {"a": 1}, [1 + 2j], np.array(["a"]), np.array([1], "datetime64[s]")])
def test_no_numbers(data: object) -> None:
    with pytest.raises(DTypeError) as caught:
        ox.tensor(data)
    assert caught.value.expected
    assert "test_creation.py" in caught.value.where


def test_ragged_rows() -> None:
    for data in ([[1, 2], [3]], [1, [2]], [ox.ones(2), ox.ones(3)]):
        with pytest.raises(ShapeError, match="do not make a tensor"):
            ox.tensor(data)


def test_from_numpy_wants_an_array() -> None:
    with pytest.raises(DTypeError, match="takes a NumPy array"):
        ox.from_numpy([1, 2])
    with pytest.raises(DTypeError, match="cannot share"):
        ox.from_numpy(np.array(["a"]))


def test_filled() -> None:
    assert ox.zeros(2, 3).shape == ox.ones((2, 3)).shape == ox.empty([2, 3]).shape == (2, 3)
    assert ox.zeros(()).shape == ()
    assert ox.zeros(ox.tensor(2), np.int64(3)).shape == (2, 3)
    assert ox.full((2,), 7).dtype == ox.int64
    assert ox.full((2,), -0.5, dtype=ox.bfloat16).tolist() == [-0.5, -0.5]
    assert ox.ones(2, requires_grad=True).is_leaf
    x = ox.ones(2, dtype=ox.int8)
    assert ox.zeros_like(x).dtype == ox.int8
    assert ox.full_like(x, 2.5, dtype=ox.float64).tolist() == [2.5, 2.5]


@rows(
    "call, error",
    [
        ("ox.zeros(-1)", ShapeError), ("ox.zeros(1.5)", ShapeError), ("ox.zeros('a')", ShapeError),
        ("ox.full((2,), 300, dtype=ox.uint8)", ArgumentError), ("ox.arange(0, 1, 0)", ArgumentError),
        ("ox.arange(1, 0)", ArgumentError), ("ox.linspace(0, 1, -1)", ArgumentError), ("ox.eye(-1)", ArgumentError),
        ("ox.zeros(2, dtype='nonsense')", DTypeError), ("ox.ones(2, dtype=np.complex64)", DTypeError),
        ("ox.tensor([1], requires_grad=True)", DTypeError), ("ox.tensor([1.5], dtype='U3')", DTypeError),
    ],
)  # fmt: skip
def test_refused(call: str, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        eval(call, {"ox": ox, "np": np})
    assert isinstance(caught.value, ox.OxError)


def test_what_does_not_fit_becomes_infinite_without_a_warning() -> None:
    assert ox.tensor([1e300]).tolist() == [float("inf")]
    assert ox.tensor([1e6], dtype=ox.float16).tolist() == [float("inf")]


def test_arange_under_a_recording_follows_a_size() -> None:
    from ox.graph.record.recording import record
    from ox.graph.replay import replay

    graph = record(lambda x: ox.arange(x.shape[0]) + ox.zeros(x.shape[0]), {"x": ox.ones(2)}, dims={"x": ["n"]})
    assert replay(graph, [ox.ones(3)])[0].tolist() == [0, 1, 2]
