"""`torchvision.datasets.folder`."""

from __future__ import annotations

from typing import Any

from ox.data.datasets.image_folder import IMG_EXTENSIONS, DatasetFolder, ImageFolder
from ox.data.datasets.image_folder import read_image as default_loader

__all__ = ["IMG_EXTENSIONS", "DatasetFolder", "ImageFolder", "default_loader", "pil_loader"]


def pil_loader(path: str) -> Any:
    """An image as a Pillow image in RGB, with the errors of `default_loader`.
    `torchvision.datasets.folder.pil_loader`."""
    from PIL import Image

    return Image.fromarray(default_loader(path))
