"""DataLoader: CPU time per sample with 0, 1 and 2 workers, compared with PyTorch. Each side runs alone.

    python benchmarks/bench_loader.py            (ROUNDS=3 for three processes a side)

- images: JPEG files of 320×240, decoded by Pillow, cropped to 224×224, flipped, in batches of 64 that are uint8 or
  normalized float32; the second epoch of workers that stay;
- light: rows of 16 floats and a class, taken one by one in batches of 128, where the loader itself is what costs;
- arrays: 600 kB a sample, copied only: what handing over costs;
- start: from `iter` to the first batch, with 2 workers.

The dataset is the same code for both sides and imports neither.
"""

from __future__ import annotations

import io
import statistics
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import sides
from PIL import Image

IMAGES, LIGHT, LARGE = 640, 12_800, 320
WORKERS = (0, 1, 2)
MEAN, DEVIATION = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])


class Photographs:
    """JPEG files in memory: decoding is measured, not a disk."""

    def __init__(self, floats: bool) -> None:
        self.floats = floats
        random = np.random.default_rng(0)
        self.files = []
        for _ in range(16):
            small = Image.fromarray(random.integers(0, 256, (15, 20, 3), np.uint8))
            file = io.BytesIO()
            small.resize((320, 240), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
            self.files.append(file.getvalue())

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, index: int) -> Any:
        image = np.asarray(Image.open(io.BytesIO(self.files[index % 16])).convert("RGB"))
        top, left = index % 17, index % 97
        image = image[top : top + 224, left : left + 224]
        if index % 2:
            image = image[:, ::-1]
        if self.floats:
            image = (image * np.float32(1 / 255) - MEAN) / DEVIATION
        return np.ascontiguousarray(image.transpose(2, 0, 1)), index % 10


class Light:
    def __init__(self) -> None:
        self.rows = np.random.default_rng(0).random((LIGHT, 16), np.float32)

    def __len__(self) -> int:
        return LIGHT

    def __getitem__(self, index: int) -> Any:
        return self.rows[index], index % 10


class Large:
    def __init__(self) -> None:
        self.rows = np.zeros((8, 3, 224, 224), np.float32)

    def __len__(self) -> int:
        return LARGE

    def __getitem__(self, index: int) -> Any:
        return self.rows[index % 8], index


def figures(DataLoader: Any) -> Iterator[tuple[str, float]]:
    """Microseconds a sample; milliseconds to the first batch."""
    cases = [
        ("images uint8", Photographs(False), 64),
        ("images float32", Photographs(True), 64),
        ("light", Light(), 128),
        ("arrays", Large(), 32),
    ]
    for name, dataset, size in cases:
        for workers in WORKERS:
            options: Any = {"num_workers": workers, "persistent_workers": True} if workers else {}
            loader = DataLoader(dataset, batch_size=size, shuffle=True, **options)
            times = []
            for _ in range(3):
                began = time.perf_counter()
                for images, _ in loader:
                    assert images.shape[0] == size
                times.append(time.perf_counter() - began)
            yield f"{name}, {workers} workers", min(times[1:]) / len(dataset) * 1e6
            del loader
    loader = DataLoader(Light(), batch_size=128, num_workers=2)
    times = []
    for _ in range(5):
        began = time.perf_counter()
        batches = iter(loader)
        next(batches)
        times.append(time.perf_counter() - began)
        del batches
    yield "start of 2 workers, ms", statistics.median(times) * 1e3


def run_ox() -> Mapping[str, float]:
    from ox.data import DataLoader

    return dict(figures(DataLoader))


def run_torch() -> Mapping[str, float]:
    from torch.utils.data import DataLoader

    return dict(figures(DataLoader))


if __name__ == "__main__":
    sides.main({"ox": run_ox, "torch": run_torch}, unit="µs a sample; ms where it says so")
