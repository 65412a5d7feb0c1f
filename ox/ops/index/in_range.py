"""A check that a recorded graph makes in every run: InRange, a function of the domain ``ox``."""

from typing import Any

import numpy as np

from ox.core.function import function
from ox.core.mode import MODE
from ox.core.operator import OPS
from ox.core.types import XP, Array, T
from ox.devices.gpu.index import check_range
from ox.devices.gpu.multi_tensor import is_on_device
from ox.dtypes import INTEGERS
from ox.errors import BoundsError, OxError, ShapeError


@function("Y", kind="check", fused=True, T=INTEGERS, amp="widest")
def InRange(X: T, *, low: int, high: int, what: str, classes: int = 0, ignored: int | None = None) -> T:
    """The integers X, if all of them are from `low` to `high`, or `ignored`; otherwise an error that says `what`: of
    class labels (`classes`) a ShapeError, of others a BoundsError. A runtime that runs the body does not look."""
    return OPS["Identity"](X)


@InRange.fast
def _(xp: XP, X: Array, *, low: int, high: int, what: str, classes: int = 0, ignored: int | None = None) -> Any:
    error = out_of_range(X, low, high, what, classes, ignored) if xp is np else None
    if error is not None:
        raise error
    return X.copy()


def out_of_range(
    array: Array, low: int, high: int, what: str, classes: int = 0, ignored: int | None = None
) -> OxError | None:
    """The error of `InRange` for this array; None where all is in the range."""
    if not array.size:
        return None
    least, most = int(np.minimum.reduce(array, None)), int(np.maximum.reduce(array, None))
    if low <= least and most <= high:
        return None
    wrong = array[((array < low) | (array > high)) & (array != ignored)]
    if not wrong.size:
        return None
    return (ShapeError if classes else BoundsError)(what, expected=f"{low} to {high}", got=str(wrong[0]), where="")


def check_in_later_runs(
    x: Any, low: int, high: int, what: str, *, classes: bool = False, ignored: int | None = None,
    on_device: bool = False,
) -> Any:  # fmt: skip
    """The integers, which this call has found to be in a range: what `ox.compile` records of it looks again in each
    run, for its kernels would take -1 as the last place.

    Args:
        on_device: on a GPU this call has not looked, as that would wait: a kernel does.
    """
    recording = MODE.get().recording
    if on_device and recording is None and is_on_device(x.array):
        check_range(x.array, low, high, what, ShapeError if classes else BoundsError, ignored)
    if recording is None or not recording.guarded:
        return x
    return InRange(x, low=low, high=high, what=what, classes=int(classes), ignored=ignored)
