"""Everything that feeds a model: samplers, iterable datasets split among workers, collate functions, generators."""

import bisect
import itertools
import math
import random
import warnings
from collections import namedtuple
from typing import Iterator

import numpy as np
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
    random_split,
)
from torch.utils.data._utils.collate import default_collate

Sample = namedtuple("Sample", ["values", "length", "name"])


class Sequences(Dataset):
    def __init__(self, n, seed=0):
        rng = np.random.default_rng(seed)
        self.rows = [rng.standard_normal(rng.integers(2, 9)).astype(np.float32) for _ in range(n)]
        self.targets = [i % 3 for i in range(n)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return Sample(torch.from_numpy(self.rows[i]), len(self.rows[i]), f"row{i}"), self.targets[i]


class BucketSampler(Sampler):
    """Batches of rows of like lengths, shuffled within a bucket."""

    def __init__(self, lengths, buckets=(3, 5, 7), batch_size=4, seed=0):
        self.lengths, self.buckets, self.batch_size = lengths, buckets, batch_size
        self.seed, self.epoch = seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self) -> Iterator[list]:
        g = torch.Generator()
        g.manual_seed(self.seed + self.epoch)
        groups = [[] for _ in range(len(self.buckets) + 1)]
        for i, length in enumerate(self.lengths):
            groups[bisect.bisect_left(self.buckets, length)].append(i)
        batches = []
        for group in groups:
            order = torch.randperm(len(group), generator=g).tolist()
            group = [group[i] for i in order]
            batches += [group[i : i + self.batch_size] for i in range(0, len(group), self.batch_size)]
        for i in torch.randperm(len(batches), generator=g):
            yield batches[i]

    def __len__(self):
        return sum(
            math.ceil(sum(bisect.bisect_left(self.buckets, l_) == b for l_ in self.lengths) / self.batch_size)
            for b in range(len(self.buckets) + 1)
        )


class ImbalancedDatasetSampler(Sampler):
    def __init__(self, dataset, num_samples=None):
        self.indices = list(range(len(dataset)))
        self.num_samples = num_samples or len(self.indices)
        label_to_count = {}
        for idx in self.indices:
            label = self._get_label(dataset, idx)
            label_to_count[label] = label_to_count.get(label, 0) + 1
        weights = [1.0 / label_to_count[self._get_label(dataset, idx)] for idx in self.indices]
        self.weights = torch.DoubleTensor(weights)

    def _get_label(self, dataset, idx):
        return dataset.targets[idx]

    def __iter__(self):
        return (self.indices[i] for i in torch.multinomial(self.weights, self.num_samples, replacement=True))

    def __len__(self):
        return self.num_samples


class InfiniteSampler(Sampler):
    def __init__(self, size, rank=0, world=1, shuffle=True):
        self.size, self.rank, self.world, self.shuffle = size, rank, world, shuffle

    def _infinite_indices(self):
        g = torch.Generator()
        g.manual_seed(17)
        while True:
            if self.shuffle:
                yield from torch.randperm(self.size, generator=g).tolist()
            else:
                yield from torch.arange(self.size).tolist()

    def __iter__(self):
        yield from itertools.islice(self._infinite_indices(), self.rank, None, self.world)


class Stream(IterableDataset):
    def __init__(self, start, end):
        super(Stream).__init__()
        assert end > start
        self.start, self.end = start, end

    def __iter__(self):
        worker_info = get_worker_info()
        if worker_info is None:
            iter_start, iter_end = self.start, self.end
        else:
            per_worker = int(math.ceil((self.end - self.start) / float(worker_info.num_workers)))
            iter_start = self.start + worker_info.id * per_worker
            iter_end = min(iter_start + per_worker, self.end)
        return iter(range(iter_start, iter_end))


class ShuffleBuffer(IterableDataset):
    def __init__(self, source, size, seed):
        self.source, self.size, self.seed = source, size, seed

    def __iter__(self):
        rng, buffer = random.Random(self.seed), []
        for item in self.source:
            if len(buffer) < self.size:
                buffer.append(item)
                continue
            i = rng.randrange(self.size)
            yield buffer[i]
            buffer[i] = item
        rng.shuffle(buffer)
        yield from buffer


def seed_worker(worker_id):
    worker_seed = torch.initial_seed() % 2**32
    np.random.seed(worker_seed)
    random.seed(worker_seed)


class PadCollate:
    def __init__(self, dim=0):
        self.dim = dim

    def __call__(self, batch):
        samples, targets = zip(*batch)
        longest = max(map(lambda s: s.values.shape[self.dim], samples))
        out = torch.zeros(len(samples), longest)
        mask = torch.zeros(len(samples), longest, dtype=torch.bool)
        for i, s in enumerate(samples):
            out[i, : s.length].copy_(s.values)
            mask[i, : s.length] = True
        return {"values": out, "mask": mask, "name": [s.name for s in samples]}, torch.tensor(targets)


class FastLoader:
    """The same workers for all epochs: a batch sampler that repeats."""

    class _Repeat(object):
        def __init__(self, sampler):
            self.sampler = sampler

        def __iter__(self):
            while True:
                yield from iter(self.sampler)

    def __init__(self, *args, **kwargs):
        self.loader = DataLoader(*args, **kwargs)
        object.__setattr__(self.loader, "batch_sampler", self._Repeat(self.loader.batch_sampler))
        self.iterator = iter(self.loader)

    def __len__(self):
        return len(self.loader.batch_sampler.sampler)

    def __iter__(self):
        for i in range(len(self)):
            yield next(self.iterator)


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.score, self.head = nn.Linear(1, 4), nn.Linear(4, 3)

    def forward(self, values, mask):
        h = torch.tanh(self.score(values.unsqueeze(-1))).masked_fill(~mask.unsqueeze(-1), 0.0)
        return self.head(h.sum(1) / mask.sum(1, keepdim=True))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    data = Sequences(22)
    sampler = BucketSampler([len(r) for r in data.rows])
    model = Pooled()
    optimizer = torch.optim.NAdam(model.parameters(), lr=0.05)
    loader = DataLoader(data, batch_sampler=sampler, collate_fn=PadCollate(), num_workers=0)
    print(len(loader), loader.batch_size, type(loader.sampler).__name__, loader.drop_last)
    for epoch in range(2):
        loader.batch_sampler.set_epoch(epoch)
        for inputs, targets in loader:
            loss = nn.functional.cross_entropy(model(inputs["values"], inputs["mask"]), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print("epoch", epoch, inputs["name"], tuple(inputs["values"].shape), loss.item())
    g = torch.Generator()
    g.manual_seed(3)
    table = TensorDataset(torch.arange(20).view(10, 2).float(), torch.arange(10))
    for name, each in {
        "shuffle": DataLoader(table, batch_size=4, shuffle=True, generator=g),
        "random": DataLoader(table, batch_size=5, sampler=RandomSampler(table, replacement=True, num_samples=7)),
        "weighted": DataLoader(table, 6, sampler=WeightedRandomSampler([0.1, 0.9] * 5, 6, replacement=False)),
        "subset": DataLoader(table, batch_size=3, sampler=SubsetRandomSampler([1, 4, 7, 9])),
        "batch": DataLoader(table, batch_sampler=BatchSampler(SequentialSampler(table), 4, drop_last=True)),
        "concat": DataLoader(ConcatDataset([Subset(table, [0, 1]), Subset(table, range(5, 9))]), batch_size=4),
        "imbalanced": DataLoader(data, batch_size=8, sampler=ImbalancedDatasetSampler(data), collate_fn=PadCollate()),
        "single": DataLoader(table, batch_size=None, sampler=[2, 5]),
    }.items():
        batches = [b[1].tolist() for b in each]
        print(name, len(each), batches)
    print(list(itertools.islice(InfiniteSampler(5, rank=1, world=2), 6)))
    parts = random_split(range(10), [0.5, 0.3, 0.2], generator=torch.Generator().manual_seed(42))
    print([list(p) for p in parts], parts[0].indices)
    stream = DataLoader(ShuffleBuffer(Stream(3, 17), 4, 1), batch_size=5)
    print([b.tolist() for b in stream])
    for workers in (0, 2):
        print([b.tolist() for b in DataLoader(Stream(3, 12), batch_size=2, num_workers=workers)])
    workers = DataLoader(
        data,
        batch_size=6,
        shuffle=True,
        num_workers=2,
        worker_init_fn=seed_worker,
        collate_fn=PadCollate(),
        generator=g,
        persistent_workers=True,
        prefetch_factor=2,
    )
    for epoch in range(2):
        print("workers", [(b["name"][0], round(b["values"].sum().item(), 3)) for b, _ in workers])
    fast = FastLoader(table, batch_size=4, shuffle=False)
    print([len(list(fast)) for _ in range(3)], len(fast))
    batch = default_collate(
        [{"a": np.float32(1.5), "b": [1, 2.0], "c": "x"}, {"a": np.float32(2.5), "b": [3, 4.0], "c": "y"}]
    )
    print(batch, batch["a"].dtype)
    sample = default_collate([Sample(torch.ones(2), 2, "p"), Sample(torch.zeros(2), 5, "q")])
    print(type(sample).__name__, sample.length, sample.name)
    example = (inputs["values"], inputs["mask"])
