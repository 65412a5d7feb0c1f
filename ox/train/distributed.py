"""Training on several processes: everything of `ox.distributed`, and what stands on it in other rooms."""

from ox.data.distributed import DistributedSampler
from ox.distributed import *  # noqa: F403
from ox.distributed import __all__ as _collectives
from ox.nn.parallel import DistributedDataParallel
from ox.nn.sync_norm import SyncBatchNorm
from ox.optim.zero import ZeroRedundancyOptimizer

__all__ = [
    *_collectives,
    "DistributedDataParallel",
    "DistributedSampler",
    "SyncBatchNorm",
    "ZeroRedundancyOptimizer",
]
