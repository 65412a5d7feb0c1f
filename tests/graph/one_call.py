"""Files of one call, and a comparison of ox with ONNX Runtime on them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

import ox

IMPORTS = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("ai.onnx.ml", 3)]


def written(
    path: Path,
    op: str,
    inputs: Sequence[Any],
    outputs: Sequence[tuple[int, int]],
    domain: str,
    *,
    ranks: bool = True,
    **attributes: Any,
) -> Path:
    """A file with one call whose inputs are the graph's, x0, x1, ...; None is an absent one.

    Args:
        outputs: which ones are used, with their element types.
        ranks: whether the file tells the shapes of its inputs.
    """
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    while names and not names[-1]:
        names.pop()
    ends = dict(outputs)
    made = [f"y{i}" if i in ends else "" for i in range(max(ends) + 1)]
    node = helper.make_node(op, names, made, "call", domain=domain, **attributes)
    graph = helper.make_graph(
        [node], "g",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape if ranks else None)
            for name, x in zip(names, inputs, strict=False) if name
        ],
        [helper.make_tensor_value_info(f"y{i}", kind, None) for i, kind in ends.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=IMPORTS, ir_version=8), path)
    return path


def check(
    folder: Path,
    op: str,
    inputs: Sequence[Any],
    used: Sequence[int] = (0,),
    *,
    domain: str = "com.microsoft",
    kinds: Sequence[int] = (TensorProto.FLOAT,),
    valid: Sequence[Any] = (),
    atol: float = 1e-5,
    steps: int = 0,
    trained: bool = True,
    ranks: bool = True,
    **attributes: Any,
) -> None:
    """ox and ONNX Runtime give the same, for the file and for the one that ox saves again; and floats get gradients.

    Args:
        valid: for an output, where it is to be compared; None: everywhere.
        steps: how far numbers of 8 bits may be apart.
        trained: whether gradients pass.
        ranks: whether the file tells the shapes of its inputs.
    """
    kinds = list(kinds) * len(used) if len(kinds) == 1 else list(kinds)
    path = written(
        folder / "m.onnx", op, inputs, list(zip(used, kinds, strict=True)), domain, ranks=ranks, **attributes
    )
    options = ort.SessionOptions()
    options.log_severity_level = 3
    feed = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    providers = ["CPUExecutionProvider"]
    expected = ort.InferenceSession(path, options, providers=providers).run(None, feed)
    net = ox.export.load(path)
    given = {name: ox.from_numpy(np.array(x)) for name, x in feed.items()}
    with ox.no_grad():
        result = net(*given.values())
    example = tuple(feed.values())
    dims = {name: list(x.shape) for name, x in feed.items()}
    ox.export.save(net, folder / "again.onnx", example, dims=dims, golden=None)
    again = ort.InferenceSession(folder / "again.onnx", options, providers=providers).run(None, feed)
    results = result if isinstance(result, tuple) else (result,)
    where = list(valid) or [None] * len(used)
    for want, got, saved, at in zip(expected, results, again, where, strict=True):
        for each in (got.numpy(), saved):
            assert each.shape == want.shape and each.dtype == want.dtype
            a, b = (each, want) if at is None else (each[at], want[at])
            np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=1e-4, atol=steps or atol)
    if trained:
        _check_gradients(net, given, results)


def _check_gradients(net: Any, given: dict[str, Any], results: Sequence[Any]) -> None:
    """Finite, and not all 0."""
    moving = {name: x for name, x in given.items() if x.dtype == ox.float32 and x.numel()}
    if not moving or results[0].dtype != ox.float32:
        return
    for x in moving.values():
        x.requires_grad_()
    first = net(*given.values())
    first = first[0] if isinstance(first, tuple) else first
    weight = ox.from_numpy(np.random.default_rng(1).normal(size=tuple(first.shape)).astype(np.float32))
    gradients = ox.autograd.grad((first * weight).sum(), list(moving.values()), allow_unused=True)
    assert any(g is not None and np.isfinite(g.numpy()).all() and np.abs(g.numpy()).max() > 0 for g in gradients)
