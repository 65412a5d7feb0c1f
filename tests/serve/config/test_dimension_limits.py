"""Shapes held against the most that dimensions may be."""

from __future__ import annotations

import pytest

from ox.errors import ServeError
from ox.graph.contract import TensorInfo
from ox.serve.config.dimension_limits import DimensionLimits, counts_rows

MOST = {"words": (7, "--max-dim"), "None": (5, "measured"), "3": (1, "--max-dim"), "batch": (2, "--max-dim")}


def test_the_axes_that_are_limited() -> None:
    def axes(*dims: int | str | None, rows: str | None = "batch") -> list[tuple[int, int, str]]:
        return DimensionLimits("input", TensorInfo("x", "FP32", dims), MOST, (rows,)).axes

    assert axes("batch", "words", 3, None) == [(0, 2, "--max-dim"), (1, 7, "--max-dim"), (3, 5, "measured")]
    assert axes(None, None) == [(0, 5, "measured"), (1, 5, "measured")]
    assert axes(None, None, rows=None) == [(1, 5, "measured")]
    assert axes("other") == []


def test_what_is_refused() -> None:
    limits = DimensionLimits("state", TensorInfo("s", "FP32", ("batch", "words")), MOST, ("batch",))
    limits.check([2, 7])
    with pytest.raises(ServeError, match=r"dimension 1 \(words\) of state 's' is 8") as caught:
        limits.check((1, 8))
    error = caught.value
    assert error.status == 413 and error.expected == "at most 7 (--max-dim)"
    assert error.hint == "a shorter sequence, or --max-dim words=SIZE (max_dims in ox.toml)"


def test_rows_without_a_name() -> None:
    edges = TensorInfo("edges", "INT64", (None, 2))
    assert counts_rows(0, edges, (None,)) and not counts_rows(0, edges, ("batch",)) and not counts_rows(1, edges, ())
