"""PyTorch's paths below `torch.utils`: thin doors to the rooms where the things live."""

from ox.doors import doors

__getattr__, __dir__ = doors(__name__)
