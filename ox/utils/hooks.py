"""`torch.utils.hooks`."""

from ox.core.node import Handle as RemovableHandle

__all__ = ["RemovableHandle"]
