"""The walk: every node in order, every tensor's state, and in the end whether the outputs have a row for each row."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TensorShapeProto,
    TypeProto,
    numpy_helper,
)

from ox.serve.runtime.row_independence.control import CONTROL, JUDGED
from ox.serve.runtime.row_independence.node import (
    ALWAYS_REFUSED,
    COLUMNS,
    COUNTING,
    MAX_FLOATS,
    MAX_INTEGERS,
    ONNX,
    REFUSED,
    ROW_NUMBERED,
    RULES,
    Attributes,
    Node,
    Scope,
)
from ox.serve.runtime.row_independence.size import SIZE, WIDE, B, Size, Symbols, has_batch, is_count, is_exact
from ox.serve.runtime.row_independence.state import UNKNOWN, Mixed, Mixes, State, Tensor

MAX_NODES = 20_000  # walked besides those of the graph: of loops' bodies for each turn, of functions for each call
MAX_DEPTH = 16  # graphs in graphs and functions in functions
MAX_BYTES = 8 * MAX_INTEGERS  # of external data that is looked at
INTEGERS = (TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL)
FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE)

# Where runtimes have operators, which they may take instead of a function of that name.
RUNTIME_DOMAIN = re.compile(r"(ai\.onnx|com\.microsoft|com\.ms|org\.pytorch\.aten)(\..*)?|")

Versions: TypeAlias = Mapping[str, int]


class TooLarge(Exception):
    """The walk has been given up."""


class Walk:
    """Goes through one model.

    Args:
        model: the parsed file.
        folder: where its external data lies; without it such data is not looked at.
        axes: the axis that counts as rows, by input and output; those that it leaves out have none. Without it the
            first one of each.

    `nodes` counts those that were walked.
    """

    def __init__(self, model: ModelProto, folder: Path | None = None, axes: Mapping[str, int] | None = None) -> None:
        self.symbols = Symbols()
        self._axes = axes
        self._model, self._folder = model, folder
        self._functions = {(_plain(each.domain), each.name, each.overload): each for each in model.functions}
        self._versions: Versions = {_plain(each.domain): each.version for each in model.opset_import}
        self._outside: Attributes = {}
        self.nodes = self._depth = 0
        self._most = MAX_NODES + len(model.graph.node)

    def why(self) -> str | None:
        """Why rows of the outputs depend on more than the same rows of the inputs; None if they do not."""
        graph = self._model.graph
        stored = {tensor.name for tensor in graph.initializer}
        stored |= {tensor.values.name for tensor in graph.sparse_initializer}
        inputs = [each for each in graph.input if each.name not in stored]
        varying = set()
        for each in inputs:
            axis, shape = self._axis(each.name), _shape(each.type)
            if axis is None:
                continue
            if len(shape) <= axis or (shape[axis].HasField("dim_value") and shape[axis].dim_value > 0):
                return f"input '{each.name}' has no {_ordinal(axis)} dimension that varies"
            varying.add(shape[axis].dim_param)
        scope: Scope = ChainMap()
        for each in inputs:
            axis, shape = self._axis(each.name), _shape(each.type)
            if not each.type.tensor_type.HasField("shape"):
                scope[each.name] = UNKNOWN
                continue
            dims: list[Size] = []
            for place, dim in enumerate(shape):
                if place == axis:
                    dims.append(B)
                    continue
                if dim.dim_param and dim.dim_param in varying:
                    return f"'{dim.dim_param}' is more than the {_ordinal(axis or 0)} dimension"
                if dim.HasField("dim_value") and dim.dim_value > 0:
                    dims.append(int(dim.dim_value))
                else:
                    name = dim.dim_param
                    dims.append(self.symbols.of(("dim", name), SIZE) if name else self.symbols.fresh(SIZE))
            scope[each.name] = Tensor(tuple(dims), axis)
        self._run(graph, scope)
        for output in graph.output:
            why = self._left(output.name, scope.get(output.name))
            if why is not None:
                return why
        return None

    def _axis(self, name: str) -> int | None:
        return 0 if self._axes is None else self._axes.get(name)

    def _left(self, name: str, state: State | None) -> str | None:
        """Why an output does not have one row for each row on its axis."""
        axis = self._axis(name)
        if state is None:
            return f"nothing makes the output '{name}'"
        if isinstance(state, Mixed):
            return state.why
        if state.place or state.column:
            return f"output '{name}' numbers the rows"
        if axis is None:
            return f"output '{name}' varies with the rows" if state.varies else None
        if state.axis is None:
            return f"output '{name}' does not depend on the inputs row by row"
        if state.axis != axis or state.outer != 1 or state.sizes[axis] != B:
            return f"output '{name}' does not have one row for each row"
        return None

    # ---- what rules ask for

    def graph(self, graph: GraphProto, inputs: Sequence[State], scope: Scope) -> list[State]:
        """The outputs of a graph inside a node, which sees what is around it."""
        inner = scope.new_child()
        for info, state in zip(graph.input, inputs, strict=True):
            inner[info.name] = state
        self._run(graph, inner)
        return [inner.get(output.name, Mixed(f"nothing makes '{output.name}'")) for output in graph.output]

    def constant(self, tensor: TensorProto) -> Tensor:
        """A stored tensor: its sizes, and its elements if they are few and may be sizes."""
        dims = tuple(tensor.dims)
        count = int(np.prod(dims, dtype=object))
        if tensor.data_type in INTEGERS and count <= MAX_INTEGERS:
            array = self._array(tensor)
            if array is not None:
                integers = np.empty(array.size, object)
                integers[:] = [int(value) for value in array.ravel()]
                return Tensor(dims, integers=integers.reshape(array.shape))
        elif tensor.data_type in FLOATS and len(dims) == 1 and count <= MAX_FLOATS:
            array = self._array(tensor)
            if array is not None:
                return Tensor(dims, floats=tuple(map(float, array)))
        return Tensor(dims)

    def _array(self, tensor: TensorProto) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]] | None:
        if tensor.data_location == TensorProto.EXTERNAL:
            length = next((entry.value for entry in tensor.external_data if entry.key == "length"), "")
            if self._folder is None or not length.isdecimal() or int(length) > MAX_BYTES:
                return None
        try:
            return numpy_helper.to_array(tensor, str(self._folder or ""))
        except Exception:  # what cannot be read is not known
            return None

    # ---- the walk

    def _run(self, graph: GraphProto, scope: Scope) -> None:
        for tensor in graph.initializer:
            scope[tensor.name] = self.constant(tensor)
        for sparse in graph.sparse_initializer:
            scope[sparse.values.name] = Tensor(tuple(sparse.dims))
        self._nodes_of(graph.node, scope)

    def _nodes_of(self, nodes: Sequence[NodeProto], scope: Scope) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise TooLarge
        for proto in nodes:
            self.nodes += 1
            if self.nodes > self._most:
                raise TooLarge
            results = self._node(proto, scope)
            for name, state in zip(proto.output, results, strict=False):
                if name:
                    scope[name] = state
        self._depth -= 1

    def _node(self, proto: NodeProto, scope: Scope) -> Sequence[State]:
        count = len(proto.output)
        inputs: list[Tensor | None] = []
        for name in proto.input:
            state = scope.get(name) if name else None
            if name and state is None:
                return [Mixed(f"{_named(proto)} reads '{name}', which nothing before it makes")] * count
            if isinstance(state, Mixed):
                return [state] * count
            inputs.append(state)
        domain = _plain(proto.domain)
        key = (domain, proto.op_type)
        function = self._functions.get((domain, proto.op_type, proto.overload))
        varies = any(tensor is not None and tensor.varies for tensor in inputs)
        if function is None and not varies and proto.op_type not in JUDGED:
            return self._constant_node(Node(proto, self._version(domain), inputs, self._outside, self, scope), key)
        try:
            if function is not None and (key in RULES or key in REFUSED or RUNTIME_DOMAIN.fullmatch(domain)):
                raise Mixes("it is an operator and a function, and runtimes choose")
            if function is not None:
                return self._call(function, Node(proto, 0, inputs, self._outside, self, scope))
            if key in REFUSED:
                raise Mixes(REFUSED[key])
            if key not in RULES:
                return [Mixed(f"{_named(proto)} is an operator of which nothing is known")] * count
            self._check(key, inputs)
            results = RULES[key](Node(proto, self._version(domain), inputs, self._outside, self, scope))
        except Mixes as error:
            return [Mixed(f"{_named(proto)} mixes rows ({error})")] * count
        except (TooLarge, RecursionError):
            raise
        except Exception:
            return [Mixed(f"{_named(proto)} has a form that cannot be followed")] * count
        states: Sequence[State] = [results] if isinstance(results, Tensor | Mixed) else results
        if proto.op_type not in CONTROL:  # whose graphs are walked node by node
            states = [_checked(state, inputs) for state in states]
        states = [_explained(state, proto) if isinstance(state, Mixed) else self._bounded(state) for state in states]
        if len(states) < count:
            return [*states, *[Mixed(f"{_named(proto)} has outputs that are not followed")] * (count - len(states))]
        return states

    def _constant_node(self, node: Node, key: tuple[str, str]) -> Sequence[State]:
        """One of which no input depends on the rows: nor does what it gives, if it is the same each time."""
        if key in ALWAYS_REFUSED:
            return [Mixed(f"{_named(node.proto)} mixes rows ({REFUSED[key]})")] * node.count
        if key not in RULES and key not in REFUSED:
            return [Mixed(f"{_named(node.proto)} is an operator of which nothing is known")] * node.count
        try:
            results = RULES[key](node) if key in RULES else UNKNOWN
        except Exception:  # its sizes are not known, then
            results = UNKNOWN
        states: Sequence[State] = [results] if isinstance(results, Tensor | Mixed) else results
        states = [UNKNOWN if isinstance(state, Mixed) else self._bounded(state) for state in states]
        return [*states, *[UNKNOWN] * (node.count - len(states))]

    def _bounded(self, state: Tensor) -> Tensor:
        """Sizes without the rows that a runtime may have another number for are left open."""
        if state.dims is None or all(has_batch(size) or _certain(size) for size in state.dims):
            return state
        dims = [size if has_batch(size) or _certain(size) else self.symbols.fresh() for size in state.dims]
        return replace(state, dims=tuple(dims))

    def _check(self, key: tuple[str, str], inputs: Sequence[Tensor | None]) -> None:
        for tensor in inputs:
            if tensor is not None and tensor.counts and key not in COUNTING:
                raise Mixes("the number of rows becomes data")
            if tensor is None:
                continue
            if (tensor.place and key not in ROW_NUMBERED) or (tensor.column and key not in COLUMNS):
                raise Mixes("a row's own number becomes data")

    def _version(self, domain: str) -> int:
        return self._versions.get(domain, 1 << 30 if domain == ONNX else 1)

    def _call(self, function: FunctionProto, node: Node) -> Sequence[State]:
        """The body of a function, which sees only what it is given."""
        attributes: Attributes = {each.name: each for each in function.attribute_proto}
        names = [each.name for each in node.proto.attribute]
        attributes |= {name: found for name in names if (found := node.attribute(name)) is not None}
        before = self._versions, self._outside
        self._versions = {_plain(each.domain): each.version for each in function.opset_import}
        self._outside = attributes
        scope: Scope = ChainMap()
        for place, name in enumerate(function.input):
            tensor = node.get(place)
            if tensor is not None:
                scope[name] = tensor
        missing = {name for name in function.input if name not in scope}
        try:
            self._nodes_of([_present(each, missing) for each in function.node] if missing else function.node, scope)
        finally:
            self._versions, self._outside = before
        return [scope.get(name, Mixed(f"nothing makes '{name}'")) for name in function.output]


def _present(proto: NodeProto, missing: set[str]) -> NodeProto:
    """A node of a function without the inputs that the call leaves out."""
    if missing.isdisjoint(proto.input):
        return proto
    copy = NodeProto()
    copy.CopyFrom(proto)
    for place, name in enumerate(copy.input):
        if name in missing:
            copy.input[place] = ""
    return copy


def _plain(domain: str) -> str:
    return ONNX if domain == "ai.onnx" else domain


def _shape(kind: TypeProto) -> Sequence[TensorShapeProto.Dimension]:
    return list(kind.tensor_type.shape.dim)


def _ordinal(axis: int) -> str:
    return ("first", "second", "third", "fourth", "fifth")[axis] if axis < 5 else f"{axis + 1}th"


def _certain(size: Size) -> bool:
    return is_count(size) and is_exact(size, WIDE)


def _checked(state: State, inputs: Sequence[Tensor | None]) -> State:
    """Refuses what a rule has lost: the rows, or their number, must be seen in what comes of them."""
    if isinstance(state, Mixed):
        return state
    if state.dims is not None:
        if any(has_batch(size) for axis, size in enumerate(state.dims) if axis != state.axis):
            return Mixed("the number of rows becomes another size")
        if state.axis is not None and not is_count(state.dims[state.axis]):
            return Mixed("the rows cannot be followed")
    varies = any(tensor is not None and tensor.varies for tensor in inputs)
    if varies and state.axis is None and state.integers is None:
        return Mixed("the number of rows becomes data")
    return state


def _explained(state: Mixed, proto: NodeProto) -> Mixed:
    return state if "'" in state.why else Mixed(f"{_named(proto)} mixes rows ({state.why})")


def _named(proto: NodeProto) -> str:
    """The operator, the node's name, and the user's line where the file has it."""
    name = proto.name or next((name for name in proto.output if name), "")
    line = next((line for line in proto.doc_string.splitlines() if line.strip()), "").split("   ")[0]
    if not line:
        trace = next((each.value for each in proto.metadata_props if each.key == "pkg.torch.onnx.stack_trace"), "")
        line = next((line for line in reversed(trace.splitlines()) if line.strip().startswith("File ")), "")
    text = f"{proto.op_type} '{name}'" + (f" ({line.strip()[:120]})" if line else "")
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:240]
