"""Tensors, types and attributes of a file as NumPy arrays and Python values."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ox.dtypes import FROM_ONNX
from ox.errors import LoadError
from ox.graph.ir import Array, Value

LARGEST_SPARSE = 1 << 28  # elements of a sparse tensor when it is written out


def array_of(tensor: onnx.TensorProto) -> Array:
    """A TensorProto as an array. Raises LoadError for element types that ox does not compute with, and for damage."""
    where = f"tensor '{tensor.name}'"
    if tensor.data_type not in FROM_ONNX:
        raise LoadError(
            "a tensor of an element type that ox does not compute with",
            where=where,
            expected=", ".join(map(str, FROM_ONNX.values())),
            got=_type_name(tensor.data_type),
        )
    if any(d < 0 for d in tensor.dims):
        raise LoadError("a tensor has a negative size", where=where, got=str(list(tensor.dims)))
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raise LoadError("the data of a tensor is in another file, which was not read", where=where)
    try:
        # a copy: what a file gives is read-only memory, and parameters are written
        array = numpy_helper.to_array(tensor).astype(FROM_ONNX[tensor.data_type])
        return array.reshape(tuple(tensor.dims))
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise LoadError(f"the data of tensor '{tensor.name}' is damaged", got=str(error)) from error


def dense(sparse: onnx.SparseTensorProto) -> Array:
    """A sparse tensor written out. Raises LoadError where indices lie outside, or the whole would be too large."""
    values, indices = array_of(sparse.values), array_of(sparse.indices)
    dims, where = tuple(sparse.dims), f"sparse tensor '{sparse.values.name}'"
    if any(d < 0 for d in dims) or prod(dims) > LARGEST_SPARSE:
        raise LoadError(
            "a sparse tensor is too large to be written out",
            where=where,
            expected=f"at most {LARGEST_SPARSE:,} elements",
            got=str(list(dims)),
        )
    count = values.size
    fits = indices.shape in ((count,), (count, len(dims))) and values.ndim == 1 and indices.dtype == np.int64
    bounds = np.array(dims if indices.ndim == 2 else prod(dims), np.int64)
    if not fits or not ((indices >= 0) & (indices < bounds)).all():
        raise LoadError("the indices of a sparse tensor do not fit it", where=where, got=str(list(indices.shape)))
    whole = np.zeros(prod(dims), values.dtype)
    if count:
        whole[np.ravel_multi_index(tuple(indices.T), dims) if indices.ndim == 2 else indices] = values
    return whole.reshape(dims)


def _type_name(number: int) -> str:
    names = onnx.TensorProto.DataType
    return str(names.Name(number)) if number in names.values() else str(number)


def value_of(info: onnx.ValueInfoProto) -> Value:
    """Name, type and sizes of a declared input or output; a sequence or optional has neither type nor sizes.

    Raises:
        LoadError: a tensor of an element type that ox does not compute with, or another kind of value.
    """
    kind = info.type.WhichOneof("value")
    if kind in (None, "sequence_type", "optional_type"):
        return Value(info.name)
    tensor = info.type.tensor_type
    if kind != "tensor_type" or tensor.elem_type not in FROM_ONNX:
        got = _type_name(tensor.elem_type) if kind == "tensor_type" else str(kind)
        raise LoadError(f"'{info.name}' is no tensor that ox computes with", got=got)
    dims = None
    if tensor.HasField("shape"):
        dims = tuple(
            d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else d.dim_param or "?"
            for d in tensor.shape.dim
        )
    return Value(info.name, FROM_ONNX[tensor.elem_type], dims)


def constant_of(node: onnx.NodeProto, attributes: dict[str, onnx.AttributeProto]) -> Array:
    """The value of a Constant node. Raises LoadError where it has none that ox computes with."""
    kinds = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    for name, a in attributes.items():
        if name == "value" and a.HasField("t"):
            return array_of(a.t)
        if name == "sparse_value" and a.HasField("sparse_tensor"):
            return dense(a.sparse_tensor)
        if name in kinds:
            return np.asarray(attribute_value(a), kinds[name])
    raise LoadError(
        "a Constant without a value that ox computes with",
        where=node.doc_string or node.name or None,
        got=", ".join(attributes),
    )


def attribute_value(a: onnx.AttributeProto) -> Any:
    """An attribute as the Python value that an operator takes."""
    try:
        value = helper.get_attribute_value(a)
    except (ValueError, TypeError) as error:
        raise LoadError(f"the attribute '{a.name}' is damaged", got=str(error)) from error
    if isinstance(value, onnx.TensorProto):
        return array_of(value)
    if isinstance(value, onnx.SparseTensorProto):
        return dense(value)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if a.type == onnx.AttributeProto.STRINGS:
        return [item.decode(errors="replace") for item in value]
    return list(value) if a.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS) else value
