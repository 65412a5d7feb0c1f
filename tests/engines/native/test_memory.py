"""Places in the planned memory."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ox.engines.native.memory import ALIGNMENT, AddressSpace, Life, SharedBlock, place


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


def test_address_space() -> None:
    space = AddressSpace()
    arrays = [space.array((3, 5), np.float32), space.array((), np.int64), space.array((1 << 25,), np.float32)]
    assert [a.shape for a in arrays] == [(3, 5), (), (1 << 25,)]
    assert not any(np.may_share_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])


def test_places_of_lives() -> None:
    lives = [Life(100, 0, 2), Life(50, 1, 3), Life(100, 3, 4), Life(10, 0, 4), Life(64, 5, 5)]
    offsets, total = place(lives)
    for i, a in enumerate(lives):
        for k, b in enumerate(lives[:i]):
            if a.first <= b.last and b.first <= a.last:
                assert offsets[i] + a.size <= offsets[k] or offsets[k] + b.size <= offsets[i]
    assert total == 128 + 64 + 10  # the first and the third share a place
    assert all(offset % 64 == 0 for offset in offsets)
