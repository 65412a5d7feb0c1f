"""Random numbers for transforms: from ox's generators, without recording, and cheap where few are wanted."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ox import random
from ox.core.mode import switch_mode
from ox.core.operator import make_tensor
from ox.data.loading.worker import get_worker_info
from ox.dtypes import float32
from ox.ops.random.philox import KEY_STEPS, LOW, MULTIPLIERS, ROUNDS, TO_UNIT

FEW = 64  # numbers; for more, NumPy's calls cost less than Python's arithmetic


def draw(count: int, generator: random.Generator | None) -> list[float]:
    """`count` numbers in [0, 1), the same ones that `draw_many` would give, and the stream goes on as there."""
    if not count:
        return []
    generator = _source(generator)
    if count > FEW or random.is_torch_compatible():
        return draw_many((count,), generator).tolist()
    blocks = -(-count // 4)
    key, start = int(generator.key_of("transform").array), int(generator.counter.array)
    words = [_philox(key, (start + i) % (1 << 64)) for i in range(blocks)]
    generator.counter = make_tensor(np.asarray((start + blocks) % (1 << 64), np.uint64))
    return [(words[i % blocks][i // blocks] >> 8) * TO_UNIT for i in range(count)]


def draw_many(shape: tuple[int, ...], generator: random.Generator | None) -> NDArray[Any]:
    """The same in an array, float64."""
    with switch_mode(recording=None, grad=False):
        return random.uniform(shape, float32, _source(generator), kind="transform").array.astype(np.float64)


def _source(generator: random.Generator | None) -> random.Generator:
    """In a loader's worker always the default generator, which the loader seeds for each batch: a copy of another one
    in each worker would give all of them the same numbers, and again in each epoch."""
    return random.default_generator if generator is None or get_worker_info() is not None else generator


def _philox(key: int, place: int) -> tuple[int, int, int, int]:
    """Philox 4x32-10 in Python's integers; see `ox.ops.random.philox`."""
    a, b, c, d = place & LOW, place >> 32, 0, 0
    k0, k1 = key & LOW, key >> 32
    for _ in range(ROUNDS):
        p0, p1 = a * MULTIPLIERS[0], c * MULTIPLIERS[1]
        a, b, c, d = (p1 >> 32) ^ b ^ k0, p1 & LOW, (p0 >> 32) ^ d ^ k1, p0 & LOW
        k0, k1 = (k0 + KEY_STEPS[0]) & LOW, (k1 + KEY_STEPS[1]) & LOW
    return a, b, c, d


def whole(number: float, count: int) -> int:
    """An integer in [0, count) of a number in [0, 1)."""
    return int(number * count)


def between(number: float, low: float, high: float) -> float:
    """A number in [low, high) of one in [0, 1)."""
    return low + number * (high - low)


def stream(numbers: list[float]) -> np.random.RandomState:
    """NumPy's stream, which is the same in every version, seeded by two numbers: for an unknown number of draws."""
    return np.random.RandomState([int(number / TO_UNIT) for number in numbers[:2]])
