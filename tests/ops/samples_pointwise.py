"""Samples of the operators that work element by element."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sample import Sample, call, ints, normal, positive, single

_gates = ("Elu", "Selu", "Celu", "Softplus", "Softsign", "HardSigmoid", "HardSwish", "Mish", "Swish", "LeakyRelu")
_half = 0.4 * np.tanh(normal(2, 3))

MORE: dict[str, Callable[[], list[Sample]]] = {
    **{name: lambda: [call(_half), call(np.array(0.3))] for name in ("Asin", "Acos", "Atanh", "Tan")},
    **{name: lambda: [call(normal(2, 3)), call(normal())] for name in ("Atan", "Sinh", "Cosh", "Asinh", "Sin", "Cos")},
    "Acosh": lambda: [call(1.2 + positive(2, 3))],
    **{name: lambda: [call(normal(2, 3) * 2), call(normal())] for name in ("Floor", "Ceil", "Round")},
    **{name: lambda: [call(normal(3, 4) * 2), call(normal()), call(normal(0, 2))] for name in _gates},
    "LeakyRelu": lambda: [call(normal(3, 4), alpha=a) for a in (0.3, -0.5, 2.0)],
    "Elu": lambda: [call(normal(3, 4), alpha=a) for a in (0.3, 2.0)],
    "Celu": lambda: [call(normal(3, 4), alpha=a) for a in (0.3, 2.0)],
    "Selu": lambda: [call(normal(3, 4)), call(normal(3, 4), alpha=2.0, gamma=0.5)],
    "Swish": lambda: [call(normal(3, 4), alpha=a) for a in (0.5, 1.702)],
    "SwiGLU": lambda: [call(normal(3, 4), normal(3, 4), alpha=0.5)],
    "ThresholdedRelu": lambda: [call(normal(3, 4), alpha=a) for a in (0.3, -0.5)],
    "Shrink": lambda: [call(normal(3, 4)), call(normal(3, 4), lambd=0.3, bias=0.2), call(normal(3, 4), lambd=0.0)],
    "PRelu": lambda: [call(normal(2, 3, 4), positive(*s)) for s in ((), (4,), (3, 1), (2, 3, 4), (1, 1, 1))],
    "Hardmax": lambda: [call(normal(2, 3, 4), axis=a) for a in (0, 1, -1)],
    **{
        name: lambda: [call(normal(2, 3), normal(3), normal(2, 1), normal()), call(normal(2))]
        for name in ("Sum", "Mean")
    },
    "Mod": lambda: [call(3 * normal(*a), positive(*b), fmod=1) for a, b in (((2, 3), (3,)), ((3,), (2, 3)), ((), ()))],
    "CastLike": lambda: [call(normal(2, 3), normal(1))],
}

FUNCTIONS: dict[str, Callable[[], list[Sample]]] = {
    "ox.BelowZero": lambda: [call(single(3, 4), single(3, 4), factor=0.5), call(single(5), single(5), rate=2.0)],
    "ox.HardSwishGradient": lambda: [call(single(3, 4), 3 * single(3, 4))],
    "ox.MishGradient": lambda: [call(single(3, 4), 3 * single(3, 4))],
    "ox.SwishGradient": lambda: [call(single(3, 4), single(3, 4)), call(single(2), single(2), alpha=1.702)],
    "ox.Silu": lambda: [call(3 * single(3, 4)), call(single())],
    "ox.Expm1": lambda: [call(_small), call(3 * single(3, 4))],
    "ox.Log1p": lambda: [call(_small), call(_edges)],
    "ox.SignBit": lambda: [call(_edges)],
    "ox.Atan2": lambda: [call(single(3, 1), single(4)), call(_edges[:, None], _edges)],
    "ox.Hypot": lambda: [call(1e30 * single(3, 1), 1e30 * single(4)), call(_edges[:, None], _edges)],
    "ox.Erfc": lambda: [call(3 * single(3, 4)), call(_edges)],
    "ox.Erfcx": lambda: [call(3 * single(3, 4)), call(_edges)],
    "ox.Erfinv": lambda: [call(0.9 * np.tanh(2 * single(3, 4))), call(np.append(_edges, _steep))],
    "ox.Ndtri": lambda: [call(1 / (1 + np.exp(-9 * single(3, 4)))), call(_edges)],
    **{name: lambda: [call(5 * single(3, 4))] for name in ("ox.Lgamma", "ox.Digamma")},
    "ox.Polygamma": lambda: [call(np.exp(single(3, 4)), n=n) for n in (1, 2, 3)],
    "ox.Gcd": lambda: [call(ints(12, -18, 0, 0, 832040), ints(18, 12, 5, 0, 514229)), call(ints(12), ints([18], [7]))],
}

_small = np.array([0, -0.0, 1e-20, -1e-7, 1e-3, 0.49, 0.51, -0.6, 0.99, 1.01], np.float32)
_edges = np.array([0.0, -0.0, 1.0, -1.0, 2.5, np.inf, -np.inf], np.float32)
_steep = np.array([0.97, -0.999, 0.99999], np.float32)  # where erfinv grows too fast for finite differences
