"""torchvision's paths: names of `ox.data.transforms` and `ox.data.datasets`, and `ox.vision.utils`."""

from ox.core.lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__)
