"""Types behind operators that ONNX does not know."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from ox.graph.reader.inferred_types import inferred_types
from ox.graph.reader.read import from_model

VENDOR = "com.microsoft"
WEIGHTS = {
    "words": (10, 16), "places": (8, 16), "scale": (16,), "square": (16, 16), "wide": (16, 96), "shift": (96,),
    "numbers": (16, 1, 8), "scales": (16, 1), "caches": (9, 2),
}  # fmt: skip


def call(op: str, inputs: str, outputs: str, domain: str = VENDOR, **attributes: Any) -> Any:
    """Inputs and outputs are names with spaces between them; `-` is one that is left out."""
    names = [[name.replace("-", "") for name in each.split()] for each in (inputs, outputs)]
    return helper.make_node(op, *names, domain=domain, **attributes)


def model(*nodes: Any, kind: Any = np.float32) -> Any:
    arrays = {k: np.ones(s, np.uint8 if k == "numbers" else kind) for k, s in WEIGHTS.items()}
    graph = helper.make_graph(
        list(nodes), "g",
        [helper.make_tensor_value_info("x", TensorProto.INT32, ["n", "t"])],
        [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(kind)), None)],
        [numpy_helper.from_array(each, name) for name, each in arrays.items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(VENDOR, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


EMBEDDED = call("EmbedLayerNormalization", "x - words places - scale scale", "e")
NODES = [
    EMBEDDED,
    call("SkipLayerNormalization", "e e scale scale", "skip - - sum"),
    call("MatMul", "sum square", "q", ""),
    call("RotaryEmbedding", "q x caches caches", "turned"),
    call("MultiHeadAttention", "turned q q", "heads", num_heads=4),
    call("MatMulNBits", "heads numbers scales", "bits", K=16, N=16, bits=4, block_size=16),
    call("FusedMatMul", "bits square", "product"),
    call("Attention", "product wide shift", "joined", num_heads=4),
    call("SimplifiedLayerNormalization", "joined scale", "y", ""),
]
EXPECTED = {
    "e": ["n", "t", 16], "skip": ["n", "t", 16], "sum": ["n", "t", 16], "q": ["n", "t", 16], "turned": ["n", "t", 16],
    "heads": ["n", "t", None], "bits": ["n", "t", 16], "product": ["n", "t", 16], "joined": ["n", "t", None],
    "y": ["n", "t", None],
}  # fmt: skip


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_types_behind_operators_of_the_runtime(kind: Any) -> None:
    """Also behind several; None is any size."""
    found = inferred_types(model(*NODES, kind=kind))
    for name, sizes in EXPECTED.items():
        known = found[name].tensor_type
        assert known.elem_type == helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        got = [d.dim_value or d.dim_param for d in known.shape.dim]
        assert len(got) == len(sizes)
        assert all(want is None or want == size for want, size in zip(sizes, got, strict=True))


def test_bodies_know_the_ranks() -> None:
    """Heads are transposed; they are gathered only where the rank is unknown."""
    known = [EMBEDDED, call("MultiHeadAttention", "e e e", "y", num_heads=4)]
    squeezed = call("Squeeze", "e", "k", "")
    unknown = [EMBEDDED, squeezed, call("MultiHeadAttention", "e k k", "y", num_heads=4)]
    for nodes, gathered in ((known, 2), (unknown, 4)):  # two of them are the embeddings
        graph = from_model(model(*nodes))
        assert sum(node.op_type == "Gather" for node in graph.nodes) == gathered


def test_a_call_that_lacks_its_inputs() -> None:
    found = inferred_types(model(call("EmbedLayerNormalization", "x", "e"), call("Gelu", "e", "y")))
    assert set(found) >= {"x", "y"} and "e" not in found
