"""einops on tensors of ox. The functions need nothing: `from einops import rearrange` accepts tensors of ox.

The layers are classes of one library each. Those of `einops.layers.torch` are here: `from ox.einops import Rearrange,
Reduce, EinMix`. einops itself is installed by the user.
"""

from ox.core.lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(
    __name__, ("layers",), dict.fromkeys(("EinMix", "Rearrange", "Reduce"), "ox.einops.layers")
)
