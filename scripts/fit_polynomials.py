"""Fit the polynomials of `ox/kernels/source/float_math.h` and print them: python scripts/fit_polynomials.py

Each is a near-minimax fit (Lawson's iteratively reweighted least squares) of the relative error of the whole function,
in float64 on Chebyshev nodes; the coefficients are then rounded to float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

NODES = 4000
ROUNDS = 60


def fit(
    target: Callable[[float], float],
    weight: Callable[[float], float],
    low: float,
    high: float,
    degree: int,
    argument: Callable[[float], float] = lambda x: x,
) -> tuple[list[float], float]:
    """The polynomial in `argument(x)` that is nearest to `target` on (low, high), its error weighted by `weight`."""
    nodes = (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * (np.arange(NODES) + 0.5) / NODES)
    nodes = nodes[nodes != 0]
    t = np.array([argument(x) for x in nodes])
    y = np.array([target(x) for x in nodes])
    w = np.array([weight(x) for x in nodes])
    powers = np.stack([t**k for k in range(degree + 1)], axis=1)
    lawson = np.ones(len(nodes))
    for _ in range(ROUNDS):
        scale = np.sqrt(lawson) * np.abs(w)
        coefficients = np.linalg.lstsq(powers * scale[:, None], y * scale, rcond=None)[0]
        error = np.abs((powers @ coefficients - y) * w)
        lawson = lawson * error
        lawson /= lawson.sum()
    return [float(np.float32(c)) for c in coefficients], float(error.max())


def scaled_tail(a: float) -> float:
    """The normal distribution function at -a, times exp(a² / 2)."""
    u = a / math.sqrt(2)
    if u < 5:
        return 0.5 * math.erfc(u) * math.exp(u * u)
    rest = 0.0
    for k in range(60, 0, -1):  # Laplace's continued fraction
        rest = k / 2 / (u + rest)
    return 0.5 / math.sqrt(math.pi) / (u + rest)


def main() -> None:
    half = math.log(2) / 2
    fits = {
        # e^r = 1 + r + r² P(r)
        "exp": fit(lambda r: (math.expm1(r) - r) / r**2, lambda r: r**2 / math.exp(r), -half, half, 4),
        # tanh(x) = x + x³ P(x²)
        "tanh": fit(
            lambda x: (math.tanh(x) - x) / x**3, lambda x: x**3 / math.tanh(x), 1e-3, 0.625, 4, lambda x: x * x
        ),
        # erf(x) = x + x P(x²) near 0
        "erf_small": fit(lambda x: math.erf(x) / x - 1, lambda x: x / math.erf(x), 1e-3, 0.925, 5, lambda x: x * x),
        # erf(x) = 1 - exp(x P(x)) above
        "erf_large": fit(lambda x: math.log(math.erfc(x)) / x, lambda x: x * math.erfc(x) / math.erf(x), 0.915, 4.0, 7),
        # normal(-a) = exp(-a² / 2) t P(t), t = 1 / (1 + 0.27 a)
        "normal_tail": fit(
            lambda a: scaled_tail(a) * (1 + 0.27 * a),
            lambda a: 1 / (scaled_tail(a) * (1 + 0.27 * a)),
            0.0,
            14.0,
            8,
            lambda a: 1 / (1 + 0.27 * a),
        ),
        # log(1 + f) = f - f²/2 + f³ P(f)
        "log": fit(
            lambda f: (math.log1p(f) - f + f * f / 2) / f**3,
            lambda f: f**3 / math.log1p(f),
            math.sqrt(0.5) - 1,
            math.sqrt(2) - 1,
            7,
        ),
    }
    for name, (coefficients, error) in fits.items():
        print(f"{name}: relative error {error:.1e}")
        print("  " + ", ".join(f"{c:.9g}f" for c in coefficients))


if __name__ == "__main__":
    main()
