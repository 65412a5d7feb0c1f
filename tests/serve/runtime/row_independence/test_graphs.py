"""Graphs as exporters write them batch; those that mix rows are refused by the name of the node that does."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper
from rows import rows

from ox.serve.runtime.row_independence import rows_mix
from ox.serve.runtime.row_independence.walk import Walk

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
Nodes = list[tuple[Any, ...]]  # operator, inputs, outputs, attributes


def made(
    nodes: Nodes, tail: list[Any], weights: dict[str, Any] | None = None, output: str = "y", opset: int = 21
) -> ModelProto:
    """A model of one float input x [batch, *tail]."""
    parts = []
    for op, inputs, outputs, *rest in nodes:
        attributes = rest[0] if rest else {}
        domain = "com.microsoft" if op in CONTRIB else "ai.onnx.ml" if op in ML else ""
        given = ["" if name == "_" else name for name in inputs.split()]
        parts.append(helper.make_node(op, given, outputs.split(), domain=domain, **attributes))
    x = helper.make_tensor_value_info("x", FLOAT, ["batch", *tail])
    y = helper.make_tensor_value_info(output, FLOAT, None)
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()]
    versions = [helper.make_opsetid(domain, version)
                for domain, version in (("", opset), ("ai.onnx.ml", 3), ("com.microsoft", 1))]  # fmt: skip
    return helper.make_model(helper.make_graph(parts, "g", [x], [y], constants), opset_imports=versions, ir_version=10)


CONTRIB = {
    "FusedMatMul",
    "SkipLayerNormalization",
    "BiasGelu",
    "MultiHeadAttention",
    "DynamicQuantizeMatMul",
    "Strange",
}
ML = {"TreeEnsembleClassifier", "Normalizer", "Scaler"}


def floats(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


ONE = np.array(1, np.int64)
# Shape -> Gather -> Unsqueeze -> Concat -> Reshape, as PyTorch's exporter writes view(x.size(0), x.size(1), 2, -1).
VIEW: Nodes = [
    ("Shape", "x", "s"), ("Gather", "s zero", "b"), ("Gather", "s one", "t"), ("Unsqueeze", "b front", "b1"),
    ("Unsqueeze", "t front", "t1"), ("Concat", "b1 t1 two rest", "shape", {"axis": 0}), ("Reshape", "x shape", "v"),
]  # fmt: skip
VIEWS = {"zero": np.array(0), "one": ONE, "front": ints(0), "two": ints(2), "rest": ints(-1)}

# The rows' own numbers r [batch] and r1 [batch, 1]; i and i1: where the first feature is highest.
NUMBERS: Nodes = [
    ("Shape", "x", "s"), ("Gather", "s zero", "n"), ("Range", "zero n one", "r"), ("Unsqueeze", "r last", "r1"),
]  # fmt: skip
LAST: Nodes = [("Gather", "x zero", "f", {"axis": 2}), ("ArgMax", "f", "i", {"axis": 1, "keepdims": 0}),
               ("Unsqueeze", "i last", "i1")]  # fmt: skip
PICKED = {"zero": np.array(0), "one": ONE, "last": ints(-1), "w": floats(8, 3)}

KEPT: dict[str, tuple[Nodes, list[Any], dict[str, Any]]] = {
    "attention by hand": (
        [*VIEW, ("Transpose", "v", "q", {"perm": [0, 2, 1, 3]}), ("Transpose", "v", "k", {"perm": [0, 2, 3, 1]}),
         ("MatMul", "q k", "a"), ("Softmax", "a", "p"), ("MatMul", "p q", "o"),
         ("Transpose", "o", "r", {"perm": [0, 2, 1, 3]}), ("Mul", "two d", "wide"),
         ("Concat", "b1 t1 wide", "back", {"axis": 0}), ("Reshape", "r back", "y")],
        ["t", 8], {**VIEWS, "d": ints(4)}),
    "heads in the batch": (
        [*VIEW, ("Transpose", "v", "q", {"perm": [0, 2, 1, 3]}), ("Mul", "b1 two", "bh"),
         ("Concat", "bh t1 rest", "flat", {"axis": 0}), ("Reshape", "q flat", "f"),
         ("Transpose", "f", "g", {"perm": [0, 2, 1]}), ("MatMul", "f g", "m"), ("Softmax", "m", "p"),
         ("MatMul", "p f", "o"), ("Concat", "b1 two t1 rest", "back", {"axis": 0}), ("Reshape", "o back", "y")],
        ["t", 8], VIEWS),
    "each row's last token": (
        [*NUMBERS, *LAST, ("Concat", "r1 i1", "at", {"axis": -1}), ("GatherND", "x at", "p"), ("MatMul", "p w", "y")],
        ["t", 8], PICKED),
    "each row's last token, as PyTorch's exporter broadcasts": (
        [*NUMBERS, *LAST, ("Shape", "i", "si"), ("Expand", "r si", "re"), ("Unsqueeze", "re last", "r2"),
         ("Concat", "r2 i1", "at", {"axis": 1}), ("Identity", "at", "id"), ("GatherND", "x id", "y")],
        ["t", 8], PICKED),
    "each row's own last token, set": (
        [*NUMBERS, *LAST, ("Concat", "r1 i1", "at", {"axis": 1}), ("ReduceMax", "x one1", "u", {"keepdims": 0}),
         ("ScatterND", "x at u", "y")],
        ["t", 8], {**PICKED, "one1": ints(1)}),
    "rows by their own numbers": ([*NUMBERS, ("Gather", "x r", "y")], ["t", 8], PICKED),
    "sequence first": (
        [("Transpose", "x", "s", {"perm": [1, 0, 2]}), ("Reshape", "s flat", "f"), ("MatMul", "f w", "m"),
         ("Shape", "s", "n"), ("Gather", "n firsts", "tb"), ("Concat", "tb rest", "back", {"axis": 0}),
         ("Reshape", "m back", "u"), ("Transpose", "u", "y", {"perm": [1, 0, 2]})],
        ["t", 8], {"flat": ints(-1, 8), "w": floats(8, 3), "firsts": ints(0, 1), "rest": ints(3)}),
    "windows": (
        [("Reshape", "x cut", "c"), ("Transpose", "c", "w", {"perm": [0, 1, 3, 2, 4, 5]}), ("Reshape", "w all", "l"),
         ("Softmax", "l", "p"), ("Reshape", "p apart", "d"), ("Transpose", "d", "u", {"perm": [0, 1, 3, 2, 4, 5]}),
         ("Reshape", "u whole", "y")],
        [8, 8, 3], {"cut": ints(-1, 2, 4, 2, 4, 3), "all": ints(-1, 16, 3), "apart": ints(-1, 2, 2, 4, 4, 3),
                    "whole": ints(-1, 8, 8, 3)}),
    "class token": (
        [("Shape", "x", "s", {"end": 1}), ("Concat", "s ones", "shape", {"axis": 0}), ("Expand", "token shape", "c"),
         ("Concat", "c x", "j", {"axis": 1}), ("Gather", "j zero", "y", {"axis": 1})],
        [5, 8], {"ones": ints(-1, -1), "token": floats(1, 1, 8), "zero": np.array(0)}),
    "expand with -1": (
        [("Shape", "x", "s"), ("ConstantOfShape", "three", "o", {"value": numpy_helper.from_array(ints(1))}),
         ("Mul", "o minus", "m"), ("Slice", "s zero1 one1", "n"), ("Concat", "n rest", "want", {"axis": 0}),
         ("Equal", "want m", "e"), ("Where", "e o want", "shape"), ("Expand", "token shape", "c"),
         ("Concat", "c x", "y", {"axis": 1})],
        [5, 8], {"three": ints(3), "minus": ints(-1), "rest": ints(-1, -1), "zero1": ints(0), "one1": ints(1),
                 "token": floats(1, 1, 8)}),
    "initial state": (
        [("Shape", "x", "s", {"end": 1}), ("Concat", "one1 s five", "h", {"axis": 0}), ("ConstantOfShape", "h", "h0"),
         ("Transpose", "x", "t", {"perm": [1, 0, 2]}), ("GRU", "t w r _ _ h0", "o n", {"hidden_size": 5}),
         ("Squeeze", "n front", "y")],
        ["t", 4], {"one1": ints(1), "five": ints(5), "w": floats(1, 15, 4), "r": floats(1, 15, 5), "front": ints(0)}),
    "causal mask": (
        [("Shape", "x", "s"), ("Gather", "s one", "t"), ("Range", "zero t one", "n"), ("Unsqueeze", "n front", "r"),
         ("Unsqueeze", "n last", "c"), ("LessOrEqual", "r c", "m"), ("Transpose", "x", "k", {"perm": [0, 2, 1]}),
         ("MatMul", "x k", "a"), ("Where", "m a low", "w"), ("Softmax", "w", "p"), ("MatMul", "p x", "y")],
        ["t", 4], {"zero": np.array(0), "one": ONE, "front": ints(0), "last": ints(1),
                   "low": np.array(-1e9, np.float32)}),
    "stored positions": (
        [("Shape", "x", "s"), ("Gather", "s one", "t"), ("Unsqueeze", "t front", "e"),
         ("Slice", "places front e last", "p"), ("Gather", "table p", "v"), ("Add", "x v", "a"),
         ("Reshape", "a flat", "f"), ("MatMul", "f w", "m"), ("Shape", "a", "n"), ("Gather", "n last", "tb"),
         ("Concat", "minus tb rest", "back", {"axis": 0}), ("Reshape", "m back", "y")],
        ["t", 8], {"one": ONE, "front": ints(0), "last": ints(1), "places": np.arange(64)[None], "table": floats(64, 8),
                   "flat": ints(-1, 8), "w": floats(8, 3), "minus": ints(-1), "rest": ints(3)}),
    "a table of positions": (
        [("Shape", "x", "s", {"start": 1, "end": 2}), ("Slice", "table front s front", "p"), ("Add", "x p", "a"),
         ("Reshape", "a flat", "f"), ("MatMul", "f w", "m"), ("Shape", "a", "n", {"start": 1, "end": 2}),
         ("Concat", "minus n rest", "back", {"axis": 0}), ("Reshape", "m back", "y")],
        ["t", 8], {"front": ints(0), "table": floats(64, 8), "flat": ints(-1, 8), "w": floats(8, 3),
                   "minus": ints(-1), "rest": ints(3)}),
    "twice and halves": (
        [("Concat", "x x", "d", {"axis": 0}), ("MatMul", "d w", "m"), ("Split", "m", "a b", {"axis": 0}),
         ("Sub", "a b", "y")],
        [4], {"w": floats(4, 3)}),
    "upsampling": (
        [("Conv", "x w", "c", {"pads": [1, 1, 1, 1]}), ("Resize", "c _ scales", "u"),
         ("GlobalAveragePool", "u", "g"), ("Flatten", "g", "y")],
        [3, 8, 8], {"w": floats(4, 3, 3, 3), "scales": floats(4)}),
    "optimized transformer": (
        [("FusedMatMul", "x w", "m", {"alpha": 0.5}), ("BiasGelu", "m b", "g"),
         ("MultiHeadAttention", "g g g", "a", {"num_heads": 2}), ("SkipLayerNormalization", "a g b b", "y")],
        ["t", 8], {"w": floats(8, 8), "b": floats(8)}),
    "scikit-learn": (
        [("Scaler", "x", "s", {"offset": [0.0], "scale": [1.0]}), ("Normalizer", "s", "n", {"norm": "L2"}),
         ("MatMul", "n w", "m"), ("ArgMax", "m", "a", {"axis": 1, "keepdims": 0}), ("Gather", "labels a", "y")],
        [4], {"w": floats(4, 3), "labels": ints(3, 5, 7)}),
    "quantized": (
        [("QuantizeLinear", "x scale zero", "q"), ("DequantizeLinear", "q scale zero", "d"), ("MatMul", "d w", "y")],
        [4], {"scale": np.array(0.1, np.float32), "zero": np.array(0, np.uint8), "w": floats(4, 3)}),
    "einsum": ([("Einsum", "x w", "e", {"equation": "bthd,hde->bte"}), ("Softmax", "e", "y")],
               ["t", 2, 4], {"w": floats(2, 4, 5)}),
}  # fmt: skip


@rows("name", KEPT)
def test_rows_stay_rows(name: str) -> None:
    nodes, tail, weights = KEPT[name]
    assert rows_mix(made(nodes, tail, weights)) is None


THRESHOLD: Nodes = [("Greater", "m limit", "c"), ("Where", "c m none", "a"), ("Add", "x a", "y")]
LIMIT = {"limit": np.array(1000, np.float32), "none": np.array(0, np.float32)}
SIZED: Nodes = [("Shape", "x", "s", {"end": 1}), ("Cast", "s", "n", {"to": FLOAT})]

MIXED: dict[str, tuple[Nodes, list[Any], dict[str, Any], str]] = {
    "largest of all": ([("ReduceMax", "x", "m", {"keepdims": 0}), *THRESHOLD], [4], LIMIT, "ReduceMax 'm'"),
    "mean of the batch": (
        [("ReduceMean", "x axes", "m"), *THRESHOLD], [4], {**LIMIT, "axes": ints(0)}, "reduces over the batch axis"),
    "axes nobody knows": (
        [("ReduceMean", "x axes", "m"), *THRESHOLD], [4], {**LIMIT, "axes": np.ones(2000, np.int64)}, "not known"),
    "running sum": ([("CumSum", "x axis", "y")], [4], {"axis": np.array(0)}, "along the batch axis"),
    "softmax": ([("Softmax", "x", "y", {"axis": 0})], [4], {}, "Softmax 'y' mixes rows"),
    "softmax, counted from the end": ([("Softmax", "x", "y", {"axis": -2})], [4], {}, "Softmax 'y' mixes rows"),
    "reshape across": ([("Reshape", "x t", "r"), ("Transpose", "r", "y")], [4], {"t": ints(4, -1)}, "Reshape 'r'"),
    "first row": ([("Gather", "x zero", "f"), ("Add", "x f", "y")], [4], {"zero": np.array(0)}, "Gather 'f'"),
    "last row by slice": (
        [("Slice", "x a b", "f"), ("Add", "x f", "y")], [4], {"a": ints(-1), "b": ints(1 << 40)}, "Slice 'f'"),
    "all but one": ([("Slice", "x a b", "f"), ("Pad", "f p", "y")], [4],
                    {"a": ints(1), "b": ints(1 << 40), "p": ints(0, 0, 1, 0)}, "Slice 'f'"),
    "turned round": ([("Slice", "x a b z s", "y")], [4],
                     {"a": ints(-1), "b": ints(-1 << 40), "z": ints(0), "s": ints(-1)}, "turns them round"),
    "highest row": ([("TopK", "x k", "v i", {"axis": 0}), ("Add", "x v", "y")], [4], {"k": ints(1)}, "TopK 'v'"),
    "softmax of a vector times columns": (
        [("Transpose", "x", "t"), ("MatMul", "v t", "m"), ("Softmax", "m", "y", {"axis": 0})], [4], {"v": floats(4)},
        "Softmax 'y' mixes rows"),
    "similarities": (
        [("Transpose", "x", "t"), ("MatMul", "x t", "m"), ("MatMul", "m x", "y")], [4], {}, "MatMul 'm' mixes rows"),
    "similarities by Gemm": (
        [("Gemm", "x x", "m", {"transB": 1}), ("MatMul", "m x", "y")], [4], {}, "Gemm 'm' mixes rows"),
    "similarities by Einsum": (
        [("Einsum", "x x", "m", {"equation": "bi,ci->bc"}), ("MatMul", "m x", "y")], [4], {}, "Einsum 'm'"),
    "scaled by the batch": ([*SIZED, ("Div", "x n", "y")], [4], {}, "the number of rows becomes data"),
    "half the batch": (
        [("Shape", "x", "s", {"end": 1}), ("Div", "s two", "h"), ("Cast", "h", "n", {"to": FLOAT}),
         ("Add", "x n", "y")],
        [4], {"two": ints(2)}, "the number of rows becomes data"),
    "numbered": (
        [("Shape", "x", "s", {"end": 1}), ("Squeeze", "s", "n"), ("Range", "z n o", "r"),
         ("Cast", "r", "f", {"to": FLOAT}), ("Unsqueeze", "f o1", "u"), ("Add", "x u", "y")],
        [4], {"z": np.array(0), "o": ONE, "o1": ints(1)}, "becomes data"),
    "rows by the numbers of others": (
        [*NUMBERS, *LAST, ("Concat", "i1 r1", "at", {"axis": 1}), ("GatherND", "x at", "y")], ["t", 8], PICKED,
        "own number"),
    "rows by their numbers on another axis": (
        [*NUMBERS, *LAST, ("Concat", "r1 i1", "at", {"axis": 1}), ("Transpose", "x", "t", {"perm": [1, 0, 2]}),
         ("GatherND", "t at", "y")], ["t", 8], PICKED, "picks rows"),
    "numbers and places, as data": (
        [*NUMBERS, *LAST, ("Concat", "r1 i1", "at", {"axis": 1}), ("Cast", "at", "y", {"to": FLOAT})], ["t", 8], PICKED,
        "own number"),
    "numbers and places, turned round": (
        [*NUMBERS, *LAST, ("Concat", "r1 i1", "at", {"axis": 1}), ("Slice", "at m1 far last m1", "back"),
         ("GatherND", "x back", "y")],
        ["t", 8], {**PICKED, "m1": ints(-1), "far": ints(-1 << 40)}, "own number"),
    "numbers and places, given": (
        [*NUMBERS, *LAST, ("Concat", "r1 i1", "y", {"axis": 1})], ["t", 8], PICKED, "numbers the rows"),
    "a table by row": ([*NUMBERS, ("Gather", "w r", "y")], ["t", 8], PICKED, "own number"),
    "columns by row": ([*NUMBERS, ("Gather", "x r", "y", {"axis": 1})], ["t", 8], PICKED, "own number"),
    "numbers of twice the rows": (
        [("Concat", "x x", "d", {"axis": 0}), *NUMBERS, ("Gather", "d r", "y")], ["t", 8], PICKED, "picks rows"),
    "a table by row and place": (
        [*NUMBERS, *LAST, ("Concat", "r1 i1", "at", {"axis": 1}), ("GatherND", "w at", "y")], ["t", 8], PICKED,
        "own number"),
    "filled with the batch": (
        [("Shape", "x", "s", {"end": 1}), ("Mul", "s k", "w"), ("Concat", "z1 z1 z1 w", "p", {"axis": 0}),
         ("Pad", "x p", "y")], [4], {"k": ints(1), "z1": ints(0)}, "Pad"),
    "batch norm in training": (
        [("BatchNormalization", "x s s s s", "y m v", {"training_mode": 1})], [4], {"s": floats(4)}, "training mode"),
    "mean and variance": ([("MeanVarianceNormalization", "x", "y")], [4, 3, 3], {}, "MeanVarianceNormalization"),
    "layer norm over all": ([("LayerNormalization", "x s", "y", {"axis": 0})], [4], {"s": floats(1)}, "normalizes"),
    "one scale for all": (
        [("DynamicQuantizeLinear", "x", "q s z"), ("DequantizeLinear", "q s z", "y")], [4], {}, "one scale"),
    "quantized by the optimizer": ([("DynamicQuantizeMatMul", "x w s", "y")], [4],
                                   {"w": np.ones((4, 3), np.uint8), "s": floats(1)}, "one scale"),
    "what is not zero": ([("NonZero", "x", "i"), ("Cast", "i", "f", {"to": FLOAT}), ("ReduceSum", "f", "r"),
                          ("Add", "x r", "y")], [4], {}, "NonZero 'i'"),
    "places of maxima": ([("MaxPool", "x", "v i", {"kernel_shape": [2]}), ("Cast", "i", "y", {"to": FLOAT})],
                         [3, 4], {}, "MaxPool"),
    "random": ([("RandomUniformLike", "x", "r"), ("Add", "x r", "y")], [4], {}, "random numbers"),
    "random, beside": ([("RandomUniform", "", "r", {"shape": [4]}), ("Add", "x r", "y")], [4], {}, "random numbers"),
    "dropout in training": ([("Dropout", "x half on", "y")], [4],
                            {"half": np.array(0.5, np.float32), "on": np.array(True)}, "random numbers"),
    "unknown": ([("Strange", "x", "y")], [4], {}, "Strange 'y' is an operator of which nothing is known"),
    "a constant": ([("Identity", "w", "y")], [4], {"w": floats(4)}, "row by row"),
    "pairs": ([("Reshape", "x t", "y")], [4], {"t": ints(-1, 2)}, "one row for each row"),
    "on another axis": ([("Transpose", "x", "y")], [4], {}, "one row for each row"),
    "squares that fit": ([("Transpose", "x", "t"), ("Add", "x t", "y")], [4], {}, "meet"),
    "meets a constant of rows": ([("Add", "x w", "y")], [4], {"w": floats(3, 4)}, "another size"),
    "squeezed": ([("Squeeze", "x", "s"), ("Softmax", "s", "y", {"axis": 0})], [4], {}, "Squeeze 's'"),
    "a long way round, as int32": (
        [("Cast", "far", "b", {"to": TensorProto.INT32}), ("Slice", "x a b", "y")], [4],
        {"far": ints((1 << 63) - 1), "a": np.zeros(1, np.int32)}, "Slice 'y'"),
}  # fmt: skip


@rows("name", MIXED)
def test_rows_that_mix(name: str) -> None:
    nodes, tail, weights, why = MIXED[name]
    found = rows_mix(made(nodes, tail, weights))
    assert found is not None and why in found, found


def test_the_users_line() -> None:
    model = made([("ReduceSum", "x", "m"), ("Add", "x m", "y")], [4])
    model.graph.node[0].name = "net.pool/ReduceSum"
    model.graph.node[0].doc_string = "net.pool (Pool), train.py:12   return x.sum()"
    assert rows_mix(model) == (
        "ReduceSum 'net.pool/ReduceSum' (net.pool (Pool), train.py:12) mixes rows (reduces over the batch axis)"
    )


def test_what_no_output_needs_does_not_matter() -> None:
    assert rows_mix(made([("ReduceSum", "x", "m"), ("Relu", "x", "y")], [4])) is None


def test_each_node_is_walked_once() -> None:
    nodes: Nodes = [("Relu", "x", "t0")]
    for at in range(500):
        nodes += [("MatMul", f"t{at} w", f"m{at}"), ("Add", f"m{at} t{at}", f"t{at + 1}")]
    walk = Walk(made([*nodes, ("Identity", "t500", "y")], [8], {"w": floats(8, 8)}))
    assert walk.why() is None and walk.nodes == 1002


def test_another_axis_than_the_first() -> None:
    """What lies along the second axis, each for itself; an output without that axis may not depend on it."""
    model = made([("Softmax", "x", "y", {"axis": 0})], ["t"])
    assert rows_mix(model, axes={"x": 1, "y": 1}) is None and rows_mix(model) is not None
    assert rows_mix(model, axes={"x": 1}) == "output 'y' varies with the rows"
    assert rows_mix(model, axes={"x": 1, "y": 0}) == "output 'y' does not have one row for each row"
    summed = made([("ReduceSum", "x k", "y")], ["t"], {"k": ints(1)})
    assert "reduces over" in str(rows_mix(summed, axes={"x": 1})) and rows_mix(summed) is None
    assert "no second dimension that varies" in str(rows_mix(made([("Relu", "x", "y")], [4]), axes={"x": 1}))
