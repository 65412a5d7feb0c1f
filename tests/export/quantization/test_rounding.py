"""How far the outputs of a quantized graph may be from those of another runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rows import rows

import ox
from ox import ops
from ox.export.quantization.rounding import output_step
from ox.graph.record.recording import record

SCALE, ZERO = ox.tensor(0.25), ox.tensor(0, dtype=ox.int8)
# what makes the output of the rounded values, and the step that is left
ENDS: dict[str, tuple[Callable[[Any], Any], float]] = {
    "themselves": (lambda y: y, 0.25),
    "blocks": (lambda y: ops.DepthToSpace(y, blocksize=2), 0.25),
    "copies, padded": (lambda y: ops.Tile(ops.Pad(y, ox.tensor([0] * 7 + [1])), ox.tensor([1, 1, 2, 1])), 0.25),
    "joined": (lambda y: ops.Concat(ox.ones(1, 4, 2, 2), y, axis=1), 0.25),
    "an activation": (lambda y: ops.Sigmoid(y), 0.25),
    "one that spreads": (lambda y: ops.Exp(y), 0.0),
}


@rows("end", ENDS)
def test_the_step_of_what_moves_or_contracts(end: str) -> None:
    function, step = ENDS[end]
    rounded: Callable[[Any], Any] = lambda x: ops.DequantizeLinear(ops.QuantizeLinear(x, SCALE, ZERO), SCALE, ZERO)  # noqa: E731
    assert output_step(record(lambda x: function(rounded(x)), {"x": ox.ones(1, 4, 2, 2)})) == step
