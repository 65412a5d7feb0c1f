"""`torchvision.transforms.v2.functional`."""

from ox.data.transforms.functional import *  # noqa: F403
from ox.data.transforms.functional import __all__ as __all__
