"""Ways in which DistributedDataParallel may average a bucket. `torch.distributed.algorithms.ddp_comm_hooks`."""

from ox.core.lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__)
