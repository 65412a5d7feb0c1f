"""Random numbers from explicit state: a key and a counter, the same bits on every device, eager and recorded.

Under `torch_compatible(True)` they are PyTorch's instead, from the Mersenne Twister of `ox.core.mt19937`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ox.autograd.grad_mode import no_grad
from ox.core import operator
from ox.core.constants import is_made_on_gpu, scalar
from ox.core.generator import Generator, default_generator, words_of
from ox.core.memory_format import check_ignored_format, preserve_format
from ox.core.mode import MODE, cannot_record, switch_mode
from ox.core.mt19937 import Words, discrete, tensors
from ox.core.mt19937.switch import is_torch_compatible, torch_compatible
from ox.core.operator import OPS
from ox.core.promotion import cast
from ox.core.random_stream import stream_version
from ox.core.symbolic import size_tensor
from ox.devices.gpu import elementwise as cuda_elements
from ox.devices.gpu import kernels as cuda_kernels
from ox.dtypes import DType, bfloat16, float16, float32, get_default_dtype, int64, is_floating
from ox.errors import ArgumentError, DTypeError, RecordError, ShapeError
from ox.functions.dimension_arguments import sizes_of
from ox.functions.keyword_arguments import factory, factory_without_out, keywords
from ox.functions.zero_gradients import with_zero_gradient
from ox.ops.random import rng as random_operators

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor


__all__ = [
    "Generator",
    "bernoulli",
    "default_generator",
    "fork_rng",
    "get_rng_state",
    "get_state",
    "initial_seed",
    "is_torch_compatible",
    "manual_seed",
    "normal",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
    "seed",
    "set_rng_state",
    "set_state",
    "stream_version",
    "torch_compatible",
    "uniform",
]


def manual_seed(seed: int) -> Generator:
    """Seed the default generator. `torch.manual_seed`."""
    return default_generator.manual_seed(seed)


def get_state() -> Any:
    """The state of the default generator; see `Generator.get_state`."""
    return default_generator.get_state()


def set_state(new_state: Any) -> None:
    """Put the default generator back to a state of `get_state`."""
    default_generator.set_state(new_state)


def seed() -> int:
    """Seed the default generator from the operating system, and return that seed. `torch.seed`."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed that the default generator began with. `torch.initial_seed`."""
    return default_generator.initial_seed()


@contextmanager
def fork_rng(devices: Any = None, enabled: bool = True) -> Iterator[None]:
    """Put the default generator back after a block. `torch.random.fork_rng`; one generator serves every device."""
    state = default_generator._snapshot()
    try:
        yield
    finally:
        if enabled:
            default_generator._restore(state)


get_rng_state, set_rng_state = get_state, set_state


def _sample(
    op: str,
    shape: Sequence[int],
    dtype: DType | None,
    generator: Generator | None,
    like: Any = None,
    device: Any = None,
    kind: str | None = None,
) -> Tensor:
    """Numbers on a device, None for the host. In a recording, and PyTorch's, they are made on the host."""
    kind = kind or _KINDS[op]
    sizes = sizes_of((shape,))
    if any(size < 0 for size in sizes):
        raise ShapeError("a tensor has no negative sizes", got=str(sizes))
    dtype = dtype or get_default_dtype()
    if not is_floating(dtype):
        raise DTypeError("random numbers of this kind are floats", got=str(dtype), hint="ox.randint(low, high, size)")
    words = words_of(generator)
    if words is not None:
        array = np.empty(sizes, dtype) if like is None else np.empty_like(like, dtype)
        fill = tensors.uniform if op == "ox.RandomUniform" else tensors.normal
        return operator.make_tensor(fill(words, array))
    generator = generator or default_generator
    recording = MODE.get().recording
    if recording is not None:
        recording.on_random(generator)
    with no_grad():
        if is_made_on_gpu(device) and MODE.get().executor is None and cuda_kernels.are_on():
            key, counter = generator._skip(prod(sizes), kind)
            drawn = operator.make_tensor(cuda_elements.random(op, key.array, counter.array, sizes, str(device)))
        else:
            drawn, generator.counter = OPS[op](generator.key_of(kind), generator.counter, size_tensor(sizes))
        bits = _BITS.get(dtype) if op == "ox.RandomUniform" else None
        if bits is not None:
            # cut to what the type holds, for rounding would make ones
            scale = scalar(float(1 << bits), float32)
            drawn = OPS["Div"](OPS["Floor"](OPS["Mul"](drawn, scale)), scale)
        return cast(drawn, dtype)


_BITS = {float16: 11, bfloat16: 8}
_KINDS = {"ox.RandomUniform": "uniform", "ox.RandomNormal": "normal"}


def _for_kernels(shape: Sequence[int], kind: str) -> Any:
    with switch_mode(recording=None, grad=False):
        return uniform(shape, float32, kind=kind).array


random_operators.source = _for_kernels


def uniform(
    shape: Sequence[int],
    dtype: DType | None = None,
    generator: Generator | None = None,
    device: Any = None,
    *,
    kind: str = "uniform",
) -> Tensor:
    """Numbers in [0, 1), 24 random bits each, or as many as the type holds; sizes may be `ox.Dim`.

    Args:
        device: where they are made, if that is possible: not in a recording, and not PyTorch's.
        kind: what they are drawn for, one of `ox.core.random_stream.KINDS`: each has numbers of its own.
    """
    return _sample("ox.RandomUniform", shape, dtype, generator, device=device, kind=kind)


def normal(
    shape: Sequence[int],
    dtype: DType | None = None,
    generator: Generator | None = None,
    device: Any = None,
    *,
    kind: str = "normal",
) -> Tensor:
    """Standard normal numbers (Box and Muller); sizes may be `ox.Dim`. `device` and `kind` as in `uniform`."""
    return _sample("ox.RandomNormal", shape, dtype, generator, device=device, kind=kind)


def bits(count: int, generator: Generator | None = None, *, kind: str = "bits") -> NDArray[np.uint32]:
    """uint32 [count] of random bits, on the host; a constant under a recording."""
    generator = generator or default_generator
    recording = MODE.get().recording
    if recording is not None:
        recording.on_random(generator)
    with switch_mode(recording=None, grad=False):
        drawn, generator.counter = OPS["ox.Philox"](generator.key_of(kind), generator.counter, size_tensor((count,)))
    return drawn.array


def _to_device(drawn: Tensor, device: Any, requires_grad: bool) -> Tensor:
    there = device is None or device == drawn.device or not isinstance(drawn.array, np.ndarray)  # drawn on a GPU
    drawn = drawn if there else drawn.to(device)
    return drawn.requires_grad_() if requires_grad else drawn


def _of_shape(draw: str, name: str, what: str) -> Any:
    def function(
        *size: Any,
        generator: Generator | None = None,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Tensor:
        return _to_device(_sample(draw, sizes_of(size), dtype, generator, device=device), device, requires_grad)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{what}, of the sizes given. `torch.{name}`."
    return factory(function)


def _of_another(draw: str, name: str, what: str) -> Any:
    def function(
        input: Any,
        *,
        generator: Generator | None = None,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
        memory_format: Any = None,
    ) -> Tensor:
        if dtype is None and input.is_complex():
            raise input.refused(name)
        check_ignored_format(memory_format)
        like = input.array if memory_format is None or memory_format == preserve_format else None
        like = like if isinstance(like, np.ndarray) else None
        kind = dtype or input.array.dtype
        where = device or input.device
        return _to_device(_sample(draw, input.shape, kind, generator, like, where), where, requires_grad)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{what}, of the shape and type of `input`. `torch.{name}`."
    return factory_without_out(function)


rand = _of_shape("ox.RandomUniform", "rand", "Uniform in [0, 1)")
randn = _of_shape("ox.RandomNormal", "randn", "Standard normal")
rand_like = _of_another("ox.RandomUniform", "rand_like", "Uniform in [0, 1)")
randn_like = _of_another("ox.RandomNormal", "randn_like", "Standard normal")


@factory
def randint(
    low: int = 0,
    high: Any = None,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Integers in [low, high), or [0, low) with one bound; equally likely to one part in 4,096. `torch.randint`.

    Raises:
        ArgumentError: an empty range, or one wider than 2^32.
    """
    if size is None:
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    sizes = sizes_of((size,))
    count = high - low
    words = words_of(generator)
    if words is not None and count > 0:
        return _to_device(
            _integers(words, np.empty(sizes, np.dtype(int64 if dtype is None else dtype)), low, high),
            device,
            requires_grad,
        )
    if not 0 < count <= 1 << 32:
        raise ArgumentError("randint needs a range of 1 to 2^32 integers", got=f"[{low}, {high})")
    drawn = uniform(sizes, float32, generator, device, kind="integers")
    if count <= 1 << 12:
        whole = cast(OPS["Mul"](drawn, scalar(count, float32)), int64)
    else:
        # 24 bits do not fill a wide range evenly: 48 bits, and what a division leaves
        more, unit = uniform(sizes, float32, generator, device, kind="integers"), scalar(float(1 << 24), float32)
        high_bits, low_bits = (cast(OPS["Mul"](part, unit), int64) for part in (drawn, more))
        bits = OPS["Add"](OPS["Mul"](high_bits, scalar(1 << 24, int64)), low_bits)
        whole = OPS["Mod"](bits, scalar(count, int64))
    whole = OPS["Add"](whole, scalar(low, int64))
    return _to_device(cast(whole, np.dtype(int64 if dtype is None else dtype)), device, requires_grad)


def _integers(words: Words, like: Any, low: int, high: int) -> Tensor:
    return operator.make_tensor(tensors.integers(words, like, low, high))


@factory_without_out
def randint_like(
    input: Tensor,
    low: int = 0,
    high: int | None = None,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """`randint` of the shape and type of `input`. `torch.randint_like`."""
    check_ignored_format(memory_format)
    low, high = (0, low) if high is None else (low, high)
    kind = dtype or input.array.dtype
    words = words_of(generator)
    if words is not None and high > low and isinstance(input.array, np.ndarray):
        return _to_device(
            _integers(words, np.empty_like(input.array, kind), low, high), device or input.device, requires_grad
        )
    drawn = randint(low, high, input.shape, generator=generator, dtype=kind)
    return _to_device(drawn, device or input.device, requires_grad)


@factory
def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """0 to n - 1 in random order. `torch.randperm`. Its order is a constant under a recording.

    Raises:
        ArgumentError: a negative n.
    """
    if n < 0:
        raise ArgumentError("randperm needs a count of 0 or more", got=str(n))
    order = permutation(n, generator).astype(int64 if dtype is None else dtype)
    return _to_device(operator.make_tensor(order), device, requires_grad)


def permutation(n: int, generator: Generator | None = None, *, kind: str = "permutation") -> NDArray[np.int64]:
    """0 to n - 1 in random order, on the host. `kind` as in `uniform`.

    Raises:
        RecordError: in a call that `ox.compile` records.
    """
    recording = MODE.get().recording
    if recording is not None and recording.guarded:
        cannot_record(
            RecordError(
                "randperm has no form in operators, so it cannot be recorded", hint="draw before, and pass it in"
            )
        )
    if recording is not None:
        recording.on_random(generator or default_generator)
    if is_torch_compatible():
        with switch_mode(recording=None):
            words = words_of(generator)
        assert words is not None
        return discrete.permutation(words, n)
    with switch_mode(recording=None):
        drawn = [uniform((n,), float32, generator, kind=kind) for _ in range(2)]
    return np.lexsort((drawn[1].array, drawn[0].array))  # the second draw breaks ties of the first


def as_numpy(x: Any) -> Any:
    """The tensor's array on the host."""
    return x.array if isinstance(x.array, np.ndarray) else x.detach().cpu().array


@keywords
def bernoulli(input: Any, p: float | None = None, *, generator: Generator | None = None) -> Tensor:
    """1 with probability `input` (or `p` everywhere), else 0, in the shape and type of `input`. `torch.bernoulli`.

    Raises:
        ArgumentError: a probability outside [0, 1].
    """
    chance: Any = scalar(p, float32) if p is not None else cast(input, float32)
    if isinstance(chance.array, np.ndarray) and not ((chance.array >= 0) & (chance.array <= 1)).all():
        raise ArgumentError("a probability must be between 0 and 1")
    words = words_of(generator)
    if words is not None:
        probabilities: Any = as_numpy(input) if p is None else p
        made = tensors.bernoulli(words, np.empty(input.static_shape), probabilities, input.array.dtype)
        return _to_device(operator.make_tensor(made), input.device, False)
    drawn = _to_device(uniform(input.shape, float32, generator, kind="bernoulli"), input.device, False)
    with no_grad():
        chosen: Tensor = cast(OPS["Less"](drawn, chance), input.array.dtype)
    result: Tensor = chosen if p is not None else with_zero_gradient(chosen, input)
    return result
