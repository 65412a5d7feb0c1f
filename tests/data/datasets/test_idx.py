"""IDX files, and MNIST and Fashion-MNIST made of them."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import rows

from ox.data import DataLoader, default_collate
from ox.data.datasets import KMNIST, MNIST, FashionMNIST, read_idx
from ox.errors import BoundsError, LoadError

CODES = {"uint8": 8, "int8": 9, "int16": 11, "int32": 12, "float32": 13, "float64": 14}


def idx(array: np.ndarray[Any, Any]) -> bytes:
    header = bytes([0, 0, CODES[array.dtype.name], array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def mnist(folder: Path, count: int = 20, packed: bool = True, labels: Any = None) -> tuple[Any, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    images = np.random.default_rng(0).integers(0, 256, (count, 28, 28), np.uint8)
    labels = np.arange(count, dtype=np.uint8) % 10 if labels is None else labels
    for part in ("train", "t10k"):
        for name, array in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
            if packed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
            else:
                (folder / name).write_bytes(idx(array))
    return images, labels


@rows("name", CODES)
@rows("packed", [True, False])
def test_all_types_come_back(tmp_path: Path, name: str, packed: bool) -> None:
    array = (np.arange(24).reshape(2, 3, 4) * 5 - 7).astype(name)
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(idx(array)) if packed else idx(array))
    read = read_idx(path)
    assert read.dtype == array.dtype and read.dtype.isnative and (read == array).all()


def test_a_plain_file_is_mapped(tmp_path: Path) -> None:
    """A sparse file of 64 GiB opens at once: nothing of it is read."""
    path = tmp_path / "x"
    path.write_bytes(bytes([0, 0, 8, 3]) + struct.pack(">3I", 1 << 16, 1 << 10, 1 << 10))
    with open(path, "rb+") as f:
        f.truncate(16 + (1 << 36))
        f.seek(16 + (1 << 35))
        f.write(b"\7")
    read = read_idx(path)
    assert read.shape == (1 << 16, 1 << 10, 1 << 10) and read[1 << 15, 0, 0] == 7 and not read.flags.writeable
    path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 0]))
    assert read_idx(path).shape == (0,)


DAMAGED = {
    "empty": (b"", "an empty file"),
    "a picture": (b"\x89PNG\r\n\x1a\n", "89 50 4e 47"),
    "a type that is none": (bytes([0, 0, 10, 1, 0, 0, 0, 1, 5]), "00 00 0a 01"),
    "no dimensions": (bytes([0, 0, 8, 0, 5]), "00 00 08 00"),
    "too many dimensions": (bytes([0, 0, 8, 255]) + b"\0\0\0\1" * 255, "00 00 08 ff"),
    "a cut header": (bytes([0, 0, 8, 2, 0, 0]), "2 bytes"),
    "a cut body": (idx(np.zeros((3, 5), np.uint8))[:-1], "26 bytes"),
    "too long": (idx(np.zeros((3, 5), np.uint8)) + b"x", "28 bytes"),
    "sizes beyond all files": (bytes([0, 0, 14, 3]) + b"\xff" * 12 + b"1234", "20 bytes"),
}


@rows("what", DAMAGED)
def test_damaged_files_are_refused(tmp_path: Path, what: str) -> None:
    content, said = DAMAGED[what]
    path = tmp_path / "some-file"
    path.write_bytes(content)
    with pytest.raises(LoadError, match="some-file is no IDX file") as error:
        read_idx(path)
    assert said in str(error.value)
    path.write_bytes(gzip.compress(content))
    with pytest.raises(LoadError, match="some-file is no IDX file"):
        read_idx(path)


def test_damaged_gzip(tmp_path: Path) -> None:
    whole = gzip.compress(idx(np.arange(200, dtype=np.uint8)))
    path = tmp_path / "x.gz"
    for content in (whole[:-20], whole[:30], whole[:12] + b"\xff\xff\xff" + whole[15:], whole[:-8] + b"\0" * 8):
        path.write_bytes(content)
        with pytest.raises(LoadError, match="no IDX file"):
            read_idx(path)
    with pytest.raises(LoadError, match="cannot be opened"):
        read_idx(tmp_path / "none")


def test_a_header_that_promises_terabytes_allocates_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(bytes([0, 0, 8, 2]) + struct.pack(">2I", 1 << 20, 1 << 20)))
    monkeypatch.setattr(np, "empty", None)
    with pytest.raises(LoadError, match="far too small"):
        read_idx(path)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("below", ["", "MNIST/raw"])
def test_mnist(tmp_path: Path, packed: bool, below: str) -> None:
    images, labels = mnist(tmp_path / below, packed=packed)
    data = MNIST(tmp_path, train=False, download=True)
    assert len(data) == 20 and data.data.shape == (20, 28, 28) and data.targets.tolist() == labels.tolist()
    image, label = data[13]
    assert image.shape == (28, 28, 1) and (image[..., 0] == images[13]).all() and label == 3 and type(label) is int
    assert data.class_to_idx["7 - seven"] == 7 and (data[-1][0][..., 0] == images[-1]).all()
    with pytest.raises(BoundsError, match="no sample 20"):
        data[20]
    image[:] = 0
    assert (data[13][0][..., 0] == images[13]).all()  # a sample is one's own
    seen = MNIST(tmp_path, transform=lambda image: image.max(), target_transform=lambda label: -label)
    assert seen[4] == (images[4].max(), -4)


def test_batches_are_what_single_samples_give(tmp_path: Path) -> None:
    mnist(tmp_path)
    for transforms in ({}, {"transform": lambda x: x[:2, :3], "target_transform": lambda y: y + 0.5}):
        data = MNIST(tmp_path, **transforms)
        at_once = next(iter(DataLoader(data, batch_size=7)))
        one_by_one = next(iter(DataLoader(data, batch_size=7, collate_fn=default_collate)))
        for a, b in zip(at_once, one_by_one, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape and a.tolist() == b.tolist()


def test_files_that_do_not_fit_each_other(tmp_path: Path) -> None:
    mnist(tmp_path, labels=np.full(20, 10, np.uint8))
    with pytest.raises(LoadError, match="no class of MNIST") as error:
        MNIST(tmp_path)
    assert "10 for sample 0" in str(error.value)
    mnist(tmp_path, labels=np.zeros(19, np.uint8))
    with pytest.raises(LoadError, match="does not fit"):
        MNIST(tmp_path)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(np.zeros((4, 3), np.uint8))))
    with pytest.raises(LoadError, match="holds no images"):
        MNIST(tmp_path)


def test_datasets_of_the_same_form(tmp_path: Path) -> None:
    mnist(tmp_path / "KMNIST" / "raw")
    assert len(KMNIST(tmp_path)) == 20 and len(KMNIST.classes) == 10


def test_files_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "share"))
    monkeypatch.delenv("OX_DATA", raising=False)
    with pytest.raises(LoadError, match="FashionMNIST are not there") as error:
        FashionMNIST()
    text = str(error.value)
    assert str(tmp_path / "share" / "datasets" / "fashion-mnist") in text and "train-images-idx3-ubyte" in text
    assert "apt-get install dataset-fashion-mnist" in text and "OX_DATA" in text
    mnist(tmp_path / "share" / "datasets" / "fashion-mnist")
    assert len(FashionMNIST()) == 20
    monkeypatch.setenv("OX_DATA", str(tmp_path / "own"))
    mnist(tmp_path / "own", count=10)
    assert len(FashionMNIST()) == 10  # one's own goes first
    with pytest.raises(LoadError, match="not there"):
        FashionMNIST(tmp_path / "elsewhere")  # and a root is the only place


def test_the_real_fashion_mnist() -> None:
    try:
        train, test = FashionMNIST(), FashionMNIST(train=False)
    except LoadError as error:
        pytest.skip(error.one_line())
    assert (len(train), len(test)) == (60_000, 10_000)
    assert np.bincount(train.targets.numpy()).tolist() == [6_000] * 10
    assert train.classes[train[0][1]] == "Ankle boot" and abs(float(train.data.numpy().mean()) / 255 - 0.2860) < 1e-4
