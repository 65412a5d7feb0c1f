"""`torch.cuda.amp`: the older spelling of `ox.amp` for cuda."""

from __future__ import annotations

from functools import partial
from typing import Any

from ox import amp
from ox.dtypes import DType, float16

__path__: list[str] = []  # older paths lie below

custom_fwd = partial(amp.custom_fwd, device_type="cuda")
custom_bwd = partial(amp.custom_bwd, device_type="cuda")


class autocast(amp.autocast):
    """`ox.autocast("cuda")`. `torch.cuda.amp.autocast`."""

    def __init__(self, enabled: bool = True, dtype: DType = float16, cache_enabled: bool = True, **kwargs: Any) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled, **kwargs)


class GradScaler(amp.GradScaler):
    """`ox.GradScaler("cuda")`. `torch.cuda.amp.GradScaler`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("cuda", *args, **kwargs)
