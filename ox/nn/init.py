"""Initial values, written in place; the distributions of `torch.nn.init` from ox's own generator."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from ox import random
from ox.core.mode import switch_mode
from ox.core.operator import as_input
from ox.core.promotion import cast
from ox.errors import ArgumentError
from ox.functions import full_like
from ox.nn import truncated_normal
from ox.tensors.tensor import Tensor

_LINEAR = ["linear", *(f"conv{t}{n}d" for t in ("", "_transpose") for n in (1, 2, 3))]
_GAINS = {**dict.fromkeys(_LINEAR, 1.0), "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 0.75}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor that keeps a signal's size through a nonlinearity. `torch.nn.init.calculate_gain`."""
    if nonlinearity == "leaky_relu":
        return math.sqrt(2 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in _GAINS:
        raise ArgumentError(f"no gain is known for {nonlinearity!r}", expected=", ".join([*_GAINS, "leaky_relu"]))
    return _GAINS[nonlinearity]


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """What a unit of this weight takes in and gives out. PyTorch's name, which layers that people write call."""
    shape = tensor.static_shape
    if len(shape) < 2:
        raise ArgumentError("a fan needs two dimensions or more", got=f"shape {list(shape)}")
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


_skipping: ContextVar[bool] = ContextVar("ox_skip_init", default=False)


@contextmanager
def skipped() -> Iterator[None]:
    """Uniform and normal values are not drawn in this block; see `ox.nn.utils.skip_init`."""
    token = _skipping.set(True)
    try:
        yield
    finally:
        _skipping.reset(token)


def _write(tensor: Tensor, values: Tensor, name: str) -> Tensor:
    with switch_mode(grad=False):
        return tensor.assign(cast(values, tensor.array.dtype), name)


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform in [a, b)."""
    if _skipping.get():
        return tensor
    if random.is_torch_compatible():
        with switch_mode(grad=False):
            return tensor.uniform_(a, b, generator=generator)
    with switch_mode(grad=False):
        return _write(
            tensor,
            random.uniform(tensor.static_shape, generator=generator, device=tensor.device, kind="initial_uniform")
            * (b - a)
            + a,
            "uniform_",
        )


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with the given mean and standard deviation."""
    if _skipping.get():
        return tensor
    if random.is_torch_compatible():
        with switch_mode(grad=False):
            return tensor.normal_(mean, std, generator=generator)
    with switch_mode(grad=False):
        return _write(
            tensor,
            random.normal(tensor.static_shape, generator=generator, device=tensor.device, kind="initial_normal") * std
            + mean,
            "normal_",
        )


def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Any = None
) -> Tensor:
    """Normal, cut off outside [a, b], by the inverse of the distribution function."""
    if random.is_torch_compatible():
        with switch_mode(grad=False):
            return truncated_normal.normal_(tensor, mean, std, a, b, generator)
    low, high = (0.5 * (1 + math.erf((edge - mean) / std / math.sqrt(2))) for edge in (a, b))
    with switch_mode(grad=False):
        drawn = (
            random.uniform(tensor.static_shape, generator=generator, kind="initial_truncated_normal")
            .cpu()
            .array.astype(np.float64)
        )
    values = erfinv((low + (high - low) * drawn) * 2 - 1) * (std * math.sqrt(2)) + mean
    return _write(tensor, as_input(np.clip(values, a, b).astype(np.float32)).to(tensor.device), "trunc_normal_")


def erfinv(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The inverse of erf, to about 1e-6 relative (M. Giles, "Approximating the erfinv function", 2010)."""
    with np.errstate(divide="ignore"):
        w = -np.log((1 - x) * (1 + x))
    near = np.polyval(_NEAR, np.minimum(w, 5) - 2.5)
    far = np.polyval(_FAR, np.sqrt(np.minimum(np.maximum(w, 5), 60)) - 3)
    return np.asarray(x * np.where(w < 5, near, far))


_NEAR = [2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164, 0.246640727, 1.50140941]  # fmt: skip  # noqa: E501
_FAR = [-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047, 1.00167406, 2.83297682]  # fmt: skip  # noqa: E501


def constant_(tensor: Tensor, val: float) -> Tensor:
    """All elements one value."""
    with switch_mode(grad=False):
        return _write(tensor, full_like(tensor, val), "constant_")


def zeros_(tensor: Tensor) -> Tensor:
    return constant_(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    return constant_(tensor, 1.0)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform in ±gain·sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio, 2010)."""
    # in PyTorch's steps, as a bound that differs in its last bit would give other numbers
    bound = math.sqrt(3) * (gain * math.sqrt(2 / sum(_calculate_fan_in_and_fan_out(tensor))))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with standard deviation gain·sqrt(2 / (fan_in + fan_out))."""
    return normal_(tensor, 0.0, gain * math.sqrt(2 / sum(_calculate_fan_in_and_fan_out(tensor))), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(f"mode is not {mode!r}", expected="'fan_in' or 'fan_out'")
    return calculate_gain(nonlinearity, a) / math.sqrt(_calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"])


def kaiming_uniform_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Uniform in ±gain·sqrt(3 / fan) (He et al., 2015)."""
    bound = math.sqrt(3) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Normal with standard deviation gain / sqrt(fan)."""
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def eye_(tensor: Tensor) -> Tensor:
    """Ones on the diagonal of a matrix, zeros elsewhere."""
    if tensor.array.ndim != 2:
        raise ArgumentError("eye_ fills matrices", got=f"shape {list(tensor.static_shape)}")
    return _write(tensor, as_input(np.eye(*tensor.static_shape, dtype=np.float32)).to(tensor.device), "eye_")


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """A convolution weight of 3 to 5 dimensions that passes as many channels through unchanged as it can, in each
    group."""
    shape = tensor.static_shape
    if len(shape) not in (3, 4, 5) or shape[0] % groups:
        raise ArgumentError(
            "dirac_ fills weights of convolutions, 3 to 5 dimensions, whose output channels the groups divide",
            got=f"shape {list(shape)}, {groups} groups",
        )
    values = np.zeros(shape, np.float32)
    out = shape[0] // groups
    middle = tuple(size // 2 for size in shape[2:])
    for group in range(groups):
        for channel in range(min(out, shape[1])):
            values[(group * out + channel, channel, *middle)] = 1
    return _write(tensor, as_input(values).to(tensor.device), "dirac_")


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """A matrix of normal values, in each column of which a part `sparsity` of the rows is 0 (Martens, 2010)."""
    if tensor.array.ndim != 2:
        raise ArgumentError("sparse_ fills matrices", got=f"shape {list(tensor.static_shape)}")
    rows, columns = tensor.static_shape
    with switch_mode(grad=False):
        if random.is_torch_compatible():
            return _sparse_by_columns(tensor, sparsity, std, generator)
        values = random.normal((rows, columns), generator=generator, kind="initial_sparse").cpu().array * std
        order = random.uniform((rows, columns), generator=generator, kind="initial_sparse").cpu().array.argsort(0)
    values[order[: math.ceil(sparsity * rows)], np.arange(columns)] = 0
    return _write(tensor, as_input(values).to(tensor.device), "sparse_")


def _sparse_by_columns(tensor: Tensor, sparsity: float, std: float, generator: Any) -> Tensor:
    """As PyTorch draws: the rows of each column in an order of the default generator."""
    rows, columns = tensor.static_shape
    values = normal_(tensor, 0.0, std, generator).detach().cpu().array.copy()
    for column in range(columns):
        values[random.randperm(rows).array[: math.ceil(sparsity * rows)], column] = 0
    return _write(tensor, as_input(values).to(tensor.device), "sparse_")


def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Orthonormal rows or columns (Saxe et al., 2013), of the tensor as [shape[0], rest]."""
    _calculate_fan_in_and_fan_out(tensor)
    rows = tensor.static_shape[0]
    with switch_mode(grad=False):
        kind = tensor.array.dtype if random.is_torch_compatible() else None
        drawn = random.normal((rows, tensor.array.size // rows), kind, generator, kind="initial_normal").cpu().array
    q, r = np.linalg.qr(drawn.T if drawn.shape[0] < drawn.shape[1] else drawn)
    q = q * np.sign(np.diag(r))
    q = (q.T if drawn.shape[0] < drawn.shape[1] else q).reshape(tensor.static_shape) * gain
    return _write(tensor, as_input(np.ascontiguousarray(q, drawn.dtype)).to(tensor.device), "orthogonal_")


def linear_defaults_(weight: Tensor, bias: Tensor | None) -> None:
    """PyTorch's default for Linear and Conv: both uniform in ±1/sqrt(fan_in)."""
    fan_in, _ = _calculate_fan_in_and_fan_out(weight)
    if fan_in:
        kaiming_uniform_(weight, math.sqrt(5))
    bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
    if bias is not None:
        uniform_(bias, -bound, bound)


_no_grad_uniform_, _no_grad_normal_, _no_grad_trunc_normal_, _no_grad_fill_ = (
    uniform_,
    normal_,
    trunc_normal_,
    constant_,
)


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    """The fan that `mode` (``fan_in`` or ``fan_out``) names."""
    return _calculate_fan_in_and_fan_out(tensor)[("fan_in", "fan_out").index(mode.lower())]


def __getattr__(name: str) -> Any:
    from ox.nn import legacy_init

    if name in legacy_init.NAMES:
        return legacy_init.named(name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
