"""Datasets, samplers and the loader, under the names of `torch.utils.data`."""

from ox.data.collate import default_collate
from ox.data.dataset import Dataset, Subset, TensorDataset, random_split
from ox.data.loader import DataLoader
from ox.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, SubsetRandomSampler

__all__ = [
    "BatchSampler",
    "DataLoader",
    "Dataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "default_collate",
    "random_split",
]
