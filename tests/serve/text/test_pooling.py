"""Pooling beside its definition, token by token; and which texts share a run."""

from __future__ import annotations

import numpy as np
import pytest

from ox.serve.text.pooling import normalized, pooled
from ox.serve.text.text_instance import groups

LENGTHS = (3, 1, 5)
VALUES = np.random.default_rng(0).standard_normal((3, 5, 4)).astype(np.float32) - 3
MASK = np.arange(5) < np.array(LENGTHS)[:, None]
BY_HAND = {
    "mean": lambda tokens: tokens.mean(0),
    "cls": lambda tokens: tokens[0],
    "last": lambda tokens: tokens[-1],
    "max": lambda tokens: tokens.max(0),
}


@pytest.mark.parametrize("kind", BY_HAND)
def test_padding_is_left_out(kind: str) -> None:
    wanted = [BY_HAND[kind](row[:length]) for row, length in zip(VALUES, LENGTHS, strict=True)]
    got = pooled(VALUES, MASK, [kind], normalize=False)
    assert got.dtype == np.float32
    assert np.allclose(got, wanted, atol=1e-6)


def test_normalized_to_length_one() -> None:
    assert np.allclose(np.linalg.norm(pooled(VALUES, MASK, ["mean"], normalize=True), axis=1), 1)
    assert np.array_equal(normalized(np.zeros((1, 3), np.float32)), np.zeros((1, 3)))


def test_groups_hold_each_text_once_and_little_padding() -> None:
    lengths = np.random.default_rng(1).integers(1, 400, 300).tolist()
    found = list(groups(lengths, 16, padded=True))
    assert sorted(place for group in found for place in group) == list(range(300))
    for group in found:
        longest = max(lengths[place] for place in group)
        cells = longest * len(group)
        assert len(group) <= 16
        assert cells - sum(lengths[place] for place in group) <= max(0.2 * cells, 64)
    assert len(found) < 40


def test_groups_without_padding_have_one_length() -> None:
    lengths = [3, 5, 3, 3, 5, 8]
    found = list(groups(lengths, 2, padded=False))
    assert all(len({lengths[place] for place in group}) == 1 and len(group) <= 2 for group in found)
    assert sorted(place for group in found for place in group) == list(range(6))
