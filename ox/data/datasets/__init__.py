"""Ready datasets: IDX files, CIFAR, folders of images, tables, text."""

from ox.data.datasets.cifar import CIFAR10, CIFAR100
from ox.data.datasets.columns import read_columns
from ox.data.datasets.idx import KMNIST, MNIST, FashionMNIST, read_idx
from ox.data.datasets.image_folder import DatasetFolder, ImageFolder, read_image
from ox.data.datasets.table import Coding, TableDataset
from ox.data.datasets.text import CharText, TextLines, TokenBlocks, load_tokenizer, write_tokens

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "KMNIST",
    "MNIST",
    "CharText",
    "Coding",
    "DatasetFolder",
    "FashionMNIST",
    "ImageFolder",
    "TableDataset",
    "TextLines",
    "TokenBlocks",
    "load_tokenizer",
    "read_columns",
    "read_idx",
    "read_image",
    "write_tokens",
]
