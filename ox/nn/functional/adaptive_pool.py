"""Pooling to a given output size: adaptive pooling and fractional max pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ox import ops, random
from ox.core.broadcast import expand_to
from ox.core.constants import ints, on_device_of, positions, scalar_like
from ox.core.symbolic import Dim, size_tensor
from ox.dtypes import float32, int64, onnx_type
from ox.errors import ArgumentError, ShapeError
from ox.nn.functional.arguments import batched, product, several, shaped, with_indices
from ox.ops.vision.resize_gradient import applied
from ox.tensors.tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d", "adaptive_max_pool3d_with_indices", "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices", "fractional_max_pool3d", "fractional_max_pool3d_with_indices",
]  # fmt: skip

OutputSize = int | None | Sequence[int | None]


def _sizes(output_size: OutputSize, sizes: Sequence[int], rank: int) -> list[Any]:
    given = output_size if isinstance(output_size, (tuple, list)) else [output_size] * rank
    if len(given) != rank or not all(n is None or (isinstance(n, int) and n >= 0) for n in given):
        raise ArgumentError(f"output_size is a size for each of {rank} dimensions", got=repr(output_size))
    return [n if wanted is None else wanted for n, wanted in zip(sizes, given, strict=True)]


def edges(n: int, out: int) -> tuple[Tensor, Tensor]:
    """Where each of `out` near-equal windows over n places begins and ends, int64 [out]."""
    i, many = positions(out), scalar_like(max(out, 1), positions(0))
    first = ops.Div(ops.Mul(i, _size(n)), many)
    last = ops.Div(ops.Add(ops.Mul(ops.Add(i, _size(1)), _size(n)), scalar_like(out - 1, first)), many)
    return first, last


def _size(n: int) -> Tensor:
    return size_tensor([n])


def _adaptive_avg(rank: int, input: Tensor, output_size: OutputSize) -> Tensor:
    one = batched(input, f"AdaptiveAvgPool{rank}d", rank)
    x = input if one is None else one
    sizes = x.shape[2:]
    wanted = _sizes(output_size, sizes, rank)
    plain = not any(isinstance(n, Dim) for n in (*sizes, *wanted))
    if all(not isinstance(n, Dim) and n == 1 for n in wanted):
        y = ops.GlobalAveragePool(x)
    elif plain and all(wanted) and all(n and n % w == 0 for n, w in zip(sizes, wanted, strict=True)):
        size = [n // w for n, w in zip(sizes, wanted, strict=True)]
        y = ops.AveragePool(x, kernel_shape=size, strides=size)
    else:
        y = x
        for i, (n, w) in enumerate(zip(sizes, wanted, strict=True)):
            if n is not w:
                y = applied(y, _averaging_matrix(n, w, x), 2 + i)
    return y if one is None else ops.Squeeze(y, ints(0))


def _averaging_matrix(n: int, out: int, like: Tensor) -> Tensor:
    """[out, n]: row i is the mean over the places of its window."""
    first, last = (ops.Unsqueeze(edge, ints(1)) for edge in edges(n, out))
    at, kind = positions(n), onnx_type(like.array.dtype)
    inside = ops.And(ops.GreaterOrEqual(at, first), ops.Less(at, last))
    return on_device_of(ops.Div(ops.Cast(inside, to=kind), ops.Cast(ops.Sub(last, first), to=kind)), like)


def adaptive_avg_pool1d(input: Tensor, output_size: OutputSize) -> Tensor:
    """Means over near-equal windows of [N, C, L] or [C, L]; see `adaptive_avg_pool2d`.
    `torch.nn.functional.adaptive_avg_pool1d`."""
    return _adaptive_avg(1, input, output_size)


def adaptive_avg_pool2d(input: Tensor, output_size: OutputSize) -> Tensor:
    """Means over as many near-equal windows as the output has places: [N, C, H', W'], None keeps a size.
    `torch.nn.functional.adaptive_avg_pool2d`.

    One place is ONNX GlobalAveragePool, sizes that divide are AveragePool, others products with the matrices of the
    windows; these also serve heights and widths that a recording leaves open.
    """
    return _adaptive_avg(2, input, output_size)


def adaptive_avg_pool3d(input: Tensor, output_size: OutputSize) -> Tensor:
    """The same over [N, C, D, H, W] or [C, D, H, W]. `torch.nn.functional.adaptive_avg_pool3d`."""
    return _adaptive_avg(3, input, output_size)


def _largest(x: Tensor, places: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The largest of the values at `places` [N or 1, C or 1, P, K] of the flattened images, and its place, both as
    [N, C, *sizes]."""
    images, P, K = x.shape[:2], places.shape[2], places.shape[3]
    places = on_device_of(places, x)
    flat = shaped(x, [*images, product(x.shape[2:])])
    met = expand_to(shaped(places, [*places.shape[:2], P * K]), [*images, P * K])
    values = shaped(ops.GatherElements(flat.detach(), met, axis=2), [*images, P, K])
    best = ops.ArgMax(values, axis=3)
    at = ops.GatherElements(expand_to(places, [*images, P, K]), best, axis=3)
    at = ops.Squeeze(at, ints(3))
    return shaped(ops.GatherElements(flat, at, axis=2), [*images, *sizes]), shaped(at, [*images, *sizes])


def _flat_places(lines: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """From the places [..., out, k] of the windows along each axis, those in the flattened image [..., P, K]."""
    total, rank = lines[0], 1
    lead = lines[0].ndim - 2
    for line, n in zip(lines[1:], sizes[1:], strict=True):
        # [..., outs, 1, taps, 1] and [..., 1 for each, out, 1 for each, k]
        outer = ops.Unsqueeze(total, ints(lead + rank, lead + 2 * rank + 1))
        inner = ops.Unsqueeze(line, ints(*range(lead, lead + rank), *range(lead + rank + 1, lead + 2 * rank + 1)))
        total = ops.Add(ops.Mul(outer, _size(n)), inner)
        rank += 1
    shape = total.shape
    outs, taps = shape[lead : lead + rank], shape[lead + rank :]
    return shaped(total, [*shape[:lead], product(outs), product(taps)])


def _adaptive_max(rank: int, input: Tensor, output_size: OutputSize, return_indices: bool) -> Any:
    one = batched(input, f"AdaptiveMaxPool{rank}d", rank)
    x = input if one is None else one
    sizes = x.shape[2:]
    wanted = _sizes(output_size, sizes, rank)
    if not all(x.static_shape[2:]):
        raise ShapeError("adaptive max pooling needs an input with elements", got=f"input {list(input.static_shape)}")
    plain = not any(isinstance(n, Dim) for n in (*sizes, *wanted))
    found: tuple[Tensor, Any]
    if not return_indices and all(not isinstance(n, Dim) and n == 1 for n in wanted):
        found = ops.GlobalMaxPool(x), None
    elif plain and all(wanted) and all(n % w == 0 for n, w in zip(sizes, wanted, strict=True)):
        size = [n // w for n, w in zip(sizes, wanted, strict=True)]
        y, flat = ops.MaxPool(x, kernel_shape=size, strides=size, outputs=2)
        found = y, ops.Mod(flat, scalar_like(product(sizes), flat))
    else:
        lines = []
        for n, w in zip(sizes, wanted, strict=True):
            first, last = (ops.Unsqueeze(edge, ints(1)) for edge in edges(n, w))
            steps = positions(n // max(w, 1) + 2)  # no window is longer; a shorter one meets its last place again
            lines.append(ops.Min(ops.Add(first, steps), ops.Sub(last, _size(1))))
        places = ops.Unsqueeze(_flat_places(lines, sizes), ints(0, 1))
        found = _largest(x, places, wanted)
    y, at = found if one is None else (t if t is None else ops.Squeeze(t, ints(0)) for t in found)
    return (y, at) if return_indices else y


def adaptive_max_pool1d(input: Tensor, output_size: OutputSize, return_indices: bool = False) -> Any:
    """Largest of near-equal windows of [N, C, L] or [C, L]; see `adaptive_max_pool2d`.
    `torch.nn.functional.adaptive_max_pool1d`."""
    return _adaptive_max(1, input, output_size, return_indices)


def adaptive_max_pool2d(input: Tensor, output_size: OutputSize, return_indices: bool = False) -> Any:
    """Largest of as many near-equal windows as the output has places: [N, C, H', W'], None keeps a size.
    `torch.nn.functional.adaptive_max_pool2d`.

    Args:
        return_indices: also where it stood, as int64 positions in the flattened [H, W] of its channel.
    """
    return _adaptive_max(2, input, output_size, return_indices)


def adaptive_max_pool3d(input: Tensor, output_size: OutputSize, return_indices: bool = False) -> Any:
    """The same over [N, C, D, H, W] or [C, D, H, W]. `torch.nn.functional.adaptive_max_pool3d`."""
    return _adaptive_max(3, input, output_size, return_indices)


adaptive_max_pool1d_with_indices = with_indices(adaptive_max_pool1d)
adaptive_max_pool2d_with_indices = with_indices(adaptive_max_pool2d)
adaptive_max_pool3d_with_indices = with_indices(adaptive_max_pool3d)


def _fractional(
    rank: int,
    input: Tensor,
    kernel_size: int | Sequence[int],
    output_size: int | Sequence[int] | None,
    output_ratio: float | Sequence[float] | None,
    return_indices: bool,
    samples: Tensor | None,
) -> Any:
    kernel = several(kernel_size, rank, "kernel_size", 1)
    if (output_size is None) == (output_ratio is None):
        raise ArgumentError(
            f"fractional_max_pool{rank}d takes either output_size or output_ratio",
            got=f"output_size={output_size}, output_ratio={output_ratio}",
        )
    one = batched(input, f"FractionalMaxPool{rank}d", rank)
    x = input if one is None else one
    sizes = x.static_shape[2:]
    if output_size is not None:
        wanted = several(output_size, rank, "output_size", 1)
    else:
        ratios: Any = output_ratio if isinstance(output_ratio, (tuple, list)) else [output_ratio] * rank
        if len(ratios) != rank or not all(0 < r < 1 for r in ratios):
            raise ArgumentError("output_ratio is between 0 and 1", got=repr(output_ratio))
        wanted = tuple(int(n * r) for n, r in zip(sizes, ratios, strict=True))
    if any(w + k - 1 > n for w, k, n in zip(wanted, kernel, sizes, strict=True)):
        raise ShapeError(
            f"windows of {kernel} at {wanted} places do not fit into {list(sizes)}",
            expected="output_size + kernel_size - 1 of at most the input's size",
        )
    if samples is None:
        samples = random.uniform(
            [*x.shape[:2], rank], x.array.dtype if random.is_torch_compatible() else float32, kind="fractional_max_pool"
        )
    lines = []
    order = range(rank) if rank == 3 else range(rank - 1, -1, -1)  # PyTorch's 2-D windows draw the width first
    for i, n, w, k in zip(order, sizes, wanted, kernel, strict=True):
        u = ops.Gather(samples, ints(i), axis=2)  # [N, C, 1]
        lines.append(on_device_of(ops.Add(ops.Unsqueeze(_starts(u, n, w, k), ints(3)), positions(k)), x))
    y, at = _largest(x, _flat_places(lines, sizes), wanted)
    if one is not None:
        y, at = ops.Squeeze(y, ints(0)), ops.Squeeze(at, ints(0))
    return (y, at) if return_indices else y


def _starts(u: Tensor, n: int, out: int, k: int) -> Tensor:
    """Where windows begin for random numbers u [N, C, 1]: near-equal steps with a random phase, int64 [N, C, out]."""
    whole = onnx_type(int64)
    alpha = scalar_like((n - k) / (out - 1) if out > 1 else 0.0, u)
    i = ops.Cast(positions(out), to=onnx_type(u.array.dtype))
    at = ops.Sub(ops.Cast(ops.Mul(ops.Add(i, u), alpha), to=whole), ops.Cast(ops.Mul(u, alpha), to=whole))
    last = ops.Equal(positions(out), ints(out - 1))
    return ops.Where(last, ints(n - k), at)


def fractional_max_pool2d(
    input: Tensor,
    kernel_size: int | Sequence[int],
    output_size: int | Sequence[int] | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Largest of windows whose places are drawn anew for each image and channel (B. Graham, "Fractional max-pooling",
    2014). `torch.nn.functional.fractional_max_pool2d`. A recording fixes height and width.

    Args:
        output_size: height and width of the output, or
        output_ratio: what part of the input's, between 0 and 1.
    """
    return _fractional(2, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


def fractional_max_pool3d(
    input: Tensor,
    kernel_size: int | Sequence[int],
    output_size: int | Sequence[int] | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """The same over [N, C, D, H, W] or [C, D, H, W]. `torch.nn.functional.fractional_max_pool3d`."""
    return _fractional(3, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


fractional_max_pool2d_with_indices = with_indices(fractional_max_pool2d)
fractional_max_pool3d_with_indices = with_indices(fractional_max_pool3d)
