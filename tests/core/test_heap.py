"""Objects put aside: the garbage collector looks at new ones only, and at all of them afterwards."""

from __future__ import annotations

import gc
from weakref import ref

import pytest

from ox.core import heap


class Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_only_what_is_made_inside_is_collected() -> None:
    was_frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    gc.disable()  # by itself it would collect the old object at any time
    try:
        old = ref(Cycle())
        with heap.put_aside():
            new = ref(Cycle())
            gc.collect()
            assert new() is None and old() is not None
        gc.collect()
        assert old() is None
    finally:
        gc.enable()
        if was_frozen:
            gc.freeze()


@pytest.mark.parametrize("fails", [False, True])
def test_what_was_put_aside_before_stays_so(fails: bool) -> None:
    gc.freeze()
    try:
        young = ref(Cycle())
        with pytest.raises(KeyError) if fails else heap.put_aside():
            if fails:
                with heap.put_aside():
                    raise KeyError
        assert gc.get_freeze_count() > 0
        assert young() is None  # as garbage it would have stayed for good
    finally:
        gc.unfreeze()


def test_nothing_stays_put_aside_after_an_error() -> None:
    before = gc.get_freeze_count()
    gc.unfreeze()
    with pytest.raises(KeyError), heap.put_aside():
        raise KeyError
    assert gc.get_freeze_count() == 0
    if before:
        gc.freeze()


def test_what_a_look_at_everything_puts_aside_is_collected_at_the_end() -> None:
    before = gc.get_freeze_count()
    gc.freeze()
    try:
        with heap.settled():
            made = Cycle()
            with heap.whole():
                assert gc.get_freeze_count() == 0
            found = ref(made)
            del made
            gc.collect()
            assert found() is not None and gc.get_freeze_count() > 0
        assert found() is None and gc.get_freeze_count() > 0
    finally:
        if not before:
            gc.unfreeze()
