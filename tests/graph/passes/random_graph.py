"""Random graphs full of what passes look for: neutral numbers, movement there and back, expressions said twice."""

from __future__ import annotations

from typing import Any

import numpy as np

import ox
from ox import ops
from ox.graph.ir import Graph
from ox.graph.record.recording import record

SIDES = (2, 3, 4)


def program(seed: int, steps: int = 40) -> Any:
    """A function of two matrices that does `steps` random things; the same for each call."""

    def run(x: Any, y: Any) -> dict[str, Any]:
        random = np.random.default_rng(seed)
        made = [x, y]
        for _ in range(steps):
            a = made[random.integers(len(made))]
            made.append(_step(random, a, made))
        sums = [made[i] for i in random.choice(len(made), 3)]
        return {"last": made[-1], **{f"some_{i}": t for i, t in enumerate(sums)}, "x_again": x}

    return run


def _step(random: np.random.Generator, a: Any, made: list[Any]) -> Any:
    choice = int(random.integers(15))
    number = float(random.choice([1.0, -1.0, 0.0, -0.0, 0.5, 2.0, 0.3, 4.0]))
    c = ox.tensor(number).to(a.dtype)
    same = [t for t in made if t.shape == a.shape and t.dtype == a.dtype]
    b = same[random.integers(len(same))]
    match choice:
        case 0:
            return a * c
        case 1:
            return a / c
        case 2:
            return a + c
        case 3:
            return a - c
        case 4:
            return -a
        case 5:
            return a + -b
        case 6:
            return a - b
        case 7:
            return a.permute(*[int(i) for i in random.permutation(a.ndim)])
        case 8:
            sizes = [int(n) for n in random.permutation([*a.shape, 1])]
            return a.reshape(sizes)
        case 9:
            return a.to(ox.float64).to(ox.float32).to(a.dtype)
        case 10:
            return ops.Expand(a, ox.tensor(list(a.shape))) + b
        case 11:
            return a.unsqueeze(0).squeeze(0).tanh()
        case 12:
            return ops.Identity(a).sin() * a.sin()
        case 13:
            return a.flatten()[: int(a.numel())].reshape(a.shape) * ops.Shape(a)[0].to(a.dtype)
        case _:
            return (a.clamp(-9, 9) ** 2 + b) * c * c


def random_graph(seed: int) -> tuple[Graph, list[Any]]:
    """A recorded program, and inputs for it: with zeros of both signs, infinities and NaN among the numbers."""
    random = np.random.default_rng(seed)
    shape = tuple(int(n) for n in random.choice(SIDES, 2))
    arrays = [random.standard_normal(shape).astype(np.float32) for _ in range(2)]
    graph = record(program(seed), dict(zip("xy", map(ox.from_numpy, arrays), strict=True)))
    arrays[0].flat[:4] = [0.0, -0.0, np.inf, np.nan]
    return graph, [ox.from_numpy(a) for a in arrays]
