"""Python's heap and gc.freeze(): the garbage collector does not look at what that has put aside, which beside millions
of objects is the difference between no time and a second."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_mixed = False  # whether `whole` has put aside what was made since


@contextmanager
def put_aside() -> Iterator[None]:
    """`gc.collect()` collects in this block what is made in it. What was put aside before stays so afterwards."""
    was_frozen = gc.get_freeze_count() > 0
    if was_frozen:
        gc.collect()  # garbage that is put aside would stay for good
    gc.freeze()
    try:
        yield
    finally:
        if not was_frozen:
            gc.unfreeze()


@contextmanager
def whole() -> Iterator[None]:
    """In this block `gc.get_referrers()` looks also at what is put aside. To be used inside of `settled`."""
    global _mixed
    if gc.get_freeze_count() == 0:
        yield
        return
    gc.unfreeze()
    try:
        yield
    finally:
        gc.freeze()
        _mixed = True


@contextmanager
def settled() -> Iterator[None]:
    """What `whole` has put aside in this block and is garbage at its end does not stay for good."""
    global _mixed
    try:
        yield
    finally:
        if _mixed:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            _mixed = False
