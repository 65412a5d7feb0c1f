"""Convolutions of random sizes, windows, steps, pads and groups: the kernels give what NumPy gives in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from rows import rows

from ox import devices
from ox.core.operator import OPS
from ox.kernels import Library

CALLS = 25
BOUND = 2e-5  # of the error, as a part of the largest number of the result


class Draw:
    """One random convolution: images, weights and attributes; None where the window is larger than the images."""

    def __init__(self, random: np.random.Generator) -> None:
        def pick(*numbers: int) -> list[int]:
            return [int(number) for number in random.choice(numbers, rank)]

        rank = int(random.integers(1, 3))
        plain = random.random() < 0.5
        self.group = int(random.choice([1, 1, 1, 2, 3, 7]))
        inputs, outputs = (int(n) for n in random.integers(1, 40 if self.group < 7 else 3, 2))
        self.window = [3] * rank if random.random() < 0.4 else pick(1, 2, 3, 5, 7)
        self.strides = [1] * rank if plain else pick(1, 2, 3)
        self.dilations = [1] * rank if plain else pick(1, 2)
        reach = [d * (k - 1) for d, k in zip(self.dilations, self.window, strict=True)]
        self.pads = [int(random.integers(0, r + 2)) for r in reach * 2]
        sizes = [int(n) for n in random.integers(1, 36, rank)]
        ends = self.pads[rank:]
        spare = [n + b + e - r - 1 for n, b, e, r in zip(sizes, self.pads[:rank], ends, reach, strict=True)]
        self.fits = min(spare) >= 0
        self.places = [s // step + 1 for s, step in zip(spare, self.strides, strict=True)]
        self.missed = [s % step for s, step in zip(spare, self.strides, strict=True)]
        shape = (int(random.integers(1, 5)), inputs * self.group, *sizes)
        self.x = random.standard_normal(shape).astype(np.float32)
        self.w = random.standard_normal((outputs * self.group, inputs, *self.window)).astype(np.float32)
        self.g = random.standard_normal((shape[0], len(self.w), *(self.places if self.fits else []))).astype(np.float32)

    @property
    def attributes(self) -> dict[str, Any]:
        return {"group": self.group, "strides": self.strides, "dilations": self.dilations, "pads": self.pads}

    def results(self, dtype: Any) -> list[Any]:
        """The output, and the gradients of images and weights."""
        x, w, g = (a.astype(dtype) for a in (self.x, self.w, self.g))
        return [
            OPS["Conv"](x, w, **self.attributes).array,
            OPS["ConvTranspose"](g, w, output_padding=self.missed, **self.attributes).array,
            OPS["ox.ConvWeights"](x, g, kernel_shape=self.window, **self.attributes).array,
        ]


@rows("seed", range(4))
def test_random_convolutions(seed: int, library: Library) -> None:
    random = np.random.default_rng(seed)
    drawn = [draw for draw in (Draw(random) for _ in range(2 * CALLS)) if draw.fits][:CALLS]
    assert len(drawn) == CALLS
    for draw in drawn:
        got = draw.results(np.float32)
        with devices.forced("numpy"):
            expected = draw.results(np.float64)
        for name, a, b in zip(("output", "images", "weights"), got, expected, strict=True):
            assert a.shape == b.shape
            error = np.abs(a - b).max() / np.abs(b).max()
            assert error <= BOUND, f"{name} of {draw.x.shape}, {draw.w.shape}, {draw.attributes}: {error}"
