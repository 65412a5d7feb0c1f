"""`torch.nn.modules`: what `ox.nn` has."""

from ox.doors import doors
from ox.nn import *  # noqa: F403
from ox.nn import __all__ as __all__

__getattr__, __dir__ = doors(__name__)
