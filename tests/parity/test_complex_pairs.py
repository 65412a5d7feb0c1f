"""What ox.fft gives stands for complex numbers: every method and function gives PyTorch's numbers on it, or refuses."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import ox

torch = pytest.importorskip("torch", reason="PyTorch is the other side of these comparisons")

SIGNAL = np.random.default_rng(0).standard_normal((4, 5))
# what comes behind the tensor: nothing, a number, a dimension, two of them, a tensor like it, a real one
BEHIND: list[Any] = [
    (), (2.0,), (0,), (1,), (-1,), (2,), (0, 1), (-1, -2), (0, 0), ("same",), ("real",), ("scalar",), (1, 0, 2),
    (0, "index"), ("mask",), (0, 1, 2),
]  # fmt: skip
# which say where and what a tensor is; memory, random numbers, conversions that name a type
APART = {
    "shape", "size", "dim", "ndim", "numel", "nelement", "ndimension", "element_size", "itemsize", "nbytes", "stride",
    "data", "dtype", "register_hook", "retain_grad", "retains_grad", "grad", "grad_fn", "backward", "storage_offset",
    "data_ptr", "is_contiguous", "requires_grad", "requires_grad_", "new", "new_tensor", "new_empty",
    "empty_like", "rand_like", "randn_like", "T",
    "normal_", "uniform_", "random_", "bernoulli_", "exponential_", "cauchy_", "geometric_", "log_normal_", "dropout",
    "register_post_accumulate_grad_hook", "is_floating_point", "can_cast", "result_type", "broadcast_shapes",
    "is_tensor", "is_nonzero", "is_signed", "is_set_to", "array", "get_device", "is_pinned", "pin_memory", "set_",
    "share_memory_", "is_shared", "finfo", "empty", "is_storage", "get_rng_state", "set_rng_state", "manual_seed",
    "seed", "initial_seed", "set_printoptions", "set_default_dtype", "numpy", "set_num_threads", "is_same_size",
    "set_default_device", "save", "load", "unique", "share_memory", "sparse_mask", "is_sparse",
    "broadcast_tensors", "atleast_1d", "atleast_2d", "atleast_3d", "randint_like", "module_load", "set_grad_enabled",
    "use_deterministic_algorithms", "set_float32_matmul_precision", "compile", "is_inference", "tensor", "as_tensor",
    "asarray", "scalar_tensor", "is_coalesced", "is_leaf", "vmap", "set_flush_denormal", "rand", "randn", "zeros",
    "ones", "bernoulli", "device", "fill", "layout", "no_grad", "Tensor", "grad_mode", "version", "unravel_index",
}  # fmt: skip


SPECTRA = [T.fft.fft(T.tensor(SIGNAL)) for T in (ox, torch)]


def sides() -> list[Any]:
    return [z.clone() for z in SPECTRA]


def given(T: Any, z: Any, kind: Any) -> Any:
    made = {
        "same": lambda: z, "real": lambda: T.ones(4, 5, dtype=T.float64) * 2,
        "scalar": lambda: T.tensor(2.0, dtype=T.float64), "index": lambda: T.tensor([0, 2]),
        "mask": lambda: T.ones(4, 5, dtype=T.bool),
    }  # fmt: skip
    return made[kind]() if isinstance(kind, str) else kind


def numbers(value: Any) -> Any:
    """Complex or real numbers as NumPy has them."""
    if isinstance(value, (tuple, list)):
        return [numbers(v) for v in value]
    if isinstance(value, ox.Tensor):
        return value.detach().numpy()
    if isinstance(value, torch.Tensor):
        return value.detach().resolve_conj().resolve_neg().numpy()
    return value


def same(a: Any, b: Any) -> bool:
    if isinstance(a, list) or isinstance(b, list):
        return isinstance(a, list) and isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        a, b = np.asarray(a), np.asarray(b)
        return bool(a.shape == b.shape and np.allclose(a, b, equal_nan=True))
    return bool(np.isclose(a, b)) if isinstance(a, complex) else bool(a == b)


def differing(name: str, of: str) -> list[str]:
    """The calls of a method or a function that give something in both libraries, and not the same."""
    found = []
    for behind in BEHIND:
        results = []
        for T, z in zip((ox, torch), sides(), strict=True):
            rest = [given(T, z, kind) for kind in behind]
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    if of == "method":
                        member = getattr(z, name)
                        result = member(*rest) if callable(member) else member
                    else:
                        result = getattr(T, name)(z, *rest)
                results.append((numbers(result), numbers(z)))
            except Exception:  # refused by either is no other number
                break
        if len(results) == 2 and not all(same(a, b) for a, b in zip(*results, strict=True)):
            found.append(f"{name}{behind}: {getattr(results[0][0], 'shape', results[0][0])}")
    return found


NAMES = sorted(
    [
        *(
            (n, "method")
            for n in dir(torch.Tensor)
            if n not in APART and not n.startswith("_") and hasattr(ox.Tensor, n)
        ),
        *((n, "function") for n in dir(torch) if n not in APART and n in ox.__all__ and callable(getattr(ox, n))),
    ]
)


@pytest.mark.parametrize("of", ["method", "function"])
def test_no_other_numbers_than_pytorchs(of: str) -> None:
    assert len(NAMES) > 500
    found = [line for name, kind in NAMES if kind == of for line in differing(name, of)]
    assert not found, "\n".join(found)
