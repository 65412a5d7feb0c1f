"""The same transforms, for scripts that say ``from torchvision.transforms import v2``."""

from ox.data.transforms import *  # noqa: F403
