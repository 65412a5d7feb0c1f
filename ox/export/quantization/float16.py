"""float16: every float32 value of a file becomes float16, but where float16 cannot hold it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

from ox.core.operator import OPS
from ox.export.quantization.half_precision import MAX_FLOAT16, beyond_float16
from ox.export.quantization.schemes import WEIGHTED
from ox.export.quantization.sessions import open_session, run
from ox.export.quantization.value_types import FLOAT, FLOAT16, TYPE_ATTRIBUTES, Scope, Types, complete, float32_constant
from ox.graph.ir import Array
from ox.graph.reader.model_file import graphs_of, opset_of, subgraphs

SCATTERS = ("ScatterElements", "ScatterND")
# of bits; without a kernel of ONNX Runtime's CPU; a function of ONNX Runtime with constants in float32
FLOAT32_ALONE = ("BitCast", "EyeLike", "MeanVarianceNormalization")
# integers of these types may be beyond those that float16 counts
WIDE_INTEGERS = (TensorProto.INT32, TensorProto.INT64, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64)


@dataclass(frozen=True)
class Float16Model:
    """The result, the names of nodes that stay in float32, and why, one line for each constant."""

    model: onnx.ModelProto
    in_float32: frozenset[str]
    reasons: tuple[str, ...]


def to_float16(
    model: onnx.ModelProto, in_float: Collection[str], peaks: Mapping[str, float] = MappingProxyType({})
) -> Float16Model:
    """Weights and operators in float16; inputs and outputs stay float32.

    What reads a constant that float16 cannot hold stays in float32 with all that follows, up to the next layer with
    weights; so does what is computed from integers. So do operators that have no float16.

    Args:
        model: with a name for each node, at any depth.
        in_float: names of nodes to leave.
        peaks: the largest magnitudes of values that were seen, by name. What makes or reads one that float16 cannot
            hold stays in float32, too. ONNX Runtime's CPU does not show them: it computes in float32 between Casts.
    """
    from onnxruntime.transformers.float16 import ALWAYS_FLOAT_INPUTS, DEFAULT_OP_BLOCK_LIST

    result = shape_inference.infer_shapes(model)
    types = Types({entry.domain: entry.version for entry in model.opset_import} | {"": opset_of(model)})
    types.always_float32 = ALWAYS_FLOAT_INPUTS
    top = Scope(result.graph)
    complete(model, top)
    selection = _Selection(types, set(in_float), frozenset((*DEFAULT_OP_BLOCK_LIST, *FLOAT32_ALONE)))
    selection.visit(result.graph, top)
    selection.add_peaks(result.graph, peaks)
    selection.extend()
    _Writer(types, selection.nodes).rewrite_model(result.graph, top)
    return Float16Model(result, frozenset(selection.nodes.difference(in_float)), tuple(selection.reasons))


def peaks_of(model: onnx.ModelProto, feeds: Sequence[Mapping[str, Array]]) -> dict[str, float]:
    """The largest finite magnitude of each float32 value of a model's graph in these runs, by name."""
    copy = shape_inference.infer_shapes(model)
    scope, outputs = Scope(copy.graph), {}
    complete(model, scope)
    zero = numpy_helper.from_array(np.zeros((), np.float32), "peaks/zero")
    copy.graph.initializer.append(zero)
    for name in [name for node in copy.graph.node for name in node.output if scope.types.get(name) == FLOAT]:
        absolute, infinite, finite, peak = (f"{name}/peaks/{k}" for k in range(4))
        copy.graph.node.extend(
            [
                helper.make_node("Abs", [name], [absolute]),
                helper.make_node("IsInf", [name], [infinite]),
                helper.make_node("Where", [infinite, zero.name, absolute], [finite]),
                helper.make_node("ReduceMax", [finite], [peak], keepdims=0),
            ]
        )
        copy.graph.output.append(helper.make_tensor_value_info(peak, FLOAT, []))
        outputs[peak] = name
    session = open_session(copy, "the model with its largest values")
    peaks: dict[str, float] = {}
    for feed in feeds:
        results = {**run(session, feed), **{name: np.abs(x).max() for name, x in feed.items() if _has_peak(x)}}
        for key, value in results.items():
            name = outputs.get(key, key)
            if (key in outputs or key in feed) and np.isfinite(value):
                peaks[name] = max(peaks.get(name, 0.0), float(value))
    return peaks


def _has_peak(x: Array) -> bool:
    return bool(x.dtype == np.float32 and x.size > 0)


class _Selection:
    """Which nodes stay in float32, and why."""

    def __init__(self, types: Types, nodes: set[str], blocked: Collection[str]) -> None:
        self.types, self.nodes, self.blocked = types, nodes, blocked
        self.beyond: dict[str, str] = {}  # by the name of the constant
        self.peaks: list[str] = []  # the lines of values that were seen
        self.starts: list[str] = []
        self.readers: dict[str, list[onnx.NodeProto]] = {}

    def visit(self, graph: onnx.GraphProto, scope: Scope) -> None:
        for tensor in graph.initializer:
            if tensor.data_type == FLOAT:
                self._is_beyond(tensor.name, numpy_helper.to_array(tensor))
        for node in graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
            array = float32_constant(node)
            counted = node.op_type == "Cast" and scope.type_of(node.input[0]) in WIDE_INTEGERS
            if counted:
                self.starts += node.output
            # ONNX Runtime's CPU adds float16 to no places
            adds = node.op_type in SCATTERS and any(a.name == "reduction" for a in node.attribute)
            beyond = array is not None and self._is_beyond(node.output[0], array)
            if counted or adds or beyond or node.op_type in self.blocked:
                self.nodes.add(node.name)
            for inside in subgraphs(node):
                for info in inside.output:
                    self.readers.setdefault(info.name, []).append(node)
                self.visit(inside, Scope(inside, scope))

    def _is_beyond(self, name: str, array: Array) -> bool:
        reason = beyond_float16(array)
        if reason is not None:
            self.beyond[name] = reason
            self.starts.append(name)
        return reason is not None

    def add_peaks(self, graph: onnx.GraphProto, peaks: Mapping[str, float]) -> None:
        for node in graph.node:
            for name in node.output:
                if name in self.beyond:  # a constant
                    continue
                reason = beyond_float16(np.array(peaks.get(name, 0.0)))
                if reason is not None and peaks[name] > MAX_FLOAT16:
                    self.peaks.append(f"{name} reaches {reason}: {node.op_type} '{node.name}' stays in float32")
                    self.starts.append(name)
                    self.nodes.add(node.name)
        for info in graph.input:
            if peaks.get(info.name, 0.0) > MAX_FLOAT16:
                self.starts.append(info.name)

    @property
    def reasons(self) -> list[str]:
        """One line for each constant that float16 cannot hold, with the first node that reads it."""
        lines = []
        for name, reason in self.beyond.items():
            reader = next((f"{node.op_type} '{node.name}'" for node in self.readers.get(name, [])), "no node")
            lines.append(f"{name} holds {reason}: {reader} stays in float32")
        return lines + self.peaks

    def extend(self) -> None:
        """What follows, up to layers with weights, and through what loops carry."""
        first, waiting, seen = set(self.starts), list(self.starts), set[str]()
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            for node in self.readers.get(name, []):
                if name in first or node.op_type not in WEIGHTED:
                    self.nodes.add(node.name)
                    waiting += node.output
                    waiting += (info.name for inside in subgraphs(node) for info in inside.input)


def _is_control(node: onnx.NodeProto) -> bool:
    return next(subgraphs(node), None) is not None


class _Writer:
    """Writes graphs in which each value has one of the two types, with a Cast before a reader that wants the other."""

    def __init__(self, types: Types, in_float32: Collection[str]) -> None:
        self.types, self.in_float32 = types, in_float32
        self.used: set[str] = set()
        self.nodes: list[onnx.NodeProto] = []

    def rewrite_model(self, graph: onnx.GraphProto, scope: Scope) -> None:
        self.used = set(_names(graph))
        inputs = [info.name for info in graph.input]
        scope.names.update(((name, FLOAT), name) for name in inputs if scope.types[name] == FLOAT)
        ends = [info.name for info in graph.output if scope.type_of(info.name) == FLOAT]
        self._rewrite(graph, scope, inputs, ends)
        for name in ends:
            if scope.find(name, FLOAT) != name:  # it was made in float16, under another name
                half = scope.find(name, FLOAT16)
                graph.node.append(helper.make_node("Cast", [half or name], [name], f"{name}/Cast", to=FLOAT))

    def _rewrite(self, graph: onnx.GraphProto, scope: Scope, inputs: Collection[str], ends: Collection[str]) -> None:
        """Nodes and initializers. `ends` are float32 values that keep their names in float32."""
        halves = []
        for tensor in graph.initializer:
            if tensor.data_type != FLOAT:
                continue
            scope.names[tensor.name, FLOAT] = tensor.name
            if tensor.name not in inputs:  # else a call may give others, in float32
                with np.errstate(over="ignore"):  # such a one is read in float32
                    array = numpy_helper.to_array(tensor).astype(np.float16)
                halves.append(numpy_helper.from_array(array, self._free(f"{tensor.name}.float16")))
                scope.names[tensor.name, FLOAT16] = halves[-1].name
        outer, self.nodes = self.nodes, []
        for node in graph.node:
            self._node(node, scope, ends)
        nodes, self.nodes = self.nodes, outer
        del graph.node[:], graph.value_info[:]
        graph.node.extend(nodes)
        read = {*_reads(graph), *inputs, *(info.name for info in graph.output)}
        read.update(half for info in graph.output if (half := scope.find(info.name, FLOAT16)) is not None)
        kept = [tensor for tensor in (*graph.initializer, *halves) if tensor.name in read]
        del graph.initializer[:]
        graph.initializer.extend(kept)

    def _node(self, node: onnx.NodeProto, scope: Scope, ends: Collection[str]) -> None:
        control = _is_control(node)
        half = node.name not in self.in_float32
        floating = [self.types.gives_float32(node, i, scope) if name else False for i, name in enumerate(node.output)]
        for i, name in enumerate(node.input):
            if scope.holds(name):
                kind = FLOAT16 if half and (control or self.types.takes_float16(node, i)) else FLOAT
                node.input[i] = self._in_type(name, kind, scope)
        inside = list(subgraphs(node))
        for graph in inside:
            self._subgraph(graph, scope, FLOAT16 if half else FLOAT)
        if control:
            skipped = node.op_type == "Loop"  # the condition, which no output gives
            results = list(inside[0].output)[skipped:]
            floating = [info.type.tensor_type.elem_type in (FLOAT, FLOAT16) for info in results][: len(node.output)]
        if half:
            _narrow(node)
        for i, (name, is_float) in enumerate(zip(node.output, floating, strict=True)):
            if not is_float or not name:
                continue
            kind = FLOAT16 if half and (control or self.types.takes_float16(node, i, output=True)) else FLOAT
            if kind == FLOAT16 and name in ends:
                node.output[i] = self._free(f"{name}.float16")
            scope.names[name, kind] = node.output[i]
        self.nodes.append(node)

    def _subgraph(self, graph: onnx.GraphProto, outer: Scope, kind: int) -> None:
        """Its inputs and outputs get the type of its node."""
        scope = Scope(graph, outer)
        for info in graph.input:
            if info.type.tensor_type.elem_type == FLOAT:
                scope.names[info.name, kind] = info.name
            if kind == FLOAT16:
                _narrow_type(info.type)
        self._rewrite(graph, scope, (), ())
        before, self.nodes = self.nodes, []
        for info in graph.output:
            floating = scope.holds(info.name)
            if floating:
                info.name = self._in_type(info.name, kind, scope)
                info.type.tensor_type.elem_type = kind
            elif kind == FLOAT16:
                _narrow_type(info.type)
        graph.node.extend(self.nodes)
        self.nodes = before

    def _in_type(self, name: str, kind: int, scope: Scope) -> str:
        known = scope.find(name, kind)
        if known is not None:
            return known
        source = scope.find(name, FLOAT if kind == FLOAT16 else FLOAT16)
        result = self._free(f"{name}.{'float16' if kind == FLOAT16 else 'float32'}")
        self.nodes.append(helper.make_node("Cast", [source or name], [result], f"{result}/Cast", to=kind))
        scope.names[name, kind] = result
        return result

    def _free(self, name: str) -> str:
        free, k = name, 1
        while free in self.used:
            free, k = f"{name}_{k}", k + 1
        self.used.add(free)
        return free


def _narrow(node: onnx.NodeProto) -> None:
    """The float32 numbers and types that a node names become float16."""
    array = float32_constant(node)
    if array is not None:
        del node.attribute[:]
        node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(array.astype(np.float16))))
    for a in node.attribute:
        if a.name in TYPE_ATTRIBUTES and a.i == FLOAT:
            a.i = FLOAT16
    op = OPS.get(node.op_type)
    float_by_default = op is not None and not op.schema.inputs and "dtype" in op.schema.attributes
    if float_by_default and not any(a.name == "dtype" for a in node.attribute):
        node.attribute.append(helper.make_attribute("dtype", FLOAT16))


def _narrow_type(kind: onnx.TypeProto) -> None:
    """float32 tensors, and sequences and optionals of them, become float16."""
    which = kind.WhichOneof("value")
    if which == "tensor_type" and kind.tensor_type.elem_type == FLOAT:
        kind.tensor_type.elem_type = FLOAT16
    elif which in ("sequence_type", "optional_type"):
        _narrow_type(getattr(kind, which).elem_type)


def _reads(graph: onnx.GraphProto) -> Iterator[str]:
    """The names that nodes read, and that subgraphs give."""
    for each in graphs_of(graph):
        yield from (name for node in each.node for name in node.input)
        yield from (info.name for info in each.output)


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    for each in graphs_of(graph):
        yield from (info.name for info in (*each.input, *each.output))
        yield from (tensor.name for tensor in each.initializer)
        yield from (name for node in each.node for name in node.output)
