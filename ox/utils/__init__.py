"""PyTorch's paths below `torch.utils`; the code is in other packages."""

from ox.core.lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__)
