"""CIFAR-10 and CIFAR-100 from their binary files, which are mapped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ox.data.datasets.labeled import LabelledImages
from ox.data.datasets.paths import VARIABLE, find, roots
from ox.errors import LoadError

SIDE, PIXELS = 32, 3 * 32 * 32


class CIFAR10(LabelledImages):
    """Small photographs in ten classes, 50,000 to train on and 10,000 to test on (Krizhevsky, 2009).
    `torchvision.datasets.CIFAR10`, but from the binary version (``cifar-10-binary.tar.gz``): the Python version is a
    pickle, and reading a pickle can run arbitrary code.

    A sample is an image, uint8 [32, 32, 3], and its class, an int, or what `transform` and `target_transform` make of
    them.

    Attributes:
        data: all images, uint8 [n, 32, 32, 3].
        targets: the classes, a list of ints.

    Args:
        root: the folder of the ``.bin`` files, or the one that holds it under its own name; None looks in $OX_DATA.
        download: accepted for torchvision's scripts; nothing is downloaded.

    Raises:
        LoadError: files that are not there, of a wrong size, or with labels out of range; only the pickled version.
    """

    name, below = "CIFAR10", "cifar-10-batches-bin"
    pickled = ("cifar-10-batches-py", "data_batch_1")
    archive = "cifar-10-binary.tar.gz"
    names = (tuple(f"data_batch_{i}.bin" for i in range(1, 6)), ("test_batch.bin",))
    classes: tuple[str, ...] = (
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    )
    label_bytes = 1  # before each image; the last of them is the class

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        train: bool = True,
        transform: Any = None,
        target_transform: Any = None,
        download: bool = False,
    ) -> None:
        super().__init__(transform, target_transform)
        self.train = train
        folders = roots(root, self.below)
        hint = f"{self.archive}, unpacked, and root= or ${VARIABLE}: the folder with these files"
        for folder in folders:
            found = next((p for p in (folder / name for name in self.pickled) if p.exists()), None)
            if found and not (folder / self.below).is_dir() and not (folder / self.names[0][0]).exists():
                raise LoadError(
                    f"{found} is the pickled version of {self.name}, which is not read, for a pickle can run any code",
                    expected="the binary version: " + ", ".join(self.names[0]),
                    hint=hint,
                )
        paths = find(folders, ("", self.below), self.names[0 if train else 1], self.name, hint)
        self._parts = [self._records(path) for path in paths]
        self._ends = np.cumsum([len(part) for part in self._parts])
        self._labels = np.concatenate([part[:, self.label_bytes - 1] for part in self._parts]).astype(np.int64)

    def _records(self, path: Path) -> NDArray[np.uint8]:
        record = self.label_bytes + PIXELS
        size = path.stat().st_size
        if not size or size % record:
            raise LoadError(
                f"{path} is no file of {self.name}, or a damaged one",
                expected=f"a multiple of {record:,} bytes, the labels and the pixels of an image",
                got=f"{size:,} bytes",
            )
        records = np.asarray(np.memmap(path, np.uint8, "r")).reshape(-1, record)
        self.check_labels(records[:, self.label_bytes - 1], path)
        return records

    @property
    def targets(self) -> list[int]:
        return self._labels.tolist()

    @property
    def data(self) -> NDArray[np.uint8]:
        return self.images(np.arange(len(self)))

    def __len__(self) -> int:
        return int(self._ends[-1])

    def images(self, indices: Any) -> NDArray[np.uint8]:
        at = np.atleast_1d(np.asarray(indices)) % len(self)
        which = np.searchsorted(self._ends, at, side="right")
        out = np.empty((len(at), PIXELS), np.uint8)
        for number, part in enumerate(self._parts):
            mine = which == number
            out[mine] = part[at[mine] - (self._ends[number] - len(part)), self.label_bytes :]
        pixels = np.ascontiguousarray(out.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1))
        return pixels if np.ndim(indices) else pixels[0]

    def labels(self, indices: Any) -> Any:
        return self._labels[indices]


class CIFAR100(CIFAR10):
    """Small photographs in 100 classes, from ``cifar-100-binary.tar.gz``. `torchvision.datasets.CIFAR100`; all else as
    for `CIFAR10`. The names of the classes are those of ``fine_label_names.txt``, where that lies beside."""

    name, below = "CIFAR100", "cifar-100-binary"
    pickled = ("cifar-100-python", "train")
    archive = "cifar-100-binary.tar.gz"
    names = (("train.bin",), ("test.bin",))
    classes = tuple(str(i) for i in range(100))
    label_bytes = 2  # the group of classes, then the class

    def _records(self, path: Path) -> NDArray[np.uint8]:
        listed = path.with_name("fine_label_names.txt")
        if listed.is_file() and listed.stat().st_size < 1 << 16:
            names = listed.read_text("utf-8", "replace").split()
            if len(names) == len(self.classes):
                self.classes = tuple(names)
        return super()._records(path)
