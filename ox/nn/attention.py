"""`torch.nn.attention`: which kernel attention uses."""

from ox.backends.sdp import SDPBackend as SDPBackend
from ox.backends.sdp import sdpa_kernel as sdpa_kernel
