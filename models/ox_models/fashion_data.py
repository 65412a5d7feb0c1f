"""Fashion-MNIST as the recipes use it: 70,000 photographs of clothes, 28×28 in grey, of ten kinds.

Source: H. Xiao, K. Rasul, R. Vollgraf, Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning
Algorithms, 2017, https://arxiv.org/abs/1708.07747, MIT licence. On Debian: `apt install dataset-fashion-mnist`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ox.data import TensorDataset
from ox.data.datasets import FashionMNIST

LABELS = ["T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"]
VALIDATION = 5_000


def split(padding: int = 0) -> tuple[TensorDataset, TensorDataset, TensorDataset]:
    """55,000 images for training, 5,000 for validation (they choose the best epoch), and the 10,000 test images. No
    decision depends on the test images.

    Args:
        padding: rows and columns of background on each side; 2 makes 32×32.

    Returns:
        Three datasets of an image, float32 [1, 28, 28] from 0 (background) to 1, and its kind, int64.

    Raises:
        LoadError: Fashion-MNIST is not on this machine; the error lists the searched folders and how to get it.
    """
    images, kinds = arrays(train=True, padding=padding)
    # The file is in random order, so its last 5,000 images are a random sample.
    return (
        TensorDataset(images[:-VALIDATION], kinds[:-VALIDATION]),
        TensorDataset(images[-VALIDATION:], kinds[-VALIDATION:]),
        TensorDataset(*arrays(train=False, padding=padding)),
    )


def arrays(train: bool, padding: int = 0) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """All 60,000 training images, or the 10,000 test images: float32 [n, 1, 28, 28], and their kinds, int64 [n]."""
    known = FashionMNIST(train=train)
    around = ((0, 0), (padding, padding), (padding, padding))
    grey = np.pad(known.data.numpy(), around)[:, np.newaxis].astype(np.float32)
    return grey / np.float32(255), known.targets.numpy()
