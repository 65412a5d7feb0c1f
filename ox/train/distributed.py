"""Training on several processes: all names of `ox.distributed`, and related classes of other packages."""

from ox.data.distributed import DistributedSampler
from ox.distributed import *  # noqa: F403
from ox.distributed import __all__ as _collectives
from ox.nn.layers.sync_batch_norm import SyncBatchNorm
from ox.nn.parallel import DistributedDataParallel
from ox.optim.zero import ZeroRedundancyOptimizer

__all__ = [
    *_collectives,
    "DistributedDataParallel",
    "DistributedSampler",
    "SyncBatchNorm",
    "ZeroRedundancyOptimizer",
]
