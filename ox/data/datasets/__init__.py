"""Ready datasets: IDX files, text."""

from ox.data.datasets.idx import MNIST, FashionMNIST, read_idx
from ox.data.datasets.text import CharText, TextLines, TokenBlocks, load_tokenizer, write_tokens

__all__ = [
    "MNIST",
    "CharText",
    "FashionMNIST",
    "TextLines",
    "TokenBlocks",
    "load_tokenizer",
    "read_idx",
    "write_tokens",
]
