"""`torchvision.transforms`: what `ox.data.transforms` has."""

from ox.data.transforms import *  # noqa: F403
from ox.data.transforms import __all__ as __all__
from ox.doors import doors

__getattr__, __dir__ = doors(__name__)
