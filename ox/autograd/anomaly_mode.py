"""Finding where a gradient became NaN. `torch.autograd.anomaly_mode`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ox.autograd.grad_mode import Switch
from ox.autograd.saved_tensor_hooks import SavedTensorObserver
from ox.core.mode import MODE


def _observer(mode: bool, check_nan: bool) -> SavedTensorObserver | None:
    before: Any = MODE.get().observer or SavedTensorObserver()
    after = replace(before, lines=mode, check_nan=mode and check_nan)
    return None if after == SavedTensorObserver() else after


class detect_anomaly(Switch):
    """Inside, a backward that fails or gives NaN names the line of the forward; slow, for debugging.
    `torch.autograd.detect_anomaly`."""

    def __init__(self, check_nan: bool = True) -> None:
        super().__init__()
        self._check = check_nan

    def changes(self) -> dict[str, Any]:
        return {"observer": _observer(True, self._check)}


class set_detect_anomaly(Switch):
    """`detect_anomaly` by a flag: at once, and until the end of a `with`. `torch.autograd.set_detect_anomaly`."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        super().__init__(observer=_observer(mode, check_nan))
        super().__enter__()

    def __enter__(self) -> None:
        pass


def is_anomaly_enabled() -> bool:
    """Whether anomalies are looked for here. `torch.is_anomaly_enabled`."""
    watch: Any = MODE.get().observer
    return watch is not None and watch.lines


def is_anomaly_check_nan_enabled() -> bool:
    """Whether NaN counts as an anomaly here. `torch.is_anomaly_check_nan_enabled`."""
    watch: Any = MODE.get().observer
    return watch is not None and watch.check_nan


def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
    """`set_detect_anomaly`, until it is called again. `torch.set_anomaly_enabled`."""
    set_detect_anomaly(mode, check_nan)
