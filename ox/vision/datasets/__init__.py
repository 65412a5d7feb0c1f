"""`torchvision.datasets`: what `ox.data.datasets` has."""

from ox.core.lazy import lazy_modules
from ox.data.datasets import *  # noqa: F403
from ox.data.datasets import __all__ as __all__

__getattr__, __dir__ = lazy_modules(__name__)
