"""einops on tensors of ox. Its functions need nothing: `from einops import rearrange` takes them as they are.

Its layers are classes of one library each; what a PyTorch script imports from `einops.layers.torch` is here:
`from ox.einops import Rearrange, Reduce, EinMix`. einops itself is the user's to install.
"""

from ox.doors import doors

__getattr__, __dir__ = doors(
    __name__, ("layers",), dict.fromkeys(("EinMix", "Rearrange", "Reduce"), "ox.einops.layers")
)
