"""What is built on collectives. `torch.distributed.algorithms`."""

from ox.doors import doors

__getattr__, __dir__ = doors(__name__)
