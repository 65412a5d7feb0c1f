"""`torchvision.datasets.folder`."""

from ox.data.datasets.image_folder import IMG_EXTENSIONS, DatasetFolder, ImageFolder
from ox.data.datasets.image_folder import read_image as default_loader

__all__ = ["IMG_EXTENSIONS", "DatasetFolder", "ImageFolder", "default_loader"]
