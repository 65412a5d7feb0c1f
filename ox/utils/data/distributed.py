"""`torch.utils.data.distributed`."""

from ox.data.distributed import DistributedSampler

__all__ = ["DistributedSampler"]
