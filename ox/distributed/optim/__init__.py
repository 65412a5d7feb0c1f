"""`torch.distributed.optim`."""

from ox.doors import doors

__getattr__, __dir__ = doors(__name__, (), {"ZeroRedundancyOptimizer": "ox.optim.zero"})
