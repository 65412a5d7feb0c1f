"""What is in a file, for people and for scripts."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

import onnx

from ox.dtypes import FROM_ONNX
from ox.graph.contract import CONTRACT, DATA, GOLDEN, PROOF, RUN, VERSION, Contract, TensorInfo, dtype_name
from ox.graph.reader.model_file import holds, metadata_of, opset_of, parse


@dataclass(frozen=True)
class Summary:
    """Read from the file alone; its weights are not loaded. `parameters` counts elements of initializers."""

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
    external = sorted({e.value for t in model.graph.initializer for e in t.external_data if e.key == "location"} - {""})
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
        sum(prod(t.dims) for t in model.graph.initializer),
        len(model.graph.initializer),
        contract.version,
        contract.run,
        len(contract.samples),
        {key: text for key, text in metadata.items() if key not in own},
        str(contract.rules),
    )


def _info(info: onnx.ValueInfoProto) -> TensorInfo:
    tensor = info.type.tensor_type
    dims = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim]
    kind = info.type.WhichOneof("value")
    known = FROM_ONNX.get(tensor.elem_type)
    name = onnx.TensorProto.DataType.Name(tensor.elem_type) if kind == "tensor_type" else str(kind)
    ranked = kind != "tensor_type" or tensor.HasField("shape")
    return TensorInfo(info.name, dtype_name(known) if known is not None else name, tuple(dims), ranked=ranked)
