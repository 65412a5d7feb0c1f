"""The file to quantize: read, checked, and prepared for ONNX Runtime's tools."""

from __future__ import annotations

import io
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from onnx import helper, inliner, numpy_helper

from ox.core.kind import QUANTIZED
from ox.core.operator import kind_of
from ox.errors import ArgumentError, ExportError, OxError
from ox.export.files import MAX_INLINE_BYTES
from ox.graph.reader.model_file import graphs_of, nodes_of, opset_of, subgraphs
from ox.graph.reader.source import read_model
from ox.graph.training_statistics import keep_statistics

# ONNX Runtime's own operators on integers.
RUNTIME_QUANTIZED = frozenset(
    (
        "QGemm", "MatMulNBits", "MatMulBnb4", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "MatMulIntegerToFloat",
        "QAttention",
    )
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
            needs, it has no float32 weights, its weights are too large, or an output is a sequence or map.
    """
    model = read_model(path)
    if found := sorted(filter(is_quantized, {node.op_type for node in nodes_of(model)})):
        raise ArgumentError(
            f"{path} is quantized already",
            got=f"a file with {', '.join(found[:3])}",
            hint="the float32 file that it was made from; ox quantize --adopt renews the golden samples of a file "
            "that another tool quantized",
        )
    if others := [o.name for o in model.graph.output if o.type.WhichOneof("value") not in (None, "tensor_type")]:
        raise ArgumentError(
            f"{path} has an output that is no tensor",
            got=others[0],
            hint=f"ox convert {path} writes the scores of a ZipMap as a tensor; quantize that file",
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
    keep_statistics(model)
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
    return narrow or any(is_quantized(node.op_type) for node in nodes_of(model))


def is_quantized(operator: str) -> bool:
    """Whether an operator works on integers with a scale, by its name."""
    return kind_of(operator) in QUANTIZED or operator in RUNTIME_QUANTIZED


def _lift_constants(model: onnx.ModelProto) -> None:
    """Makes initializers of the float32 numbers of a model's code, those of branches and loops too: the tools look for
    weights there alone."""
    used = Counter(name for node in nodes_of(model) for name in node.output)
    used.update(t.name for graph in graphs_of(model.graph) for t in graph.initializer)
    used.update(info.name for graph in graphs_of(model.graph) for info in graph.input)
    _lift(model.graph, model.graph, used, {})


def _lift(graph: onnx.GraphProto, top: onnx.GraphProto, used: Counter[str], renamed: dict[str, str]) -> None:
    stored, ends = {t.name for t in top.initializer}, {info.name for info in graph.output}
    renamed, nodes, own = dict(renamed), [], []
    for tensor in graph.initializer if graph is not top else ():
        if tensor.data_type == onnx.TensorProto.FLOAT and tensor.name not in ends:
            _lift_tensor(tensor, tensor.name, top, used, renamed)
        else:
            own.append(tensor)
    for node in graph.node:
        value = _constant_of(node)
        # a branch gives what it makes itself
        if value is None or (node.output[0] in stored if graph is top else node.output[0] in ends):
            nodes.append(node)
        elif graph is top:
            top.initializer.add().CopyFrom(value)
            top.initializer[-1].name = node.output[0]
        else:
            _lift_tensor(value, node.output[0], top, used, renamed)
    for node in nodes:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        for inside in subgraphs(node):
            _lift(inside, top, used, renamed)
    if graph is not top:
        del graph.initializer[:]
        graph.initializer.extend(own)
    del graph.node[:]
    graph.node.extend(nodes)


def _lift_tensor(
    tensor: onnx.TensorProto, name: str, top: onnx.GraphProto, used: Counter[str], renamed: dict[str, str]
) -> None:
    free, k = name, 1
    while used[free] > (free == name):  # another branch may have the same name
        free, k = f"{name}_{k}", k + 1
    used[free] += free != name
    top.initializer.add().CopyFrom(tensor)
    top.initializer[-1].name = renamed[name] = free


def _constant_of(node: onnx.NodeProto) -> onnx.TensorProto | None:
    if node.op_type != "Constant":
        return None
    for a in node.attribute:
        if a.t.data_type == onnx.TensorProto.FLOAT:
            stored: onnx.TensorProto = a.t
            return stored
        if a.name in ("value_float", "value_floats"):
            return numpy_helper.from_array(np.array(helper.get_attribute_value(a), np.float32))
    return None


def prepare(model: onnx.ModelProto) -> onnx.ModelProto:
    """Batch norms folded, constants computed and shapes inferred: ONNX Runtime's preprocessing for integers.

    Raises:
        ExportError: ONNX Runtime's tools stop.
    """
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with TemporaryDirectory(prefix="ox-quantize-") as folder, tool_errors(), quietly():
        before, after = (Path(folder) / name for name in ("file.onnx", "prepared.onnx"))
        onnx.save(model, before)  # of a model in memory the tool hides the sizes that initializers hold
        quant_pre_process(str(before), after, skip_symbolic_shape=True)
        prepared = onnx.load(after)
    _separate_biases(prepared)
    for node in nodes_of(prepared):  # ONNX Runtime writes empty lists, which its tool cannot read
        if node.op_type == "Scan":
            given = [a for a in node.attribute if a.type != onnx.AttributeProto.INTS or a.ints]
            del node.attribute[:]
            node.attribute.extend(given)
    _name_nodes(prepared)
    return prepared


def _separate_biases(model: onnx.ModelProto) -> None:
    """The bias of a ConvTranspose with groups in an Add behind it: ONNX Runtime's tool gives it a scale for each
    channel of one group."""
    weights, nodes = weights_of(model), []
    for node in model.graph.node:
        nodes.append(node)
        groups = next((a.i for a in node.attribute if a.name == "group"), 1)
        if node.op_type != "ConvTranspose" or groups == 1 or len(node.input) < 3 or node.input[2] not in weights:
            continue
        bias = numpy_helper.to_array(weights[node.input[2]])
        if node.input[1] not in weights:
            continue
        rank = len(weights[node.input[1]].dims)
        column = numpy_helper.from_array(bias.reshape(-1, *[1] * (rank - 2)), f"{node.output[0]}.bias")
        model.graph.initializer.append(column)
        result, node.output[0] = node.output[0], f"{node.output[0]}.product"
        del node.input[2]
        nodes.append(helper.make_node("Add", [node.output[0], column.name], [result], f"{node.name}.bias"))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    read = {name for node in nodes_of(model) for name in node.input}
    read.update(info.name for info in model.graph.output)
    kept = [tensor for tensor in model.graph.initializer if tensor.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)


@contextmanager
def tool_errors() -> Iterator[None]:
    """What ONNX Runtime's tools raise, as an ExportError."""
    try:
        yield
    except (OxError, OSError):
        raise
    except Exception as error:  # ONNX Runtime's exceptions share no base class
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise ExportError(
            "ONNX Runtime's quantization tool stops at this model",
            got=f"{type(error).__name__}: {lines[0] if lines else ''}",
            hint="another scheme: float16 and bfloat16 do without the tool",
        ) from error


def _name_nodes(model: onnx.ModelProto) -> None:
    """Unique names at any depth, by which the tools leave nodes in float."""
    used = {node.name for node in nodes_of(model)}
    seen: set[str] = set()
    for number, node in enumerate(nodes_of(model)):
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
    logging.disable(logging.ERROR)
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(before)
