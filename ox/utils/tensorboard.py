"""`torch.utils.tensorboard`: the writer of tensorboardX, which has the same methods."""

from tensorboardX import SummaryWriter

__all__ = ["SummaryWriter"]
