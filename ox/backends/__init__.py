"""`torch.backends`: switches that scripts set at their start. They can be set and read. Those of `cudnn` and
`cuda.matmul.allow_tf32` have an effect, on a GPU: elsewhere `ox.devices` selects the executor of an operator, and every
run gives the same bits.
"""

from ox.core.lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__)
