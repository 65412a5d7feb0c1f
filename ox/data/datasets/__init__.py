"""Ready datasets: IDX files, tables, text."""

from ox.data.datasets.columns import read_columns
from ox.data.datasets.idx import MNIST, FashionMNIST, read_idx
from ox.data.datasets.table import Coding, TableDataset
from ox.data.datasets.text import CharText, TextLines, TokenBlocks, load_tokenizer, write_tokens

__all__ = [
    "MNIST",
    "CharText",
    "Coding",
    "FashionMNIST",
    "TableDataset",
    "TextLines",
    "TokenBlocks",
    "load_tokenizer",
    "read_columns",
    "read_idx",
    "write_tokens",
]
