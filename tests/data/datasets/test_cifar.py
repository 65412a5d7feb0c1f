"""CIFAR from its binary files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ox.data import DataLoader
from ox.data.datasets import CIFAR10, CIFAR100
from ox.errors import BoundsError, LoadError


def cifar10(folder: Path, each: int = 4) -> tuple[np.ndarray[Any, Any], list[int]]:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (6 * each, 3, 32, 32), np.uint8), rng.integers(0, 10, 6 * each, np.uint8)
    for i, name in enumerate([*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"]):
        part = slice(i * each, (i + 1) * each)
        records = np.concatenate([labels[part, None], images[part].reshape(each, -1)], 1)
        (folder / name).write_bytes(records.tobytes())
    return images, labels.tolist()


@pytest.mark.parametrize("below", ["", "cifar-10-batches-bin"])
def test_cifar10(tmp_path: Path, below: str, monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = cifar10(tmp_path / below)
    train, test = CIFAR10(tmp_path, download=True), CIFAR10(tmp_path, train=False)
    assert (len(train), len(test)) == (20, 4) and train.targets == labels[:20] and test.targets == labels[20:]
    image, label = train[9]
    assert image.shape == (32, 32, 3) and (image == images[9].transpose(1, 2, 0)).all() and label == labels[9]
    assert (train.data == images[:20].transpose(0, 2, 3, 1)).all() and (train[-1][0] == train[19][0]).all()
    x, y = next(iter(DataLoader(train, batch_sampler=[[13, 2, 19, 2]])))
    assert (x.numpy() == train.data[[13, 2, 19, 2]]).all() and y.tolist() == [labels[i] for i in (13, 2, 19, 2)]
    assert train.class_to_idx["truck"] == 9
    with pytest.raises(BoundsError, match="no sample 20"):
        train[20]
    monkeypatch.setenv("OX_DATA", str(tmp_path))
    assert len(CIFAR10()) == 20


def test_cifar100(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    records = rng.integers(0, 256, (5, 3074), np.uint8)
    records[:, 0], records[:, 1] = 3, [0, 99, 5, 6, 7]
    for name in ("train.bin", "test.bin"):
        (tmp_path / name).write_bytes(records.tobytes())
    data = CIFAR100(tmp_path)
    assert data.targets == [0, 99, 5, 6, 7] and data.classes[99] == "99"
    assert (data[1][0] == records[1, 2:].reshape(3, 32, 32).transpose(1, 2, 0)).all()
    (tmp_path / "fine_label_names.txt").write_text("\n".join(f"thing{i}" for i in range(100)))
    assert CIFAR100(tmp_path).classes[99] == "thing99" and CIFAR100.classes[99] == "99"
    records[3, 1] = 100
    (tmp_path / "train.bin").write_bytes(records.tobytes())
    with pytest.raises(LoadError, match="no class of CIFAR100") as error:
        CIFAR100(tmp_path)
    assert "100 for sample 3" in str(error.value)


@pytest.mark.parametrize("size", [0, 3072, 3073 * 4 - 1])
def test_files_of_a_wrong_size(tmp_path: Path, size: int) -> None:
    cifar10(tmp_path)
    (tmp_path / "data_batch_3.bin").write_bytes(b"\0" * size)
    with pytest.raises(LoadError, match=r"data_batch_3\.bin is no file of CIFAR10"):
        CIFAR10(tmp_path)


def test_the_pickled_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="are not there") as error:
        CIFAR10(tmp_path)
    assert str(tmp_path) in str(error.value) and "cifar-10-binary.tar.gz" in str(error.value)
    (tmp_path / "cifar-10-batches-py").mkdir()
    with pytest.raises(LoadError, match="pickled version of CIFAR10") as error:
        CIFAR10(tmp_path)
    assert "cifar-10-binary.tar.gz" in str(error.value)
    cifar10(tmp_path / "cifar-10-batches-bin")
    assert len(CIFAR10(tmp_path)) == 20  # both are there
    (tmp_path / "cifar-100-python").mkdir()
    with pytest.raises(LoadError, match="pickled version of CIFAR100"):
        CIFAR100(tmp_path)
