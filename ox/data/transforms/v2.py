"""The same transforms, for ``from torchvision.transforms import v2``."""

from ox.data.transforms import *  # noqa: F403
