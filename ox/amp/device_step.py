"""The iteration of a GradScaler on a GPU, where its numbers stay: nothing here waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ox.devices import cuda, cuda_state
from ox.devices.gpu import device_checks
from ox.devices.gpu import multi_tensor as cuda_tensors
from ox.errors import TrainError


def update(scaler: Any, found: Sequence[Any], skips: int, least: float) -> None:
    """Scale, growth tracker and the count of skipped steps after an iteration, of one optimizer or several.

    Args:
        skips: so many steps skipped in a row at a scale below `least` are a TrainError, which the next wait raises.
    """
    with cuda_state.at(scaler._scale_tensor.array):
        _update(scaler, found, skips, least)


def _update(scaler: Any, found: Sequence[Any], skips: int, least: float) -> None:
    flag = cuda.full((), 0, np.float32, str(scaler._scale_tensor.device))
    for each in found:
        if cuda_tensors.is_on_device(each):
            each = cuda_tensors.beside(each, flag)
            flag = each if len(found) == 1 else cuda.cupy().maximum(flag, each)
        elif each:
            flag[...] = 1
    numbers = tuple(t.array for t in (scaler._scale_tensor, scaler._tracker_tensor, scaler._skipped_tensor))
    cuda_tensors.update_scale(
        numbers,
        flag,
        scaler._growth_factor,
        scaler._backoff_factor,
        scaler._growth_interval,
        _collapse(skips, least),
    )


def check(scaler: Any, skips: int, least: float) -> None:
    """Look for a collapse after an iteration that a recording has repeated; the next wait raises it."""
    with cuda_state.at(scaler._scale_tensor.array):
        cuda_tensors.check_scale(scaler._scale_tensor.array, scaler._skipped_tensor.array, _collapse(skips, least))


def _collapse(skips: int, least: float) -> cuda_tensors.Collapse:
    what = f"the loss scale collapsed below {least}: infinities or NaN in gradients skipped step after step"
    return cuda_tensors.Collapse(skips, least, device_checks.check(TrainError, what, 0, skips - 1))
