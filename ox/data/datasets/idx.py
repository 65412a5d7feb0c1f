"""IDX files, and the datasets in this format: MNIST and Fashion-MNIST."""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ox.core.operator import make_tensor
from ox.data.datasets.labeled import LabelledImages
from ox.data.datasets.paths import VARIABLE, find, roots
from ox.errors import LoadError, cannot_open
from ox.tensors.tensor import Tensor

TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
MAX_DIMENSIONS = 8
DEFLATE = 1032  # the largest ratio of gzip: a header that promises more is wrong


def read_idx(path: str | os.PathLike[str]) -> NDArray[Any]:
    """The array of an IDX file, plain or gzipped. http://yann.lecun.com/exdb/mnist describes the format.

    A plain file of single bytes is mapped and not read: it may be larger than memory, and cannot be written to.

    Returns:
        uint8, int8, int16, int32, float32 or float64, of the file's shape, in this machine's byte order.

    Raises:
        LoadError: no such file, no IDX file, or a size that does not fit its header.
    """
    path = Path(path)
    try:
        with open(path, "rb") as f:
            if f.read(2) == b"\x1f\x8b":
                f.seek(0)
                with gzip.GzipFile(fileobj=f) as unpacked:
                    return _gzipped(path, unpacked)  # type: ignore[arg-type]
            f.seek(0)
            dtype, shape, start = _header(path, f)
            expected, size = start + prod(shape) * dtype.itemsize, path.stat().st_size
            if size != expected:
                raise _damaged(path, f"{expected:,} bytes, for {dtype.name} {shape}", f"{size:,} bytes")
            if not prod(shape):
                return np.zeros(shape, dtype.newbyteorder("="))
            mapped = np.memmap(path, dtype, "r", start, tuple(shape))
            return np.asarray(mapped).astype(dtype.newbyteorder("="), copy=False)
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile):
            raise _damaged(path, "a whole gzip file", str(error)) from error
        raise cannot_open(path, error) from error
    except (EOFError, zlib.error) as error:
        raise _damaged(path, "a whole gzip file", str(error)) from error


def _gzipped(path: Path, f: BinaryIO) -> NDArray[Any]:
    dtype, shape, start = _header(path, f)
    size = prod(shape) * dtype.itemsize
    if start + size > path.stat().st_size * DEFLATE:
        raise _damaged(path, f"{size:,} bytes unpacked, for {dtype.name} {shape}", "a file far too small for that")
    flat = np.empty(size, np.uint8)
    view, filled = memoryview(flat), 0  # type: ignore[arg-type]
    while filled < size:
        count = f.readinto(view[filled : filled + (1 << 20)])  # type: ignore[attr-defined]
        if not count:
            raise _damaged(path, f"{size:,} bytes unpacked, for {dtype.name} {shape}", f"{filled:,}")
        filled += count
    if f.read(1):
        raise _damaged(path, f"{size:,} bytes unpacked, for {dtype.name} {shape}", "more")
    return flat.view(dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def _header(path: Path, f: BinaryIO) -> tuple[np.dtype[Any], list[int], int]:
    magic = f.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in TYPES or not 1 <= magic[3] <= MAX_DIMENSIONS:
        raise _damaged(path, "two zero bytes, a type, a number of dimensions", magic.hex(" ") or "an empty file")
    sizes = f.read(4 * magic[3])
    if len(sizes) < 4 * magic[3]:
        raise _damaged(path, f"{magic[3]} sizes of 4 bytes", f"{len(sizes)} bytes")
    return np.dtype(TYPES[magic[2]]), list(struct.unpack(f">{magic[3]}I", sizes)), 4 + len(sizes)


def _damaged(path: Path, expected: str, got: str) -> LoadError:
    return LoadError(f"{path} is no IDX file, or a damaged one", expected=expected, got=got)


class MNIST(LabelledImages):
    """Handwritten digits, 60,000 to train on and 10,000 to test on. `torchvision.datasets.MNIST`.

    A sample is an image, uint8 [28, 28, 1], and its class, an int, or what `transform` and `target_transform` make of
    them.

    Attributes:
        data: the images as they lie in the file, a uint8 tensor [n, 28, 28].
        targets: the classes, an int64 tensor [n].

    Args:
        root: the folder of the four IDX files (plain or ``.gz``), or that one's grandparent as torchvision lays them
            out (``MNIST/raw``). None looks in $OX_DATA, then where the system's packages put it.
        download: accepted for torchvision's scripts; nothing is downloaded.

    Raises:
        LoadError: files that are not there, damaged, or of another shape.
    """

    name, folder = "MNIST", "mnist"
    hint = f"root= or ${VARIABLE}: the folder with these files"
    classes = (
        "0 - zero", "1 - one", "2 - two", "3 - three", "4 - four",
        "5 - five", "6 - six", "7 - seven", "8 - eight", "9 - nine",
    )  # fmt: skip

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        train: bool = True,
        transform: Any = None,
        target_transform: Any = None,
        download: bool = False,
    ) -> None:
        super().__init__(transform, target_transform)
        part = "train" if train else "t10k"
        self.train = train
        images, labels = find(
            roots(root, self.folder),
            ("", f"{self.name}/raw", f"{self.name}"),
            (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"),
            self.name,
            self.hint,
        )
        pixels, classes = read_idx(images), read_idx(labels)
        if pixels.dtype != np.uint8 or pixels.ndim != 3:
            raise LoadError(f"{images} holds no images", expected="uint8 [n, h, w]", got=_described(pixels))
        if classes.dtype != np.uint8 or classes.shape != pixels.shape[:1]:
            raise LoadError(
                f"{labels} does not fit {images.name}", expected=f"uint8 [{len(pixels)}]", got=_described(classes)
            )
        self.check_labels(classes, labels)
        self.data: Tensor = make_tensor(pixels)
        self.targets: Tensor = make_tensor(classes.astype(np.int64))

    def __len__(self) -> int:
        return int(self.data.static_shape[0])

    def images(self, indices: Any) -> NDArray[np.uint8]:
        # one alone is copied: by a view others would write to `data`
        chosen = np.array(self.data.array[indices], copy=not np.ndim(indices))
        return chosen[..., np.newaxis]

    def labels(self, indices: Any) -> Any:
        return self.targets.array[indices]


def _described(array: NDArray[Any]) -> str:
    return f"{array.dtype} {list(array.shape)}"


class FashionMNIST(MNIST):
    """Pictures of clothes in ten classes, as large and as many as MNIST's digits (Xiao, Rasul and Vollgraf, 2017).
    `torchvision.datasets.FashionMNIST`; all else as for `MNIST`.

    Without a `root` it is found in $OX_DATA, or where Debian's package ``dataset-fashion-mnist`` puts it.
    """

    name, folder = "FashionMNIST", "fashion-mnist"
    hint = f"apt-get install dataset-fashion-mnist, or root= or ${VARIABLE}: the folder with these files"
    classes = (
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
    )  # fmt: skip


class KMNIST(MNIST):
    """Ten characters of cursive Japanese, as large and as many as MNIST's digits (Clanuwat and others, 2018).
    `torchvision.datasets.KMNIST`; all else as for `MNIST`."""

    name, folder = "KMNIST", "kmnist"
    classes = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")
