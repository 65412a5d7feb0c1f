"""Algorithms on top of collectives. `torch.distributed.algorithms`."""

from ox.core.lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__)
