"""The globals that a pickle of weights may name, and their replacements. All others are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ox import dtypes
from ox.core.device import KINDS, device
from ox.core.size import Size
from ox.dtypes import DType
from ox.serialization.torch_checkpoint import containers, numpy_values, plain_values
from ox.serialization.torch_checkpoint.alternatives import instead_of, instead_of_type, python_3
from ox.serialization.torch_checkpoint.errors import Budget, UnreadableError
from ox.serialization.torch_checkpoint.tensors import STORAGES, SparseSpec, TensorSpec, tensor_spec
from ox.serialization.torch_checkpoint.unpickler import Allowed


class StorageType:
    """`torch.FloatStorage` and its like: an element type, or None for one that the tensors bring."""

    def __init__(self, name: str, dtype: DType | None) -> None:
        self.name, self.dtype = name, dtype


def find_global(module: str, name: str) -> Any:
    """The replacement of a global.

    Raises:
        UnreadableError: it is not on the list.
    """
    module = _RENAMED_MODULES.get(module, module.replace("numpy.core.", "numpy._core."))
    full = f"{module}.{name}"
    found = _ALLOWED.get(full)
    if found is not None:
        return found
    if module == "torch" and (name.endswith("Storage") or name.startswith(_TYPES)):
        raise UnreadableError(
            f"tensors of a type that ox has not ({full})",
            expected=", ".join(map(str, dtypes.ALL)),
            hint=instead_of_type(full),
        )
    full = python_3(full)
    raise UnreadableError(
        f"the global {full}, which a pickle could call",
        expected="tensors, numbers, strings and containers of them; nothing in a file is executed",
        hint=instead_of(full),
    )


def _tensor(
    budget: Budget, storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any = False,
    hooks: Any = None, metadata: Any = None,
) -> TensorSpec:  # fmt: skip
    _check_bits(metadata)
    return tensor_spec(storage, offset, size, stride, requires_grad, None, budget)


def _typed_tensor(
    budget: Budget, storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, dtype: Any,
    metadata: Any = None,
) -> TensorSpec:  # fmt: skip
    if not isinstance(dtype, np.dtype):
        raise UnreadableError("a tensor without an element type")
    _check_bits(metadata)
    return tensor_spec(storage, offset, size, stride, requires_grad, dtype, budget)


def _check_bits(metadata: Any) -> None:
    """PyTorch negates and conjugates some tensors only when they are read, and notes it beside them."""
    if isinstance(metadata, dict) and (metadata.get("neg") or metadata.get("conj")):
        raise UnreadableError(
            "a tensor with a lazy negation or conjugation",
            hint="where it was saved: tensor.resolve_neg().resolve_conj()",
        )


def _parameter(budget: Budget, data: Any, requires_grad: Any, hooks: Any, state: Any = None) -> TensorSpec:
    """Without its attributes."""
    if type(data) is not TensorSpec:
        raise UnreadableError("a parameter that is no tensor")
    data.requires_grad, data.is_parameter = requires_grad is True, True
    return data


def _of_subclass(budget: Budget, function: Any, kind: Any, arguments: Any, state: Any) -> Any:
    """A tensor with attributes: the tensor."""
    if type(function) is not Allowed or function.call not in (_tensor, _typed_tensor) or kind is not _TENSOR:
        raise UnreadableError("a tensor of a subclass", hint="tensor.data where it was saved")
    return function.call(budget, *arguments)


def _layout(budget: Budget, name: Any) -> str:
    if name != "torch.sparse_coo":
        raise UnreadableError(
            f"a tensor of layout {str(name)[:100]!r}",
            expected="dense ones, and torch.sparse_coo",
            hint=instead_of_type(str(name)),
        )
    return str(name)


def _sparse(budget: Budget, layout: Any, parts: Any) -> SparseSpec:
    indices, values, size, *coalesced = parts
    if type(indices) is not TensorSpec or type(values) is not TensorSpec or not isinstance(size, tuple):
        raise UnreadableError("a sparse tensor without indices, values and a size")
    return SparseSpec(indices, values, _size(budget, size), coalesced == [True])


def _size(budget: Budget, sizes: Any = ()) -> Size:
    budget.take(8 * len(sizes))
    if not all(type(n) is int and 0 <= n < 2**63 for n in sizes):
        raise UnreadableError("a torch.Size of something that is no size")
    return Size(sizes)


def _device(budget: Budget, kind: Any, index: Any = None) -> str:
    """A string where ox runs on no such device."""
    if type(kind) is not str or not (index is None or type(index) is int):
        raise UnreadableError("a torch.device without a name")
    return device(kind, index) if kind in KINDS else (kind if index is None else f"{kind}:{index}")


_TYPES = ("complex", "q", "float8", "float4", "bits")  # how those begin that ox has not
_RENAMED_MODULES = {"__builtin__": "builtins", "pathlib._local": "pathlib"}  # Python 2, and Python 3.13
_TENSOR = StorageType("torch.Tensor", None)  # named, never called
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _typed_tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch._utils._rebuild_sparse_tensor": _sparse,
    "torch._tensor._rebuild_from_type_v2": _of_subclass,
    "torch.serialization._get_layout": _layout,
    "torch.Size": _size,
    "torch.device": _device,
    **containers.FUNCTIONS,
    **plain_values.FUNCTIONS,
    "numpy.dtype": numpy_values.Kind,
    "numpy._core.multiarray.scalar": numpy_values.scalar,
    "numpy._core.multiarray._reconstruct": numpy_values.Array,
    "numpy._core.numeric._frombuffer": numpy_values.frombuffer,
}
_ALLOWED: dict[str, Any] = {
    **{name: Allowed(name, function) for name, function in _FUNCTIONS.items()},
    **{f"torch.{name}Storage": StorageType(f"torch.{name}Storage", dtype) for name, dtype in STORAGES.items()},
    **{f"torch.{dtype}": dtype for dtype in dtypes.ALL},
    "torch.storage.UntypedStorage": StorageType("torch.storage.UntypedStorage", None),
    "torch.Tensor": _TENSOR,
    "torch._tensor.Tensor": _TENSOR,
    "torch.nn.parameter.Parameter": _TENSOR,
    "numpy.ndarray": StorageType("numpy.ndarray", None),
    **numpy_values.TYPES,
    **plain_values.TYPES,
}


def storage_of(identity: Any, legacy: bool) -> tuple[StorageType, str, str, int]:
    """Type, key, device and number of elements of a persistent id: ``("storage", type, key, device, elements)``; in
    files before PyTorch 1.6 a sixth says which part of another one it is, which is no longer written."""
    if type(identity) is not tuple or len(identity) != (6 if legacy else 5) or identity[0] != "storage":
        raise UnreadableError("a persistent id that names no storage")
    _, kind, key, location, count, *part = identity
    if type(kind) is not StorageType or not kind.name.endswith("Storage"):
        raise UnreadableError("a storage of no known type")
    told = type(key) is str and type(location) is str and type(count) is int and count >= 0
    if not told or part not in ([], [None]):
        raise UnreadableError("a storage without a key, a device or a size")
    return kind, key, location, count


def size_of(kind: StorageType, count: int) -> int:
    """Bytes of a storage."""
    return count * (1 if kind.dtype is None else kind.dtype.itemsize)
