"""Datasets, samplers and the loader, under the names of `torch.utils.data`."""

from ox.core.lazy import lazy_modules
from ox.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from ox.data.distributed import DistributedSampler
from ox.data.loading.collate import default_collate, default_convert
from ox.data.loading.loader import DataLoader
from ox.data.loading.worker import get_worker_info
from ox.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "default_collate",
    "default_convert",
    "get_worker_info",
    "random_split",
]

__getattr__, __dir__ = lazy_modules(__name__, ("datasets", "transforms"))
