"""Files that were valid once: whatever is done to their bytes and fields, only an OxError comes out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ox
from ox.errors import OxError

R = np.random.default_rng
FLOAT = TensorProto.FLOAT


def info(name: str, *dims: Any, dtype: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, list(dims))


def weight(name: str, *shape: int) -> Any:
    return numpy_helper.from_array(R(len(name)).standard_normal(shape).astype(np.float32), name)


def plain() -> onnx.ModelProto:
    """Convolution, normalization, old attributes: opset 9."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a", "s", "b", "m", "v"], ["c"]),
        helper.make_node("Clip", ["c"], ["d"], min=0.0, max=6.0),
        helper.make_node("GlobalAveragePool", ["d"], ["e"]),
        helper.make_node("Squeeze", ["e"], ["f"], axes=[2, 3]),
        helper.make_node("Softmax", ["f"], ["y"]),
    ]
    weights = [weight("w", 4, 2, 3, 3), weight("s", 4), weight("b", 4), weight("m", 4)]
    weights.append(numpy_helper.from_array(np.ones(4, np.float32), "v"))
    graph = helper.make_graph(nodes, "g", [info("x", "n", 2, 5, 5)], [info("y", "n", 4)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=8)


def nested() -> onnx.ModelProto:
    """If, Loop, a function with an attribute, Constants, a sparse tensor."""
    then = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["t"])], "then", [], [info("t", None, None)])
    other = helper.make_graph(
        [helper.make_node("Scaled", ["x"], ["o"], domain="own", factor=2.0)], "else", [], [info("o", None, None)]
    )
    body = helper.make_graph(
        [helper.make_node("Add", ["h", "k"], ["h2"]), helper.make_node("Identity", ["go"], ["go2"])],
        "body",
        [info("i", dtype=TensorProto.INT64), info("go", dtype=TensorProto.BOOL), info("h", None, None)],
        [info("go2", dtype=TensorProto.BOOL), info("h2", None, None)],
    )
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["r"], keepdims=0),
        helper.make_node("Constant", [], ["zero"], value_float=0.0),
        helper.make_node("Greater", ["r", "zero"], ["yes"]),
        helper.make_node("If", ["yes"], ["q"], then_branch=then, else_branch=other),
        helper.make_node("Constant", [], ["n"], value_int=2),
        helper.make_node("Loop", ["n", "", "q"], ["l"], body=body),
        helper.make_node("Add", ["l", "sp"], ["y"]),
    ]
    factor = helper.make_node("Constant", [], ["f"])
    factor.attribute.add(name="value_float", ref_attr_name="factor", type=onnx.AttributeProto.FLOAT)
    scaled = helper.make_function(
        "own", "Scaled", ["a"], ["b"], [factor, helper.make_node("Mul", ["a", "f"], ["b"])],
        [helper.make_opsetid("", 17)], ["factor"],
    )  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [info("x", "n", 3)], [info("y", None, None)], [weight("w", 3, 3), weight("k", 3)]
    )
    values = numpy_helper.from_array(np.array([1.0], np.float32), "sp")
    indices = numpy_helper.from_array(np.array([1], np.int64), "i")
    graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [3]))
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=[scaled], ir_version=8)


SEEDS = {"plain": (plain, (2, 2, 5, 5)), "nested": (nested, (2, 3))}


def test_the_seeds_are_valid(tmp_path: Path) -> None:
    for make, shape in SEEDS.values():
        onnx.save(make(), tmp_path / "m.onnx")
        y = ox.export.load(tmp_path / "m.onnx")(np.ones(shape, np.float32))
        assert np.isfinite(y.detach().numpy()).all()


def mutated(rng: np.random.Generator, model: onnx.ModelProto) -> bytes:
    """The file with some bytes or some fields changed."""
    if rng.random() < 0.5:
        data = bytearray(model.SerializeToString())
        for _ in range(int(rng.integers(1, 6))):
            at = int(rng.integers(len(data)))
            kind = rng.integers(4)
            if kind == 0:
                data[at] = int(rng.integers(256))
            elif kind == 1:
                data[at] ^= 1 << int(rng.integers(8))
            elif kind == 2:
                del data[at : at + int(rng.integers(1, 9))]
            else:
                data[at:at] = rng.bytes(int(rng.integers(1, 9)))
        return bytes(data)
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for _ in range(int(rng.integers(1, 4))):
        fields = list(_fields(changed))
        message, field = fields[int(rng.integers(len(fields)))]
        _change(rng, message, field)
    return changed.SerializeToString()


def _fields(message: Any) -> Iterator[tuple[Any, Any]]:
    for field, value in message.ListFields():
        yield message, field
        if field.type == field.TYPE_MESSAGE:
            for each in value if isinstance(value, list) or hasattr(value, "add") else [value]:
                yield from _fields(each)


NUMBERS = (0, 1, -1, 2, 7, 100, -(2**31), 2**31 - 1, 2**62, -(2**63))


def _change(rng: np.random.Generator, message: Any, field: Any) -> None:
    value = getattr(message, field.name)
    repeated = hasattr(value, "append")
    if repeated and len(value) and rng.random() < 0.3:
        del value[int(rng.integers(len(value)))]
        return
    if field.type == field.TYPE_MESSAGE:
        if repeated and len(value):
            value.append(value[int(rng.integers(len(value)))])
        elif not repeated:
            message.ClearField(field.name)
        return
    if field.type == field.TYPE_STRING:
        new: Any = str(rng.choice(["", "x", "w", "y", "Relu", "Loop", "If", "ai.onnx", "own", "axis", "b" * 50]))
    elif field.type == field.TYPE_BYTES:
        new = rng.bytes(int(rng.integers(9)))
    elif field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        new = float(rng.choice([0.0, -1.0, np.nan, np.inf, 1e30]))
    else:
        new = int(rng.choice(np.array(NUMBERS, object)))
    try:
        if repeated:
            if len(value):
                value[int(rng.integers(len(value)))] = new
            else:
                value.append(new)
        else:
            setattr(message, field.name, new)
    except (ValueError, TypeError):  # a number that the field cannot hold
        message.ClearField(field.name)


def ends(graph: Any) -> bool:
    """Whether every loop has few steps: one of 2^62, or without end, is a valid file."""
    counts = [int(a.max(initial=0)) for a in graph.constants.values() if a.dtype == np.int64]
    loops = [n for n in graph.all_nodes() if n.op_type == "Loop"]
    return max([0, *counts]) < 1000 and all(n.inputs[0] is not None for n in loops)


def attack(seed: int, path: Path) -> str | None:
    """Load and run one mutated file; what came out, if it was no OxError."""
    rng = R(seed)
    make, shape = list(SEEDS.values())[seed % len(SEEDS)]
    path.write_bytes(mutated(rng, make()))
    try:
        net = ox.export.load(path)
        if ends(net.graph):
            with np.errstate(all="ignore"):
                net(np.ones(shape, np.float32))
    except OxError:
        return None
    except Exception as error:
        return f"seed {seed}: {type(error).__name__}: {error}"
    return None


def test_mutated_files(tmp_path: Path) -> None:
    assert not [found for seed in range(400) if (found := attack(seed, tmp_path / "m.onnx"))]


@pytest.mark.slow
def test_many_mutated_files(tmp_path: Path) -> None:
    assert not [found for seed in range(1000, 5000) if (found := attack(seed, tmp_path / "m.onnx"))]
