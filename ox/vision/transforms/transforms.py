"""`torchvision.transforms.transforms`, the file that older scripts name."""

from ox.data.transforms import *  # noqa: F403
from ox.data.transforms import __all__ as __all__
