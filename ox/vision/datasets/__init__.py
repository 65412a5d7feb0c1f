"""`torchvision.datasets`: what `ox.data.datasets` has."""

from ox.data.datasets import *  # noqa: F403
from ox.data.datasets import __all__ as __all__
from ox.doors import doors

__getattr__, __dir__ = doors(__name__)
