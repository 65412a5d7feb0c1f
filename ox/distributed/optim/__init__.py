"""`torch.distributed.optim`: `ZeroRedundancyOptimizer`."""

from ox.core.lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__, (), {"ZeroRedundancyOptimizer": "ox.optim.zero"})
