"""`torchvision.transforms`: what `ox.data.transforms` has."""

from ox.core.lazy import lazy_modules
from ox.data.transforms import *  # noqa: F403
from ox.data.transforms import __all__ as __all__

__getattr__, __dir__ = lazy_modules(__name__)
