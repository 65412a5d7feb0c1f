"""What the sample files share: a sample, and values to make one of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

R = np.random.default_rng(7)


@dataclass(frozen=True)
class Sample:
    inputs: tuple[Any, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    name: str = ""


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return np.asarray(R.standard_normal(shape))


def positive(*shape: int) -> np.ndarray[Any, Any]:
    return np.asarray(R.uniform(0.3, 2.0, shape))


def single(*shape: int) -> np.ndarray[Any, Any]:
    return normal(*shape).astype(np.float32)


def ints(*values: Any) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


def call(*inputs: Any, outputs: int = 1, **attributes: Any) -> Sample:
    return Sample(inputs, attributes, outputs, "a sample of ours")
