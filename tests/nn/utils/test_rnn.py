"""Padding sequences of several lengths."""

from __future__ import annotations

from typing import Any

import pytest

import ox
from ox.errors import ArgumentError
from ox.nn.utils.rnn import pad_sequence


@pytest.mark.parametrize(("side", "rows"), [("right", [[1, 2, 3], [4, 9, 9]]), ("left", [[1, 2, 3], [9, 9, 4]])])
def test_padded_to_the_longest(side: str, rows: Any) -> None:
    padded = pad_sequence([ox.tensor([1, 2, 3]), ox.tensor([4])], True, 9, side)
    assert padded.tolist() == rows
    assert pad_sequence([ox.tensor([1, 2, 3]), ox.tensor([4])], False, 9, side).tolist() == padded.T.tolist()


def test_refusals() -> None:
    with pytest.raises(ArgumentError, match="padding_side is not 'middle'"):
        pad_sequence([ox.tensor([1])], padding_side="middle")
    with pytest.raises(ArgumentError, match="at least one sequence"):
        pad_sequence([])
