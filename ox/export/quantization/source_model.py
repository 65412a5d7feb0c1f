"""The file to quantize: read, checked, and prepared for ONNX Runtime's tools."""

from __future__ import annotations

import io
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
from onnx import inliner

from ox.errors import ArgumentError
from ox.export.files import MAX_INLINE_BYTES
from ox.graph.reader.model_file import nodes_of, opset_of
from ox.graph.reader.source import read_model

QUANTIZED = frozenset(
    {
        "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "QLinearMatMul",
        "QLinearConv", "QGemm", "MatMulNBits", "MatMulBnb4", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM",
        "MatMulIntegerToFloat", "QAttention",
    }
)  # fmt: skip

NARROW = {
    number: name
    for name, number in onnx.TensorProto.DataType.items()
    if name in ("FLOAT16", "BFLOAT16") or name.startswith("FLOAT8")
}


def read_source(path: Path, opset: int, scheme: str) -> onnx.ModelProto:
    """A file in float32, with every node named and functions written out.

    Raises:
        LoadError: missing, damaged, not ONNX.
        ArgumentError: it is quantized already or has weights of 16 bits or fewer, its opset is older than the scheme
            needs, it has no float32 weights, or its weights are too large.
    """
    model = read_model(path)
    if found := sorted({node.op_type for node in nodes_of(model)} & QUANTIZED):
        raise ArgumentError(
            f"{path} is quantized already",
            got=f"a file with {', '.join(found[:3])}",
            hint="the float32 file that it was made from; ox quantize --adopt renews the golden samples of a file "
            "that another tool quantized",
        )
    if (version := opset_of(model)) < opset:
        raise ArgumentError(
            f"{path} is written in an opset too old for {scheme}",
            expected=f"opset {opset} or newer",
            got=f"opset {version}",
            hint=f"ox convert {path} --opset {opset}, or export the run again with --opset {opset}",
        )
    if (size := model.ByteSize()) > MAX_INLINE_BYTES:
        raise ArgumentError(f"{path} is too large to be quantized", expected="less than 2 GB", got=f"{size:,} bytes")
    if model.functions:
        model = inliner.inline_local_functions(model)
    _lift_constants(model)
    if not any(t.data_type == onnx.TensorProto.FLOAT for t in model.graph.initializer):
        types = Counter(onnx.TensorProto.DataType.Name(t.data_type) for t in model.graph.initializer)
        raise ArgumentError(
            f"{path} has no float32 weights",
            expected="a file in float32",
            got=", ".join(types) or "no initializers",
        )
    if narrow := Counter(NARROW[t.data_type] for t in model.graph.initializer if t.data_type in NARROW and t.dims[1:]):
        raise ArgumentError(
            f"{path} has weights in lower precision already",
            expected="a file in float32",
            got=", ".join(f"{count} {kind}" for kind, count in narrow.most_common()),
            hint="the float32 file that it was made from",
        )
    _name_nodes(model)
    return model


def is_narrow(model: onnx.ModelProto) -> bool:
    """Whether a file has operators on integers, or tensors of 16 bits or fewer for weights."""
    narrow = any(t.data_type in NARROW for t in model.graph.initializer)
    return narrow or any(node.op_type in QUANTIZED for node in nodes_of(model))


def _lift_constants(model: onnx.ModelProto) -> None:
    """Makes initializers of the float32 numbers of a model's code: the tools look for weights there alone."""
    float32 = onnx.TensorProto.FLOAT
    stored = {t.name for t in model.graph.initializer}
    kept = []
    for node in model.graph.node:
        value = next((a.t for a in node.attribute if node.op_type == "Constant" and a.t.data_type == float32), None)
        if value is None or node.output[0] in stored:
            kept.append(node)
            continue
        tensor = model.graph.initializer.add()
        tensor.CopyFrom(value)
        tensor.name = node.output[0]
    del model.graph.node[:]
    model.graph.node.extend(kept)


def prepare(model: onnx.ModelProto) -> onnx.ModelProto:
    """Batch norms folded, constants computed and shapes inferred: ONNX Runtime's preprocessing for integers."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with TemporaryDirectory(prefix="ox-quantize-") as folder, quietly():
        path = Path(folder) / "prepared.onnx"
        quant_pre_process(model, path, skip_symbolic_shape=True)
        prepared = onnx.load(path)
    _name_nodes(prepared)
    return prepared


def _name_nodes(model: onnx.ModelProto) -> None:
    """Unique names, by which the tools leave nodes in float."""
    used = {node.name for node in model.graph.node}
    seen: set[str] = set()
    for number, node in enumerate(model.graph.node):
        if not node.name or node.name in seen:
            name = f"{node.op_type}_{number}"
            while name in used:
                name += "_"
            node.name = name
            used.add(name)
        seen.add(node.name)


def weights_of(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    """The float32 initializers that no call can replace, by name."""
    inputs = {info.name for info in model.graph.input}
    return {
        t.name: t for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT and t.name not in inputs
    }


@contextmanager
def quietly() -> Iterator[None]:
    """Without what the tools print and log."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(before)
