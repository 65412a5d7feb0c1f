"""How much a graph amplifies the rounding of its values: a logarithm near 0 makes a large difference of a small one.

The graph is replayed with every floating input of every operator off by some units in the last place, at random. By how
much an element of an output moves is what another order of the same sums may change in it (Monte Carlo arithmetic;
Parker, "Monte Carlo Arithmetic: exploiting randomness in floating-point arithmetic", 1997).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from ox import tolerance
from ox.autograd.grad_mode import no_grad
from ox.core.operator import make_tensor
from ox.graph.ir import Array, Graph, Node
from ox.graph.replay import Run, call, replay
from ox.tensors.tensor import Tensor

RUNS = 8
UNITS = 2  # in the last place, by which an input of an operator may be off
TRANSFORMS = {"DFT": 64, "STFT": 64}  # units of the largest value, by which fast algorithms are off in all


def amplified(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """How far each element of the floating outputs moves, float64, by name. 0 where a shape changes or NaN appears."""
    exact = _outputs(graph, inputs, call)
    moved = {name: np.zeros(y.shape) for name, y in exact.items() if y.dtype in tolerance.TABLE}
    for seed in range(RUNS):
        off = _outputs(graph, inputs, partial(_off, np.random.default_rng(seed)))
        for name, most in moved.items():
            if off[name].shape == most.shape:
                with np.errstate(invalid="ignore"):
                    delta = np.abs(off[name].astype(np.float64) - exact[name].astype(np.float64))
                np.maximum(most, np.where(np.isfinite(delta), delta, 0.0), out=most)
    return moved


def _outputs(graph: Graph, inputs: Mapping[str, Array], run: Run) -> dict[str, Array]:
    with no_grad(), np.errstate(all="ignore"):
        results = replay(graph, [make_tensor(inputs[v.name]) for v in graph.inputs], run=run)
    return {v.name: x.array for v, x in zip(graph.outputs, results, strict=True)}


def _off(random: np.random.Generator, node: Node, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    """One node with inputs that are rounded otherwise."""
    results = call(node, [_rounded(x, random) for x in inputs])
    units = TRANSFORMS.get(node.key)
    return results if units is None else tuple(_blurred(x, random, units) for x in results)


def _rounded(x: Tensor | None, random: np.random.Generator) -> Tensor | None:
    """A tensor with elements that are off by some units in their own last place."""
    if not isinstance(x, Tensor) or x.array.dtype not in tolerance.TABLE or not x.array.size:
        return x
    wide = x.array.astype(np.float64)
    off = random.uniform(-UNITS, UNITS, x.array.shape) * _eps(x)
    return _tensor((wide * (1 + off)).astype(x.array.dtype))


def _blurred(x: Tensor, random: np.random.Generator, units: int) -> Tensor:
    """A tensor with elements that are off by units in the last place of the largest."""
    off = random.uniform(-units, units, x.array.shape) * _eps(x)
    largest = float(np.abs(x.array).max(initial=0))
    return _tensor((x.array.astype(np.float64) + off * largest).astype(x.array.dtype))


def _eps(x: Tensor) -> float:
    finfo: Any = ml_dtypes.finfo
    return float(finfo(x.array.dtype).eps)


def _tensor(array: Array) -> Tensor:
    made: Tensor = make_tensor(array)
    return made
