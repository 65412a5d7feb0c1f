"""`torch.backends.opt_einsum`: `ox.einsum` chooses its order by itself."""

from ox.backends.mkldnn import is_available

__all__ = ["is_available"]

enabled = False
strategy = None
