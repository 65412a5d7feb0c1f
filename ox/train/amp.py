"""Mixed precision: all names of `ox.amp`."""

from ox.amp import *  # noqa: F403
from ox.amp import __all__ as __all__
