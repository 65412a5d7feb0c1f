"""Several processes that train one module. `torch.nn.parallel`."""

from ox.core.lazy import lazy_modules
from ox.nn.parallel.data_parallel import DataParallel, data_parallel
from ox.nn.parallel.distributed import DistributedDataParallel

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel"]

__getattr__, __dir__ = lazy_modules(__name__, ("distributed",))
