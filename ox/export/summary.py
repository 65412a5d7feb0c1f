"""What is in a file, for people and for scripts."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

import onnx

from ox.dtypes import FROM_ONNX
from ox.graph.contract import CONTRACT, DATA, GOLDEN, PROOF, RUN, VERSION, Contract, TensorInfo, dtype_name
from ox.graph.reader.model_file import holds, metadata_of, nodes_of, opset_of, parse, subgraphs, tensors_of

_P = onnx.TensorProto
_NUMBERS = (_P.UNDEFINED, _P.INT64, _P.INT32, _P.INT16, _P.UINT64, _P.UINT32, _P.UINT16, _P.BOOL, _P.STRING)


@dataclass(frozen=True)
class Summary:
    """Read from the file alone; its weights are not loaded. `parameters` counts elements of initializers, dense and
    sparse ones, and of `constants`: nodes Constant with several values in a type of weights. Both also in subgraphs,
    and in functions, whose nodes count once."""

    path: str
    size: int  # bytes, with external data
    external: tuple[str, ...]  # files beside it
    opset: int
    ir_version: int
    producer: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    nodes: dict[str, int]  # by type, the most frequent first
    functions: tuple[str, ...]
    parameters: int
    initializers: int
    constants: int
    version: str | None
    run: str | None
    golden: int
    metadata: dict[str, str]
    sizes: str  # the rules of the sizes that it is right for, where there are any

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`."""
        ends = {"inputs": [i.to_json() for i in self.inputs], "outputs": [o.to_json() for o in self.outputs]}
        return asdict(self) | ends


def inspect(path: str | os.PathLike[str]) -> Summary:
    """Summarise a file, whether ox wrote it or not.

    Raises:
        LoadError: missing, damaged, or not an ONNX file.
    """
    path = Path(path)
    model = parse(path)
    metadata = metadata_of(model)
    contract = Contract.from_metadata(metadata)
    external = sorted({e.value for t in tensors_of(model) for e in t.external_data if e.key == "location"} - {""})
    initializers, constants = list(_initializers(model)), list(_constants(model))
    folder = path.parent.resolve()
    beside = [
        folder / name for name in external if holds(folder, (folder / name).resolve()) and (folder / name).is_file()
    ]
    held = {t.name for t in model.graph.initializer}
    types = Counter(f"{n.domain}.{n.op_type}" if n.domain else n.op_type for n in model.graph.node)
    types.pop("Constant", None)
    own = {key for key in metadata if key in (CONTRACT, DATA, GOLDEN, PROOF, RUN, VERSION)}
    return Summary(
        str(path),
        path.stat().st_size + sum(f.stat().st_size for f in beside),
        tuple(external),
        opset_of(model),
        model.ir_version,
        f"{model.producer_name} {model.producer_version}".strip(),
        contract.inputs or tuple(_info(i) for i in model.graph.input if i.name not in held),
        contract.outputs or tuple(map(_info, model.graph.output)),
        dict(types.most_common()),
        tuple(f.name for f in model.functions),
        sum(initializers) + sum(constants),
        len(initializers),
        len(constants),
        contract.version,
        contract.run,
        len(contract.samples),
        {key: text for key, text in metadata.items() if key not in own},
        str(contract.rules),
    )


def _initializers(model: onnx.ModelProto) -> Iterator[int]:
    """The number of values of each initializer."""
    inside = [graph for node in nodes_of(model) for graph in subgraphs(node)]
    for graph in (model.graph, *inside):
        yield from (prod(tensor.dims) for tensor in graph.initializer)
        yield from (prod(sparse.values.dims) for sparse in graph.sparse_initializer)


def _constants(model: onnx.ModelProto) -> Iterator[int]:
    """The number of values of each constant that is a weight, not an axis, a shape or a single number."""
    for node in nodes_of(model):
        if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
            continue
        for attribute in node.attribute:
            tensor = attribute.sparse_tensor.values if attribute.name == "sparse_value" else attribute.t
            count = len(attribute.floats) if attribute.name == "value_floats" else prod(tensor.dims)
            if count > 1 and (attribute.name == "value_floats" or tensor.data_type not in _NUMBERS):
                yield count


def _info(info: onnx.ValueInfoProto) -> TensorInfo:
    tensor = info.type.tensor_type
    dims = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim]
    kind = info.type.WhichOneof("value")
    known = FROM_ONNX.get(tensor.elem_type)
    name = onnx.TensorProto.DataType.Name(tensor.elem_type) if kind == "tensor_type" else str(kind)
    ranked = kind != "tensor_type" or tensor.HasField("shape")
    return TensorInfo(info.name, dtype_name(known) if known is not None else name, tuple(dims), ranked=ranked)
