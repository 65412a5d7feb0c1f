"""Which layers cost most when they are quantized."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import onnx

from ox.export.quantization.calibration import Feed
from ox.export.quantization.sessions import open_session, run

Apply = Callable[[Collection[str]], onnx.ModelProto]  # names of nodes that stay in float -> the quantized model


def by_sensitivity(
    layers: Sequence[str], nodes: Collection[str], apply: Apply, float_session: Any, feeds: Sequence[Feed]
) -> list[str]:
    """The layers, the most sensitive first: each is quantized alone, and the error that it makes in the outputs is
    measured, as a share of their size."""
    wanted = [run(float_session, feed) for feed in feeds]
    errors: dict[str, float] = {}
    for layer in layers:
        session = open_session(apply([node for node in nodes if node != layer]), f"the model with {layer} quantized")
        errors[layer] = sum(_error(run(session, feed), y) for feed, y in zip(feeds, wanted, strict=True))
    return sorted(layers, key=lambda layer: -errors[layer])


def _error(got: Feed, wanted: Feed) -> float:
    share = 0.0
    for name, y in wanted.items():
        if y.dtype.kind == "f":
            difference = got[name].astype(np.float64) - y
            share += float(np.square(difference).sum() / max(np.square(y.astype(np.float64)).sum(), 1e-30))
    return share
