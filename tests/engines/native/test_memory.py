"""Places in the planned memory."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ox.engines.native.memory import ALIGNMENT, Life, SharedBlock, place


@pytest.mark.parametrize("seed", range(8))
def test_lives_that_overlap_have_places_of_their_own(seed: int) -> None:
    dice = random.Random(seed)
    lives = []
    for _ in range(60):
        first = dice.randrange(30)
        lives.append(Life(dice.randrange(0, 5000), first, first + dice.randrange(6)))
    offsets, total = place(lives)
    for i, (one, at) in enumerate(zip(lives, offsets, strict=True)):
        assert at % ALIGNMENT == 0 and at + one.size <= total
        for other, beside in zip(lives[:i], offsets[:i], strict=True):
            if one.first <= other.last and other.first <= one.last:
                assert at + one.size <= beside or beside + other.size <= at
    assert total < sum(life.size for life in lives)


def test_lives_one_behind_the_other_share_a_place() -> None:
    assert place([Life(100, 0, 1), Life(100, 2, 3), Life(100, 4, 4)]) == ([0, 0, 0], 100)


def test_nothing_to_place() -> None:
    assert place([]) == ([], 0)
    assert SharedBlock().part(100).ctypes.data % ALIGNMENT == 0


def test_one_block_for_several() -> None:
    memory = SharedBlock()
    first, second, third = memory.part(100), memory.part(60), memory.part(500)
    assert np.may_share_memory(first, second) and not np.may_share_memory(first, third)
    assert (len(first), len(second), len(third)) == (100, 60, 500)
