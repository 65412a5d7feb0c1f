"""int4 by block: against its definition, and against ONNX's DequantizeLinear."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from ox.export.quantization.blockwise import quantize_blocks


@pytest.mark.parametrize("rows", [16, 32, 40])
def test_each_value_is_within_half_a_step_or_at_the_end(rows: int) -> None:
    weight = np.random.default_rng(rows).normal(size=(rows, 6)).astype(np.float32)
    values, scales = quantize_blocks(weight, 16)
    assert values.shape == weight.shape and scales.shape == (-(-rows // 16), 6)
    node = helper.make_node("DequantizeLinear", ["x", "s"], ["y"], axis=0, block_size=16)
    ends = [
        helper.make_tensor_value_info("x", TensorProto.INT4, weight.shape),
        helper.make_tensor_value_info("s", TensorProto.FLOAT, scales.shape),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, weight.shape),
    ]
    padded = np.zeros((len(scales) * 16, 6), values.dtype)  # the reference wants whole blocks
    padded[:rows] = values
    graph = helper.make_graph([node], "g", ends[:2], ends[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    (back,) = ReferenceEvaluator(model).run(None, {"x": padded, "s": scales})
    step = np.abs(scales).repeat(16, 0)[:rows]
    cut = weight / np.where(scales == 0, 1, scales).repeat(16, 0)[:rows] > 7  # int4 ends at 7
    assert (np.abs(back[:rows] - weight)[~cut] <= step[~cut] / 2 + 1e-6).all()
    assert (np.abs(back[:rows] - weight) <= step + 1e-6).all()
    assert np.allclose(np.abs(back[:rows]).max(0), np.abs(weight).max(0))


def test_a_block_of_zeros() -> None:
    values, scales = quantize_blocks(np.zeros((16, 2), np.float32), 16)
    assert not values.astype(np.int8).any() and not scales.any()
