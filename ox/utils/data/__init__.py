"""`torch.utils.data`: what `ox.data` has."""

from ox.data import *  # noqa: F403
from ox.data import __all__ as __all__
from ox.doors import doors

__getattr__, __dir__ = doors(__name__)
