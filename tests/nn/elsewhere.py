"""What was recorded at one size, run by ONNX Runtime at another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime

from ox.graph.record.recording import record
from ox.graph.writer.write import to_model
from ox.tensors.tensor import Tensor, make_tensor
from ox.tolerance import compare


def holds_elsewhere(function: Callable[..., Any], first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    """Record a function of one float32 tensor with every size open, and its gradient; compare at both shapes."""
    random = np.random.default_rng(0)

    def step(x: Tensor) -> list[Tensor]:
        x = x.detach().requires_grad_()
        y = function(x)
        outputs = list(y) if isinstance(y, tuple) else [y]
        (outputs[0] * outputs[0]).sum().backward()
        assert x.grad is not None
        return [*(o.detach() for o in outputs), x.grad]

    example = make_tensor(random.uniform(0.1, 1, first).astype(np.float32))
    names = [f"size_{i}" for i in range(len(first))]
    model = to_model(record(step, {"x": example}, dims={"x": names}))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for shape in (first, second):
        x = random.uniform(0.1, 1, shape).astype(np.float32)
        for got, expected in zip(session.run(None, {"x": x}), step(make_tensor(x)), strict=True):
            difference = compare(got, expected.array)
            assert difference.ok, f"{list(shape)}: {difference}"
    return True
