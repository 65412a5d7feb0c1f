"""Convolutions and pooling of one and two spatial dimensions on the compiled kernels; others are left to the next
executor."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ox.kernels import Library, address

Ints = Sequence[int]


def _pairs(attributes: dict[str, Any], rank: int) -> tuple[list[int], list[int], list[int], list[int]] | None:
    """Strides, dilations, begins and ends of the pads, in two dimensions; None for pads that depend on sizes."""
    if attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return None
    strides = list(attributes.get("strides") or [1] * rank)
    dilations = list(attributes.get("dilations") or [1] * rank)
    pads = list(attributes.get("pads") or [0] * (2 * rank))
    if attributes.get("auto_pad") == "VALID":
        pads = [0] * (2 * rank)
    begins, ends = pads[:rank], pads[rank:]
    if rank == 1:
        strides, dilations, begins, ends = [1, *strides], [1, *dilations], [0, *begins], [0, *ends]
    return strides, dilations, begins, ends


def _two(sizes: Ints) -> tuple[int, ...]:
    return (1, *sizes) if len(sizes) == 1 else tuple(sizes)


def _shape(
    samples: int, group: int, inputs: int, outputs: int, image: Ints, places: Ints, kernel: Ints, pairs: Any
) -> Any:
    """The numbers of ox::Convolution (convolution.h), in its order."""
    strides, dilations, begins, _ = pairs
    return np.array(
        [samples, group, inputs, outputs, *image, *places, *kernel, *strides, *begins, *dilations], np.int64
    )


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
    pairs = _pairs(attributes, rank)
    kernel = attributes.get("kernel_shape")
    if pairs is None or not _usable(arrays) or w.ndim != x.ndim or x.shape[1] != w.shape[1] * group:
        return None
    if w.shape[0] % group or (kernel is not None and tuple(kernel) != w.shape[2:]):
        return None
    if bias is not None and bias.shape != w.shape[:1]:
        return None
    strides, dilations, begins, ends = pairs
    image, window = _two(x.shape[2:]), _two(w.shape[2:])
    places = [
        (n + b + e - d * (k - 1) - 1) // s + 1
        for n, b, e, d, k, s in zip(image, begins, ends, dilations, window, strides, strict=True)
    ]
    if min(places) < 1 or min(begins) < 0 or min(ends) < 0:
        return None
    y = library.empty((x.shape[0], w.shape[0], *places[2 - rank :]), np.float32)
    original = w.swapaxes(0, 1)[(..., *[slice(None, None, -1)] * rank)]
    if group == 1 and original.flags.c_contiguous and not w.flags.c_contiguous and strides == [1, 1]:
        # a kernel that was turned as a view: what is asked for is the gradient of the images, for the original
        before = [d * (k - 1) - b for d, k, b in zip(dilations, window, begins, strict=True)]
        if min(before) >= 0:
            x, _, bias = _contiguous(library, [x, None, bias])
            pairs = strides, dilations, before, ends
            shape = _shape(x.shape[0], 1, w.shape[0], w.shape[1], places, image, window, pairs)
            library.ox_conv_backward_images(
                library.numbers(shape), address(x), address(original), 0 if bias is None else address(bias), address(y)
            )
            return y
    x, w, bias = _contiguous(library, [x, w, bias])
    shape = _shape(x.shape[0], group, w.shape[1], w.shape[0] // group, image, places, window, pairs)
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
    pairs = _pairs(attributes, rank)
    kernel = attributes.get("kernel_shape")
    if pairs is None or attributes.get("output_shape") or not _usable(arrays):
        return None
    if w.ndim != x.ndim or x.shape[1] != w.shape[0] or w.shape[0] % group:
        return None
    if kernel is not None and tuple(kernel) != w.shape[2:]:
        return None
    if bias is not None and bias.shape != (w.shape[1] * group,):
        return None
    strides, dilations, begins, ends = pairs
    more = list(attributes.get("output_padding") or [0] * rank)
    more = [0, *more] if rank == 1 else more
    places, window = _two(x.shape[2:]), _two(w.shape[2:])
    image = [
        (p - 1) * s + d * (k - 1) + 1 - b - e + o
        for p, s, d, k, b, e, o in zip(places, strides, dilations, window, begins, ends, more, strict=True)
    ]
    if min(image) < 1 or min(begins) < 0 or min(ends) < 0:
        return None
    y = library.empty((x.shape[0], w.shape[1] * group, *image[2 - rank :]), np.float32)
    x, w, bias = _contiguous(library, [x, w, bias])
    shape = _shape(x.shape[0], group, w.shape[1], w.shape[0] // group, image, places, window, pairs)
    library.ox_conv_backward_images(
        library.numbers(shape), address(x), address(w), 0 if bias is None else address(bias), address(y)
    )
    return y


def conv_weights(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """ConvWeights: the gradient of a convolution's weights from its data and a cotangent."""
    x, g = arrays
    rank = x.ndim - 2
    pairs = _pairs(attributes, rank)
    group = attributes.get("group", 1)
    if pairs is None or not _usable(arrays) or min(pairs[2]) < 0 or min(pairs[3]) < 0:
        return None
    kernel = list(attributes["kernel_shape"])
    x, g = _contiguous(library, [x, g])
    inputs = x.shape[1] // group
    result = library.empty((g.shape[1], inputs, *kernel), np.float32)
    shape = _shape(
        x.shape[0], group, inputs, g.shape[1] // group, _two(x.shape[2:]), _two(g.shape[2:]), _two(kernel), pairs
    )
    library.ox_conv_backward_weights(library.numbers(shape), address(g), address(x), address(result))
    return result


def max_pool(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """MaxPool with windows that stay inside the padded image."""
    (x,) = arrays
    kernel = list(attributes["kernel_shape"])
    rank = len(kernel)
    pairs = _pairs(attributes, rank)
    if pairs is None or attributes.get("ceil_mode") or attributes.get("storage_order") or not _usable(arrays):
        return None
    if x.ndim != rank + 2 or x[0, 0].size >= 1 << 31:
        return None
    x = library.dense(x)
    strides, dilations, begins, ends = pairs
    image, window = _two(x.shape[2:]), _two(kernel)
    places = [
        (n + b + e - d * (k - 1) - 1) // s + 1
        for n, b, e, d, k, s in zip(image, begins, ends, dilations, window, strides, strict=True)
    ]
    if min(places) < 1 or any(not 0 <= pad < k for pad, k in zip((*begins, *ends), (*window, *window), strict=True)):
        return None
    if any(d > 1 and (b or e) for d, b, e in zip(dilations, begins, ends, strict=True)):
        return None  # a window could lie in the pads alone
    y = library.empty((*x.shape[:2], *places[2 - rank :]), np.float32)
    chosen = library.empty(y.shape, np.int64) if attributes.get("outputs", 1) > 1 else None
    shape = np.array([*image, *places, *window, *strides, *begins, *dilations], np.int64)
    library.ox_max_pool(
        x.shape[0] * x.shape[1],
        library.numbers(shape),
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
    pairs = _pairs(attributes, rank)
    if pairs is None or not _usable(arrays) or not prod(shape) or g.ndim != rank + 2:
        return None
    strides, dilations, begins, ends = pairs
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
