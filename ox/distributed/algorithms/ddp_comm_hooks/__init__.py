"""Ways in which DistributedDataParallel may average a bucket. `torch.distributed.algorithms.ddp_comm_hooks`."""

from ox.doors import doors

__getattr__, __dir__ = doors(__name__)
