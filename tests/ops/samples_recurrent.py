"""Samples of RNN, GRU, LSTM and what their gradients are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sample import Sample, call, normal, single

T, N, SIZE, H = 3, 2, 2, 2
LENS = np.array([3, 1], np.int32)
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def _inputs(
    kind: str, direction: str = "forward", layout: int = 0, lens: Any = None, states: bool = True, draw: Any = normal
) -> list[Any]:
    d, k = 2 if direction == "bidirectional" else 1, GATES[kind]
    x = draw(N, T, SIZE) if layout else draw(T, N, SIZE)
    state = (N, d, H) if layout else (d, N, H)
    given = [draw(*state) if states else None for _ in range(2 if kind == "LSTM" else 1)]
    return [x, draw(d, k * H, SIZE), draw(d, k * H, H), draw(d, 2 * k * H), lens, *given]


def _call(kind: str, *more: Any, direction: str = "forward", layout: int = 0, **options: Any) -> Sample:
    lens, states = options.pop("lens", None), options.pop("states", True)
    inputs = _inputs(kind, direction, layout, lens, states)
    return call(
        *inputs, *more, outputs=3 if kind == "LSTM" else 2, hidden_size=H, direction=direction, layout=layout, **options
    )


def _usual(kind: str) -> list[Sample]:
    return [
        _call(kind),
        _call(kind, direction="bidirectional", states=False),
        _call(kind, direction="bidirectional", lens=LENS),
        _call(kind, direction="reverse", lens=LENS),
        _call(kind, direction="bidirectional", layout=1, lens=LENS),
        _call(kind, clip=0.7),
    ]


def _activations(kind: str) -> list[Sample]:
    """Each of the activations somewhere, on values off their kinks."""
    names = [
        "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu", "Softsign", "Softplus", "Relu",
    ]  # fmt: skip
    alphas = {
        "Affine": 0.5, "LeakyRelu": 0.1, "ThresholdedRelu": 0.3, "ScaledTanh": 0.8, "HardSigmoid": 0.3, "Elu": 0.7,
    }  # fmt: skip
    betas = {"Affine": 0.1, "ScaledTanh": 0.6, "HardSigmoid": 0.4}
    size = {"RNN": 1, "GRU": 2, "LSTM": 3}[kind]
    made = []
    for start in range(0, len(names), size):
        own = [names[(start + i) % len(names)] for i in range(size)]
        made.append(
            _call(
                kind,
                activations=own,
                activation_alpha=[alphas[n] for n in own if n in alphas] or None,
                activation_beta=[betas[n] for n in own if n in betas] or None,
            )
        )
    return made


MORE: dict[str, Callable[[], list[Sample]]] = {
    "RNN": lambda: [*_usual("RNN"), _call("RNN", activations=["Relu"]), *_activations("RNN")],
    "GRU": lambda: [
        *_usual("GRU"),
        *_activations("GRU"),
        _call("GRU", linear_before_reset=1),
        _call("GRU", linear_before_reset=1, direction="bidirectional", lens=LENS),
    ],
    "LSTM": lambda: [
        *_usual("LSTM"),
        *_activations("LSTM"),
        _call("LSTM", normal(1, 3 * H)),
        _call("LSTM", normal(1, 3 * H), input_forget=1),
        _call("LSTM", normal(2, 3 * H), direction="bidirectional", lens=LENS, clip=2.0),
    ],
}


def _gradient(kind: str, **options: Any) -> Sample:
    """A call of the gradient, with a Y that fits its inputs."""
    from ox.core.operator import OPS

    direction, layout, lens = options.get("direction", "forward"), options.get("layout", 0), options.pop("lens", None)
    inputs = _inputs(kind, direction, layout, lens, draw=single)
    made = OPS[kind](*inputs, outputs=3 if kind == "LSTM" else 2, **options)
    cotangents = [single(*y.shape) for y in made]
    peepholes = [None] if kind == "LSTM" else []
    return call(
        *inputs, *peepholes, *cotangents, np.array(made[0].array), outputs=6 if kind == "LSTM" else 5, **options
    )


def _gates(kind: str, lens: Any, outputs: int) -> Sample:
    inputs = _inputs(kind, "bidirectional", lens=lens, draw=single)
    return call(*inputs, outputs=outputs, direction="bidirectional", hidden_size=H)


OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"direction": "reverse", "lens": LENS},
    {"direction": "bidirectional", "lens": LENS},
    {"direction": "bidirectional", "layout": 1},
)
FUNCTIONS: dict[str, Callable[[], list[Sample]]] = {
    "ox.RNNGradient": lambda: [_gradient("RNN", **o) for o in OPTIONS],
    "ox.GRUGradient": lambda: [_gradient("GRU", linear_before_reset=k, **o) for o in OPTIONS for k in (0, 1)],
    "ox.LSTMGradient": lambda: [_gradient("LSTM", **o) for o in OPTIONS],
    "ox.GRUGates": lambda: [_gates("GRU", lens, 3) for lens in (None, LENS)],
    "ox.LSTMGates": lambda: [_gates("LSTM", lens, 5) for lens in (None, LENS)],
}
