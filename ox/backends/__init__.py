"""`torch.backends`: switches that scripts set at their head. They may be set and read, and change nothing: which kernel
runs is measured by `ox.devices`, and every one gives the same bits again."""

from ox.doors import doors

__getattr__, __dir__ = doors(__name__)
