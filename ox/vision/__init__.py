"""torchvision's paths: thin doors to `ox.data.transforms` and `ox.data.datasets`, and `ox.vision.utils`."""

from ox.doors import doors

__getattr__, __dir__ = doors(__name__)
