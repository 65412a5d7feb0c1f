"""`torch.backends.mkl`."""

from ox.backends.mkldnn import is_available

__all__ = ["is_available"]
