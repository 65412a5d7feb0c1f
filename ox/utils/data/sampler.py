"""`torch.utils.data.sampler`."""

from ox.data import *  # noqa: F403
from ox.data import __all__ as __all__
