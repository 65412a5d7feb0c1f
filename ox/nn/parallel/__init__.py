"""Several processes that train one module. `torch.nn.parallel`."""

from ox.doors import doors
from ox.nn.parallel.distributed import DistributedDataParallel

__all__ = ["DistributedDataParallel"]

__getattr__, __dir__ = doors(__name__, ("distributed",))
