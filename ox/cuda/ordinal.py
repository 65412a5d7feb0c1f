"""The number of a device."""

from __future__ import annotations

from typing import Any

from ox.core.device import device as Device
from ox.devices import cuda


def current_device() -> int:
    """The number of the device that ``"cuda"`` means now. Raises DeviceError without a GPU."""
    return cuda.ordinal("cuda")


def ordinal(device: Any) -> int:
    """The number of a device, given by number or name; of the current one for None.

    Raises:
        DeviceError: there is no such device.
    """
    if device is None:
        return current_device()
    return cuda.check_number(device) if isinstance(device, int) else cuda.ordinal(str(Device(device)))
