"""The iteration of a GradScaler on a GPU, where its numbers stay: nothing here waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ox.devices import cuda, cuda_tensors


def update(scaler: Any, found: Sequence[Any]) -> None:
    """Scale, growth tracker and the count of skipped steps after an iteration, of one optimizer or several."""
    flag = cuda.full((), 0, np.float32, str(scaler._scale_tensor.device))
    for each in found:
        if cuda_tensors.is_on_device(each):
            flag = each if len(found) == 1 else cuda.cupy().maximum(flag, each)
        elif each:
            flag[...] = 1
    cuda_tensors.update_scale(
        scaler._scale_tensor.array,
        scaler._tracker_tensor.array,
        scaler._skipped_tensor.array,
        flag,
        scaler._growth_factor,
        scaler._backoff_factor,
        scaler._growth_interval,
    )
