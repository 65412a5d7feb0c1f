"""`torch.backends`: switches that scripts set at their start. They can be set and read, and have no effect but
`cuda.matmul.allow_tf32`: `ox.devices` selects the executor of an operator, and every run gives the same bits.
"""

from ox.core.lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__)
