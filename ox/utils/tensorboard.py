"""`torch.utils.tensorboard`: the writer of tensorboardX, which has the same methods."""

from tensorboardX import SummaryWriter

__all__ = ["SummaryWriter"]

__path__: list[str] = []  # older paths lie below
