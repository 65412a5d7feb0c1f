"""Convolutions and pooling of one and two spatial dimensions on the compiled kernels; others are left to the next
executor."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ox.kernels import Library, address

Ints = Sequence[int]


class Steps(NamedTuple):
    """What a window does in two dimensions, the same for images of every size."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]  # pads before
    ends: tuple[int, ...]  # and behind


# The derived numbers are kept by what they follow from: to derive them takes as long as a small image's kernel.
_kept = lru_cache(maxsize=1024)


def _steps(attributes: dict[str, Any], rank: int) -> Steps | None:
    """None for pads that depend on sizes, and for what the operator itself refuses."""
    given = [attributes.get(name) for name in ("strides", "dilations", "pads")]
    # plain numbers: a size of a recording would keep the recording alive in the cache
    return _two_dimensions(rank, attributes.get("auto_pad", "NOTSET"), *[tuple(map(int, each or ())) for each in given])


@_kept
def _two_dimensions(rank: int, auto_pad: str, strides: Ints, dilations: Ints, pads: Ints) -> Steps | None:
    if auto_pad not in ("NOTSET", "VALID") or min((*strides, *dilations), default=1) < 1:
        return None
    if any(len(given) not in (0, wanted) for given, wanted in ((strides, rank), (dilations, rank), (pads, 2 * rank))):
        return None
    if auto_pad == "VALID" or not pads:
        pads = (0,) * (2 * rank)
    rest, none = (1,) * (2 - rank), (0,) * (2 - rank)
    return Steps(
        (*rest, *(strides or (1,) * rank)),
        (*rest, *(dilations or (1,) * rank)),
        (*none, *pads[:rank]),
        (*none, *pads[rank:]),
    )


def _two(sizes: Ints) -> tuple[int, ...]:
    return (1, *sizes) if len(sizes) == 1 else tuple(sizes)


@_kept
def _places(image: Ints, window: Ints, steps: Steps) -> tuple[int, ...]:
    """How many places the window has in each dimension."""
    each = zip(image, steps.begins, steps.ends, steps.dilations, window, steps.strides, strict=True)
    return tuple((n + b + e - d * (k - 1) - 1) // s + 1 for n, b, e, d, k, s in each)


@_kept
def _shape(
    samples: int, group: int, inputs: int, outputs: int, image: Ints, places: Ints, kernel: Ints, steps: Steps
) -> Any:
    """The numbers of ox::Convolution (convolution.h), in its order."""
    strides, dilations, begins, _ = steps
    return _numbers(samples, group, inputs, outputs, *image, *places, *kernel, *strides, *begins, *dilations)


def _numbers(*numbers: int) -> Any:
    made = np.array(numbers, np.int64)
    made.flags.writeable = False
    return made


def _usable(arrays: list[Any]) -> bool:
    return all(a is None or a.size for a in arrays) and arrays[0].ndim in (3, 4)


def _contiguous(library: Library, arrays: list[Any]) -> list[Any]:
    return [None if a is None else library.dense(a) for a in arrays]


def conv(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """Conv."""
    x, w, *rest = arrays
    bias = rest[0] if rest else None
    group = attributes.get("group", 1)
    rank = x.ndim - 2
    steps = _steps(attributes, rank)
    kernel = attributes.get("kernel_shape")
    if steps is None or not _usable(arrays) or w.ndim != x.ndim or group < 1 or x.shape[1] != w.shape[1] * group:
        return None
    if w.shape[0] % group or (kernel is not None and tuple(kernel) != w.shape[2:]):
        return None
    if bias is not None and bias.shape != w.shape[:1]:
        return None
    strides, dilations, begins, ends = steps
    image, window = _two(x.shape[2:]), _two(w.shape[2:])
    places = _places(image, window, steps)
    if min(places) < 1 or min(begins) < 0 or min(ends) < 0:
        return None
    y = library.empty((x.shape[0], w.shape[0], *places[2 - rank :]), np.float32)
    if group == 1 and strides == (1, 1) and not w.flags.c_contiguous:
        original = w.swapaxes(0, 1)[(..., *[slice(None, None, -1)] * rank)]
        before = tuple(d * (k - 1) - b for d, k, b in zip(dilations, window, begins, strict=True))
        if original.flags.c_contiguous and min(before) >= 0:
            # a kernel that was turned as a view: what is asked for is the gradient of the images, for the original
            x, _, bias = _contiguous(library, [x, None, bias])
            steps = Steps(strides, dilations, before, ends)
            shape = _shape(x.shape[0], 1, w.shape[0], w.shape[1], places, image, window, steps)
            library.ox_conv_backward_images(
                library.numbers(shape), address(x), address(original), 0 if bias is None else address(bias), address(y)
            )
            return y
    x, w, bias = _contiguous(library, [x, w, bias])
    shape = _shape(x.shape[0], group, w.shape[1], w.shape[0] // group, image, places, window, steps)
    library.ox_conv_forward(
        library.numbers(shape), address(x), address(w), 0 if bias is None else address(bias), address(y)
    )
    return y


def conv_transpose(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """ConvTranspose: the gradient of a convolution's images."""
    x, w, *rest = arrays
    bias = rest[0] if rest else None
    group = attributes.get("group", 1)
    rank = x.ndim - 2
    steps = _steps(attributes, rank)
    kernel = attributes.get("kernel_shape")
    if steps is None or attributes.get("output_shape") or not _usable(arrays):
        return None
    if w.ndim != x.ndim or x.shape[1] != w.shape[0] or group < 1 or w.shape[0] % group:
        return None
    if kernel is not None and tuple(kernel) != w.shape[2:]:
        return None
    if bias is not None and bias.shape != (w.shape[1] * group,):
        return None
    strides, dilations, begins, ends = steps
    more = list(attributes.get("output_padding") or [0] * rank)
    more = [0, *more] if rank == 1 else more
    places, window = _two(x.shape[2:]), _two(w.shape[2:])
    image = tuple(
        (p - 1) * s + d * (k - 1) + 1 - b - e + o
        for p, s, d, k, b, e, o in zip(places, strides, dilations, window, begins, ends, more, strict=True)
    )
    if min(image) < 1 or min(begins) < 0 or min(ends) < 0:
        return None
    y = library.empty((x.shape[0], w.shape[1] * group, *image[2 - rank :]), np.float32)
    x, w, bias = _contiguous(library, [x, w, bias])
    shape = _shape(x.shape[0], group, w.shape[1], w.shape[0] // group, image, places, window, steps)
    library.ox_conv_backward_images(
        library.numbers(shape), address(x), address(w), 0 if bias is None else address(bias), address(y)
    )
    return y


def conv_weights(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """ConvWeights: the gradient of a convolution's weights from its data and a cotangent."""
    x, g = arrays
    rank = x.ndim - 2
    steps = _steps(attributes, rank)
    group = attributes.get("group", 1)
    if steps is None or not _usable(arrays) or min(steps.begins) < 0 or min(steps.ends) < 0:
        return None
    kernel = tuple(map(int, attributes["kernel_shape"]))
    x, g = _contiguous(library, [x, g])
    inputs = x.shape[1] // group
    result = library.empty((g.shape[1], inputs, *kernel), np.float32)
    shape = _shape(
        x.shape[0], group, inputs, g.shape[1] // group, _two(x.shape[2:]), _two(g.shape[2:]), _two(kernel), steps
    )
    library.ox_conv_backward_weights(library.numbers(shape), address(g), address(x), address(result))
    return result


@_kept
def _pooled(image: Ints, window: Ints, steps: Steps) -> tuple[tuple[int, ...], Any] | None:
    """How many places the window has, and the numbers of ox_max_pool; None where a window could lie in the pads
    alone."""
    strides, dilations, begins, ends = steps
    places = _places(image, window, steps)
    if min(places) < 1 or any(not 0 <= pad < k for pad, k in zip((*begins, *ends), (*window, *window), strict=True)):
        return None
    if any(d > 1 and (b or e) for d, b, e in zip(dilations, begins, ends, strict=True)):
        return None
    return places, _numbers(*image, *places, *window, *strides, *begins, *dilations)


def max_pool(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """MaxPool with windows that stay inside the padded image."""
    (x,) = arrays
    kernel = tuple(map(int, attributes["kernel_shape"]))
    rank = len(kernel)
    steps = _steps(attributes, rank)
    if steps is None or attributes.get("ceil_mode") or attributes.get("storage_order") or not _usable(arrays):
        return None
    if x.ndim != rank + 2 or prod(x.shape[2:]) >= 1 << 31:
        return None
    found = _pooled(_two(x.shape[2:]), _two(kernel), steps)
    if found is None:
        return None
    places, numbers = found
    x = library.dense(x)
    y = library.empty((*x.shape[:2], *places[2 - rank :]), np.float32)
    chosen = library.empty(y.shape, np.int64) if attributes.get("outputs", 1) > 1 else None
    library.ox_max_pool(
        x.shape[0] * x.shape[1],
        library.numbers(numbers),
        address(x),
        address(y),
        0 if chosen is None else address(chosen),
    )
    return y if chosen is None else (y, chosen)


def max_pool_gradient(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """MaxPoolGradient."""
    g, places = arrays
    shape = tuple(attributes["shape"])
    if places.dtype != np.int64 or not (g.flags.c_contiguous and places.flags.c_contiguous):
        return None
    if not g.size or g.shape != places.shape:
        return None
    result = library.empty(shape, np.float32)
    library.ox_max_pool_backward(
        shape[0] * shape[1], prod(shape[2:]), prod(g.shape[2:]), address(g), address(places), address(result)
    )
    return result


def average_pool_gradient(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """AveragePoolGradient."""
    (g,) = arrays
    shape, kernel = tuple(attributes["shape"]), list(attributes["kernel_shape"])
    rank = len(kernel)
    steps = _steps(attributes, rank)
    if steps is None or not _usable(arrays) or not prod(shape) or g.ndim != rank + 2:
        return None
    strides, dilations, begins, ends = steps
    if min(*begins, *ends) < 0:
        return None
    image = _two(shape[2:])
    around = zip(image, begins, ends, strict=True)
    counted = [(-b, n + e) if attributes.get("count_include_pad") else (0, n) for n, b, e in around]
    g = library.dense(g)
    result = library.empty(shape, np.float32)
    numbers = [*image, *_two(g.shape[2:]), *_two(kernel), *strides, *begins, *dilations, *counted[0], *counted[1]]
    library.ox_average_pool_backward(
        shape[0] * shape[1], library.numbers(np.array(numbers, np.int64)), address(g), address(result)
    )
    return result
