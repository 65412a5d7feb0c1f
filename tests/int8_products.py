"""Whether this processor adds int8 products exactly: without VNNI, ONNX Runtime's x86 kernels saturate sums of two."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper


@cache
def saturate() -> bool:
    """Whether 255 · 127, added up 64 times by ONNX Runtime's MatMulInteger, is too small."""
    ends = [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in (
        ("a", TensorProto.UINT8, [4, 64]), ("b", TensorProto.INT8, [64, 16]), ("y", TensorProto.INT32, [4, 16]),
    )]  # fmt: skip
    graph = helper.make_graph([helper.make_node("MatMulInteger", ["a", "b"], ["y"])], "product", ends[:2], ends[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feed = {"a": np.full((4, 64), 255, np.uint8), "b": np.full((64, 16), 127, np.int8)}
    (y,) = session.run(None, feed)
    return bool((y != 64 * 255 * 127).any())


def skip_if_they_saturate() -> None:
    """Skips a test that compares outputs of int8 products with those of float32."""
    if saturate():
        pytest.skip("ONNX Runtime's int8 products saturate on this processor, which has no VNNI")
