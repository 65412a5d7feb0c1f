"""`torch.cpu.amp`: the older spelling of `ox.amp` for the CPU."""

from __future__ import annotations

from typing import Any

from ox import amp
from ox.dtypes import DType, bfloat16


class autocast(amp.autocast):
    """`ox.autocast("cpu")`. `torch.cpu.amp.autocast`."""

    def __init__(
        self, enabled: bool = True, dtype: DType = bfloat16, cache_enabled: bool = True, **kwargs: Any
    ) -> None:
        super().__init__("cpu", dtype, enabled, cache_enabled, **kwargs)


class GradScaler(amp.GradScaler):
    """`ox.GradScaler("cpu")`. `torch.cpu.amp.GradScaler`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("cpu", *args, **kwargs)
