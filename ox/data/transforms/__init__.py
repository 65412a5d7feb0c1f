"""Transforms of images, under torchvision's names; `functional` has them as functions.

The type defines the layout: an array is an image [h, w, c], a tensor is one [c, h, w]. `ToTensor` leads from one to the
other. ``transform(image)`` changes one image, ``transform.batch(images)`` many of one size, each with random numbers of
its own. Random numbers come from a transform's `generator`, or from ox's default generator.
"""

from ox.data.transforms import functional
from ox.data.transforms.augment import RandAugment, TrivialAugmentWide
from ox.data.transforms.base import Compose, Lambda, RandomApply, RandomChoice, RandomOrder, Transform
from ox.data.transforms.deterministic import (
    CenterCrop,
    ConvertImageDtype,
    FiveCrop,
    Grayscale,
    Normalize,
    Pad,
    PILToTensor,
    Resize,
    TenCrop,
    ToDtype,
    ToImage,
    ToPILImage,
    ToTensor,
)
from ox.data.transforms.mix import CutMix, MixUp
from ox.data.transforms.random_color import (
    ColorJitter,
    GaussianBlur,
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomEqualize,
    RandomGrayscale,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
)
from ox.data.transforms.random_geometry import (
    RandomAffine,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomPerspective,
    RandomResizedCrop,
    RandomRotation,
    RandomVerticalFlip,
)
from ox.data.transforms.resizing import InterpolationMode

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "ConvertImageDtype",
    "CutMix",
    "FiveCrop",
    "GaussianBlur",
    "Grayscale",
    "InterpolationMode",
    "Lambda",
    "MixUp",
    "Normalize",
    "PILToTensor",
    "Pad",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChoice",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomOrder",
    "RandomPerspective",
    "RandomPosterize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSolarize",
    "RandomVerticalFlip",
    "Resize",
    "TenCrop",
    "ToDtype",
    "ToImage",
    "ToPILImage",
    "ToTensor",
    "Transform",
    "TrivialAugmentWide",
    "functional",
]
