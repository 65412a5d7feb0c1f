"""Weights in a file, written from their arrays piece by piece: protobuf would hold each of them twice more."""

from __future__ import annotations

from typing import BinaryIO
from zlib import crc32

import onnx
from onnx import TensorProto

from ox.dtypes import onnx_type
from ox.graph.array_bytes import length_of, pieces
from ox.graph.contract import DATA_MARK
from ox.graph.ir import Array, Graph
from ox.graph.writer.write import tensor_proto
from ox.protobuf import varint

Places = dict[str, tuple[int, int]]  # where the bytes of a weight begin in a file, and how many there are

SMALL = 1024  # bytes; what is smaller is never apart from the model
PAGE_BYTES = 4096  # where each weight of a data file begins, so that it can be mapped into memory

# tags of protobuf: a field's number and wire type 2, which is a length and as many bytes
_GRAPH = onnx.ModelProto.DESCRIPTOR.fields_by_name["graph"].number << 3 | 2
_INITIALIZER = onnx.GraphProto.DESCRIPTOR.fields_by_name["initializer"].number << 3 | 2
_RAW_DATA = TensorProto.DESCRIPTOR.fields_by_name["raw_data"].number << 3 | 2


def without_weights(model: onnx.ModelProto, graph: Graph) -> onnx.ModelProto:
    """What `to_model` makes with ``weights=False``, without what the graph owns among the inputs."""
    weights = {v.name for v in graph.owned} - {v.name for v in graph.overridable}
    kept = [info for info in model.graph.input if info.name not in weights]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return model


def write_inside(bare: onnx.ModelProto, graph: Graph, file: BinaryIO) -> Places:
    """The model with what the graph owns as its initializers; `bare` has none.

    Returns:
        Where the large ones are in the file.
    """
    large = _large(graph)
    heads: dict[str, bytes] = {}
    lengths: dict[str, int] = {}  # of the data behind the head
    for name, array in _owned(graph):
        lengths[name] = length_of(array) if name in large else 0
        inner = _info(name, array) if name in large else tensor_proto(array, name)
        head = inner.SerializeToString() + (varint(_RAW_DATA) + varint(lengths[name]) if name in large else b"")
        heads[name] = varint(_INITIALIZER) + varint(len(head) + lengths[name]) + head
    body = bare.graph.SerializeToString()
    rest = onnx.ModelProto()
    rest.CopyFrom(bare)
    rest.ClearField("graph")
    total = len(body) + sum(len(head) + lengths[name] for name, head in heads.items())
    file.write(rest.SerializeToString() + varint(_GRAPH) + varint(total) + body)
    places: Places = {}
    for name, head in heads.items():
        file.write(head)
        if name in large:
            places[name] = file.tell(), lengths[name]
            file.writelines(pieces(large[name]))
    return places


def write_beside(graph: Graph, file: BinaryIO) -> tuple[Places, str]:
    """The large weights one after another, and behind them a checksum; where they are, and the checksum. It stands at
    the end, so that whoever opens a model can tell whether the data are its own without reading them."""
    places: Places = {}
    checksum = 0
    for name, array in _large(graph).items():
        file.seek(-(-file.tell() // PAGE_BYTES) * PAGE_BYTES)
        places[name] = file.tell(), length_of(array)
        for piece in pieces(array):
            checksum = crc32(piece, checksum)
            file.write(piece)
    mark = f"{checksum:08x}"
    file.write(DATA_MARK + mark.encode())
    return places, mark


def pointing(bare: onnx.ModelProto, graph: Graph, places: Places, location: str) -> onnx.ModelProto:
    """The model with small weights inside, and large ones as places in a file of that name in its folder."""
    model = onnx.ModelProto()
    model.CopyFrom(bare)
    for name, array in _owned(graph):
        if name not in places:
            model.graph.initializer.append(tensor_proto(array, name))
            continue
        tensor = model.graph.initializer.add()
        tensor.CopyFrom(_info(name, array))
        tensor.data_location = TensorProto.EXTERNAL
        offset, length = places[name]
        for key, text in (("location", location), ("offset", str(offset)), ("length", str(length))):
            tensor.external_data.add(key=key, value=text)
    return model


def _owned(graph: Graph) -> list[tuple[str, Array]]:
    return [(v.name, array) for v, array in graph.constants.items() if v in graph.owned]


def _large(graph: Graph) -> dict[str, Array]:
    return {name: array for name, array in _owned(graph) if array.nbytes >= SMALL and not array.dtype.hasobject}


def _info(name: str, array: Array) -> TensorProto:
    """Name, type and sizes, without the data."""
    return TensorProto(name=name, data_type=onnx_type(array.dtype), dims=array.shape)
