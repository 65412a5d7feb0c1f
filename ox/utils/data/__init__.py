"""`torch.utils.data`: what `ox.data` has."""

from ox.core.lazy import lazy_modules
from ox.data import *  # noqa: F403
from ox.data import __all__ as __all__

__getattr__, __dir__ = lazy_modules(__name__)
