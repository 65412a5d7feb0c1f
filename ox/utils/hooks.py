"""`torch.utils.hooks`."""

from ox.ops.node import Handle as RemovableHandle

__all__ = ["RemovableHandle"]
