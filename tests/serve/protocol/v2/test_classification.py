"""The highest values as strings, in Triton's form."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import rows

from ox.errors import ServeError
from ox.graph.contract import DTYPES, TensorInfo
from ox.serve.protocol.v2 import classification
from ox.serve.protocol.v2.classification import class_count, classify


def info(dtype: str = "FP32", dims: Any = ("batch", 4), labels: Any = None) -> TensorInfo:
    return TensorInfo("y", dtype, dims, None, labels)


def test_rows_and_labels() -> None:
    array = np.array([[1, 5, 10, 4], [0.5, 0.25, -1, 0.5]], np.float32)
    assert classify(array, 2, info()).tolist() == [["10.000000:2", "5.000000:1"], ["0.500000:0", "0.500000:3"]]
    named = classify(array, 3, info(labels=("a", "b:c", "")))
    assert named.tolist() == [
        ["10.000000:2:", "5.000000:1:b:c", "4.000000:3"],
        ["0.500000:0:a", "0.500000:3", "0.250000:1:b:c"],
    ]


def test_shapes() -> None:
    array = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    assert classify(array, 1, info("INT32", ("batch", 3, 4))).tolist() == [["11:11"], ["23:11"]]
    assert classify(array, 2, info("INT32", (2, 3, 4))).tolist() == ["23:23", "22:22"]
    assert classify(array, 99, info("INT32", ("batch", 3, 4))).shape == (2, 12)
    assert classify(np.float32(3), 2, info(dims=())).tolist() == ["3.000000:0"]


def test_the_whole_output_of_a_model_without_batching() -> None:
    array = np.array([[1, 5], [10, 4]], np.float32)
    assert classify(array, 3, info(dims=("n", 2)), batched=False).tolist() == [
        "10.000000:2",
        "5.000000:1",
        "4.000000:3",
    ]
    assert classify(array[:0], 3, info(dims=("n", 2)), batched=False).shape == (0,)


@rows(
    ("shape", "count", "expected"),
    [
        ((0, 4), 2, (0, 2)),
        ((0, 4), 9, (0, 4)),
        ((2, 0), 1, (2, 0)),
        ((2, 0, 3), 1, (2, 0)),
        ((0, 2, 3), 9, (0, 6)),
        ((1 << 40, 0), 1, (1 << 40, 0)),
    ],
)
@rows("dtype", ["FP32", "UINT8"])
def test_empty_outputs_keep_their_rows(shape: tuple[int, ...], count: int, expected: Any, dtype: str) -> None:
    array = np.empty(shape, DTYPES[dtype])
    dims = tuple(f"n{axis}" for axis in range(len(shape)))
    assert classify(array, count, info(dtype, dims)).shape == expected
    assert classify(array, count, info(dtype, shape)).shape == (0,)


@rows("dtype", sorted(set(DTYPES) - {"BOOL", "BYTES"}))
def test_every_ordered_type(dtype: str) -> None:
    array = np.array([[3, 1, 2]]).astype(DTYPES[dtype])
    first, second = classify(array, 2, info(dtype))[0]
    assert (float(first.split(":")[0]), float(second.split(":")[0])) == (3, 2)
    assert [word.split(":")[1] for word in (first, second)] == ["0", "2"]
    assert ("." in first) == (dtype[0] in "FB")


def test_extremes() -> None:
    ends = np.array([[0, 2**64 - 1, 2**63]], np.uint64)
    assert classify(ends, 3, info("UINT64")).tolist() == [[f"{2**64 - 1}:1", f"{2**63}:2", "0:0"]]
    low = np.array([[-128, 127, 0]], np.int8)
    assert classify(low, 3, info("INT8")).tolist() == [["127:1", "0:2", "-128:0"]]
    strange = np.array([[np.nan, -np.inf, np.inf, 1]], np.float32)
    assert classify(strange, 2, info()).tolist() == [["inf:2", "1.000000:3"]]
    assert [word[-1] for word in classify(strange, 4, info())[0]] == ["2", "3", "1", "0"]
    behind = np.array([[np.nan, np.inf, -np.inf, np.copysign(np.nan, -1)]], np.float64)
    assert [word[-1] for word in classify(behind, 4, info("FP64"))[0]] == ["1", "2", "0", "3"]
    half = np.array([[np.nan, 1.5]], ml_dtypes.bfloat16)
    assert classify(half, 1, info("BF16")).tolist() == [["1.500000:1"]]


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=12), st.integers(1, 15))
def test_the_order_of_equals(row: list[int], count: int) -> None:
    got = classify(np.array([row], np.int32), count, info("INT32"))[0]
    wanted = sorted(range(len(row)), key=lambda place: (-row[place], place))[:count]
    assert got.tolist() == [f"{row[place]}:{place}" for place in wanted]


@rows("value", [-1, 1.0, "2", True, None, 1 << 32, [1]])
def test_counts_that_are_none(value: Any) -> None:
    with pytest.raises(ServeError, match="wrong classification"):
        class_count(value, info())


@pytest.mark.parametrize("dtype", ["BOOL", "BYTES"])
def test_what_has_no_order(dtype: str) -> None:
    with pytest.raises(ServeError, match="no highest values"):
        class_count(1, info(dtype))
    assert class_count(0, info(dtype)) == 0


def test_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classification, "MAX_ELEMENTS", 7)
    with pytest.raises(ServeError, match="too large") as caught:
        classify(np.zeros((2, 4), np.float32), 1, info())
    assert caught.value.status == 413
