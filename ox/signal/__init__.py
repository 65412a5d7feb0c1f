"""Signals: `ox.signal.windows`, as `torch.signal`."""

from ox.signal import windows

__all__ = ["windows"]
