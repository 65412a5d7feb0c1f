"""Resizing beside `torch.nn.functional.interpolate`, which torchvision resizes tensors by."""

from __future__ import annotations

import numpy as np
import pytest
from sides import torch

import ox
from ox.data.transforms import functional as F

IMAGE = np.random.default_rng(0).random((3, 21, 34), dtype=np.float32)


@pytest.mark.parametrize("size", [(10, 12), (21, 50), (64, 8), (1, 1), (37, 34)])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [True, False])
def test_resize(mode: str, size: tuple[int, int], antialias: bool) -> None:
    theirs = torch.nn.functional.interpolate(
        torch.from_numpy(IMAGE)[None], size, mode=mode, antialias=antialias, align_corners=False
    )
    ours = F.resize(ox.from_numpy(IMAGE), size, mode, antialias=antialias)
    assert np.abs(ours.numpy() - theirs[0].numpy()).max() < 2e-5


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_resize_to_the_nearest(mode: str) -> None:
    for size in ((10, 12), (64, 8), (37, 70)):
        theirs = torch.nn.functional.interpolate(torch.from_numpy(IMAGE)[None], size, mode=mode)
        assert F.resize(ox.from_numpy(IMAGE), size, mode).tolist() == theirs[0].tolist()
