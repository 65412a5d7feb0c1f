"""`ox.export.load`: an ONNX file as a living model. Importing is replaying, so there is nothing to translate."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ox.core.operator import OPS, as_input
from ox.dtypes import is_floating
from ox.errors import ArgumentError, DTypeError, LoadError, OxError, ShapeError
from ox.functions import ones_like
from ox.graph.contract import CONTRACT, DATA, GOLDEN, PROOF, RUN, VERSION, Contract, TensorInfo, dtype_name, show_dims
from ox.graph.ir import Graph, Node, Value
from ox.graph.reader.model_file import metadata_of, nodes_of, opset_of
from ox.graph.reader.read import from_model
from ox.graph.reader.source import read_apart
from ox.graph.reader.weights import quantized_weights, trainable_weights
from ox.graph.replay import call, replay
from ox.graph.writer.opset import NEWEST
from ox.nn.base.module import Module
from ox.nn.functional import dropout
from ox.nn.parameter import Buffer, Parameter
from ox.onnx_module.file_sizes import check_sizes, note_sizes
from ox.onnx_module.merged_weights import separate_merged_weights, shared_weights
from ox.remote import is_address, local_copy
from ox.tensors.tensor import Tensor

OLDEST = 7  # opset; before it operators broadcast by an attribute


class Loaded(Module):
    """A module that runs the graph of a file. Initializers are its parameters or, where they cannot learn, its buffers,
    under the file's own names. A parameter is floating, a gradient reaches it, and it has more than one element or is a
    layer's weight or bias: bounds, scales of a Resize, epsilons and running statistics are buffers.

    In train mode a BatchNormalization normalizes by its batch and moves its running statistics, and a Dropout drops, by
    the generator of `ox.manual_seed`; in eval mode neither does, even where the file was written in training mode.
    Other operators do the same in both modes.

    Attributes:
        graph: what runs; `ox.graph.ir.Graph`.
        contract: the metadata of inputs and outputs in the file; `ox.export.save` keeps it.
        metadata: what else stands in its `metadata_props`; kept, too.
        opset: the `ai.onnx` version that the file was written in.
        state: its parameters and buffers by name.
        quantized: how many elements of weights are integers, by element type; they cannot learn, and neither can what
            comes before an operator that rounds to integers.
        shared_weights: for files of other tools, the names of parameters that several nodes read, and how many do. They
            are trained together. Some exporters store equal weights once, such as those of a net before training.
        overridable: parameters that the file lists as inputs too: a call may give others, by name.
    """

    def __init__(self, graph: Graph, contract: Contract, metadata: dict[str, str], opset: int) -> None:
        super().__init__()
        self.graph, self.contract, self.opset = graph, contract, opset
        self.metadata = {
            key: text for key, text in metadata.items() if key not in (CONTRACT, DATA, GOLDEN, PROOF, RUN, VERSION)
        }
        buffers = set(metadata.get("ox.buffers", "").split("\n"))
        self.quantized = quantized_weights(graph)
        listed = VERSION in metadata and not self.quantized  # files of ox list the trainable weights
        learning = graph.owned if listed else trainable_weights(graph)
        self.overridable = tuple(v.name for v in graph.overridable)
        self.state: dict[str, Tensor] = {}
        self.shared_weights: dict[str, int] = {}
        uses = {} if VERSION in metadata else shared_weights(graph)
        statistics = set(_statistics(graph))
        for value in list(graph.constants):
            if value not in graph.owned:
                continue
            array = graph.constants[value]
            learns = value in learning and value.name not in buffers and value not in statistics
            tensor = Parameter(array) if learns and is_floating(array.dtype) else Buffer(array)
            _place(self, value.name, tensor)
            self.state[value.name] = tensor
            if value.name in uses and isinstance(tensor, Parameter):
                self.shared_weights[value.name] = uses[value.name]

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Run the graph on tensors in the order of the file's inputs, or by their names. Returns one tensor, or a tuple
        in the order of the file's outputs.

        Raises:
            ArgumentError: an input is missing or unknown.
            DTypeError: an input of another element type than the file declares.
            ShapeError: an input of another shape, two sizes under one name, or sizes for which the file says that it is
                not.
        """
        state = self.state
        if self.overridable:
            given = {name: as_input(named.pop(name)) for name in self.overridable if name in named}
            for value in self.graph.overridable:
                if value.name in given:
                    _check(value, given[value.name])
            state = state | given
        tensors = self._arguments(inputs, named)
        for value, x in zip(self.graph.inputs, tensors, strict=True):
            _check(value, x)
        check_sizes(self.contract, tensors)
        note_sizes(self.contract, tensors)
        results = replay(self.graph, tensors, state, self.run)
        return results[0] if len(results) == 1 else tuple(results)

    def _arguments(self, inputs: Sequence[Any], named: dict[str, Any]) -> list[Tensor]:
        names = [v.name for v in self.graph.inputs]
        given = dict(zip(names, inputs, strict=False)) | named
        if len(inputs) > len(names) or set(given) != set(names) or len(inputs) + len(named) != len(given):
            raise ArgumentError(
                "the inputs are not those of the file",
                expected=", ".join(names),
                got=", ".join([*(f"{len(inputs)} by position" for _ in inputs[:1]), *named]) or "none",
            )
        return [as_input(given[name]) for name in names]

    def run(self, node: Node, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        """Run a node as training or evaluation wants it."""
        if node.key == "BatchNormalization":
            return self._normalize(node, inputs)
        if node.key == "Dropout":
            return self._drop(node, inputs)
        return call(node, inputs)

    def _normalize(self, node: Node, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        if not self.training:
            if not node.attributes.get("training_mode"):
                return call(node, inputs)
            settled = replace(node, attributes={**node.attributes, "training_mode": 0}, outputs=node.outputs[:1])
            statistics = [x for x in inputs[3:5] if x is not None]
            return (*call(settled, inputs), *statistics)[: len(node.outputs)]
        attributes = {**node.attributes, "training_mode": 1}
        y, mean, variance = OPS["BatchNormalization"](*inputs, outputs=3, **attributes)
        for kept, new in zip(inputs[3:5], (mean, variance), strict=True):
            if isinstance(kept, Buffer):
                kept.copy_(new.detach())
        return (y, mean, variance)[: len(node.outputs)]

    def _drop(self, node: Node, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        """An input of the file for the mode overrides the module's mode."""
        told = node.inputs[2] if len(node.inputs) > 2 else None
        if told in self.graph.inputs:
            return call(node, inputs)
        if not self.training:
            return call(replace(node, inputs=node.inputs[:2]), inputs[:2])
        if told is not None:
            return call(node, inputs)
        (x, *given) = inputs
        assert x is not None
        ratio = 0.5 if not given or given[0] is None else float(given[0].array)
        if len(node.outputs) == 1:
            return (dropout(x, ratio),)
        kept = dropout(ones_like(x), ratio)
        return x * kept, kept != 0


def load(path: str | os.PathLike[str]) -> Loaded:
    """Read an ONNX file as a module: named parameters, differentiable, trainable, and `ox.export.save` writes it back
    with the same names and the same interface. It comes in eval mode: a call computes what the file computes, and
    moves no statistics; `.train()` revives BatchNormalization and Dropout.

    Args:
        path: a file, or the address of one, which is downloaded: ``s3://``, ``gs://``, ``hf://``, ``mlflow:``.

    Raises:
        ArgumentError: `path` is no path.
        LoadError: missing, damaged or hostile files, external data outside the file's folder, and operators,
            attributes or element types that ox does not have.
    """
    if not isinstance(path, str | os.PathLike):
        raise ArgumentError("the path is none", got=type(path).__name__, hint="ox.export.load('model.onnx')")
    if isinstance(path, str) and is_address(path):
        path = local_copy(path)
    try:
        model, weights = read_apart(path)
    except LoadError as error:
        if str(path) not in error.what:
            error.where = ", ".join(filter(None, [str(path), error.where]))
        raise
    opset = opset_of(model)
    # a file of trees alone imports ai.onnx.ml, and no ai.onnx
    foreign = not opset and not any(node.domain in ("", "ai.onnx") for node in nodes_of(model))
    if not foreign and not OLDEST <= opset <= NEWEST:
        raise LoadError(
            f"{path} is written in opset {opset}",
            expected=f"{OLDEST} to {NEWEST}",
            hint="onnx.version_converter.convert_version(model, 21)" if 0 < opset < OLDEST else None,
        )
    metadata = metadata_of(model)
    try:
        graph = from_model(model, weights)
        _check_ends(graph)
        contract = Contract.from_metadata(metadata)
    except OxError as error:
        error.where = ", ".join(filter(None, [str(path), error.where]))
        raise
    except RecursionError as error:
        raise LoadError(f"{path} nests its functions too deeply") from error
    if VERSION not in metadata:  # a file of ox stores what is shared once, and nothing else
        separate_merged_weights(graph)
    if [i.name for i in contract.inputs] != [v.name for v in graph.inputs]:
        contract = Contract(tuple(map(_info_of, graph.inputs)), tuple(map(_info_of, graph.outputs)))
    for node in graph.all_nodes():
        _warn_of_corners(graph, node, path)
    return Loaded(graph, contract, metadata, opset).eval()


def _warn_of_corners(graph: Graph, node: Node, path: str | os.PathLike[str]) -> None:
    """The standard aligns corners by the size before rounding, PyTorch and ONNX Runtime by the rounded one."""
    if node.key != "Resize" or node.attributes.get("coordinate_transformation_mode") != "align_corners":
        return
    scales = node.inputs[2] if len(node.inputs) > 2 else None
    factors = None if scales is None else graph.constants.get(scales)
    if factors is not None and (factors % 1 != 0).any():
        warnings.warn(
            f"{path}: {node.name or node.place or 'a Resize'} aligns corners by the scales {factors.tolist()}: where a "
            "size times its scale is not whole, ONNX Runtime and PyTorch give other values than the standard and ox; "
            "sizes instead of scales give the same everywhere",
            stacklevel=3,
        )


def _check_ends(graph: Graph) -> None:
    """Raise LoadError where the model as a whole takes what is no tensor."""
    for v in graph.inputs:
        if v.dtype is None:
            raise LoadError(
                f"input '{v.name}' is no tensor",
                expected="tensors; sequences and optionals only inside",
                hint="ox.graph.backend.prepare(model).run(inputs), which takes them",
            )


def _statistics(graph: Graph) -> Iterator[Value]:
    """The running statistics of every BatchNormalization, as values of `graph`."""
    for node in graph.nodes:
        if node.key == "BatchNormalization":
            yield from (v for v in node.inputs[3:5] if v is not None)
        for _, inside in node.subgraphs():
            outside = dict(zip(inside.captures, node.inputs[len(node.inputs) - len(inside.captures) :], strict=True))
            yield from (outer for v in _statistics(inside) if (outer := outside.get(v)) is not None)


def _info_of(value: Value) -> TensorInfo:
    """The metadata of an input or output of a file without a contract."""
    dtype = value.dtype if value.dtype is not None else np.dtype(np.float32)
    dims = tuple(None if d == "?" else d for d in value.dims or ())
    return TensorInfo(value.name, dtype_name(dtype), dims, ranked=value.dims is not None)


def _place(module: Module, name: str, tensor: Tensor) -> None:
    """Register under a dotted name. Straight into the tables: a file may use names that no attribute can have."""
    *path, last = name.split(".")
    if not all([*path, last]):  # '..': such parts would not come together to the name again
        path, last = [], name
    for part in path:
        inner = module._modules.get(part)
        if inner is None:
            inner = module._modules[part] = Module()
        module = inner
    table: dict[str, Any] = module._parameters if isinstance(tensor, Parameter) else module._buffers
    table[last] = tensor


def _check(value: Value, x: Tensor) -> None:
    if value.dtype is not None and x.array.dtype != value.dtype:
        raise DTypeError(
            f"input '{value.name}' has another element type", expected=str(value.dtype), got=str(x.array.dtype),
            hint=f"x.to(ox.{value.dtype})",
        )  # fmt: skip
    if value.dims is None:
        return
    shape = x.static_shape
    fits = len(shape) == len(value.dims) and all(
        isinstance(d, str) or d == n for d, n in zip(value.dims, shape, strict=True)
    )
    if not fits:
        raise ShapeError(
            f"input '{value.name}' has another shape", expected=show_dims(value.dims), got=str(list(shape))
        )
