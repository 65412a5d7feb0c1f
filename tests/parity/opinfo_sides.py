"""A sample of PyTorch's OpInfo database on both sides: the same values in the same memory layout; results compared."""

from __future__ import annotations

import functools
import types
from typing import Any

import ml_dtypes
import numpy as np
import torch

import ox
from ox import tolerance
from ox.tensors.complex_pairs import ComplexPairs


class OutsideError(Exception):
    """A sample that speaks of what ox does not have: complex numbers, sparse layouts but COO, quantized tensors."""


def outside(value: Any) -> bool:
    """Whether a value is of a kind that ox does not have."""
    if isinstance(value, torch.Tensor):
        return value.is_complex() or value.layout is not torch.strided or value.is_quantized or value.is_nested
    if isinstance(value, torch.dtype):
        return value.is_complex or not hasattr(ox, name_of(value))
    if isinstance(value, torch.layout):
        return value not in (torch.strided, torch.sparse_coo)
    return isinstance(value, (complex, torch.Generator))


def name_of(constant: Any) -> str:
    """``float32`` of ``torch.float32``."""
    return str(constant).removeprefix("torch.")


class Side:
    """One side's copies of a sample's tensors, each made once; `leaves` are those that a gradient follows."""

    def __init__(self) -> None:
        self.made: dict[int, Any] = {}
        self.leaves: list[Any] = []

    def __call__(self, value: Any) -> Any:
        if outside(value):
            raise OutsideError(repr(value))
        if isinstance(value, torch.Tensor):
            if id(value) not in self.made:
                copy = self.made[id(value)] = self.tensor(value)
                if value.requires_grad:
                    self.leaves.append(copy.requires_grad_())
            return self.made[id(value)]
        if isinstance(value, (list, tuple)):
            parts = [self(v) for v in value]
            return type(value)(parts) if type(value) in (list, tuple, torch.Size) else type(value)(*parts)
        if isinstance(value, dict):
            return {k: self(v) for k, v in value.items()}
        if isinstance(value, slice):
            return slice(self(value.start), self(value.stop), self(value.step))
        return self.other(value)

    def tensor(self, value: torch.Tensor) -> Any:
        raise NotImplementedError

    def other(self, value: Any) -> Any:
        return value


class Theirs(Side):
    def tensor(self, value: torch.Tensor) -> Any:
        return memory(value).as_strided(value.shape, value.stride(), value.storage_offset())


class Ours(Side):
    def tensor(self, value: torch.Tensor) -> Any:
        flat = array_of(memory(value))[value.storage_offset() :]
        strides = [s * flat.itemsize for s in value.stride()]
        return ox.from_numpy(np.lib.stride_tricks.as_strided(flat, tuple(value.shape), strides))

    def other(self, value: Any) -> Any:
        if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
            return getattr(ox, name_of(value), name_of(value))
        if isinstance(value, torch.device):
            return ox.device(str(value))
        if isinstance(value, torch.nn.Module):
            return getattr(ox.nn, type(value).__name__)()
        if isinstance(value, types.BuiltinFunctionType) and hasattr(ox.nn.functional, value.__name__):
            return getattr(ox.nn.functional, value.__name__)
        return rebound(value) if isinstance(value, types.FunctionType) else value


def memory(value: torch.Tensor) -> torch.Tensor:
    """All of the memory in which a tensor lies, copied."""
    value = value.detach().resolve_conj().resolve_neg()
    count = value.untyped_storage().nbytes() // value.element_size()
    return value.as_strided((count,), (1,), 0).clone()


def array_of(value: torch.Tensor) -> Any:
    if value.dtype == torch.bfloat16:
        return value.detach().contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return value.numpy(force=True)


def rebound(function: Any) -> Any:
    """A function of PyTorch's tests that works on ox's tensors: `torch` in it means ox."""
    if isinstance(function, functools.partial):
        return functools.partial(rebound(function.func), *function.args, **function.keywords)
    if not isinstance(function, types.FunctionType):
        return function
    names = {**function.__globals__, "torch": ox}
    made = types.FunctionType(function.__code__, names, None, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def difference(got: Any, expected: Any, values: bool = True) -> str | None:
    """What is different between a result and PyTorch's: structure, type, shape, values; None where nothing is."""
    if isinstance(expected, torch.Tensor):
        return tensor_difference(got, expected, values)
    if isinstance(expected, (tuple, list)):
        if not isinstance(got, (tuple, list)) or len(got) != len(expected):
            return f"{type(got).__name__} in place of {len(expected)} results"
        if isinstance(expected, list) != isinstance(got, list):
            return f"a {type(got).__name__} in place of a {type(expected).__name__}"
        fields = getattr(expected, "_fields", None) or struct_fields(expected)
        if fields and any(not hasattr(got, field) for field in fields):
            return f"a result without the names {fields}"
        found = (difference(g, e, values) for g, e in zip(got, expected, strict=True))
        return next((f"result {i}: {text}" for i, text in enumerate(found) if text), None)
    if isinstance(expected, torch.dtype):
        return None if got == getattr(ox, name_of(expected)) else f"{got} in place of {expected}"
    if type(got) is not type(expected) or (values and got != expected and (got == got or expected == expected)):
        return f"{got!r} in place of {expected!r}"
    return None


def struct_fields(result: Any) -> list[str]:
    """The names of the results of PyTorch's functions that have some."""
    if not type(result).__module__.startswith("torch.return_types"):
        return []
    return [k for k, v in vars(type(result)).items() if isinstance(v, types.MemberDescriptorType)]


def tensor_difference(got: Any, expected: torch.Tensor, values: bool) -> str | None:
    expected, got = paired(expected), paired(got)
    if expected.layout is torch.sparse_coo:
        got, expected = getattr(got, "to_dense", lambda: got)(), expected.to_dense()
    if not isinstance(got, ox.Tensor):
        return f"a {type(got).__name__} in place of a tensor"
    if str(got.dtype) != name_of(expected.dtype):
        return f"{got.dtype} in place of {name_of(expected.dtype)}"
    if tuple(got.shape) != tuple(expected.shape):
        return f"shape {list(got.shape)} in place of {list(expected.shape)}"
    if not values:
        return None
    delta = tolerance.compare(got.detach().numpy(), array_of(expected))
    return None if delta.ok else f"values are {delta.max_abs:.3g} apart, {delta.allowed:.3g} allowed"


def paired(value: Any) -> Any:
    """Complex numbers as ox has them: pairs in a last dimension."""
    if isinstance(value, torch.Tensor):
        return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    return ox.view_as_real(value) if isinstance(value, ComplexPairs) else value


def cotangent(package: Any, result: Any) -> Any:
    """What flows back into a result: numbers that tell elements apart."""
    count = int(np.prod(tuple(result.shape), dtype=int))
    values = np.cos(np.arange(count)).reshape(tuple(result.shape))
    return package.tensor(values).to(result.dtype)


def gradients(package: Any, result: Any, leaves: list[Any]) -> list[Any]:
    """The gradients of all leaves; zeros for those that no gradient reaches."""
    results = [r for r in flat(result) if getattr(r, "requires_grad", False)]
    if not results or not leaves:
        return [package.zeros_like(leaf) for leaf in leaves]
    results = [paired(r) for r in results]
    seeds = [cotangent(package, r) for r in results]
    found = package.autograd.grad(results, leaves, seeds, allow_unused=True)
    return [package.zeros_like(x) if g is None else g for g, x in zip(found, leaves, strict=True)]


def flat(result: Any) -> list[Any]:
    return [r for part in result for r in flat(part)] if isinstance(result, (tuple, list)) else [result]
